"""The channel whose adapters run in other processes: `bubbot chat` and `bubbot ask` beside the daemon."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bubbot.control.chat import RECEIPT_WAIT
from bubbot.control.codec import JsonObject, decode, encode
from bubbot.control.peer import ControlPeer
from bubbot.errors import BubbotError, ConfigError, ControlError, DeliveryFailed
from bubbot.gateway.control import Handler
from bubbot.gateway.outbound import whole_parts
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
    no_blob,
)
from bubbot.ports.turn import TurnResult
from bubbot.tape.service import TapeService
from bubbot.views.turns import LastTurnView

log = logging.getLogger(__name__)

EVENTS: tuple[type[ChannelEvent], ...] = (Inbound, Edit, Deletion, Reaction, ChatMigration, UnparsedUpdate, StopRequest)
MAX_REMEMBERED_SENDERS = 1000
"""Messages of which is known who asked; of older ones the newest client of the session counts as asker."""
CLIENT_READY_SECONDS = 30.0
"""Seconds that the channel may take to be run."""
ID_LIMIT = 200
"""Characters of the id that a client gives a part."""
MAX_REMOTE_REASON = 500
"""Characters of a client's reason that are kept."""
NO_CLIENT_REASON = "nobody has this chat open; it waits for the next one"


@dataclass(frozen=True, slots=True)
class ChatService:
    """What the clients may ask of the bot, session by session.

    `accept`: see `InboundGate.accept`. `notice`: what to tell first in a chat, and begins to load the model. `owed`
    delivers the session's open intents and says how many of its messages wait for turns. `idle` returns when no
    turn of the session runs or waits, and what they said has been handed to `send`; `delivered` when nothing for a
    chat is being sent. `tape` is that of a session.
    """

    accept: Callable[[Inbound], Awaitable[asyncio.Future[TurnResult] | None]]
    notice: Callable[[str], Awaitable[str]]
    owed: Callable[[str], Awaitable[int]]
    idle: Callable[[str], Awaitable[None]]
    delivered: Callable[[str], Awaitable[None]]
    commands: Callable[[], Sequence[CommandInfo]]
    tape: Callable[[str], TapeService]


@dataclass
class _RemoteSender:
    """Who said something. `tape`: that of its session, where it is `bubbot ask`, whose part comes with the result;
    `shown` is set when the client has taken its part, or has failed to."""

    peer: ControlPeer
    session: str
    tape: TapeService | None = None
    result: asyncio.Future[TurnResult] | None = None
    shown: asyncio.Event = field(default_factory=asyncio.Event)


