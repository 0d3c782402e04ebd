"""The clients of the running bot: light ones for commands and queries, and one for chats."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bubbot.errors import BubbotError, ConfigError, ControlError, HomeLocked
from bubbot.home import Home
from bubbot.server.address import check_folder, peer_uid
from bubbot.server.protocol import (
    CHAT_PATH,
    COMMAND_PATH,
    CONNECTION_LOST,
    HELLO_PATH,
    MESSAGE_LIMIT,
    PROTOCOL,
    PROTOCOL_HEADER,
    JsonObject,
    decode_error,
    encode_message,
    parse_message,
)

if TYPE_CHECKING:
    from bubbot.server.peer import ChatPeer, OnNotice, OnRequest
    from bubbot.texts import Texts

TRANSITION_TIMEOUT_SECONDS = 10.0
"""Seconds for a bot that is starting to answer, or for one that is ending to be gone."""
LOCK_HOLDER_TIMEOUT_SECONDS = 2.0
"""Seconds for the lock's holder to write down its address."""
CONNECT_RETRY_SECONDS = 0.05
LOCK_RETRY_SECONDS = 0.2
PING_SECONDS = 10.0
"""Seconds between two looks whether the bot that works on a request still answers."""
DAEMON_REPLY_TIMEOUT_SECONDS = 30.0
"""Seconds a bot may take to accept a connection and to greet."""
CLOSE_SECONDS = 5.0
"""Seconds a bot may take to end a chat."""
HEADER_LIMIT = 2**16
"""Bytes of the headers of an answer."""
HTTP_OK = 200
T = TypeVar("T")


class DaemonNotRunning(Exception):
    """No bot answers at the address: it is starting, stopping, or dead."""


async def run_on_home(
    home: Home,
    run_here: Callable[[], Awaitable[T]],
    run_remotely: Callable[[str], Awaitable[T]],
    *,
    wait_seconds: float = 0.0,
    on_wait: Callable[[int], None] = lambda _pid: None,
) -> T:
    """Run `run_here`, or, if a bot holds the home's lock, `run_remotely` with the address of that bot.

    Args:
        run_here: has to raise `HomeLocked` before any effect.
        run_remotely: has to raise `DaemonNotRunning` before any effect.
        wait_seconds: seconds to wait for a holder that accepts no requests.
        on_wait: called once, with the holder's process id.

    Raises:
        HomeLocked: the holder takes no requests.
    """
    start, is_announced = asyncio.get_running_loop().time(), False
    wait_deadline = start + wait_seconds
    while True:
        try:
            return await run_here()
        except HomeLocked as locked:
            pid, address = home.read_lock_holder()
            if pid is not None and address is None:
                remaining = wait_deadline - asyncio.get_running_loop().time()
                if remaining <= 0:
                    raise
                if not is_announced:
                    on_wait(pid)
                    is_announced = True
                await asyncio.sleep(min(LOCK_RETRY_SECONDS, remaining))
                start = asyncio.get_running_loop().time()  # the next holder gets its own time
                continue
            timeout = TRANSITION_TIMEOUT_SECONDS if address else LOCK_HOLDER_TIMEOUT_SECONDS
            is_late = asyncio.get_running_loop().time() > start + timeout
            try:
                if address:
                    return await run_remotely(address)
            except DaemonNotRunning:
                pass
            if is_late:
                missing = explain_missing_socket(address) if address else ""
                raise (HomeLocked(f"{locked} {missing}") if missing else locked) from None
        await asyncio.sleep(CONNECT_RETRY_SECONDS)


def explain_missing_socket(address: str, texts: Texts | None = None) -> str:
    """Return a sentence if the socket of a bot that holds its home's lock does not exist; else an empty text."""
    if os.path.lexists(address):
        return ""
    # Imported here: a bot that answers needs no sentence.
    from bubbot.texts import Texts

    return (texts or Texts()).say("verdict_no_socket", address=address)


class BotClient:
    """A connection to the running bot, for one request after another.

    Importing an HTTP library would take longer than most commands do, and the bot answers in one plain form.
    """

    def __init__(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address = address
        self._reader = reader
        self._writer = writer

    async def request(self, name: str, body: JsonObject, *, timeout: float | None = None) -> JsonObject:
        """Send a command or a query and return the answer.

        Args:
            body: its values.
            timeout: seconds; None to wait until the bot ends.

        Raises:
            BubbotError: the error that the bot answers with.
            ControlError: no answer came in time, or the bot ended.
        """
        asking = asyncio.create_task(self.exchange("POST", COMMAND_PATH + name, encode_message(body)))
        watching = asyncio.create_task(_watch(self._address))
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wait((asking, watching), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise ControlError(CONNECTION_LOST)
            return await asking
        except TimeoutError as error:
            raise ControlError(f"no answer within {timeout:.0f} seconds") from error
        except OSError as error:
            raise ControlError(CONNECTION_LOST) from error
        finally:
            asking.cancel()
            watching.cancel()
            await asyncio.gather(asking, watching, return_exceptions=True)

    async def exchange(self, method: str, path: str, text: str = "") -> JsonObject:
        """Send a request of HTTP and return the object in its answer.

        Raises:
            ConnectionError: the bot has ended, or is not one that speaks HTTP.
            BubbotError: the error that the bot answers with.
        """
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: bubbot\r\n{PROTOCOL_HEADER}: {PROTOCOL}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        )
        self._writer.write((head + text).encode())
        await self._writer.drain()
        try:
            status, answer = await self._read_answer()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, LookupError, ValueError) as error:
            raise ConnectionResetError(CONNECTION_LOST) from error
        message = parse_message(answer)
        if status != HTTP_OK:
            raise decode_error(message.get("error"))
        return message

    async def _read_answer(self) -> tuple[int, bytes]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").splitlines()
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        length = int(headers["content-length"]) if "content-length" in headers else -1
        if not 0 <= length <= MESSAGE_LIMIT:
            raise ValueError(f"an answer of {length} bytes")
        return int(first.split()[1]), await self._reader.readexactly(length)


