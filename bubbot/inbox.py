"""The inbox: what a channel received, durable before it is acknowledged.

One tape per channel instance, `bubbot/inbox/<channel>`. `docs/reference/tape-format.md` lists its events.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from bubbot.ports.channel import BackfillCursor, ChatMigration, Deletion, Edit, Inbound, Reaction, UnparsedUpdate
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.tape.entry import JsonObject, TapeEntry, event
from bubbot.tape.service import NewId, TapeService
from bubbot.views.checkpoint import CheckpointView, mark_anchor
from bubbot.views.inbox import (
    BEGAN,
    INBOUND_DONE,
    INBOUND_INTERRUPTED,
    INBOUND_REFUSED,
    INBOX_CHECKPOINT,
    MESSAGE_CHANGED,
    MOVED,
    RECEIVED,
    UNPARSED,
    BackfillCursorView,
    ChatMigrationsView,
    DirectChatView,
    InboxView,
    OpenChangesView,
    RecentMessagesView,
    change_data,
    change_from,
    inbound_data,
    inbound_from,
)

INBOX_CHECKPOINT_INTERVAL = 50
"""Accepted inbounds between two bookkeeping anchors; what a start-up has to read is about twice that."""


def inbox_tape(channel: str) -> str:
    """The name of a channel's inbox tape."""
    return f"bubbot/inbox/{channel}"


class Inbox:
    """Accepts inbounds of one channel."""

    def __init__(self, tape: TapeService, new_id: NewId) -> None:
        self._tape = tape
        self._new_id = new_id
        self._unmarked: int | None = None
        self.accepted: Callable[[], None] = lambda: None
        """Told of each inbound that was made durable and had not come before."""

    @property
    def name(self) -> str:
        """The name of the inbox tape."""
        return self._tape.name

    async def accept(
        self, inbound: Inbound, also: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({})
    ) -> AcceptedInbound | None:
        """Makes an inbound durable. None: it was accepted before, and the first one stays.

        The key is the external id: whatever the platform delivers under it again is the same message. `also` are
        entries of other tapes that go into the same transaction, each under a key of its own.
        """
        nonce = self._new_id()
        entry = event(RECEIVED, inbound_data(inbound), key=inbound.external_id, accept=nonce)
        stored = await self._first(entry, nonce, also)
        if stored is None:
            return None
        self.accepted()
        return AcceptedInbound(stored.id, inbound_from(stored.payload["data"]))

    async def _first(
        self, entry: TapeEntry, nonce: str, also: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({})
    ) -> TapeEntry | None:
        """Keeps the entry, which carries the nonce; None where its key came before."""
        stored = (await self._tape.append([entry], keep_first=True, also=also))[0]
        if stored.meta.get("accept") != nonce:
            return None
        if self._unmarked is not None:
            self._unmarked += 1
        return stored

    async def set_aside(self, unparsed: UnparsedUpdate) -> None:
        """Keeps what could not be read, bytes and reason, as a fact."""
        data = {
            "session": f"{unparsed.channel}:{unparsed.chat}",
            "chat": unparsed.chat,
            "reason": unparsed.reason,
            "raw": b64encode(unparsed.raw).decode(),
        }
        await self._tape.append([event(UNPARSED, data, key=unparsed.external_id)], keep_first=True)

    async def append(self, fact: TapeEntry) -> None:
        """Appends a fact of this file's making."""
        await self._tape.append([fact])

    async def note(self, change: Edit | Deletion | Reaction | Inbound) -> TapeChange | None:
        """Makes durable what changes a session's tape without a turn: a change of an earlier message, or a message
        that is only heard. None: it was noted before."""
        nonce = self._new_id()
        stored = await self._first(
            event(MESSAGE_CHANGED, change_data(change), key=change.external_id, accept=nonce), nonce
        )
        return TapeChange(stored.id, change_from(stored.payload["data"])) if stored else None

    async def refuse(self, external_id: str) -> None:
        """The fact that something came and was not taken: its id alone, nothing of what it said."""
        await self._tape.append([event(INBOUND_REFUSED, {}, key=external_id)], keep_first=True)

    async def moved(self, moved: ChatMigration) -> None:
        """The fact that a chat goes on under another id."""
        data = {"chat": moved.chat, "to": moved.to, "time": moved.time}
        await self._tape.append([event(MOVED, data, key=moved.external_id)], keep_first=True)

    async def moves(self) -> dict[str, str]:
        """From the id of each chat that moved to the one it has now."""
        return await self._tape.read(ChatMigrationsView())

    async def begin(self, time: str) -> None:
        """The fact that the channel runs from now on, once; what was sent before is not for it."""
        await self._tape.append([event(BEGAN, {"time": time}, key=BEGAN)], keep_first=True)

    async def newest(self) -> BackfillCursor:
        """The newest message of each chat, and when the newest of all was sent; without the people."""
        return await self._tape.read(BackfillCursorView())

    async def recent(self, since: datetime) -> tuple[Inbound, ...]:
        """The newest messages that were accepted since then, oldest first."""
        return await self._tape.read(RecentMessagesView(since))

    async def direct(self, people: frozenset[str]) -> Inbound | None:
        """The newest message that one of these people wrote in a direct chat."""
        return await self._tape.read(DirectChatView(people))

    async def open(self) -> tuple[AcceptedInbound, ...]:
        """The inbounds that no turn has finished, oldest first, with the turns begun for them."""
        mark = await self._tape.read(CheckpointView(INBOX_CHECKPOINT))
        return await self._tape.read(InboxView(mark))

    async def changes(self) -> tuple[TapeChange, ...]:
        """The changes that are not on their session tapes yet, oldest first."""
        mark = await self._tape.read(CheckpointView(INBOX_CHECKPOINT))
        return await self._tape.read(OpenChangesView(mark))

    async def mark(self) -> None:
        """Writes a bookkeeping anchor when enough was accepted since the last one, so that recovery reads little.

        The first call counts what earlier processes accepted: some live for one message only.
        """
        if self._unmarked is None:
            last, head = await self._tape.read(CheckpointView(INBOX_CHECKPOINT)), await self._tape.head()
            self._unmarked = last.passed(head)
        if self._unmarked < INBOX_CHECKPOINT_INTERVAL:
            return
        self._unmarked = 0
        head = await self._tape.head()
        still = [_open_item(one) for one in await self.open() if one.id <= head]
        still += [{"id": one.id, "attempts": 0} for one in await self.changes() if one.id <= head]
        await self._tape.append([mark_anchor(INBOX_CHECKPOINT, head, still)])


def _open_item(accepted: AcceptedInbound) -> JsonObject:
    """Build what a bookkeeping anchor keeps of an open inbound."""
    item: JsonObject = {"id": accepted.id, "attempts": accepted.attempts}
    return {**item, "turn": accepted.interrupted_turn} if accepted.interrupted_turn else item


def began_anew(time: str, restore: int) -> TapeEntry:
    """The fact that the channel goes on from now, after a restore: what was sent before is somebody else's."""
    return event(BEGAN, {"time": time, "restored": True}, key=f"{BEGAN}:{restore}")


def done(ids: Sequence[int], *, turn: str = "", outcome: str) -> TapeEntry:
    """The fact that a turn finished these inbounds, or, without a turn, that nothing more is to be done for them."""
    return event(INBOUND_DONE, {"inbounds": list(ids), "turn": turn, "outcome": outcome})


def interrupted(ids: Sequence[int], *, turn: str) -> TapeEntry:
    """The fact that the process ended in the middle of a turn for these inbounds; they are open still."""
    return event(INBOUND_INTERRUPTED, {"inbounds": list(ids), "turn": turn})
