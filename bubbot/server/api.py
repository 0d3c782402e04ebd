"""The requests of clients to the running bot: commands and queries by name, and chats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from bubbot.errors import ControlError
from bubbot.server.protocol import JsonObject
from bubbot.server.remote import ChatClient, ChatHandler

T = TypeVar("T")
Query: TypeAlias = Callable[[JsonObject], Awaitable[JsonObject]]
"""Answers a command or a query; a `BubbotError` becomes the answer."""


@dataclass
class Api:
    """What the server offers to the owner.

    Attributes:
        queries: the commands and queries by name.
        chat: the requests of a chat by name.
        on_disconnect: called after a chat client has disconnected.
        is_stopping: refuse new requests; running ones are still answered.
    """

    queries: Mapping[str, Query]
    chat: Mapping[str, ChatHandler] = field(default_factory=dict)
    on_disconnect: Callable[[ChatClient], None] = lambda _client: None
    is_stopping: bool = False

    async def answer(self, name: str, body: JsonObject) -> JsonObject:
        """Answer a command or a query."""
        self.require_open()
        return await _find(self.queries, name)(body)

    async def answer_chat(self, client: ChatClient, name: str, body: JsonObject) -> JsonObject:
        """Answer a request of a chat."""
        self.require_open()
        return await _find(self.chat, name)(client, body)

    def require_open(self) -> None:
        """Raise `ControlError` if the bot is shutting down."""
        if self.is_stopping:
            raise ControlError("the bot is shutting down: try again when it has stopped or restarted")


def _find(handlers: Mapping[str, T], name: str) -> T:
    if name not in handlers:
        raise ControlError(f"the running bot does not know the request {name!r}: restart it after an update")
    return handlers[name]
