"""The channel whose adapters run in other processes: `bubbot chat` and `bubbot ask` while the daemon is running."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from msgspec import Struct, structs

from bubbot.errors import BubbotError, ConfigError, ControlError, DeliveryFailed
from bubbot.gateway.outbound import unsplit_parts
from bubbot.ports.channel import (
    Attachment,
    BotAdded,
    ButtonPress,
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
    TurnFinished,
    TurnStarted,
    UnparsedUpdate,
    refuse_blob,
)
from bubbot.ports.turn import TurnResult
from bubbot.runtime.turns import LastTurnView
from bubbot.server.protocol import JsonObject, decode, encode
from bubbot.tape.service import TapeService

log = logging.getLogger(__name__)

EVENTS: tuple[type[ChannelEvent], ...] = (
    Inbound,
    Edit,
    Deletion,
    Reaction,
    BotAdded,
    ButtonPress,
    ChatMigration,
    UnparsedUpdate,
    StopRequest,
)
MAX_REMEMBERED_SENDERS = 1000
"""Messages whose client is remembered; answers to older ones go to the newest client of the session."""
CLIENT_READY_SECONDS = 30.0
"""Seconds to wait until the channel runs."""
RECEIPT_TIMEOUT_SECONDS = 20.0
"""Seconds a client may take to show a part."""
MAX_REMOTE_REASON = 500
"""Characters to keep of a client's reason."""
NO_CLIENT_REASON = "nobody has this chat open; it waits for the next one"


class AskResult(Struct, frozen=True, forbid_unknown_fields=True):
    """The result of a turn, for the program that asked.

    Attributes:
        status: see `Status`.
        text: the answer as people read it.
        entries: the first and the last entry of the turn on its tape; empty if there is none.
    """

    turn: str
    status: str
    text: str
    entries: tuple[int, ...] = ()

    @classmethod
    def of(cls, result: TurnResult) -> AskResult:
        ids = [entry.id for entry in result.merged_entries]
        return cls(result.turn_id, result.status, result.text, (ids[0], ids[-1]) if ids else ())


class ChatClient(Protocol):
    """A program that shows the bot's answers to a person, at the other end of a connection."""

    @property
    def is_closed(self) -> bool:
        """True if it has disconnected."""
        ...

    def close(self) -> None:
        """Disconnect it at once."""
        ...

    async def show(self, part: MessagePart, data: bytes | None, result: AskResult | None) -> str:
        """Send a part and return its id at the client once that has shown it, within `RECEIPT_TIMEOUT_SECONDS`.

        Args:
            data: the bytes of its file; None if it has none.
            result: the result of the turn, if the client asked for it.
        """
        ...

    def copy(self, part: MessagePart, data: bytes | None) -> None:
        """Send a copy of a part that another client was shown."""
        ...

    def preview(self, event: Preview) -> None:
        """Send a preview; a slow client may miss some."""
        ...


ChatHandler: TypeAlias = Callable[[ChatClient, JsonObject], Awaitable[JsonObject]]
"""Answers one kind of request of a chat client; a `BubbotError` becomes the answer."""


class ChatService(Struct, frozen=True):
    """The requests that clients may make of the bot, session by session.

    Attributes:
        accept: see `InboundGate.ask`.
        opening_notice: returns the first text to show in a chat, and begins to load the model.
        deliver_pending: delivers the session's open messages and returns how many inbounds wait for turns.
        wait_until_idle: returns when no turn of the session runs or waits, and its answers have been passed to `send`.
        wait_until_delivered: returns when no answer to a chat is being sent.
        check_model: raises `ConfigError` if no model of this name can be used.
    """

    accept: Callable[[Inbound], Awaitable[asyncio.Future[TurnResult] | None]]
    opening_notice: Callable[[str], Awaitable[str]]
    deliver_pending: Callable[[str], Awaitable[int]]
    wait_until_idle: Callable[[str], Awaitable[None]]
    wait_until_delivered: Callable[[str], Awaitable[None]]
    commands: Callable[[], Sequence[CommandInfo]]
    tape_of: Callable[[str], TapeService]
    check_model: Callable[[str], object] = lambda _name: None


