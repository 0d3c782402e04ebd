"""Requests of the OpenAI chat protocol, as the bytes that are sent. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bubbot.models.messages import (
    MESSAGE_KEYS,
    build_message,
    holds_address,
    lacks_text,
    provider_of,
    takes_no_empty_text,
)
from bubbot.ports.model import ModelRequest, ToolSpecs
from bubbot.tape.entry import JsonObject, canonical

_TEXT_KEYS = frozenset({"role", "content"})


def encode_request(request: ModelRequest, model: str, name: str, server: str = "") -> bytes:
    """Encode a request that fits the model. Messages of earlier requests in the window are not encoded again.

    Args:
        model: the model as its provider knows it.
        name: the same as `provider/model`; the model gets its own reasoning back.
        server: host and port of its configured address; empty for the usual one.
    """
    fields: dict[str, Any] = {**request.parameters, "model": model, "stream": True}
    head = b'{"messages":[' + b",".join(_encode_messages(request, name, server)) + b"],"
    tools = b',"tools":' + ToolSpecs.of(request.tools).encoded if request.tools else b""
    return b"".join((head, canonical(fields)[1:-1].encode(), tools, b"}"))


def _encode_messages(request: ModelRequest, name: str, server: str) -> Iterator[bytes]:
    provider = provider_of(name)
    if request.system.strip():
        yield canonical({"role": "system", "content": request.system}).encode()
    texts = request.texts or (None,) * len(request.messages)
    for message, text in zip(request.messages, texts, strict=True):
        # Most messages are a text of somebody; of a long window every one is looked at.
        is_text = message.keys() == _TEXT_KEYS and type(message["content"]) is str
        if text is not None and (is_text or _is_plain(message, provider, server)):
            yield text
        else:
            yield canonical(build_message(message, name, server)).encode()


def _is_plain(message: JsonObject, provider: str, server: str) -> bool:
    """Return true if a message is sent unchanged."""
    if not message.keys() <= MESSAGE_KEYS or (lacks_text(message) and takes_no_empty_text(provider, server)):
        return False
    return isinstance(message.get("content"), str) or not holds_address(message)
