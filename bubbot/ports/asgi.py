"""ASGI: an application that answers requests, and who asks. The server listens, a feature answers, and neither knows the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
"""A message of ASGI, or the scope of a request."""
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]
"""An application that answers HTTP requests, as ASGI has it."""
FindClient: TypeAlias = Callable[[str], Awaitable[str]]
"""Return the program with a token, which is foreign; empty: nobody."""
CLIENT_KEY = "bubbot.client"
"""The key of a request's scope under which the name of its program stands."""
