"""A login at a server, by OAuth, for the person at a terminal. It imports the SDK, and runs in no daemon."""

from __future__ import annotations

import asyncio
import os
import sys

from bubbot.features.mcp.child.oauth import ClientIdentity, login
from bubbot.features.mcp.child.values import ServerPlace
from bubbot.log import printable
from bubbot.texts import Texts


async def log_in(place: ServerPlace, identity: ClientIdentity, port: int, texts: Texts) -> None:
    """Show the address to open, and wait until the browser has come back, here or as a pasted address. Raise `McpFailed`."""

    async def show_url(url: str) -> None:
        sys.stderr.write(f"{texts.say('mcp_open_address')}\n\n{printable(url)}\n\n")
        if _has_terminal():
            sys.stderr.write(f"{texts.say('mcp_paste_address')}\n")
        sys.stderr.flush()

    read_address = _read_line if _has_terminal() else None
    await login(place, show_url=show_url, read_address=read_address, identity=identity, port=port)


def _has_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


async def _read_line() -> str:
    """Read a line of the terminal. It can be cancelled, unlike a thread that reads."""
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()
    found: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if not found.done():
            found.set_result(os.read(number, 65_536).decode(errors="replace").strip())

    loop.add_reader(number, read)
    try:
        return await found
    finally:
        loop.remove_reader(number)
