"""Both ways to a provider against `llmock`, a server that is not ours, and its verdict on how we handled its faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from llmock.pytest_plugin import LLMock

from bubbot.errors import ModelOverflow, ModelRefused, ModelUnavailable
from bubbot.ports.model import Model, ModelOptions, ModelReply, ModelRequest, ToolSpec
from tests.e2e.model_paths import make_model, model_path  # noqa: F401 - a fixture among them

# Warnings of pydantic about litellm's own code, and of the judge's: not ours to mend.
pytestmark = [
    pytest.mark.usefixtures("loaded_litellm", "model_path"),  # one of its two providers is litellm's in any case
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]

WEATHER = ToolSpec(
    "get_weather", "The weather of a city.", {"type": "object", "properties": {"city": {"type": "string"}}}
)
OPENAI, ANTHROPIC = "openai/gpt-4o-mini", "anthropic/claude-haiku-4-5"
NAMES = pytest.mark.parametrize("name", [OPENAI, ANTHROPIC])


@asynccontextmanager
async def asking(judge: LLMock, name: str, **settings: Any) -> AsyncIterator[Model]:
    address = judge.base_url(name.partition("/")[0])
    values = {"api_base": address, "api_key": "sk-x", "retry_wait": 0.1, **settings}
    model = make_model(ModelOptions(name, Path("unused"), values))
    try:
        yield model
    finally:
        await model.aclose()


async def asked(judge: LLMock, name: str, *tools: ToolSpec, **settings: Any) -> ModelReply:
    request = ModelRequest("Be brief.", ({"role": "user", "content": "What is the weather in Paris?"},), tools)
    async with asyncio.timeout(60), asking(judge, name, **settings) as model:
        [reply] = [event async for event in model.stream(request) if isinstance(event, ModelReply)]
        return reply


@NAMES
async def test_it_streams(llmock: LLMock, name: str) -> None:
    llmock.reply("Sunny, and that is all.")
    reply = await asked(llmock, name)
    assert (reply.text, reply.finish) == ("Sunny, and that is all.", "stop")
    assert reply.usage.output_tokens > 0
    llmock.assert_resilient(strict=True)


async def test_a_known_model_has_a_price(llmock: LLMock) -> None:
    reply = await asked(llmock, ANTHROPIC)
    assert reply.usage.cost is not None
    assert 0 < reply.usage.cost < 0.1


@NAMES
async def test_it_calls_tools(llmock: LLMock, name: str) -> None:
    llmock.call_tool("get_weather", {"city": "Paris"})
    reply = await asked(llmock, name, WEATHER)
    [call] = reply.calls
    assert (call.name, call.arguments.replace(" ", "")) == ("get_weather", '{"city":"Paris"}')
    assert reply.finish == "tool_calls"


@NAMES
@pytest.mark.parametrize("status", [429, 503])
async def test_it_waits_as_long_as_it_is_asked_to(llmock: LLMock, name: str, status: int) -> None:
    llmock.fail(status, retry_after=0.4)
    assert (await asked(llmock, name)).text
    assert len(llmock.requests) == 2
    llmock.assert_resilient(strict=True)


@NAMES
async def test_it_tries_a_broken_provider_again_with_growing_waits(llmock: LLMock, name: str) -> None:
    llmock.fail(500, times=3)
    assert (await asked(llmock, name)).text
    assert len(llmock.requests) == 4
    llmock.assert_resilient(strict=True)


@NAMES
async def test_it_does_not_try_a_refusal_again(llmock: LLMock, name: str) -> None:
    llmock.fail(401)
    with pytest.raises(ModelRefused):
        await asked(llmock, name)
    assert len(llmock.requests) == 1
    llmock.assert_resilient()


@NAMES
async def test_it_knows_an_overflow(llmock: LLMock, name: str) -> None:
    llmock.limits(context_window=4)
    with pytest.raises(ModelOverflow):
        await asked(llmock, name)
    assert len(llmock.requests) == 1


@NAMES
@pytest.mark.parametrize("fault", ["truncate", "disconnect", "corrupt"])
async def test_it_does_not_take_a_broken_stream_for_an_answer(llmock: LLMock, name: str, fault: str) -> None:
    llmock.reply("one two three four five six seven eight")
    getattr(llmock, fault)(after_chunks=3)
    with pytest.raises(ModelUnavailable):
        await asked(llmock, name, retries=0)
    assert not [one for one in llmock.verdict().errors if one.code != "truncated_stream_accepted"]


@NAMES
async def test_it_does_not_sit_through_silence(llmock: LLMock, name: str) -> None:
    llmock.reply("one two three four five six seven eight").stall(after_chunks=4, seconds=5)
    with pytest.raises(ModelUnavailable, match=r"silent|nothing"):
        await asked(llmock, name, idle_timeout=0.3, first_token_timeout=0.6, retries=0)
