"""The lines between the daemon and its child: one JSON object each. It imports nothing of the SDK."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from bubbot.features.mcp.child.values import JsonObject, OfferedTool, ServerPlace, ToolReply
from bubbot.tape.entry import thaw

MAX_LINE_BYTES = 64 * 2**20
"""Bytes of a line; far more than the connections let through."""
M = TypeVar("M", bound=Struct)


class ChildRequest(Struct, frozen=True, kw_only=True):
    """What the daemon wants.

    Attributes:
        id: names it in its answer; `cancel` has that of the request which is not wanted any more, and no answer.
        do: list the tools of a server, call one, or close the connection.
        place: the server.
        connect_timeout: seconds until the server has answered, if there is no connection yet.
        timeout: seconds for the list or the call itself.
        tool: the tool.
        arguments: those of the call.
        meta: goes along as `_meta`.
        answers: what people answered, by the keys of the questions.
        state: what the server wants back.
    """

    id: int
    do: Literal["list", "call", "close", "cancel"]
    place: ServerPlace | None = None
    connect_timeout: float = 0.0
    timeout: float = 0.0
    tool: str = ""
    arguments: Mapping[str, Any] = {}
    meta: Mapping[str, Any] = {}
    answers: Mapping[str, JsonObject] = {}
    state: str = ""


class ChildFailure(Struct, frozen=True):
    """Why it failed: see `McpFailed`."""

    reason: str
    is_gone: bool = False
    needs_login: bool = False


class ChildAnswer(Struct, frozen=True, kw_only=True):
    """What became of a request.

    Attributes:
        id: that of the request.
        protocol: the version that both sides of the connection speak.
        server: what the server calls itself.
        tools: those of a list.
        reply: that of a call.
        failure: why it failed; None if it did not.
    """

    id: int
    protocol: str = ""
    server: str = ""
    tools: tuple[OfferedTool, ...] = ()
    reply: ToolReply | None = None
    failure: ChildFailure | None = None


def write_line(message: Struct) -> bytes:
    """Write a message. The encoder is that of the library: whole numbers of any size pass."""
    return json.dumps(msgspec.to_builtins(message, enc_hook=thaw), separators=(",", ":")).encode() + b"\n"


def read_line(line: bytes, kind: type[M]) -> M:
    """Read a message. Raise `ValueError` if it is none."""
    return msgspec.convert(json.loads(line), kind)