@dataclass
class RemoteSender:
    """The client that sent a message.

    Attributes:
        tape: the session's tape for `bubbot ask`, whose part carries the result; else None.
        accepted: set when `result` is known, or the message was not accepted.
        result: the turn's, for `bubbot ask`; else None.
        shown: set when the client has shown its part, or failed to.
    """

    client: ChatClient
    session: str
    tape: TapeService | None = None
    accepted: asyncio.Event = field(default_factory=asyncio.Event)
    result: asyncio.Future[TurnResult] | None = None
    shown: asyncio.Event = field(default_factory=asyncio.Event)

    def waits_in(self, session: str) -> bool:
        """Return true if its client is still there, and sent the message in this session.

        Clients choose the ids of their messages: one of another session may have chosen the same.
        """
        return self.session == session and not self.client.is_closed


class RemoteChannel:
    """See `Channel` and `ShowsPreviews`.

    An answer goes to the client that sent the message, whose receipt counts; other clients of the session get a copy.
    If no client is attached, it waits for the next one.

    Attributes:
        read_blob: reads a stored file by its digest. Clients get the bytes with the part.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.read_blob: Callable[[str], Awaitable[bytes]] = refuse_blob
        self._receive: asyncio.Future[Receive] | None = None
        self._attached: dict[str, list[ChatClient]] = {}
        self._asked: dict[str, RemoteSender] = {}
        self._running: dict[str, ChatClient] = {}

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
        session, sender = self._session_of(part), self._sender_of(part)
        clients = self._clients(session)
        client = sender.client if sender else clients[-1] if clients else None
        if client is None:
            raise DeliveryFailed(NO_CLIENT_REASON)
        data = await self._read_file(part)
        for other in clients:
            if other is not client:
                other.copy(part, data)
        result = await _turn_result(sender, part.text) if sender and sender.tape else None
        try:
            return await _show_at(client, part, data, result)
        finally:
            if sender:
                sender.shown.set()

    def preview(self, session: str, event: Preview) -> None:
        """See `ShowsPreviews`. The session's clients and the sender of the answered message get them."""
        if isinstance(event, TurnStarted) and (sender := self._asked.get(event.message)) and sender.waits_in(session):
            self._running[session] = sender.client
        clients = self._clients(session)
        asking = self._running.get(session)
        if asking is not None and asking not in clients:
            clients.append(asking)
        for client in clients:
            client.preview(event)
        if isinstance(event, TurnFinished):
            self._running.pop(session, None)

    def handlers(self, service: ChatService) -> Mapping[str, ChatHandler]:
        """Return the handlers of clients' requests, by name."""

        async def opened(client: ChatClient, body: JsonObject) -> JsonObject:
            session = self._session(body)
            self._attached.setdefault(session, []).append(client)
            commands = [encode(command) for command in service.commands()]
            return {"notice": await service.opening_notice(session), "commands": commands}

        async def owed(_client: ChatClient, body: JsonObject) -> JsonObject:
            return {"waiting": await service.deliver_pending(self._session(body))}

        async def idle(_client: ChatClient, body: JsonObject) -> JsonObject:
            await service.wait_until_idle(self._session(body))
            return {}

        async def event(client: ChatClient, body: JsonObject) -> JsonObject:
            received = decode(body.get("event"), *EVENTS)
            self._require_own(received)
            if isinstance(received, Inbound):
                self._remember(received.external_id, RemoteSender(client, received.session))
            async with asyncio.timeout(CLIENT_READY_SECONDS):
                receive = await asyncio.shield(self._receiver())
            await receive(received)
            return {}

        async def ask(client: ChatClient, body: JsonObject) -> JsonObject:
            inbound, files = decode(body.get("inbound"), Inbound), _decode_files(body.get("files", {}))
            self._require_own(inbound)  # before a file is stored on a tape
            if inbound.model:
                service.check_model(inbound.model)
            inbound = await store_files(service.tape_of(inbound.session), inbound, files)
            return {"result": encode(await self.ask(client, inbound, service))}

        return {"open": opened, "owed": owed, "idle": idle, "event": event, "ask": ask}

    def forget_client(self, client: ChatClient) -> None:
        """Forget a client that has disconnected."""
        for session, clients in list(self._attached.items()):
            if client in clients:
                clients.remove(client)
            if not clients:
                del self._attached[session]
        for external_id in [key for key, sender in self._asked.items() if sender.client is client]:
            del self._asked[external_id]
        for session in [key for key, asking in self._running.items() if asking is client]:
            del self._running[session]

    async def ask(
        self,
        client: ChatClient,
        inbound: Inbound,
        service: ChatService,
        on_accepted: Callable[[], None] = lambda: None,
    ) -> AskResult:
        """Accept a message; return the result of its turn after the client has shown the answer.

        Args:
            on_accepted: called when the message is durable.

        Raises:
            ConfigError: the message was accepted before.
        """
        sender = RemoteSender(client, inbound.session, service.tape_of(inbound.session))
        self._remember(inbound.external_id, sender)
        try:
            sender.result = await service.accept(inbound)
        finally:
            sender.accepted.set()
            if sender.result is None and self._asked.get(inbound.external_id) is sender:
                del self._asked[inbound.external_id]
        if sender.result is None:
            raise ConfigError(f"the message {inbound.external_id} was accepted before")
        on_accepted()
        result = await asyncio.shield(sender.result)
        with suppress(TimeoutError):  # the client leaves with the result; the answer and its files come first
            async with asyncio.timeout(RECEIPT_TIMEOUT_SECONDS):
                if result.text:
                    await sender.shown.wait()
                await service.wait_until_delivered(inbound.chat)
        return AskResult.of(result)

    def _session_of(self, part: MessagePart) -> str:
        """Return the session of a part."""
        return ":".join(piece for piece in (self.name, part.chat, part.thread) if piece)

    def _sender_of(self, part: MessagePart) -> RemoteSender | None:
        """Return the sender of the message that a part answers; None if it disconnected or does not wait."""
        sender = self._asked.get(part.reply_to)
        if sender is not None and not sender.waits_in(self._session_of(part)):
            return None
        if sender is not None and sender.tape is not None and not part.key:
            return None  # a notice, such as how many turns are before this one, is not the answer
        return sender

    async def _read_file(self, part: MessagePart) -> bytes | None:
        return await self.read_blob(part.file.digest) if part.file and part.file.digest else None

    def _require_own(self, event: ChannelEvent) -> None:
        """Raise `ControlError` if an event is of another channel, whose chats no client may write in."""
        if event.channel != self.name:
            raise ControlError(f"the event is of the channel {event.channel!r}, not of {self.name!r}")

    def _session(self, body: JsonObject) -> str:
        session = body.get("session")
        if not isinstance(session, str) or not session.startswith(f"{self.name}:"):
            raise ControlError(f"{session!r} is not a session of the channel {self.name!r}")
        return session

    def _remember(self, external_id: str, sender: RemoteSender) -> None:
        known = self._asked.get(external_id)
        if known is not None and not known.client.is_closed:
            return  # who repeats a message does not get the answer of the one that waits for it
        self._asked[external_id] = sender
        while len(self._asked) > MAX_REMEMBERED_SENDERS:
            del self._asked[next(iter(self._asked))]

    def _clients(self, session: str) -> list[ChatClient]:
        """Return the clients of a session, the newest last."""
        return [client for client in self._attached.get(session, ()) if not client.is_closed]

    def _receiver(self) -> asyncio.Future[Receive]:
        if self._receive is None:
            self._receive = asyncio.get_running_loop().create_future()
        return self._receive


