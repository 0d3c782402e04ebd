"""The client's side of the control socket."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from bubbot.control.address import check_folder, peer_uid
from bubbot.control.codec import JsonObject, decode_error
from bubbot.control.lines import CONTROL_LINE_BYTES, lines, read_message
from bubbot.control.peer import CONNECTION_LOST, PROTOCOL, Answer, ControlPeer, Heard, ignore
from bubbot.errors import ConfigError, ControlError, HomeLocked
from bubbot.home import Home

REPLY_TIMEOUT_SECONDS = 10.0
"""Seconds for a bot that is starting, or ending, to be there, or gone."""
MOMENT = 2.0
"""Seconds for a holder of the lock to write down who it is."""
CONNECT_RETRY_SECONDS = 0.05
HEARTBEAT_SECONDS = 10.0
"""Seconds between two signs of life that a client asks for."""
WAIT = 30.0
"""Seconds a bot may take to show one."""
T = TypeVar("T")


class DaemonNotRunning(Exception):
    """No bot answers at the address: it is starting, ending, or dead."""


async def beside(home: Home, here: Callable[[], Awaitable[T]], there: Callable[[str], Awaitable[T]]) -> T:
    """Does something to a home: `here`, or, where a bot holds its lock, `there`, with the address of that bot.

    `here` has to raise `HomeLocked` before it does anything; so does this, where the holder takes no requests.
    """
    start = asyncio.get_running_loop().time()
    soon, end = start + MOMENT, start + REPLY_TIMEOUT_SECONDS
    while True:
        try:
            return await here()
        except HomeLocked as locked:
            pid, address = home.held_by()
            if pid is not None and address is None:
                raise
            late = asyncio.get_running_loop().time() > (end if address else soon)
            try:
                if address:
                    return await there(address)
            except DaemonNotRunning:
                pass
            if late:
                raise locked from None
        await asyncio.sleep(CONNECT_RETRY_SECONDS)


async def no_requests(_peer: ControlPeer, do: str, _body: JsonObject) -> JsonObject:
    """For clients that only ask."""
    raise ControlError(f"this client does not know {do!r}")


@asynccontextmanager
async def connected(
    address: str,
    answer: Answer = no_requests,
    heard: Heard = ignore,
    *,
    uid: Callable[[socket.socket], int | None] = peer_uid,
) -> AsyncIterator[ControlPeer]:
    """A connection to the running bot. Raises `DaemonNotRunning`, `ConfigError` where it is somebody else's.

    Whoever waits for an answer is told by `ControlError` when the bot ends, or shows no sign of life any more.
    """
    reader, writer = await _opened(address, uid)
    peer = ControlPeer(reader, writer, answer, heard)
    running, beating = asyncio.create_task(peer.run()), asyncio.create_task(_beat(peer))
    try:
        yield peer
    finally:
        await peer.flush()
        peer.close()
        beating.cancel()
        running.cancel()
        await asyncio.gather(running, beating, return_exceptions=True)


async def until_gone(peer: ControlPeer) -> None:
    """Raises `ControlError` when the bot has ended."""
    await peer.gone.wait()
    raise ControlError(CONNECTION_LOST)


async def _opened(
    address: str, uid: Callable[[socket.socket], int | None]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    path = Path(address)
    if not path.parent.exists():
        raise DaemonNotRunning(address)
    check_folder(path.parent)
    try:
        async with asyncio.timeout(WAIT):
            reader, writer = await asyncio.open_unix_connection(address, limit=CONTROL_LINE_BYTES)
    except PermissionError as error:
        raise ConfigError(f"the control socket {address} cannot be used ({error.strerror})") from error
    except (OSError, TimeoutError) as error:
        raise DaemonNotRunning(address) from error
    try:
        other = uid(writer.get_extra_info("socket"))
        if other not in (None, os.getuid()):
            raise ConfigError(
                f"the control socket {address} is served by uid {other}, and this is uid {os.getuid()}: "
                "run the command as the user of the bot"
            )
        await _greet(reader, writer, address)
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


async def _greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str) -> None:
    try:
        async with asyncio.timeout(WAIT):
            writer.writelines(lines({"hello": PROTOCOL, "pid": os.getpid()}))
            await writer.drain()
            hello = await read_message(reader)
    except (OSError, TimeoutError) as error:
        raise DaemonNotRunning(address) from error
    if hello is None:
        raise DaemonNotRunning(address)
    if "error" in hello:
        raise decode_error(hello["error"])


async def _beat(peer: ControlPeer) -> None:
    """Ends the connection to a bot that shows no sign of life."""
    try:
        while not peer.gone.is_set():
            await asyncio.sleep(HEARTBEAT_SECONDS)
            await peer.request("ping", {}, timeout=WAIT)
    except ControlError:
        peer.close()
