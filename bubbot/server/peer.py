"""One end of a chat's WebSocket: both ends send requests and answer them in the same way.

`{"id": 7, "do": "event", "with": {…}}` is a request, `{"to": 7, "ok": {…}}` or `{"to": 7, "error": {…}}` its answer,
and a message without an id is a notice that nobody answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from aiohttp import ClientWebSocketResponse, WSMsgType

from bubbot.errors import BubbotError, ControlError
from bubbot.server.protocol import (
    CONNECTION_LOST,
    JsonObject,
    decode_error,
    encode_error,
    encode_message,
    parse_message,
)

if TYPE_CHECKING:
    from aiohttp.web import WebSocketResponse  # of the bot's end; the other one would load a server for nothing

log = logging.getLogger(__name__)

MAX_CONCURRENT_REQUESTS = 64
"""Requests of the other end under way at once; more are refused."""
SPARE_BUFFER_BYTES = 2**18
"""Bytes that may wait to be sent before optional notices are dropped."""
MAX_BUFFER_BYTES = 64 * 2**20
"""Bytes that may wait before the other end counts as dead; one message may always wait."""
STALL_TIMEOUT_SECONDS = 30.0
"""Seconds the other end may pause reading."""
HEARTBEAT_SECONDS = 40.0
"""Seconds between two pings; the other end has half of it to answer."""

OnRequest: TypeAlias = Callable[[str, JsonObject], Awaitable[JsonObject]]
"""Answers a request by its name; a `BubbotError` becomes the answer."""
OnNotice: TypeAlias = Callable[[str, JsonObject], None]
"""Handles a notice and returns at once."""


def ignore_notice(_name: str, _body: JsonObject) -> None:
    """Ignore a notice."""


class ChatPeer:
    """The other end of a chat, while `run` runs.

    Attributes:
        closed: set when the connection has ended.
    """

    def __init__(
        self,
        socket: WebSocketResponse | ClientWebSocketResponse,
        on_request: OnRequest,
        on_notice: OnNotice = ignore_notice,
        abort: Callable[[], None] = lambda: None,
    ) -> None:
        self._socket = socket
        self._answer = on_request
        self._heard = on_notice
        self._abort = abort
        self._number = 0
        self._asked: dict[int, asyncio.Future[JsonObject]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._waiting: deque[str] = deque()
        self._bytes = 0
        self._ready = asyncio.Event()
        self._sent = asyncio.Event()
        self.closed = asyncio.Event()

    async def run(self) -> None:
        """Read until the connection ends, then wait for the answers under way: work that has begun is completed."""
        writing = asyncio.create_task(self._write_all())
        try:
            await self._read_all()
            self.close()
            await asyncio.gather(*self._answering)
        finally:
            self.close()
            for task in (writing, *self._answering):
                task.cancel()
            await asyncio.gather(writing, *self._answering, return_exceptions=True)

    async def _read_all(self) -> None:
        try:
            async for message in self._socket:
                if message.type is WSMsgType.ERROR:  # the connection is lost, or what came is no WebSocket's
                    log.debug("chat connection closed: %s", message.data, extra={"action": "chat.lost"})
                    return
                if message.type is not WSMsgType.TEXT:
                    raise ControlError("a message was not text")
                self._dispatch(parse_message(message.data))
        except ControlError as error:
            log.warning("chat connection closed: %s", error, extra={"action": "chat.garbled"})

    async def flush(self) -> None:
        """Return when everything is sent, or cannot be."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STALL_TIMEOUT_SECONDS):
                while self._bytes and not self.closed.is_set():
                    self._sent.clear()
                    await self._sent.wait()

    def close(self) -> None:
        """Close the connection at once; pending requests fail."""
        if not self.closed.is_set():
            self.closed.set()
            self._abort()
        self._sent.set()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(ControlError(CONNECTION_LOST))
                future.exception()  # nobody may be waiting any more
        self._asked.clear()

    async def request(self, name: str, body: JsonObject, *, timeout: float | None = None) -> JsonObject:
        """Send a request and return the answer.

        Args:
            body: its values.
            timeout: seconds; None to wait until the connection ends.

        Raises:
            BubbotError: the error that the other end answers with.
            ControlError: no answer came in time.
        """
        if self.closed.is_set():
            raise ControlError(CONNECTION_LOST)
        self._number += 1
        number = self._number
        future: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        try:
            self._send({"id": number, "do": name, "with": body})
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError as error:
            raise ControlError(f"no answer within {timeout:.0f} seconds") from error
        finally:
            self._asked.pop(number, None)

    def notify(self, name: str, body: JsonObject, *, droppable: bool = False) -> None:
        """Send a notice; with `droppable`, not if the other end is slow to read."""
        if not self.closed.is_set() and not (droppable and self._bytes > SPARE_BUFFER_BYTES):
            self._send({"do": name, "with": body})

    def _send(self, message: JsonObject) -> None:
        text = encode_message(message)
        if self._waiting and self._bytes + len(text) > MAX_BUFFER_BYTES:
            log.warning("chat connection closed: the other end does not read", extra={"action": "chat.slow"})
            self.close()
            return
        self._waiting.append(text)
        self._bytes += len(text)
        self._ready.set()

    async def _write_all(self) -> None:
        with suppress(OSError):
            while True:
                await self._ready.wait()
                self._ready.clear()
                while self._waiting:
                    text = self._waiting.popleft()
                    try:
                        async with asyncio.timeout(STALL_TIMEOUT_SECONDS):
                            await self._socket.send_str(text)
                    except TimeoutError:
                        log.warning("chat connection stalled", extra={"action": "chat.slow"})
                        self.close()
                        return
                    self._bytes -= len(text)
                    self._sent.set()

    def _dispatch(self, message: JsonObject) -> None:
        do, body, number = message.get("do"), message.get("with"), message.get("id")
        if isinstance(to := message.get("to"), int):
            self._resolve(to, message)
        elif not isinstance(do, str) or not isinstance(body, dict):
            raise ControlError("a message was neither request nor answer")
        elif not isinstance(number, int):
            self._heard(do, body)
        elif len(self._answering) >= MAX_CONCURRENT_REQUESTS:
            self._send({"to": number, "error": encode_error(ControlError("too many requests at once"))})
        else:
            task = asyncio.create_task(self._handle(number, do, body))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    def _resolve(self, number: int, message: JsonObject) -> None:
        future = self._asked.get(number)
        if future is None or future.done():
            return  # nobody waits any more
        if isinstance(ok := message.get("ok"), dict):
            future.set_result(ok)
        else:
            future.set_exception(decode_error(message.get("error")))

    async def _handle(self, number: int, do: str, body: JsonObject) -> None:
        """Answer a request. Any error in it becomes an answer, and the connection stays open."""
        try:
            self._reply({"to": number, "ok": await self._answer(do, body)})
        except BubbotError as error:
            self._reply({"to": number, "error": encode_error(error)})
        except Exception as error:  # a defect of ours must not cost other clients the bot
            log.exception("chat request failed", extra={"action": "chat.failed", "request": do})
            internal_error = BubbotError(
                f"something went wrong in the running bot ({type(error).__name__}); see its log"
            )
            self._reply({"to": number, "error": encode_error(internal_error)})

    def _reply(self, message: JsonObject) -> None:
        if not self.closed.is_set():
            self._send(message)
