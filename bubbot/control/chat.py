"""A real adapter at the client's end: what it receives goes to the running bot, what that says comes to it."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bubbot.control.codec import JsonObject, decode, encode
from bubbot.control.peer import ControlPeer
from bubbot.errors import BubbotError, ControlError
from bubbot.ports.channel import (
    Channel,
    ChannelEvent,
    CommandInfo,
    MessagePart,
    Preview,
    ShowsPreviews,
    StepFinished,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
    no_blob,
)

PREVIEWS: tuple[type[Preview], ...] = (TurnStarted, TextStreamed, ToolStarted, ToolFinished, StepFinished, TurnFinished)
RECEIPT_WAIT = 20.0
"""Seconds a client may take to show a part."""


class SentFiles:
    """The bytes of files that come with parts, for the adapter that shows the part."""

    def __init__(self) -> None:
        self._bytes: dict[str, bytes] = {}

    async def blob(self, digest: str) -> bytes:
        """See `ChannelOptions.blob`."""
        data = self._bytes.get(digest)
        return await no_blob(digest) if data is None else data

    @contextmanager
    def part(self, body: JsonObject) -> Iterator[MessagePart]:
        """The part in what the bot sent; its file can be read within the block."""
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


class ChatEnd:
    """The client's end of a chat. `commands` are those of the running bot, once `opened` has returned."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._channel: Channel | None = None
        self._peer: ControlPeer | None = None
        self._copies: set[asyncio.Task[object]] = set()
        self.files = SentFiles()
        self.commands: tuple[CommandInfo, ...] = ()

    async def opened(self, peer: ControlPeer, channel: Channel) -> str:
        """Attaches the adapter to the session of the running bot; what to tell the person first, or nothing."""
        self._peer, self._channel = peer, channel
        told = await peer.request("open", {"session": self._session})
        self.commands = tuple(decode(one, CommandInfo) for one in told["commands"])
        return str(told["notice"])

    async def owed(self) -> int:
        """Has what is owed to the session delivered; says how many messages wait there for their turns."""
        return int((await self._bot.request("owed", {"session": self._session}))["waiting"])

    async def idle(self) -> None:
        """Returns when everything said in the session is answered."""
        await self._bot.request("idle", {"session": self._session})

    async def receive(self, event: ChannelEvent) -> None:
        """See `Receive`: the running bot makes the event durable."""
        await self._bot.request("event", {"event": encode(event)})

    async def answer(self, _peer: ControlPeer, do: str, body: JsonObject) -> JsonObject:
        """Shows a part; the answer is its receipt."""
        if do != "part" or self._channel is None:
            raise ControlError(f"this chat does not know {do!r}")
        with self.files.part(body) as part:
            receipt = await self._channel.send(part)
        return {"external_id": receipt.external_id}

    def heard(self, do: str, body: JsonObject) -> None:
        """Shows a preview, or the copy of an answer to somebody else."""
        if do == "preview" and isinstance(self._channel, ShowsPreviews):
            self._channel.preview(self._session, decode(body["event"], *PREVIEWS))
        elif do == "copy":
            copying = asyncio.create_task(self._copy(body))
            self._copies.add(copying)
            copying.add_done_callback(self._copies.discard)

    async def _copy(self, body: JsonObject) -> None:
        if self._channel is not None:
            with suppress(BubbotError), self.files.part(body) as part:  # who asked has it, and it is on the tape
                await self._channel.send(part)

    @property
    def _bot(self) -> ControlPeer:
        if self._peer is None:
            raise ControlError("the chat is not open")
        return self._peer
