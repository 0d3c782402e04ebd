"""Requests of the OpenAI chat protocol, as the bytes that are sent. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bubbot.models.messages import MESSAGE_KEYS, build_message, holds_address, provider_of
from bubbot.models.openai.providers import Endpoint
from bubbot.ports.model import ModelRequest, ToolSpecs
from bubbot.tape.entry import JsonObject, canonical

_TEXT_KEYS = frozenset({"role", "content"})


def encode_request(request: ModelRequest, name: str, endpoint: Endpoint, *, max_tokens: int | None = None) -> bytes:
    """Encode a request; only what no earlier request of the window held is encoded anew.

    Args:
        request: the request.
        name: the model, `provider/model`.
        endpoint: where it goes.
        max_tokens: the configured limit of an answer; None for the provider's own.
    """
    fields: dict[str, Any] = dict(request.parameters)
    limit = fields.pop("max_tokens", max_tokens)
    if limit is not None:
        fields.setdefault(endpoint.output_limit_key, limit)
    fields |= {"model": endpoint.model, "stream": True}
    if not endpoint.provider.sends_usage_unasked:
        fields["stream_options"] = {"include_usage": True}
    head = b'{"messages":[' + b",".join(_encode_messages(request, provider_of(name), endpoint)) + b"],"
    tools = b',"tools":' + ToolSpecs.of(request.tools).encoded if request.tools else b""
    return b"".join((head, canonical(fields)[1:-1].encode(), tools, b"}"))


def _encode_messages(request: ModelRequest, provider: str, endpoint: Endpoint) -> Iterator[bytes]:
    if request.system.strip():
        yield canonical({"role": "system", "content": request.system}).encode()
    texts = request.texts or (None,) * len(request.messages)
    for message, text in zip(request.messages, texts, strict=True):
        # Most messages are a text of somebody; of a long window every one is looked at.
        is_text = message.keys() == _TEXT_KEYS and type(message["content"]) is str
        if text is not None and (is_text or _is_plain(message, endpoint)):
            yield text
        else:
            yield canonical(_adapt(build_message(message, provider), endpoint)).encode()


def _is_plain(message: JsonObject, endpoint: Endpoint) -> bool:
    """Return true if a message is sent as the context has it."""
    if not message.keys() <= MESSAGE_KEYS or ("name" in message and not endpoint.provider.takes_names):
        return False
    if isinstance(message.get("content"), str):
        return True
    return not endpoint.provider.wants_plain_text and not holds_address(message)


def _adapt(message: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    """Adapt a message to what its provider takes."""
    if not endpoint.provider.takes_names:
        message.pop("name", None)
    content = message.get("content")
    if endpoint.provider.wants_plain_text and isinstance(content, list):
        texts = [
            part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in content
        ]
        if all(isinstance(text, str) for text in texts):
            message["content"] = "".join(map(str, texts))
    return message
