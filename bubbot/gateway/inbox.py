"""The inbox: received messages and changes, durable before the channel acknowledges them.

One tape per channel instance, `bubbot/inbox/<channel>`, or one of its shards. `docs/reference/tape-format.md` lists its
events.
"""

from __future__ import annotations

import heapq
import logging
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import TypeVar

from msgspec import structs

from bubbot.gateway.facts import (
    BotAddedToGroup,
    ButtonPressed,
    ChannelBegan,
    InboundRefused,
    InboundWaiting,
    OpenInbound,
    PressRefused,
    UpdateUnparsed,
)
from bubbot.gateway.inbox_views import (
    INBOX_PROJECTION,
    MESSAGE_CHANGED,
    MIGRATIONS_PROJECTION,
    RECEIVED,
    BackfillCursorView,
    DirectChatView,
    GroupIdsView,
    RecentMessagesView,
    WaitingMessagesView,
    change_entry,
    change_from,
    combine_cursors,
    inbound_entry,
    inbound_from,
    sent_at,
)
from bubbot.gateway.languages import PersonLanguages
from bubbot.gateway.migrations import ChatMigrations
from bubbot.ports.channel import (
    BackfillCursor,
    BotAdded,
    ButtonPress,
    ChatMigration,
    Deletion,
    Edit,
    Inbound,
    PressedButton,
    Reaction,
    Sender,
    UnparsedUpdate,
)
from bubbot.ports.inbox import InboundsDone
from bubbot.ports.session_names import ChatMoved
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, text_field
from bubbot.tape.handle import spans_of
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import NewId, TapeService
from bubbot.tape.shards import chat_of

log = logging.getLogger(__name__)
E = TypeVar("E")
UNREADABLE_ERRORS = (TypeError, KeyError, AttributeError, ValueError)
"""Errors that values of wrong types raise."""
MAX_OUTCOMES_READ = 200
"""Newest facts about finished inbounds to search for one."""
MAX_WAITING_CHARS = 4_000
"""Characters of a stranger's message that are stored until the stranger is let in."""


def inbox_tape(channel: str) -> str:
    return f"bubbot/inbox/{channel}"


