"""What the commands of a shell get of the rest of bubbot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from msgspec import Struct

from bubbot.features.mcp.serve.results import AskSendArgs, MessageState
from bubbot.features.mcp.serve.views import TapeViews
from bubbot.ports.asgi import AsgiApp, FindClient
from bubbot.tape.references import ReferenceRegistry


class ServeOptions(Struct, frozen=True):
    """What `bubbot mcp serve` gets.

    Attributes:
        views: the views of other features.
        references: which fields of facts name entries, chats and people.
        serve_http: serves an application on loopback until the block ends, to programs with a token: application, port (0 for any that
            is free), and what finds the program of a token. Yields the port. Raises `ConfigError` if the port cannot be used.
        ask_to_send: asks the running bot of a home about a message that a program wants to send. Raises `BubbotError` if no bot runs,
            or it refuses.
    """

    views: TapeViews
    references: ReferenceRegistry
    serve_http: Callable[[AsgiApp, int, FindClient], AbstractAsyncContextManager[int]]
    ask_to_send: Callable[[Path, AskSendArgs], Awaitable[MessageState]]