async def store_files(tape: TapeService, inbound: Inbound, files: Mapping[str, bytes]) -> Inbound:
    """Store the files of a message, by reference, on the tape of its session; return the message that cites them.

    The files are durable before the message, so every process that opens its turn has them.
    """

    async def store(attachment: Attachment) -> Attachment:
        data = files.get(attachment.reference)
        return attachment if data is None else structs.replace(attachment, digest=await tape.put_blob(data))

    return structs.replace(inbound, attachments=tuple([await store(each) for each in inbound.attachments]))


def _decode_files(files: object) -> dict[str, bytes]:
    if not isinstance(files, Mapping):
        raise ControlError(f"the files are {type(files).__name__}, not an object")
    try:
        return {str(reference): b64decode(data, validate=True) for reference, data in files.items()}
    except (TypeError, ValueError) as error:
        raise ControlError("a file is not base64") from error


async def _show_at(client: ChatClient, part: MessagePart, data: bytes | None, result: AskResult | None) -> Receipt:
    """Let a client show a part. Raise `DeliveryFailed` for any answer except a receipt."""
    try:
        return Receipt(await client.show(part, data, result))
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


async def _turn_result(sender: RemoteSender, text: str) -> AskResult:
    """Return the result of the turn with this text, from the tape: the turn was merged before its text was sent."""
    await sender.accepted.wait()  # a command that overtakes has a result, but no turn
    if sender.result is not None and sender.result.done():
        return AskResult.of(sender.result.result())
    last_turn = await sender.tape.read(LastTurnView()) if sender.tape else None
    if last_turn is None:  # the tape was archived in the meantime
        return AskResult("", "answered", text)
    return AskResult(last_turn.turn, last_turn.status, text, tuple(last_turn.entries))
