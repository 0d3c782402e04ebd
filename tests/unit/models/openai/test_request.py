"""Requests of the OpenAI protocol as bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bubbot.models.fit import ModelFit, limit_output
from bubbot.models.openai.providers import resolve_endpoint
from bubbot.models.openai.request import encode_request
from bubbot.ports.model import ModelRequest, ToolSpec
from bubbot.tape.entry import canonical

TOOL = ToolSpec("f", "does", {"type": "object", "properties": {}})
HI = {"role": "user", "content": "hi"}


def encoded(request: ModelRequest, name: str = "openai/test", **settings: Any) -> bytes:
    endpoint = resolve_endpoint(name, api_base=None, api_key="k", variables={})
    parameters = endpoint.parameters | limit_output(settings)
    fitted, _ = ModelFit(name, rules=endpoint.rules, parameters=parameters).fit(request)
    return encode_request(fitted, endpoint.model, name)


def sent(request: ModelRequest, name: str = "openai/test", **settings: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(encoded(request, name, **settings))
    return body


def test_a_request_has_all_its_parts() -> None:
    assert sent(ModelRequest("Be brief.", (HI,), (TOOL,), {"temperature": 0.5}), max_tokens=77) == {
        "messages": [{"role": "system", "content": "Be brief."}, HI],
        "model": "test",
        "max_tokens": 77,
        "temperature": 0.5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [TOOL.as_json()],
    }


def test_what_is_not_there_is_left_out() -> None:
    body = sent(ModelRequest(" ", (HI,)))
    assert body["messages"] == [HI]
    assert not {"tools", "max_tokens", "max_completion_tokens"} & body.keys()


def test_a_parameter_goes_before_the_setting() -> None:
    assert sent(ModelRequest("", (HI,), (), {"max_tokens": 5}), max_tokens=77)["max_tokens"] == 5


def test_messages_that_the_context_has_as_bytes_are_sent_as_they_are() -> None:
    """Not built again: the bytes need not even be those of the message."""
    request = ModelRequest("", (HI,), texts=(b'{"content":"as it was","role":"user"}',))
    assert sent(request)["messages"] == [{"role": "user", "content": "as it was"}]


def test_a_longer_window_extends_the_request_byte_for_byte() -> None:
    messages = ({"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}, HI)
    texts = tuple(canonical(message).encode() for message in messages)
    short, long = (encoded(ModelRequest("s", messages[:end], (TOOL,), {}, texts[:end])) for end in (1, 3))
    assert long.startswith(short[: short.index(b"],")])


@pytest.mark.parametrize("with_texts", [True, False])
def test_reasoning_goes_back_to_its_own_provider_only(*, with_texts: bool) -> None:
    message = {"role": "assistant", "content": "", "replay": {"provider": "deepseek", "reasoning_content": "so"}}
    request = ModelRequest("", (message,), texts=(canonical(message).encode(),) if with_texts else ())
    assert sent(request, "deepseek/r")["messages"] == [{"role": "assistant", "content": "", "reasoning_content": "so"}]
    assert sent(request, "openai/r")["messages"] == [{"role": "assistant", "content": ""}]


@pytest.mark.parametrize(("text", "is_same"), [("see", True), ("", False)])
def test_calls_are_built_again_only_if_that_changes_them(text: str, *, is_same: bool) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": text, "tool_calls": [call]}
    body = sent(ModelRequest("", (message,), texts=(b'"as it was"',)))["messages"]
    assert body == (["as it was"] if is_same else [{**message, "content": None}])


def test_each_provider_is_sent_what_it_takes() -> None:
    named = {"role": "tool", "content": "r", "name": "f", "tool_call_id": "c"}
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    messages = (named, parts)
    request = ModelRequest("", messages, texts=tuple(canonical(message).encode() for message in messages))
    assert sent(request, "openai/x")["messages"] == [named, parts]
    assert "name" not in sent(request, "xai/x")["messages"][0]
    assert sent(request, "deepseek/x")["messages"][1]["content"] == "ab"
    assert "stream_options" not in sent(request, "mistral/x")


def test_an_image_is_encoded_once_and_an_address_never_sent() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    away = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/x.png"}}
    messages = tuple({"role": "user", "content": [part]} for part in (image, away))
    body = sent(ModelRequest("", messages, texts=(b'{"content":"as it was","role":"user"}',) * 2))
    assert body["messages"][0]["content"] == "as it was"
    assert body["messages"][1]["content"] == [
        {"type": "text", "text": "[image, not fetched: http://127.0.0.1:1/x.png]"}
    ]
