"""The channel whose adapters run in other processes: `bubbot chat` and `bubbot ask` while the daemon is running."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bubbot.errors import BubbotError, ConfigError, ControlError, DeliveryFailed
from bubbot.gateway.outbound import unsplit_parts
from bubbot.ports.channel import (
    ChannelEvent,
    ChatMigration,
    CommandInfo,
    Deletion,
    Edit,
    Inbound,
    MessagePart,
    Outbound,
    Preview,
    Reaction,
    Receipt,
    Receive,
    StopRequest,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    UnparsedUpdate,
    refuse_blob,
)
from bubbot.ports.turn import TurnResult
from bubbot.runtime.turns import LastTurnView
from bubbot.server.chat import RECEIPT_TIMEOUT_SECONDS
from bubbot.server.codec import JsonObject, decode, encode
from bubbot.server.control import Handler
from bubbot.server.peer import ControlPeer
from bubbot.tape.service import TapeService

log = logging.getLogger(__name__)

EVENTS: tuple[type[ChannelEvent], ...] = (Inbound, Edit, Deletion, Reaction, ChatMigration, UnparsedUpdate, StopRequest)
MAX_REMEMBERED_SENDERS = 1000
"""Messages whose client is remembered; answers to older ones go to the newest client of the session."""
CLIENT_READY_SECONDS = 30.0
"""Seconds to wait until the channel runs."""
ID_LIMIT = 200
"""Characters of the id that a client gives a part."""
MAX_REMOTE_REASON = 500
"""Characters to keep of a client's reason."""
NO_CLIENT_REASON = "nobody has this chat open; it waits for the next one"


@dataclass(frozen=True, slots=True)
class ChatService:
    """The requests that clients may make of the bot, session by session.

    Attributes:
        accept: see `InboundGate.accept`.
        opening_notice: returns the first text to show in a chat, and begins to load the model.
        deliver_pending: delivers the session's open messages and returns how many inbounds wait for turns.
        wait_until_idle: returns when no turn of the session runs or waits, and its answers have been passed to `send`.
        wait_until_delivered: returns when nothing for a chat is being sent.
        commands: returns the commands that people may type.
        tape_of: returns the tape of a session.
    """

    accept: Callable[[Inbound], Awaitable[asyncio.Future[TurnResult] | None]]
    opening_notice: Callable[[str], Awaitable[str]]
    deliver_pending: Callable[[str], Awaitable[int]]
    wait_until_idle: Callable[[str], Awaitable[None]]
    wait_until_delivered: Callable[[str], Awaitable[None]]
    commands: Callable[[], Sequence[CommandInfo]]
    tape_of: Callable[[str], TapeService]


@dataclass
class _RemoteSender:
    """The client that sent a message.

    Attributes:
        peer: its connection.
        session: the session of the message.
        tape: that of the session, for `bubbot ask`, whose part comes with the result; else None.
        result: the turn's, for `bubbot ask`; else None.
        shown: set when the client has taken its part, or has failed to.
    """

    peer: ControlPeer
    session: str
    tape: TapeService | None = None
    result: asyncio.Future[TurnResult] | None = None
    shown: asyncio.Event = field(default_factory=asyncio.Event)


