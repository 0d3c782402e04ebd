"""What the commands of a shell get of the rest of bubbot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from bubbot.features.mcp.serve.views import TapeViews
from bubbot.tape.references import ReferenceRegistry

Message: TypeAlias = MutableMapping[str, Any]
"""A message of ASGI."""
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]
"""An application that answers HTTP requests, as ASGI has it."""
FindClient: TypeAlias = Callable[[str], Awaitable[str]]
"""Return the program with a token, which is foreign; empty: nobody."""
CLIENT_KEY = "bubbot.client"
"""The key of a request's scope under which the name of its program stands."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What `bubbot mcp serve` gets.

    Attributes:
        views: the views of other features.
        references: which fields of facts name entries, chats and people.
        serve_http: serves an application on loopback until the block ends, to programs with a token: application, port (0 for any that
            is free), and what finds the program of a token. Yields the port. Raises `ConfigError` if the port cannot be used.
    """

    views: TapeViews
    references: ReferenceRegistry
    serve_http: Callable[[AsgiApp, int, FindClient], AbstractAsyncContextManager[int]]
