"""What is known of a model before litellm is loaded."""

from __future__ import annotations

import json

import pytest

from bubbot.models.catalogue.sizes import (
    find_input_limit,
    find_mode,
    find_output_limit,
    find_price,
    find_second_price,
    find_size_list,
    find_traits,
)
from bubbot.models.openai.providers import PROVIDERS
from bubbot.ports.model import ModelPrice, PriceTier, Usage

NANOS_PER_USD = 1_000_000_000


pytestmark = pytest.mark.usefixtures("loaded_litellm")

KNOWN = [
    "openai/gpt-4o",
    "anthropic/claude-sonnet-4-5",
    "gemini/gemini-2.5-pro",
    "vertex_ai/gemini-2.5-flash",
    "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
]


@pytest.mark.parametrize("name", KNOWN)
def test_the_size_is_the_one_litellm_tells(name: str) -> None:
    from bubbot.models.litellm.quiet import litellm

    assert find_input_limit(name) == litellm.get_model_info(name)["max_input_tokens"]


@pytest.mark.parametrize("name", ["openai/nobody-knows-this", "nowhere/gpt-4o", "scripted", 'odd/"name{'])
def test_an_unknown_model_has_no_size(name: str) -> None:
    assert find_input_limit(name) is None


def test_the_setting_overrides_the_list() -> None:
    assert find_traits("openai/gpt-4o", context_tokens=1000).context_tokens == 1000


def test_only_providers_that_take_it_are_sent_an_assistant_message_first() -> None:
    assert find_traits("openai/gpt-4o").first_assistant
    assert not find_traits("openai/gpt-4o", own_address=True).first_assistant
    assert not find_traits("anthropic/claude-sonnet-4-5").first_assistant


@pytest.mark.parametrize("name", KNOWN)
def test_whether_a_model_sees_is_what_litellm_tells(name: str) -> None:
    from bubbot.models.litellm.quiet import litellm

    assert find_traits(name).images == bool(litellm.get_model_info(name)["supports_vision"])


def test_some_do_not_and_of_unknown_ones_nobody_thinks_so() -> None:
    assert (find_traits("openai/gpt-3.5-turbo").images, find_traits("openai/nobody-knows-this").images) == (
        False,
        False,
    )


@pytest.mark.parametrize("name", KNOWN)
def test_the_price_and_the_longest_answer_are_those_litellm_tells(name: str) -> None:
    from bubbot.models.litellm.quiet import litellm

    info, found = litellm.get_model_info(name), find_price(name)
    assert found is not None
    assert found.input == pytest.approx(info["input_cost_per_token"] * 1e6)
    assert found.output == pytest.approx(info["output_cost_per_token"] * 1e6)
    assert found.cached == pytest.approx((info["cache_read_input_token_cost"] or 0) * 1e6)
    assert find_output_limit(name) == info["max_output_tokens"]


@pytest.mark.parametrize("name", ["openai/nobody-knows-this", "nowhere/gpt-4o", "scripted", "ollama/llama3"])
def test_what_is_in_no_list_has_no_price(name: str) -> None:
    assert find_price(name) is None


def test_behind_an_own_address_only_the_open_protocol_has_no_price() -> None:
    assert find_price("openai/gpt-4o", own_address=True) is None
    assert find_price("anthropic/claude-sonnet-4-5", own_address=True) == find_price("anthropic/claude-sonnet-4-5")


@pytest.mark.parametrize("tokens", [1_000, 200_000, 200_001, 500_000])
def test_a_long_request_costs_what_litellm_reckons_for_it(tokens: int) -> None:
    from bubbot.models.litellm.quiet import litellm

    found, name = find_price("gemini/gemini-2.5-pro"), "gemini/gemini-2.5-pro"
    assert found is not None
    read, wrote = litellm.cost_per_token(model=name, prompt_tokens=tokens, completion_tokens=1_000)
    assert found.cost_nanousd(Usage(tokens, 1_000)) == pytest.approx((read + wrote) * NANOS_PER_USD)


def test_a_list_of_tiers_costs_what_litellm_reckons_for_it() -> None:
    """As Qwen and Doubao have it. Where reasoning costs more, all of the answer is taken for it."""
    from bubbot.models.litellm.quiet import litellm

    path = find_size_list()
    assert path
    compared = 0
    for key, entry in json.loads(path.read_bytes()).items():
        if entry.get("mode") != "chat" or entry.get("litellm_provider") != "dashscope" or "tiered_pricing" not in entry:
            continue
        found, edges = find_price(key), [int(tier["range"][0]) for tier in entry["tiered_pricing"]]
        assert found is not None, key
        for tokens in (1_000, *edges[1:], *(edge + 1 for edge in edges[1:])):
            details = {"reasoning_tokens": 500 if "output_cost_per_reasoning_token" in str(entry) else 0}
            usage = litellm.Usage(
                prompt_tokens=tokens,
                completion_tokens=500,
                total_tokens=tokens + 500,
                completion_tokens_details=details,
            )
            cost = sum(litellm.cost_per_token(model=key, usage_object=usage)) * NANOS_PER_USD
            assert found.cost_nanousd(Usage(tokens, 500)) == pytest.approx(cost, abs=1), (key, tokens)
            compared += 1
    assert compared > 30


def test_a_tier_holds_above_its_tokens() -> None:
    made = ModelPrice(1.0, 2.0, 0.5, (PriceTier(100, 10.0, 20.0, 5.0), PriceTier(200, 100.0, 200.0)))
    assert [made.cost_nanousd(Usage(read, 1, 10)) for read in (100, 101, 201)] == [97_000, 980_000, 20_300_000]


def test_what_a_direct_call_costs_is_what_litellm_reckons_for_it() -> None:
    """Except where the list has no price for the cache: litellm takes a share of its own there for Fireworks.

    And except where the price depends on the hour: a reservation takes the higher one.
    """
    from bubbot.models.litellm.quiet import litellm

    path = find_size_list()
    assert path
    listed = {name: entry for name, entry in json.loads(path.read_bytes()).items() if entry.get("mode") == "chat"}
    compared = 0
    for key, entry in list(listed.items())[::3]:
        provider = entry["litellm_provider"]
        name = key if key.startswith(f"{provider}/") else f"{provider}/{key}"
        price = find_price(name) if provider in PROVIDERS.keys() - {"azure"} else None
        if price is None or "off_peak_pricing" in entry:
            continue
        for read, written, cached in ((1_000, 500, 0), (300_000, 500, 0), (300_000, 500, 1_000)):
            if cached and price.cached is None:
                continue
            usage = litellm.Usage(
                prompt_tokens=read,
                completion_tokens=written,
                total_tokens=read + written,
                prompt_tokens_details={"cached_tokens": cached},
            )
            cost = sum(litellm.cost_per_token(model=name, usage_object=usage)) * NANOS_PER_USD
            assert price.cost_nanousd(Usage(read, written, cached)) == pytest.approx(cost, abs=1), name
            compared += 1
    assert compared > 200


@pytest.mark.parametrize(
    ("name", "mode"), [("openai/gpt-4o", "chat"), ("openai/gpt-5-pro", "responses"), ("openai/nobody-knows-this", None)]
)
def test_the_list_says_how_a_model_is_called(name: str, mode: str | None) -> None:
    assert find_mode(name) == mode


def test_a_recording_is_paid_by_the_second() -> None:
    from bubbot.models.litellm.quiet import litellm

    info = litellm.get_model_info("whisper-1", custom_llm_provider="openai")
    assert find_second_price("openai/whisper-1") == info["output_cost_per_second"]
    assert find_second_price("openai/gpt-4o") is None