@asynccontextmanager
async def connect(
    address: str, *, uid_of: Callable[[socket.socket], int | None] = peer_uid
) -> AsyncIterator[BotClient]:
    """Connect to the running bot until the block ends.

    Raises:
        DaemonNotRunning: no bot answers there.
        ConfigError: the bot belongs to another user, or is of another version.
    """
    reader, writer = await _open(address)
    try:
        other = uid_of(writer.get_extra_info("socket"))
        if other not in (None, os.getuid()):
            raise ConfigError(
                f"the control socket {address} is served by uid {other}, and this is uid {os.getuid()}: "
                "run the command as the user of the bot"
            )
        client = BotClient(address, reader, writer)
        try:
            async with asyncio.timeout(DAEMON_REPLY_TIMEOUT_SECONDS):
                await client.exchange("GET", HELLO_PATH)
        except TimeoutError as error:
            raise DaemonNotRunning(address) from error
        except OSError as error:
            await _raise_if_older(address)
            raise DaemonNotRunning(address) from error
        yield client
    finally:
        writer.transport.abort()


@asynccontextmanager
async def connect_chat(address: str, on_request: OnRequest, on_notice: OnNotice) -> AsyncIterator[ChatPeer]:
    """Connect a chat to the running bot until the block ends.

    Requests fail with `ControlError` when the bot ends, or no longer answers pings. See `connect` for the errors.
    """
    async with connect(address):  # is there a bot, of this user and this version?
        pass
    import aiohttp

    from bubbot.server.peer import HEARTBEAT_SECONDS, ChatPeer

    connector, patience = aiohttp.UnixConnector(address), aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS)
    async with aiohttp.ClientSession(connector=connector) as session:
        try:
            connection = await session.ws_connect(
                f"http://bubbot{CHAT_PATH}",
                headers={PROTOCOL_HEADER: str(PROTOCOL)},
                max_msg_size=MESSAGE_LIMIT,
                heartbeat=HEARTBEAT_SECONDS,
                timeout=patience,
            )
        except aiohttp.WSServerHandshakeError as error:
            raise ControlError(f"the running bot takes no further chat now ({error.status})") from error
        except (aiohttp.ClientError, OSError) as error:
            raise DaemonNotRunning(address) from error
        peer = ChatPeer(connection, on_request, on_notice)
        reading = asyncio.create_task(peer.run())
        try:
            yield peer
        finally:
            await peer.flush()
            await connection.close()
            peer.close()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)


async def raise_when_closed(peer: ChatPeer) -> None:
    """Raise `ControlError` when the bot has ended."""
    await peer.closed.wait()
    raise ControlError(CONNECTION_LOST)


async def _open(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    path = Path(address)
    if not path.parent.exists():
        raise DaemonNotRunning(address)
    check_folder(path.parent)
    try:
        async with asyncio.timeout(DAEMON_REPLY_TIMEOUT_SECONDS):
            return await asyncio.open_unix_connection(address, limit=HEADER_LIMIT)
    except PermissionError as error:
        raise ConfigError(f"the control socket {address} cannot be used ({error.strerror})") from error
    except (OSError, TimeoutError) as error:
        raise DaemonNotRunning(address) from error


async def _raise_if_older(address: str) -> None:
    """Raise the error of a bot of version 1, which hangs up on HTTP and greets in lines of JSON."""
    try:
        reader, writer = await _open(address)
    except DaemonNotRunning:
        return
    try:
        async with asyncio.timeout(DAEMON_REPLY_TIMEOUT_SECONDS):
            writer.write(json.dumps({"hello": PROTOCOL}).encode() + b"\n")
            answer = parse_message(await reader.readline())
    except (OSError, TimeoutError, ValueError, BubbotError):
        return
    finally:
        writer.transport.abort()
    if "error" in answer:
        raise decode_error(answer["error"])


async def _watch(address: str) -> None:
    """Return when the bot no longer answers."""
    while True:
        await asyncio.sleep(PING_SECONDS)
        try:
            async with connect(address):
                pass
        except ControlError:
            pass  # it is shutting down, and finishes what it has begun
        except (DaemonNotRunning, BubbotError):
            return