class RemoteChannel:
    """See `Channel` and `ShowsPreviews`. An answer goes to the client that asked, whose receipt counts; other clients of
    the session get a copy. Where nobody is attached, it waits for the next one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.blob: Callable[[str], Awaitable[bytes]] = no_blob
        """Reads a stored file by its digest; the clients are sent the bytes with its part."""
        self._receive: asyncio.Future[Receive] | None = None
        self._attached: dict[str, list[ControlPeer]] = {}
        self._asked: dict[str, _RemoteSender] = {}

    async def run(self, receive: Receive) -> None:
        """Takes what the clients send, until it is cancelled."""
        self._receiver().set_result(receive)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._receive = None

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """One part for the text: a terminal takes any length; one for each file, which the client saves."""
        return whole_parts(outbound)

    async def send(self, part: MessagePart) -> Receipt:
        """Returns when the client that asked has shown the part."""
        session = ":".join(piece for piece in (self.name, part.chat, part.thread) if piece)
        asked = self._asked.get(part.reply_to)
        if asked is not None and (asked.session != session or asked.peer.gone.is_set()):
            asked = None
        there = self._there(session)
        first = asked.peer if asked else there[-1] if there else None
        if first is None:
            raise DeliveryFailed(NO_CLIENT_REASON)
        body: JsonObject = {"part": encode(part)}
        if part.file and part.file.digest:
            body["bytes"] = b64encode(await self.blob(part.file.digest)).decode()
        for other in there:
            if other is not first:
                other.notify("copy", body)
        if asked and asked.tape:
            body["result"] = await _result(asked, part.text)
        try:
            return await _shown(first, body)
        finally:
            if asked:
                asked.shown.set()

    def preview(self, session: str, event: Preview) -> None:
        """See `ShowsPreviews`. Pieces are dropped where a client is slow; begin and end of a turn are not."""
        there = self._there(session)
        if there:
            spare = isinstance(event, TextStreamed | ToolStarted | ToolFinished)
            body = {"event": encode(event)}
            for peer in there:
                peer.notify("preview", body, spare=spare)

    def handlers(self, doors: ChatService) -> Mapping[str, Handler]:
        """What the control server answers for this channel."""

        async def opened(peer: ControlPeer, body: JsonObject) -> JsonObject:
            session = self._session(body)
            self._attached.setdefault(session, []).append(peer)
            commands = [encode(one) for one in doors.commands()]
            return {"notice": await doors.notice(session), "commands": commands}

        async def owed(_peer: ControlPeer, body: JsonObject) -> JsonObject:
            return {"waiting": await doors.owed(self._session(body))}

        async def idle(_peer: ControlPeer, body: JsonObject) -> JsonObject:
            await doors.idle(self._session(body))
            return {}

        async def event(peer: ControlPeer, body: JsonObject) -> JsonObject:
            found = decode(body.get("event"), *EVENTS)
            if found.channel != self.name:
                raise ControlError(f"the event is of the channel {found.channel!r}, not of {self.name!r}")
            if isinstance(found, Inbound):
                self._remember(found.external_id, _RemoteSender(peer, found.session))
            async with asyncio.timeout(CLIENT_READY_SECONDS):
                receive = await asyncio.shield(self._receiver())
            await receive(found)
            return {}

        async def ask(peer: ControlPeer, body: JsonObject) -> JsonObject:
            return await self._ask(peer, decode(body.get("inbound"), Inbound), doors)

        return {"open": opened, "owed": owed, "idle": idle, "event": event, "ask": ask}

    def left(self, peer: ControlPeer) -> None:
        """Forgets a client that has gone."""
        for session, there in list(self._attached.items()):
            if peer in there:
                there.remove(peer)
            if not there:
                del self._attached[session]
        for external_id in [key for key, asked in self._asked.items() if asked.peer is peer]:
            del self._asked[external_id]

    async def _ask(self, peer: ControlPeer, inbound: Inbound, doors: ChatService) -> JsonObject:
        if inbound.channel != self.name:
            raise ControlError(f"the message is of the channel {inbound.channel!r}, not of {self.name!r}")
        asked = _RemoteSender(peer, inbound.session, doors.tape(inbound.session))
        self._remember(inbound.external_id, asked)
        asked.result = await doors.accept(inbound)
        if asked.result is None:
            raise ConfigError(f"the message {inbound.external_id} was accepted before")
        result = await asyncio.shield(asked.result)
        with suppress(TimeoutError):  # the client leaves with the result; what comes with the answer comes before
            async with asyncio.timeout(RECEIPT_WAIT):
                if result.text:
                    await asked.shown.wait()
                await doors.delivered(inbound.chat)
        return _told(result)

    def _session(self, body: JsonObject) -> str:
        session = body.get("session")
        if not isinstance(session, str) or not session.startswith(f"{self.name}:"):
            raise ControlError(f"{session!r} is no session of the channel {self.name!r}")
        return session

    def _remember(self, external_id: str, asked: _RemoteSender) -> None:
        self._asked[external_id] = asked
        while len(self._asked) > MAX_REMEMBERED_SENDERS:
            del self._asked[next(iter(self._asked))]

    def _there(self, session: str) -> list[ControlPeer]:
        """The clients of a session, the newest last."""
        return [peer for peer in self._attached.get(session, ()) if not peer.gone.is_set()]

    def _receiver(self) -> asyncio.Future[Receive]:
        if self._receive is None:
            self._receive = asyncio.get_running_loop().create_future()
        return self._receive


async def _shown(client: ControlPeer, body: JsonObject) -> Receipt:
    """Let a client show a part. Whatever it answers instead of a receipt is a `DeliveryFailed` of our own making."""
    try:
        told = await client.request("part", body, timeout=RECEIPT_WAIT)
        external_id = told.get("external_id", "")
        if not isinstance(external_id, str) or len(external_id) > ID_LIMIT or not external_id.isprintable():
            raise ControlError("its receipt cannot be read")
    except DeliveryFailed as error:
        # A terminal cannot say more than whether another try is useless: what else it claims is not believed.
        raise DeliveryFailed(str(error)[:MAX_REMOTE_REASON], permanent=error.permanent) from error
    except BubbotError as error:
        client.close()  # what it shows from now on could be a repeat
        reason = f"the chat did not take the answer ({str(error)[:MAX_REMOTE_REASON]}); it waits for the next one"
        raise DeliveryFailed(reason) from error
    except Exception as error:  # the boundary to another program: nothing that it sends may end the bot
        client.close()
        log.exception("a chat failed in an unforeseen way", extra={"action": "deliver.defect"})
        raise DeliveryFailed(f"the chat failed ({type(error).__name__}); the answer waits for the next one") from error
    return Receipt(external_id)


async def _result(asked: _RemoteSender, text: str) -> JsonObject:
    """How the turn ended whose text this is. It is merged before its text is sent, so its tape knows."""
    if asked.result is not None and asked.result.done():
        return _told(asked.result.result())
    last = await asked.tape.read(LastTurnView()) if asked.tape else None
    if last is None:  # somebody put the tape aside meanwhile
        return {"turn": "", "status": "answered", "text": text, "entries": []}
    return {"turn": last.turn, "status": last.status, "text": text, "entries": list(last.entries)}


def _told(result: TurnResult) -> JsonObject:
    ids = [entry.id for entry in result.merged]
    return {
        "turn": result.turn,
        "status": result.status,
        "text": result.text,
        "entries": [ids[0], ids[-1]] if ids else [],
    }