class Inbox:
    """The inbox of one channel: accepts inbounds and changes."""

    def __init__(self, tape: TapeService, new_id: NewId, projections: ProjectionRunner | None = None) -> None:
        projections = projections or ProjectionRunner()
        self._tape = tape
        self._new_id = new_id
        self._open = [projections.project(INBOX_PROJECTION, shard) for shard in tape.shards()]
        self._migrations = projections.project(MIGRATIONS_PROJECTION, tape)
        self._newest_ids: dict[str, int] = {}
        self._chats: dict[str, dict[int, str]] = {}
        self.languages = PersonLanguages(tape.shards())
        self.on_accepted: Callable[[], None] = lambda: None
        """Called for each new inbound once it is durable."""

    @property
    def name(self) -> str:
        return self._tape.name

    @property
    def tapes(self) -> tuple[str, ...]:
        return self._tape.shards_of(self.name)

    def tape_of(self, session: str) -> str:
        """Return the tape with the inbounds of a session."""
        return self._tape.shard(session).name

    async def accept(
        self, inbound: Inbound, also: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({})
    ) -> AcceptedInbound | None:
        """Make an inbound durable; return None if it was accepted before. The first one stays.

        The key is the external id: a redelivery under it is the same message. `also` has entries of other tapes for the
        same transaction, each with its own key. An inbound of a faulty third-party adapter that could not be read back
        is stored as an unparsed update and also gives None.
        """
        nonce = self._new_id()
        try:
            entry = inbound_entry(inbound, accept=nonce)
            accepted = inbound_from(entry.data)
            _require_sender(accepted)
        except UNREADABLE_ERRORS as error:
            await self._set_aside(inbound, error)
            return None
        stored = await self._append_once(inbound.session, entry, nonce, also)
        if stored is None:
            return None
        self.languages.note(inbound)
        self.on_accepted()
        return AcceptedInbound(stored.id, accepted)

    async def _set_aside(self, event: Edit | Deletion | Reaction | Inbound, error: Exception) -> None:
        log.error("event not readable, set aside: %r", error, extra={"action": "inbox.unreadable"})
        raw, reason = repr(event).encode(errors="replace"), f"{type(error).__name__}: {error}"
        await self.store_unparsed(UnparsedUpdate(event.channel, event.external_id, event.chat, raw, reason))

    async def _append_once(
        self,
        session: str,
        entry: TapeEntry,
        nonce: str,
        also: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({}),
    ) -> TapeEntry | None:
        """Append the entry, which contains the nonce; return None if its key is stored already."""
        tape = self._tape.shard(session)
        stored = (await tape.append([entry], if_absent=True, other_tapes=also, wakes=session))[0]
        if stored.meta.get("accept") != nonce:
            return None
        self._newest_ids[tape.name] = stored.id
        return stored

    async def store_unparsed(self, unparsed: UnparsedUpdate) -> None:
        """Store an update that could not be parsed, with bytes and reason."""
        session = f"{unparsed.channel}:{unparsed.chat}"
        fact = UpdateUnparsed(session, unparsed.chat, unparsed.reason, b64encode(unparsed.raw).decode())
        await self._tape.shard(session).append([fact.to_entry(key=unparsed.external_id)], if_absent=True)

    async def append(self, fact: TapeEntry, *, session: str = "") -> None:
        """Append a fact about inbounds of a session, or about no session."""
        await self._tape.shard(session).append([fact])

    async def record_change(self, change: Edit | Deletion | Reaction | Inbound) -> TapeChange | None:
        """Record durably a change of a session's tape without a turn; return None if it was recorded before.

        It is a change of an earlier message, or a message that is only recorded.
        """
        nonce = self._new_id()
        try:
            entry = change_entry(change, accept=nonce)
            readable = change_from(entry.data)
        except UNREADABLE_ERRORS as error:
            await self._set_aside(change, error)
            return None
        stored = await self._append_once(change.session, entry, nonce)
        return TapeChange(stored.id, readable) if stored else None

    async def record_refused(self, external_id: str, session: str) -> None:
        """Record a refused message by its id, without its content."""
        await self._tape.shard(session).append([refused_entry(external_id)], if_absent=True)

    async def record_waiting(self, inbound: Inbound) -> None:
        """Store a truncated message of a stranger who waits to be let in; it gets no answer yet."""
        cut = structs.replace(inbound, text=inbound.text[:MAX_WAITING_CHARS], quote=None)
        fact = inbound_entry(cut, InboundWaiting, key=f"waiting:{inbound.external_id}")
        facts = [refused_entry(inbound.external_id), fact]
        await self._tape.shard(inbound.session).append(facts, if_absent=True)

    async def list_waiting(self) -> tuple[Inbound, ...]:
        """Return the newest message of each stranger who waits or was let in."""
        found = [await tape.read(WaitingMessagesView()) for tape in self._tape.shards()]
        return tuple(inbound for messages in found for inbound in messages)

    async def find_waiting(self, person: str) -> Inbound | None:
        """Return the newest waiting message of a person, also after admission; None without one."""
        return next((inbound for inbound in await self.list_waiting() if inbound.sender.id == person), None)

    async def is_group(self, number: str) -> bool:
        """Return true if an id is a group or a space in which the bot was recently called or answered."""
        for tape in self._tape.shards():
            if number in await tape.read(GroupIdsView()):
                return True
        return False

    async def record_added(self, added: BotAdded, also: Mapping[str, Sequence[TapeEntry]]) -> bool:
        """Record that the bot was added to a group, with entries of other tapes; false if it was recorded before."""
        nonce = self._new_id()
        fact = BotAddedToGroup(added.channel, added.chat, added.sender.id, added.time)
        entry = fact.to_entry(key=added.external_id, accept=nonce)
        return await self._append_once(added.session, entry, nonce, also) is not None

    async def has_fact(self, session: str, key: str) -> bool:
        """Return true if the tape of a session has an entry with this key."""
        tape = self._tape.shard(session)
        return bool((await tape.fetch([TapeQuery(tape.name, keys=(key,))]))[0])

    def pressed_entries(self, inbound: Inbound) -> Mapping[str, Sequence[TapeEntry]]:
        """Make the fact of a press without a turn, for the transaction of its decision."""
        return {self.tape_of(inbound.session): [inbound_entry(inbound, ButtonPressed)]}

    async def record_press_refused(self, press: ButtonPress, reason: str) -> None:
        """Record once that a press of a button did nothing, with the person and the reason."""
        fact = PressRefused(press.session, press.sender.id, press.message, reason)
        await self._tape.shard(press.session).append([fact.to_entry(key=press.external_id)], if_absent=True)

    async def find_press(self, buttons: str, session: str) -> PressedButton | None:
        """Return the accepted press of this button set, if any."""
        tape = self._tape.shard(session)
        entries = (await tape.fetch([TapeQuery(tape.name, keys=(press_key(buttons),))]))[0]
        return inbound_from(entries[0].payload["data"]).press if entries and not entries[0].erased else None

    async def record_migration(self, migration: ChatMigration) -> None:
        """Record that a chat continues under another id."""
        move = ChatMoved(migration.chat, migration.to, migration.time).to_entry(key=migration.external_id)
        await self._migrations.follow(await self._tape.append([move], if_absent=True))
        await self._migrations.write_checkpoint()

    async def read_migrations(self) -> ChatMigrations:
        """Return the chats that moved; it follows later moves."""
        await self._migrations.catch_up()
        return ChatMigrations(lambda: self._migrations.state)

    async def record_begin(self, time: str) -> None:
        """Record once that the channel begins now; it ignores earlier messages."""
        await self._tape.append([ChannelBegan(time).to_entry(key=ChannelBegan.EVENTS[0])], if_absent=True)

    async def read_cursor(self) -> BackfillCursor:
        """Return the newest message of each chat and the time of the newest of all, without the people."""
        return combine_cursors([await tape.read(BackfillCursorView()) for tape in self._tape.shards()])

    async def recent_messages(self, since: datetime) -> tuple[Inbound, ...]:
        """Return the newest messages accepted since then, oldest first."""
        messages = [await tape.read(RecentMessagesView(since)) for tape in self._tape.shards()]
        return tuple(heapq.merge(*messages, key=sent_at))

    async def find_direct_message(self, people: frozenset[str]) -> Inbound | None:
        """Return the newest message that one of these people wrote in a direct chat."""
        found = [await tape.read(DirectChatView(people)) for tape in self._tape.shards()]
        return max((inbound for inbound in found if inbound is not None), key=sent_at, default=None)

    async def open_inbounds(self) -> tuple[AcceptedInbound, ...]:
        """Return the inbounds that no turn has finished, with the turns begun for them; those of a chat oldest first."""
        found = _read_each(inbound_from, await self._read_open(RECEIVED))
        return tuple(AcceptedInbound(entry.id, inbound, item.attempts, item.turn) for entry, item, inbound in found)

    async def open_changes(self) -> tuple[TapeChange, ...]:
        """Return the changes that are not on their session tapes yet, those of a chat oldest first."""
        found = _read_each(change_from, await self._read_open(MESSAGE_CHANGED))
        return tuple(TapeChange(entry.id, change) for entry, _, change in found)

    async def open_of(self, chat: str) -> tuple[AcceptedInbound | TapeChange, ...]:
        """Return the open inbounds and changes of one chat, with all its threads, in order of arrival."""
        tape = self._tape.shard(chat)
        projected = next(each for each, shard in zip(self._open, self._tape.shards(), strict=True) if shard is tape)
        items = await projected.catch_up()
        known = self._chats.get(tape.name, {})
        ids = [number for number in items if known.get(number, chat) == chat]
        self._chats[tape.name] = known = {number: known[number] for number in items if number in known}
        if not ids:
            return ()
        found: list[AcceptedInbound | TapeChange] = []
        for entry in (await tape.fetch([TapeQuery(tape.name, IdRanges(tuple(spans_of(ids))))]))[0]:
            if entry.erased or entry.id not in items:
                continue
            known[entry.id] = chat_of(text_field(entry.data, "session"))
            if known[entry.id] != chat:
                continue
            item = items[entry.id]
            if entry.name == RECEIVED:
                read = _read_each(inbound_from, [(entry, item)])
                found += [AcceptedInbound(entry.id, each, item.attempts, item.turn) for _, _, each in read]
            else:
                found += [TapeChange(entry.id, each) for _, _, each in _read_each(change_from, [(entry, item)])]
        return tuple(found)

    async def find_outcome(self, session: str, inbound: int) -> InboundsDone | None:
        """Return how an inbound of a session was finished; None if it is open, or was finished long ago."""
        tape = self._tape.shard(session)
        query = TapeQuery(
            tape.name, kinds=(Kind.EVENT,), names=InboundsDone.EVENTS, newest=True, limit=MAX_OUTCOMES_READ
        )
        facts = [InboundsDone.of(entry) for entry in (await tape.fetch([query]))[0] if not entry.erased]
        return next((fact for fact in facts if inbound in fact.inbounds), None)

    async def _read_open(self, name: str) -> list[tuple[TapeEntry, OpenInbound]]:
        """Read the open entries with this name, except erased ones."""
        found: list[tuple[TapeEntry, OpenInbound]] = []
        for tape, projected in zip(self._tape.shards(), self._open, strict=True):
            if items := await projected.catch_up():
                query = TapeQuery(tape.name, IdRanges(tuple(spans_of(list(items)))), kinds=(Kind.EVENT,), names=(name,))
                entries = (await tape.fetch([query]))[0]
                found += [(entry, items[entry.id]) for entry in entries if not entry.erased]
        return found

    async def write_checkpoint(self) -> None:
        """Write a checkpoint if one is due, so that recovery reads little."""
        if len(self._open) == 1:
            await self._open[0].write_checkpoint(self._newest_ids.get(self.name, 0))
            return
        for tape, projected in zip(self.tapes, self._open, strict=True):
            if newest_id := self._newest_ids.get(tape, 0):
                await projected.write_checkpoint(newest_id)


