"""The tools of the server: each a declared class of arguments, a declared answer, and what reads the granted tapes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from bubbot.arguments.fields import Args, build_schema
from bubbot.features.mcp.serve.answers import (
    Anchors,
    Answer,
    AnswerExplanation,
    ChatMemoryArgs,
    ChatTopicsArgs,
    ExplainAnswerArgs,
    Hits,
    ListAnchorsArgs,
    Memory,
    Messages,
    ReadMessagesArgs,
    SearchMessagesArgs,
    Topics,
)
from bubbot.features.mcp.serve.reading import GrantedTapes
from bubbot.features.mcp.serve.results import MessageState, SendMessageArgs
from bubbot.tool import validate_args


@dataclass(frozen=True)
class ServedTool:
    """A tool.

    Attributes:
        name: its name.
        title: its name for people.
        description: what it does, for models.
        args: the class of its arguments.
        answer: the class of what it answers.
        read: reads it, or asks.
        only_reads: it changes nothing.
    """

    name: str
    title: str
    description: str
    args: type[Args]
    answer: type[Answer | MessageState]
    read: Callable[[GrantedTapes, Any], Awaitable[Answer | MessageState]]
    only_reads: bool = True

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return {**_plain(build_schema(self.args)), "type": "object", "additionalProperties": False}

    @cached_property
    def output_schema(self) -> dict[str, Any]:
        """The JSON schema of its answer."""
        (reference,), types = msgspec.json.schema_components([self.answer], ref_template="#/$defs/{name}")
        own = types.pop(reference["$ref"].removeprefix("#/$defs/"))
        return {**own, "$defs": types} if types else own

    async def call(self, tapes: GrantedTapes, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a call, as JSON.

        Raises:
            ToolRetry: the arguments do not fit.
            BubbotError: it cannot be read.
        """
        args = validate_args(self.name, self.args, arguments)
        answered: dict[str, Any] = msgspec.to_builtins(await self.read(tapes, args))
        return answered


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(msgspec.json.encode(schema, enc_hook=dict))
    return copied


TOOLS: tuple[ServedTool, ...] = (
    ServedTool(
        "search",
        "Search chats",
        "Search all messages of the granted chats, not only recent ones: whole words first, then other endings, parts of words and "
        "misspellings. Hits name their chat and id; `read` with before = id + 1 shows a message and those before it.",
        SearchMessagesArgs,
        Hits,
        lambda tapes, args: tapes.search(args),
    ),
    ServedTool(
        "read",
        "Read messages",
        "Read messages of a granted chat, oldest first in a page: the newest, or those before an id. next_cursor leads to earlier ones.",
        ReadMessagesArgs,
        Messages,
        lambda tapes, args: tapes.read(args),
    ),
    ServedTool(
        "anchors",
        "List anchors",
        "List where windows of a granted chat opened and what was handed over there: summary, next steps, and the ids they rest on.",
        ListAnchorsArgs,
        Anchors,
        lambda tapes, args: tapes.anchors(args),
    ),
    ServedTool(
        "memory",
        "Read memory",
        "Read what a granted chat remembers: its long-term text and the notes of days.",
        ChatMemoryArgs,
        Memory,
        lambda tapes, args: tapes.memory(args),
    ),
    ServedTool(
        "why",
        "Explain an answer",
        "Explain how the newest answer of a granted chat came about, or a turn by its id: the entries that the model was shown, its "
        "calls and tools. No model is asked.",
        ExplainAnswerArgs,
        AnswerExplanation,
        lambda tapes, args: tapes.why(args),
    ),
    ServedTool(
        "topics",
        "List topics",
        "List the topics of a granted chat with their summaries and open questions, the current one first.",
        ChatTopicsArgs,
        Topics,
        lambda tapes, args: tapes.topics(args),
    ),
)
"""The tools that every program has."""

SEND_TOOL = ServedTool(
    "message.send",
    "Ask to send a message",
    "Ask the owner of the bot to send a message to a granted chat. Nothing is sent before the owner has read it whole and said yes, "
    "which may take hours: the answer says `waiting`. Call again with the same id, session and text to learn how it stands: waiting, "
    "sent, declined, expired or failed. A new id is a new message.",
    SendMessageArgs,
    MessageState,
    lambda tapes, args: tapes.send(args),
    only_reads=False,
)
"""The tool of programs that may ask to send."""


def tools_of(tapes: GrantedTapes) -> tuple[ServedTool, ...]:
    """Return the tools that a program has now."""
    return (*TOOLS, SEND_TOOL) if tapes.targets else TOOLS
