"""The client's end of a chat: what a local adapter receives goes to the running bot, and its answers come back."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress

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
    refuse_blob,
)
from bubbot.server.codec import JsonObject, decode, encode
from bubbot.server.peer import ControlPeer

PREVIEWS: tuple[type[Preview], ...] = (TurnStarted, TextStreamed, ToolStarted, ToolFinished, StepFinished, TurnFinished)
RECEIPT_TIMEOUT_SECONDS = 20.0
"""Seconds a client may take to show a part."""


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
        """Yield the part in the bot's request; its file can be read within the block."""
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
    """The client's end of a chat.

    Attributes:
        files: the bytes of the part being shown.
        commands: those of the running bot, once `open` has returned.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._channel: Channel | None = None
        self._peer: ControlPeer | None = None
        self._copies: set[asyncio.Task[object]] = set()
        self.files = SentFiles()
        self.commands: tuple[CommandInfo, ...] = ()

    async def open(self, peer: ControlPeer, channel: Channel) -> str:
        """Attach the adapter to a session of the running bot; return the notice to show first, or an empty text."""
        self._peer, self._channel = peer, channel
        reply = await peer.request("open", {"session": self._session})
        self.commands = tuple(decode(command, CommandInfo) for command in reply["commands"])
        return str(reply["notice"])

    async def deliver_pending(self) -> int:
        """Deliver the session's pending messages; return how many inbounds wait there for their turns."""
        return int((await self._connection.request("owed", {"session": self._session}))["waiting"])

    async def wait_until_idle(self) -> None:
        """Return when everything said in the session is answered."""
        await self._connection.request("idle", {"session": self._session})

    async def receive(self, event: ChannelEvent) -> None:
        """See `Receive`: the running bot makes the event durable."""
        await self._connection.request("event", {"event": encode(event)})

    async def on_request(self, _peer: ControlPeer, name: str, body: JsonObject) -> JsonObject:
        """Show a part and return its receipt."""
        if name != "part" or self._channel is None:
            raise ControlError(f"this chat does not know {name!r}")
        with self.files.open_part(body) as part:
            receipt = await self._channel.send(part)
        return {"external_id": receipt.external_id}

    def on_notice(self, name: str, body: JsonObject) -> None:
        """Show a preview, or the copy of an answer to another client."""
        if name == "preview" and isinstance(self._channel, ShowsPreviews):
            self._channel.preview(self._session, decode(body["event"], *PREVIEWS))
        elif name == "copy":
            copying = asyncio.create_task(self._copy(body))
            self._copies.add(copying)
            copying.add_done_callback(self._copies.discard)

    async def _copy(self, body: JsonObject) -> None:
        if self._channel is not None:
            # The client that asked has the part, and it is on the tape.
            with suppress(BubbotError), self.files.open_part(body) as part:
                await self._channel.send(part)

    @property
    def _connection(self) -> ControlPeer:
        if self._peer is None:
            raise ControlError("the chat is not open")
        return self._peer