def _require_sender(inbound: Inbound) -> None:
    """Raise `TypeError` if a third-party adapter left out the sender."""
    if not isinstance(inbound.sender, Sender):
        raise TypeError("it has no sender")


def _read_each(
    read: Callable[[JsonObject], E], found: Iterable[tuple[TapeEntry, OpenInbound]]
) -> Iterator[tuple[TapeEntry, OpenInbound, E]]:
    """Read an adapter's events; log and skip unreadable ones."""
    for entry, item in found:
        try:
            yield entry, item, read(entry.data)
        except UNREADABLE_ERRORS as error:
            log.warning("entry #%d not readable, left out: %r", entry.id, error, extra={"action": "inbox.unreadable"})


def refused_entry(external_id: str) -> TapeEntry:
    """Make the fact about a refused message, by its id."""
    return InboundRefused().to_entry(key=external_id)


def press_key(buttons: str) -> str:
    """Return the external id of a press's inbound: only the first press of a button set counts."""
    return f"press:{buttons}"


def restart_entry(time: str, restore: int) -> TapeEntry:
    """Make the fact that the channel begins again after a restore: earlier messages belong to another bot."""
    return ChannelBegan(time, restored=True).to_entry(key=f"{ChannelBegan.EVENTS[0]}:{restore}")
