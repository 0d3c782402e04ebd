"""The strict prefix: the requests of a recorded session go on from each other, message for message, so that they are one chain.

AReaL makes a call the child of another if that call's messages and its answer are exactly the first messages of the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from bubbot.features.learn.live.state import RlSession
from bubbot.ports.model import ModelReply, ToolSpec, ToolSpecs
from bubbot.tape.entry import JsonObject, canonical


def goes_on(session: RlSession, messages: Sequence[JsonObject], tools: tuple[ToolSpec, ...]) -> bool:
    """Return true if a request begins with all that the newest call of a session had, and with its answer."""
    if not session.messages:
        return True
    return len(messages) > session.messages and digest_chain(messages[: session.messages], tools) == session.prefix


def answer_message(reply: ModelReply) -> JsonObject:
    """Return an answer as the proxy keeps it: without what is not there, and with an empty text."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in reply.calls
    ]
    return {"role": "assistant", "content": reply.text} | ({"tool_calls": calls} if calls else {})


def digest_chain(messages: Sequence[JsonObject], tools: tuple[ToolSpec, ...]) -> str:
    """Return the SHA-256 of messages and tools: with other tools the same messages become other tokens."""
    return sha256(
        canonical(
            {"messages": [_without_none(each) for each in messages], "tools": ToolSpecs.of(tools).digest}
        ).encode()
    ).hexdigest()


def _without_none(value: Any) -> Any:
    """Copy a message without what is None, as the proxy does."""
    if isinstance(value, Mapping):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_without_none(item) for item in value]
    return value
