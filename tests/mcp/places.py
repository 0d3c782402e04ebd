"""Places of servers for tests, and connections to them."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp_types import Implementation

from bubbot.features.mcp.child.connection import Connection, connect
from bubbot.features.mcp.child.values import JsonObject, ServerPlace, ToolReply
from tests.docs.pages import ROOT

CLIENT = Implementation(name="bubbot", version="1.0")
WAIT = 60.0
"""Seconds that nothing takes unless it hangs, on a busy machine."""
HOSTILE = Path(__file__).with_name("hostile.py")
ENVIRONMENT = {"PATH": os.environ["PATH"]}


def hostile(name: str, *arguments: str) -> ServerPlace:
    """Return the place of a server of `hostile.py`."""
    return ServerPlace(name, argv=(sys.executable, "-I", "-S", str(HOSTILE), name, *arguments), env=ENVIRONMENT)


def sdk_server(*, folder: str = str(ROOT)) -> ServerPlace:
    """Return the place of the server of `servers.py`, over stdio."""
    return ServerPlace("probe", argv=(sys.executable, "-m", "tests.mcp.servers"), env=ENVIRONMENT, folder=folder)


@asynccontextmanager
async def connected(
    place: ServerPlace, *, timeout: float = WAIT, auth: httpx2.Auth | None = None
) -> AsyncIterator[Connection]:
    """Connect."""
    async with connect(place, client_info=CLIENT, timeout=timeout, auth=auth) as connection:
        yield connection


async def call(connection: Connection, name: str = "work", *, timeout: float = WAIT, **more: Any) -> ToolReply:
    """Call a tool without arguments and metadata, unless `more` has some."""
    arguments: JsonObject = more.pop("arguments", {})
    meta: JsonObject = more.pop("meta", {})
    return await connection.call(name, arguments, timeout=timeout, meta=meta, **more)