class RemoteChannel:
    """See `Channel` and `ShowsPreviews`.

    An answer goes to the client that sent the message, whose receipt counts; other clients of the session get a copy.
    If no client is attached, it waits for the next one.

    Attributes:
        read_blob: reads a stored file by its digest; clients get the bytes with the part.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.read_blob: Callable[[str], Awaitable[bytes]] = refuse_blob
        self._receive: asyncio.Future[Receive] | None = None
        self._attached: dict[str, list[ControlPeer]] = {}
        self._asked: dict[str, _RemoteSender] = {}

    async def run(self, receive: Receive) -> None:
        """Receive what the clients send, until cancelled."""
        self._receiver().set_result(receive)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._receive = None

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Return one part for the text, of any length for a terminal, and one for each file, which the client saves."""
        return unsplit_parts(outbound)

    async def send(self, part: MessagePart) -> Receipt:
        """Send a part and return when the client that asked has shown it."""
        session = ":".join(piece for piece in (self.name, part.chat, part.thread) if piece)
        sender = self._asked.get(part.reply_to)
        if sender is not None and (sender.session != session or sender.peer.closed.is_set()):
            sender = None
        clients = self._clients(session)
        client = sender.peer if sender else clients[-1] if clients else None
        if client is None:
            raise DeliveryFailed(NO_CLIENT_REASON)
        body: JsonObject = {"part": encode(part)}
        if part.file and part.file.digest:
            body["bytes"] = b64encode(await self.read_blob(part.file.digest)).decode()
        for other in clients:
            if other is not client:
                other.notify("copy", body)
        if sender and sender.tape:
            body["result"] = await _turn_result(sender, part.text)
        try:
            return await _show_at(client, body)
        finally:
            if sender:
                sender.shown.set()

    def preview(self, session: str, event: Preview) -> None:
        """See `ShowsPreviews`. For a slow client, pieces are dropped; begin and end of a turn are not."""
        clients = self._clients(session)
        if clients:
            spare = isinstance(event, TextStreamed | ToolStarted | ToolFinished)
            body = {"event": encode(event)}
            for peer in clients:
                peer.notify("preview", body, droppable=spare)

    def handlers(self, service: ChatService) -> Mapping[str, Handler]:
        """Return the control server's handlers for this channel, by request."""

        async def opened(peer: ControlPeer, body: JsonObject) -> JsonObject:
            session = self._session(body)
            self._attached.setdefault(session, []).append(peer)
            commands = [encode(command) for command in service.commands()]
            return {"notice": await service.opening_notice(session), "commands": commands}

        async def owed(_peer: ControlPeer, body: JsonObject) -> JsonObject:
            return {"waiting": await service.deliver_pending(self._session(body))}

        async def idle(_peer: ControlPeer, body: JsonObject) -> JsonObject:
            await service.wait_until_idle(self._session(body))
            return {}

        async def event(peer: ControlPeer, body: JsonObject) -> JsonObject:
            received = decode(body.get("event"), *EVENTS)
            if received.channel != self.name:
                raise ControlError(f"the event is of the channel {received.channel!r}, not of {self.name!r}")
            if isinstance(received, Inbound):
                self._remember(received.external_id, _RemoteSender(peer, received.session))
            async with asyncio.timeout(CLIENT_READY_SECONDS):
                receive = await asyncio.shield(self._receiver())
            await receive(received)
            return {}

        async def ask(peer: ControlPeer, body: JsonObject) -> JsonObject:
            return await self._ask(peer, decode(body.get("inbound"), Inbound), service)

        return {"open": opened, "owed": owed, "idle": idle, "event": event, "ask": ask}

    def forget_client(self, peer: ControlPeer) -> None:
        """Forget a client that has disconnected."""
        for session, clients in list(self._attached.items()):
            if peer in clients:
                clients.remove(peer)
            if not clients:
                del self._attached[session]
        for external_id in [key for key, sender in self._asked.items() if sender.peer is peer]:
            del self._asked[external_id]

    async def _ask(self, peer: ControlPeer, inbound: Inbound, service: ChatService) -> JsonObject:
        if inbound.channel != self.name:
            raise ControlError(f"the message is of the channel {inbound.channel!r}, not of {self.name!r}")
        sender = _RemoteSender(peer, inbound.session, service.tape_of(inbound.session))
        self._remember(inbound.external_id, sender)
        sender.result = await service.accept(inbound)
        if sender.result is None:
            raise ConfigError(f"the message {inbound.external_id} was accepted before")
        result = await asyncio.shield(sender.result)
        with suppress(TimeoutError):  # the client leaves with the result; the answer and its files come first
            async with asyncio.timeout(RECEIPT_TIMEOUT_SECONDS):
                if result.text:
                    await sender.shown.wait()
                await service.wait_until_delivered(inbound.chat)
        return _result_json(result)

    def _session(self, body: JsonObject) -> str:
        session = body.get("session")
        if not isinstance(session, str) or not session.startswith(f"{self.name}:"):
            raise ControlError(f"{session!r} is not a session of the channel {self.name!r}")
        return session

    def _remember(self, external_id: str, sender: _RemoteSender) -> None:
        self._asked[external_id] = sender
        while len(self._asked) > MAX_REMEMBERED_SENDERS:
            del self._asked[next(iter(self._asked))]

    def _clients(self, session: str) -> list[ControlPeer]:
        """Return the clients of a session, the newest last."""
        return [peer for peer in self._attached.get(session, ()) if not peer.closed.is_set()]

    def _receiver(self) -> asyncio.Future[Receive]:
        if self._receive is None:
            self._receive = asyncio.get_running_loop().create_future()
        return self._receive


async def _show_at(client: ControlPeer, body: JsonObject) -> Receipt:
    """Let a client show a part. Any answer other than a receipt becomes a `DeliveryFailed` of our own making."""
    try:
        reply = await client.request("part", body, timeout=RECEIPT_TIMEOUT_SECONDS)
        external_id = reply.get("external_id", "")
        if not isinstance(external_id, str) or len(external_id) > ID_LIMIT or not external_id.isprintable():
            raise ControlError("its receipt cannot be read")
    except DeliveryFailed as error:
        # A terminal can only say if another try is useless; its other claims are ignored.
        raise DeliveryFailed(str(error)[:MAX_REMOTE_REASON], permanent=error.permanent) from error
    except BubbotError as error:
        client.close()  # anything it shows from now on could be a repeat
        reason = f"the chat did not take the answer ({str(error)[:MAX_REMOTE_REASON]}); it waits for the next one"
        raise DeliveryFailed(reason) from error
    except Exception as error:  # the boundary to another program: nothing it sends may end the bot
        client.close()
        log.exception("chat client failed unexpectedly", extra={"action": "deliver.defect"})
        raise DeliveryFailed(f"the chat failed ({type(error).__name__}); the answer waits for the next one") from error
    return Receipt(external_id)


async def _turn_result(sender: _RemoteSender, text: str) -> JsonObject:
    """Return the result of the turn with this text. The turn is merged before its text is sent, so its tape knows."""
    if sender.result is not None and sender.result.done():
        return _result_json(sender.result.result())
    last_turn = await sender.tape.read(LastTurnView()) if sender.tape else None
    if last_turn is None:  # the tape was archived in the meantime
        return {"turn": "", "status": "answered", "text": text, "entries": []}
    return {"turn": last_turn.turn, "status": last_turn.status, "text": text, "entries": list(last_turn.entries)}


def _result_json(result: TurnResult) -> JsonObject:
    ids = [entry.id for entry in result.merged_entries]
    return {
        "turn": result.turn_id,
        "status": result.status,
        "text": result.text,
        "entries": [ids[0], ids[-1]] if ids else [],
    }
