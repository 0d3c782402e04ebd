"""The inbox: received messages and changes, durable before the channel acknowledges them.

One tape per channel instance, `bubbot/inbox/<channel>`. `docs/reference/tape-format.md` lists its events.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from bubbot.gateway.checkpoint import CheckpointView, checkpoint_anchor
from bubbot.gateway.inbox_views import (
    BEGAN,
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
from bubbot.ports.channel import BackfillCursor, ChatMigration, Deletion, Edit, Inbound, Reaction, UnparsedUpdate
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.tape.entry import JsonObject, TapeEntry, event
from bubbot.tape.service import NewId, TapeService

INBOX_CHECKPOINT_INTERVAL = 50
"""Accepted inbounds between two bookkeeping anchors; a start-up reads about twice that."""


def inbox_tape(channel: str) -> str:
    """Return the name of a channel's inbox tape."""
    return f"bubbot/inbox/{channel}"


class Inbox:
    """The inbox of one channel: accepts inbounds and changes."""

    def __init__(self, tape: TapeService, new_id: NewId) -> None:
        self._tape = tape
        self._new_id = new_id
        self._unmarked: int | None = None
        self.on_accepted: Callable[[], None] = lambda: None
        """Called for each new inbound once it is durable."""

    @property
    def name(self) -> str:
        """The name of the inbox tape."""
        return self._tape.name

    async def accept(
        self, inbound: Inbound, also: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({})
    ) -> AcceptedInbound | None:
        """Make an inbound durable. Return None if it was accepted before; the first one stays.

        The key is the external id: anything that the platform delivers under it again is the same message. `also` has
        entries of other tapes for the same transaction, each with its own key.
        """
        nonce = self._new_id()
        entry = event(RECEIVED, inbound_data(inbound), key=inbound.external_id, accept=nonce)
        stored = await self._append_once(entry, nonce, also)
        if stored is None:
            return None
        self.on_accepted()
        return AcceptedInbound(stored.id, inbound_from(stored.payload["data"]))

    async def _append_once(
        self, entry: TapeEntry, nonce: str, also: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({})
    ) -> TapeEntry | None:
        """Append the entry, which contains the nonce; return None if its key came before."""
        stored = (await self._tape.append([entry], if_absent=True, other_tapes=also))[0]
        if stored.meta.get("accept") != nonce:
            return None
        if self._unmarked is not None:
            self._unmarked += 1
        return stored

    async def store_unparsed(self, unparsed: UnparsedUpdate) -> None:
        """Store an update that could not be parsed, bytes and reason, as a fact."""
        data = {
            "session": f"{unparsed.channel}:{unparsed.chat}",
            "chat": unparsed.chat,
            "reason": unparsed.reason,
            "raw": b64encode(unparsed.raw).decode(),
        }
        await self._tape.append([event(UNPARSED, data, key=unparsed.external_id)], if_absent=True)

    async def append(self, fact: TapeEntry) -> None:
        """Append a fact made by a function of this file."""
        await self._tape.append([fact])

    async def record_change(self, change: Edit | Deletion | Reaction | Inbound) -> TapeChange | None:
        """Make durable a change of a session's tape without a turn. Return None if it was noted before.

        The change is one of an earlier message, or a message that is only recorded.
        """
        nonce = self._new_id()
        stored = await self._append_once(
            event(MESSAGE_CHANGED, change_data(change), key=change.external_id, accept=nonce), nonce
        )
        return TapeChange(stored.id, change_from(stored.payload["data"])) if stored else None

    async def record_refused(self, external_id: str) -> None:
        """Record that something came and was refused: its id alone, nothing of its content."""
        await self._tape.append([event(INBOUND_REFUSED, {}, key=external_id)], if_absent=True)

    async def record_migration(self, migration: ChatMigration) -> None:
        """Record that a chat continues under another id."""
        data = {"chat": migration.chat, "to": migration.to, "time": migration.time}
        await self._tape.append([event(MOVED, data, key=migration.external_id)], if_absent=True)

    async def read_migrations(self) -> dict[str, str]:
        """Map the old id of each chat that moved to its current one."""
        return await self._tape.read(ChatMigrationsView())

    async def record_begin(self, time: str) -> None:
        """Record once that the channel runs from now on; earlier messages are not for it."""
        await self._tape.append([event(BEGAN, {"time": time}, key=BEGAN)], if_absent=True)

    async def read_cursor(self) -> BackfillCursor:
        """Return the newest message of each chat, and when the newest of all was sent; without the people."""
        return await self._tape.read(BackfillCursorView())

    async def recent_messages(self, since: datetime) -> tuple[Inbound, ...]:
        """Return the newest messages that were accepted since then, oldest first."""
        return await self._tape.read(RecentMessagesView(since))

    async def find_direct_message(self, people: frozenset[str]) -> Inbound | None:
        """Return the newest message that one of these people wrote in a direct chat."""
        return await self._tape.read(DirectChatView(people))

    async def open_inbounds(self) -> tuple[AcceptedInbound, ...]:
        """Return the inbounds that no turn has finished, oldest first, with the turns begun for them."""
        mark = await self._tape.read(CheckpointView(INBOX_CHECKPOINT))
        return await self._tape.read(InboxView(mark))

    async def open_changes(self) -> tuple[TapeChange, ...]:
        """Return the changes that are not on their session tapes yet, oldest first."""
        mark = await self._tape.read(CheckpointView(INBOX_CHECKPOINT))
        return await self._tape.read(OpenChangesView(mark))

    async def write_checkpoint(self) -> None:
        """Write a bookkeeping anchor if enough was accepted since the last one, so that recovery reads little.

        The first call counts what earlier processes accepted: some live for one message only.
        """
        if self._unmarked is None:
            checkpoint, head = await self._tape.read(CheckpointView(INBOX_CHECKPOINT)), await self._tape.head()
            self._unmarked = checkpoint.estimate_messages(head)
        if self._unmarked < INBOX_CHECKPOINT_INTERVAL:
            return
        self._unmarked = 0
        head = await self._tape.head()
        items = [_open_item(item) for item in await self.open_inbounds() if item.id <= head]
        items += [{"id": item.id, "attempts": 0} for item in await self.open_changes() if item.id <= head]
        await self._tape.append([checkpoint_anchor(INBOX_CHECKPOINT, head, items)])


def _open_item(accepted: AcceptedInbound) -> JsonObject:
    """Build what a bookkeeping anchor keeps of an open inbound."""
    item: JsonObject = {"id": accepted.id, "attempts": accepted.attempts}
    return {**item, "turn": accepted.interrupted_turn} if accepted.interrupted_turn else item


def restart_entry(time: str, restore: int) -> TapeEntry:
    """Make the fact that the channel starts again from now, after a restore: earlier messages belong to another bot."""
    return event(BEGAN, {"time": time, "restored": True}, key=f"{BEGAN}:{restore}")
