"""The client's side of the control socket."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from bubbot.errors import ConfigError, ControlError, HomeLocked
from bubbot.home import Home
from bubbot.server.address import check_folder, peer_uid
from bubbot.server.codec import JsonObject, decode_error
from bubbot.server.lines import CONTROL_LINE_BYTES, encode_lines, read_message
from bubbot.server.peer import CONNECTION_LOST, PROTOCOL, ControlPeer, OnNotice, OnRequest, ignore_notice

TRANSITION_TIMEOUT_SECONDS = 10.0
"""Seconds for a bot that is starting to answer, or for one that is ending to be gone."""
LOCK_HOLDER_TIMEOUT_SECONDS = 2.0
"""Seconds for the lock's holder to write down its address."""
CONNECT_RETRY_SECONDS = 0.05
HEARTBEAT_SECONDS = 10.0
"""Seconds between two pings that a client sends."""
DAEMON_REPLY_TIMEOUT_SECONDS = 30.0
"""Seconds a bot may take to accept a connection, to greet, or to answer a ping."""
T = TypeVar("T")


class DaemonNotRunning(Exception):
    """No bot answers at the address: it is starting, ending, or dead."""


async def run_on_home(
    home: Home, run_here: Callable[[], Awaitable[T]], run_remotely: Callable[[str], Awaitable[T]]
) -> T:
    """Run `run_here`, or, if a bot holds the home's lock, `run_remotely` with the address of that bot.

    `run_here` has to raise `HomeLocked` before it does anything.

    Raises:
        HomeLocked: the holder takes no requests.
    """
    start = asyncio.get_running_loop().time()
    holder_deadline, deadline = start + LOCK_HOLDER_TIMEOUT_SECONDS, start + TRANSITION_TIMEOUT_SECONDS
    while True:
        try:
            return await run_here()
        except HomeLocked as locked:
            pid, address = home.read_lock_holder()
            if pid is not None and address is None:
                raise
            is_late = asyncio.get_running_loop().time() > (deadline if address else holder_deadline)
            try:
                if address:
                    return await run_remotely(address)
            except DaemonNotRunning:
                pass
            if is_late:
                raise locked from None
        await asyncio.sleep(CONNECT_RETRY_SECONDS)


async def reject_requests(_peer: ControlPeer, name: str, _body: JsonObject) -> JsonObject:
    """Reject every request, for clients that only ask."""
    raise ControlError(f"this client does not know {name!r}")


@asynccontextmanager
async def connect(
    address: str,
    on_request: OnRequest = reject_requests,
    on_notice: OnNotice = ignore_notice,
    *,
    uid_of: Callable[[socket.socket], int | None] = peer_uid,
) -> AsyncIterator[ControlPeer]:
    """Connect to the running bot until the block ends.

    Requests fail with `ControlError` when the bot ends, or no longer answers pings.

    Raises:
        DaemonNotRunning: no bot answers there.
        ConfigError: the bot belongs to another user.
    """
    reader, writer = await _open(address, uid_of)
    peer = ControlPeer(reader, writer, on_request, on_notice)
    reading, pinging = asyncio.create_task(peer.run()), asyncio.create_task(_beat(peer))
    try:
        yield peer
    finally:
        await peer.flush()
        peer.close()
        pinging.cancel()
        reading.cancel()
        await asyncio.gather(reading, pinging, return_exceptions=True)


async def raise_when_closed(peer: ControlPeer) -> None:
    """Raise `ControlError` when the bot has ended."""
    await peer.closed.wait()
    raise ControlError(CONNECTION_LOST)


async def _open(
    address: str, uid: Callable[[socket.socket], int | None]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    path = Path(address)
    if not path.parent.exists():
        raise DaemonNotRunning(address)
    check_folder(path.parent)
    try:
        async with asyncio.timeout(DAEMON_REPLY_TIMEOUT_SECONDS):
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
        async with asyncio.timeout(DAEMON_REPLY_TIMEOUT_SECONDS):
            writer.writelines(encode_lines({"hello": PROTOCOL, "pid": os.getpid()}))
            await writer.drain()
            hello = await read_message(reader)
    except (OSError, TimeoutError) as error:
        raise DaemonNotRunning(address) from error
    if hello is None:
        raise DaemonNotRunning(address)
    if "error" in hello:
        raise decode_error(hello["error"])


async def _beat(peer: ControlPeer) -> None:
    """Close the connection to a bot that no longer answers pings."""
    try:
        while not peer.closed.is_set():
            await asyncio.sleep(HEARTBEAT_SECONDS)
            await peer.request("ping", {}, timeout=DAEMON_REPLY_TIMEOUT_SECONDS)
    except ControlError:
        peer.close()
