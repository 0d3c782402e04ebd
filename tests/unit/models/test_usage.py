"""What a call cost: counts that can be true, prices, and counts of our own."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from bubbot.models.catalogue.sizes import find_output_limit, find_price, find_second_price
from bubbot.models.usage import UsageMeter
from bubbot.ports.model import ModelRequest, Usage

DEFAULT_OUTPUT_LIMIT_TOKENS = 1_000_000
MAX_ADDED_TOKENS = 100_000


REQUEST = ModelRequest("", ({"role": "user", "content": "x" * 1_000},))
LARGEST = len(REQUEST.as_bytes()) + MAX_ADDED_TOKENS
KNOWN, UNKNOWN, HEARS = "deepseek/deepseek-chat", "openai/nobody-knows-this", "groq/whisper-large-v3"


def meter(model: str = UNKNOWN, *, own_address: bool = False) -> UsageMeter:
    return UsageMeter(model, own_address=own_address)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(0, 0),
        Usage(MAX_ADDED_TOKENS, 1),
        Usage(LARGEST, 1),
        Usage(LARGEST, DEFAULT_OUTPUT_LIMIT_TOKENS),
        Usage(1, 1, 10**12),  # what was cached is cut elsewhere
    ],
)
def test_counts_that_can_be_true_are_taken_as_they_are(usage: Usage, caplog: pytest.LogCaptureFixture) -> None:
    assert meter().check(usage, REQUEST) is usage
    assert caplog.records == []


@pytest.mark.parametrize(
    "usage",
    [Usage(LARGEST + 1, 1), Usage(1, DEFAULT_OUTPUT_LIMIT_TOKENS + 1), Usage(-1, 1), Usage(1, -1), Usage(LARGEST, -1)],
)
def test_counts_that_cannot_be_true_are_not_taken_and_said_so(usage: Usage, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bubbot.models.usage"):
        assert meter().check(usage, REQUEST) is None
    assert f"reports {usage.input_tokens} tokens read and {usage.output_tokens} written" in caplog.text
    assert meter().check(None, REQUEST) is None


def test_no_answer_is_longer_than_its_model_writes() -> None:
    longest = find_output_limit(KNOWN)
    assert longest
    assert meter(KNOWN).check(Usage(1, longest), REQUEST) is not None
    assert meter(KNOWN).check(Usage(1, longest + 1), REQUEST) is None


def test_a_call_costs_its_price_if_that_is_known() -> None:
    price, usage = find_price(KNOWN), Usage(1_000, 100, 10)
    assert price is not None
    assert price.cached is not None
    dollars = (990 * price.input + 10 * price.cached + 100 * price.output) / 1e6
    assert meter(KNOWN).cost(usage) == meter(KNOWN, own_address=True).cost(usage) == pytest.approx(dollars, abs=1e-9)
    assert meter(KNOWN).cost(Usage()) is None
    assert meter(UNKNOWN).cost(usage) is None
    assert meter("openai/gpt-4o", own_address=True).cost(usage) is None  # the server there only borrows the name


@pytest.mark.parametrize("seconds", [None, "30", 0, []])
def test_a_recording_of_unknown_length_has_no_cost(seconds: object) -> None:
    assert meter(HEARS).transcription_cost(Usage(), seconds) is None
    assert meter(UNKNOWN).transcription_cost(Usage(), 30) is None


def test_a_recording_costs_its_tokens_before_its_seconds() -> None:
    price, tokens = find_second_price(HEARS), find_price("openai/gpt-4o-transcribe")
    assert price
    assert tokens
    assert meter(HEARS).transcription_cost(Usage(), 30) == pytest.approx(30 * price)
    hears = meter("openai/gpt-4o-transcribe")
    assert hears.transcription_cost(Usage(100, 0), 30) == pytest.approx(100 * tokens.input / 1e6)
    assert hears.transcription_cost(Usage(0, 10), 30) == pytest.approx(10 * tokens.output / 1e6)


async def test_only_openais_own_models_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """No tokenizer is loaded for the others, and one that fails costs no answer."""
    for model, own_address in (("openai/gpt-4o", True), (UNKNOWN, False)):
        assert await meter(model, own_address=own_address).count(REQUEST) is None
        assert await meter(model, own_address=own_address).count_usage(REQUEST, "hello") is None
    assert caplog.records == []
    broken: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": ({"id": "1"},)}
    assert await meter().count_usage(ModelRequest("", (broken,)), "hello") is None
    assert [line.levelname for line in caplog.records] == ["WARNING"]
