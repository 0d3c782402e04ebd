"""Both ways send a provider the same request: the path, the key, the body."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bubbot.ports.model import ModelOptions, ModelReply, ModelRequest, ToolSpec
from tests.e2e.model_paths import PATHS, Way, make_model
from tests.e2e.provider_server import Answer, Asked, serving

# Warnings of pydantic about litellm's own code: not ours to mend.
pytestmark = [
    pytest.mark.usefixtures("loaded_litellm"),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]

TOOL = ToolSpec("f", "does", {"type": "object", "properties": {"x": {"type": "string"}}})
CALLS = [
    {"id": f"call{place}aaaa", "type": "function", "function": {"name": "f", "arguments": "{}"}} for place in range(2)
]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
MESSAGES: tuple[dict[str, Any], ...] = (
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "", "tool_calls": CALLS},
    {"role": "tool", "tool_call_id": CALLS[0]["id"], "content": "one", "name": "f"},
    {"role": "tool", "tool_call_id": CALLS[1]["id"], "content": "two", "name": "f"},
    {"role": "assistant", "content": "ok"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
)
WITH_IMAGE: tuple[dict[str, Any], ...] = (
    *MESSAGES,
    {"role": "assistant", "content": "seen"},
    {"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]},
)
SAID = (
    b'data: {"id":"r","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"hello"},"finish_reason":null}]}\n\n'
    b'data: {"id":"r","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b'data: {"id":"r","created":1,"model":"m","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7,"total_tokens":18}}\n\n'
    b"data: [DONE]\n\n"
)


@dataclass
class Listens:
    """Says hello to everybody."""

    address: str = ""
    requests: list[Asked] = field(default_factory=list)

    def answer(self, asked: Asked) -> Answer:
        return Answer((SAID,))


async def asked(name: str, path: str, *messages: dict[str, Any], **settings: Any) -> tuple[str, str, dict[str, Any]]:
    async with serving(Listens()) as server:
        values = {"api_base": server.address + "/v1", "api_key": "sk-1", "retries": 0, "max_tokens": 77, **settings}
        model = make_model(ModelOptions(name, Path("unused"), values))
        async with asyncio.timeout(30):
            events = [event async for event in model.stream(ModelRequest("Be brief.", messages, (TOOL,)))]
            await model.aclose()
    assert isinstance(events[-1], ModelReply)
    assert events[-1].text == "hello"
    (request,) = server.requests
    return request.path, request.headers["authorization"], request.body


@pytest.mark.parametrize(
    ("name", "messages"),
    [
        ("openai/gpt-4o", WITH_IMAGE),
        ("openai/gpt-5-mini", WITH_IMAGE),
        ("openai/anything", WITH_IMAGE),
        ("deepseek/deepseek-chat", MESSAGES),
        ("groq/llama-3.3-70b-versatile", WITH_IMAGE),
        ("hosted_vllm/qwen", WITH_IMAGE),
        ("llamafile/x", WITH_IMAGE),
        ("lm_studio/qwen", WITH_IMAGE),
        ("mistral/mistral-small-latest", WITH_IMAGE),
        ("openrouter/anthropic/claude-sonnet-4.5", WITH_IMAGE),
        ("together_ai/meta-llama/Llama-3.3-70B-Instruct-Turbo", WITH_IMAGE),
        ("fireworks_ai/accounts/fireworks/models/kimi-k2-instruct", WITH_IMAGE),
        ("xai/grok-4", WITH_IMAGE),
    ],
)
async def test_both_ways_send_the_same(
    name: str, messages: tuple[dict[str, Any], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = []
    for path in PATHS:
        monkeypatch.setattr(Way, "path", path)
        sent.append(await asked(name, path, *messages))
    direct, litellm = sent
    litellm[2].pop("usage", None)  # what litellm asks of OpenRouter besides, which tells the same without
    assert direct == litellm


@pytest.mark.parametrize(
    ("variable", "name"), [("OPENAI_BASE_URL", "openai/gpt-4o"), ("OPENROUTER_API_BASE", "openrouter/x/y")]
)
@pytest.mark.parametrize("path", PATHS)
async def test_a_variable_may_hold_the_address(
    variable: str, name: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These two stand in places of litellm that cannot be asked without a call."""
    monkeypatch.setattr(Way, "path", path)
    monkeypatch.setenv(f"{name.partition('/')[0].upper()}_API_KEY", "sk-of-variable")
    async with serving(Listens()) as server:
        monkeypatch.setenv(variable, server.address + "/v1")
        model = make_model(ModelOptions(name, Path("unused"), {"retries": 0}))
        async with asyncio.timeout(30):
            assert [event async for event in model.stream(ModelRequest("", MESSAGES[:1]))]
            await model.aclose()
    (request,) = server.requests
    assert (request.path, request.headers["authorization"]) == ("/v1/chat/completions", "Bearer sk-of-variable")
