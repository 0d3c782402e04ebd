"""A chat with the bot as `bubbot chat` and `bubbot ask` have it, and the one whose bot is another process."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from bubbot.concurrency import task_group
from bubbot.errors import BubbotError, ControlError, DeliveryFailed, OutputFailed
from bubbot.ports.channel import (
    Channel,
    ChannelEvent,
    CommandInfo,
    ForeignWordsShown,
    Inbound,
    MessagePart,
    Preview,
    ShowsPreviews,
    StepFinished,
    StopRequest,
    TextDiscarded,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    refuse_blob,
)
from bubbot.server.client import connect_chat, raise_when_closed
from bubbot.server.protocol import JsonObject, decode, encode
from bubbot.server.remote import AskResult

if TYPE_CHECKING:
    from bubbot.server.peer import ChatPeer

PREVIEWS: tuple[type[Preview], ...] = (
    TurnStarted,
    ForeignWordsShown,
    TextStreamed,
    TextDiscarded,
    ToolStarted,
    ToolFinished,
    StepFinished,
    TurnFinished,
)

NO_FILES: Mapping[str, bytes] = MappingProxyType({})
ShowResult = Callable[[AskResult, str], None]
"""Print the result of a turn, or the text of its answer; return when the system has it. Raises `OutputFailed`."""


class ChatConnection(Protocol):
    """One session of a bot, in this process or in another."""

    async def open(self) -> str:
        """Return the notice to show first, or an empty text."""
        ...

    async def deliver_pending(self) -> int:
        """Deliver the session's pending messages; return how many inbounds wait for their turns."""
        ...

    async def run(self) -> None:
        """Run the adapter until the end of its input."""
        ...

    def stop(self) -> None:
        """Stop the turns that are still running."""
        ...

    async def wait_until_idle(self) -> None:
        """Return when every message of the session has its answer."""
        ...

    async def ask(self, inbound: Inbound, show: ShowResult, files: Mapping[str, bytes] = NO_FILES) -> AskResult:
        """Run one turn and return its result. Raise `ConfigError` if the bot cannot use the model that it names.

        Args:
            show: called with the answer, unless there is none or it was lost; the adapter shows the files.
        """
        ...


class SentFiles:
    """The bytes of files that come with parts, for the adapter that shows them."""

    def __init__(self) -> None:
        self._bytes: dict[str, bytes] = {}

    async def blob(self, digest: str) -> bytes:
        """See `ChannelOptions.read_blob`."""
        data = self._bytes.get(digest)
        return await refuse_blob(digest) if data is None else data

    @contextmanager
    def open_part(self, body: JsonObject) -> Iterator[MessagePart]:
        """Yield the part in the bot's request. Its file can be read only within the block."""
        part = decode(body["part"], MessagePart)
        if part.file is None or "bytes" not in body:
            yield part
            return
        digest = part.file.digest
        self._bytes[digest] = b64decode(body["bytes"])
        try:
            yield part
        finally:
            self._bytes.pop(digest, None)


class RemoteChat:
    """A chat whose adapter is in this process and whose bot is in another.

    Attributes:
        files: the bytes of the part being shown.
        commands: the running bot's commands; empty before `open` has returned.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._show: ShowResult | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.files = SentFiles()
        self.commands: tuple[CommandInfo, ...] = ()

    @asynccontextmanager
    async def connect(self, address: str, channel: Channel) -> AsyncIterator[None]:
        """Connect the adapter to the running bot until the block ends. Raises `ControlError` if the bot ends first."""
        self._channel = channel
        async with connect_chat(address, self._on_request, self._on_notice) as peer, task_group() as group:
            self._peer: ChatPeer = peer
            watching = group.create_task(raise_when_closed(peer))
            yield
            watching.cancel()

    async def open(self) -> str:
        """See `ChatConnection`."""
        reply = await self._peer.request("open", {"session": self._session})
        self.commands = tuple(decode(command, CommandInfo) for command in reply["commands"])
        return str(reply["notice"])

    async def deliver_pending(self) -> int:
        """See `ChatConnection`."""
        return int((await self._peer.request("owed", {"session": self._session}))["waiting"])

    async def run(self) -> None:
        """See `ChatConnection`."""
        await self._channel.run(self.receive)

    def stop(self) -> None:
        """See `ChatConnection`."""
        self._keep(asyncio.create_task(self._stop()))

    async def _stop(self) -> None:
        name, _, chat = self._session.partition(":")
        with suppress(BubbotError):  # the bot has ended, and with it its turns
            await self.receive(StopRequest(name, chat))

    async def wait_until_idle(self) -> None:
        """See `ChatConnection`."""
        await self._peer.request("idle", {"session": self._session})

    async def ask(self, inbound: Inbound, show: ShowResult, files: Mapping[str, bytes] = NO_FILES) -> AskResult:
        """See `ChatConnection`."""
        self._show = show
        encoded = {reference: b64encode(data).decode() for reference, data in files.items()}
        body = {"inbound": encode(inbound)} | ({"files": encoded} if encoded else {})
        reply = await self._peer.request("ask", body)
        return decode(reply.get("result"), AskResult)

    async def receive(self, event: ChannelEvent) -> None:
        """See `Receive`: the running bot makes the event durable."""
        await self._peer.request("event", {"event": encode(event)})

    async def _on_request(self, name: str, body: JsonObject) -> JsonObject:
        """Show a part and return its receipt."""
        if name != "part":
            raise ControlError(f"this chat does not know {name!r}")
        with self.files.open_part(body) as part:
            if self._show is None:
                return {"external_id": (await self._channel.send(part)).external_id}
            try:
                if part.file:
                    await self._channel.send(part)
                else:
                    result = decode(body.get("result"), AskResult)
                    await asyncio.to_thread(self._show, result, result.text)
            except (OSError, OutputFailed) as error:  # nobody else waits for the answer: the command reports the loss
                reason = error.reason if isinstance(error, OutputFailed) else error
                raise DeliveryFailed(f"standard output is gone ({reason})", permanent=True) from error
        return {}

    def _on_notice(self, name: str, body: JsonObject) -> None:
        """Show a preview, or the copy of an answer to another client."""
        if name == "preview" and isinstance(self._channel, ShowsPreviews):
            self._channel.preview(self._session, decode(body["event"], *PREVIEWS))
        elif name == "copy":
            self._keep(asyncio.create_task(self._copy(body)))

    async def _copy(self, body: JsonObject) -> None:
        # The client that asked has the part, and it is on the tape.
        with suppress(BubbotError), self.files.open_part(body) as part:
            await self._channel.send(part)

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
