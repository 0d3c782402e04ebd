"""What the daemon and its child say to each other about servers, tools and calls. It imports nothing of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

JsonObject: TypeAlias = dict[str, Any]


class ServerPlace(Struct, frozen=True):
    """How a server is reached: `argv` for one that we start, or `url`.

    Attributes:
        argv: the whole command, already wrapped in the sandbox.
        env: exactly the environment of the command.
        folder: its working directory; empty for ours.
        transport: `auto` is streamable HTTP, and server-sent events of the first versions if the server wants those.
        headers: sent to the origin of `url` alone.
        tokens_file: that of OAuth; empty for no OAuth.
    """

    name: str
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    folder: str = ""
    url: str = ""
    transport: Literal["auto", "http", "sse"] = "auto"
    headers: Mapping[str, str] = {}
    tokens_file: str = ""


class OfferedTool(Struct, frozen=True):
    """A tool as its server describes it. Nothing of it is trusted.

    Attributes:
        schema: the JSON Schema of its arguments.
        output_schema: that of `ToolReply.structured`; None if the server gives none.
    """

    name: str
    title: str
    description: str
    schema: JsonObject
    output_schema: JsonObject | None = None
    annotations: JsonObject = msgspec.field(default_factory=dict)


class ElicitedInput(Struct, frozen=True):
    """One question of a server.

    Attributes:
        key: its answer is given under this name.
        schema: of the fields to fill in; empty if the person shall open `url`.
        url: an address that the person shall open; empty for a form.
    """

    key: str
    message: str
    schema: JsonObject
    url: str = ""


class ToolReply(Struct, frozen=True):
    """What a call gave, bounded in bytes; or the questions that the server has first, and then nothing else is set.

    Attributes:
        text: all parts in their order; what is not text is named with its type and size.
        structured: None if there is none, or it is no object, or it is longer than a text may be.
        images: the number of images, which `text` names.
        state: give it back unchanged with the answers.
    """

    text: str = ""
    is_error: bool = False
    structured: JsonObject | None = None
    images: int = 0
    questions: tuple[ElicitedInput, ...] = ()
    state: str = ""


class McpFailed(Exception):
    """A server could not be reached, or did not do what MCP says.

    Attributes:
        reason: words for people, in English, parts of them the server's: one line, bounded, without controls.
        is_gone: the connection is lost, and the next call needs another one.
        needs_login: the server wants a login that nobody has given, or that has ended.
    """

    def __init__(self, reason: str, *, is_gone: bool = False, needs_login: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_gone = is_gone
        self.needs_login = needs_login


def accept(content: Mapping[str, Any], schema: JsonObject) -> JsonObject:
    """Return the answer of a person who filled in a form; fields that are left out get the defaults of its schema."""
    fields = schema.get("properties")
    defaults = {
        name: field["default"]
        for name, field in (fields.items() if isinstance(fields, dict) else ())
        if isinstance(field, dict) and "default" in field
    }
    return {"action": "accept", "content": {**defaults, **content}}


ACCEPTED: JsonObject = {"action": "accept"}
"""The answer of a person who opened the address."""
DECLINED: JsonObject = {"action": "decline"}
"""The answer of a person who said no."""
