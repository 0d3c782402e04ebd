"""The memory of people and of the workspace: read once a turn, changed by facts that the turn stages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import tzinfo
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bubbot.errors import EntryNotFound
from bubbot.features.memory.block import ScopedMemory
from bubbot.features.memory.changes import (
    ZONE_PROJECTION,
    ZoneChangesView,
    ZoneState,
    find_lost_lines,
    forget_lines,
    merge_lines,
    restate_without,
    stripped_lines,
    trace_lines,
    without_old_notes,
)
from bubbot.features.memory.facts import (
    MemoryCleared,
    MemoryForgot,
    MemoryNoted,
    MemoryRestored,
    MemorySaved,
    RestoredNote,
    ZoneChange,
)
from bubbot.features.memory.scopes import (
    WORKSPACE_TAPE,
    ZONE_TAPES,
    Account,
    ChatFacts,
    FindsAccounts,
    SeparateAccounts,
    read_facts,
    user_tape,
)
from bubbot.features.memory.settings import Scope
from bubbot.features.memory.views import DailyNote, MemorySnapshot, MemoryVersion, sort_by_day, tidy_text
from bubbot.features.memory.zone import DatedZone, MemoryZone, check_needle, check_size, missing_version_text
from bubbot.ports.turn import Turn
from bubbot.tape.entry import TapeEntry
from bubbot.tape.fork import MergeResult
from bubbot.tape.handle import Clock
from bubbot.tape.projection import ProjectedTape
from bubbot.tape.provenance import Source, most_foreign, note_source, stamp_of
from bubbot.tape.service import TapeService

AnyZone: TypeAlias = "MemoryZone | SharedZone"
"""The memory of a chat, of a person or of the workspace: the same operations on each."""

MAX_CACHED_ZONES = 1_000
"""Memories kept in memory at most, about 2 kB each and their words; a dropped one is read from its tape again."""


class StoredMemory(Struct, frozen=True):
    """What a tape of shared memory holds.

    Attributes:
        memory: the memory.
        head: the newest entry of the tape; 0 if it has none.
    """

    memory: MemorySnapshot = msgspec.field(default_factory=MemorySnapshot)
    head: int = 0

    def with_staged(self, entries: Sequence[TapeEntry]) -> MemorySnapshot:
        """Return the memory after entries that a fork has staged, as if nobody else wrote before its merge."""
        if not entries:
            return self.memory
        numbered = [entry.with_id(self.head + place) for place, entry in enumerate(entries, 1)]
        return ZoneState(self.memory).apply(numbered).memory


class PinnedZones(Struct, frozen=True):
    """What a turn has read of shared memory: it sees the same until it ends, and its own changes.

    Attributes:
        memories: by tape.
        tapes: the tapes of each scope; the first one is written.
        unused_by: nothing was kept in any memory that a turn with these facts may see; None if that is not known.
    """

    memories: dict[str, StoredMemory] = msgspec.field(default_factory=dict)
    tapes: dict[Scope, tuple[str, ...]] = msgspec.field(default_factory=dict)
    unused_by: ChatFacts | None = None


class ZoneTapes(Struct, frozen=True):
    """How a shared memory reads and writes its tapes.

    Attributes:
        names: the tapes; the first one is written, all are read.
        read: returns the memory of one, with what was changed here already.
        write: adds changes to one.
        fetch: returns all stored changes of one.
        find_source: returns how foreign the words of the writer are.
    """

    names: tuple[str, ...]
    read: Callable[[str], Awaitable[MemorySnapshot]]
    write: Callable[[str, Sequence[TapeEntry]], Awaitable[None]]
    fetch: Callable[[str], Awaitable[tuple[TapeEntry, ...]]]
    find_source: Callable[[], Source] = lambda: Source.OWN


class SharedZone(DatedZone):
    """The memory of a person or of the workspace; it has the operations of `MemoryZone`.

    A change says what it adds and removes; what others changed meanwhile stays. A person with several accounts has one
    tape for each: all are read as one memory, and what is new goes to the first.

    Attributes:
        scope: whose memory it is.
    """

    def __init__(
        self,
        scope: Scope,
        tapes: ZoneTapes,
        origin: Mapping[str, str],
        *,
        now: Clock,
        zone: tzinfo,
        retention_days: int,
    ) -> None:
        super().__init__(now, zone, retention_days)
        self.scope = scope
        self._tapes = tapes
        self._origin = origin

    async def read(self) -> MemorySnapshot:
        """Return the memory, without notes that are too old; its version is that of the first tape."""
        return (await self.read_scoped()).memory

    async def read_scoped(self) -> ScopedMemory:
        """Return the memory as `read` does, with the entries that it is made of."""
        tapes = await self._read_tapes()
        entries = {name: ((1, memory.version),) for name, memory in tapes if memory.version}
        joined = join_memories([memory for _, memory in tapes])
        note_source(joined.most_foreign)  # from memory, not from the tape
        foreign = [(name, memory) for name, memory in tapes if memory.most_foreign is joined.most_foreign]
        return ScopedMemory(self.scope, joined, entries, (foreign[0][0], foreign[0][1].version))

    async def versions(self) -> tuple[MemoryVersion, ...]:
        """Return the stored versions of the first tape, newest first."""
        changes = await self._tapes.fetch(self._tapes.names[0])
        return tuple(MemoryVersion(entry.id, entry.id, entry.date) for entry in reversed(changes))

    async def save_long_term(self, content: str) -> list[str]:
        """Replace the long-term text. Return the lost lines: those that the new text does not have.

        A line that another account remembers stays there, so that it goes with the chat it came from.
        """
        whole, tapes = tidy_text(content), await self._read_tapes()
        text = whole
        before = join_memories([memory for _, memory in tapes])
        lost = find_lost_lines(before.long_term, text)
        check_size(before, replace(before, long_term=text))
        others = stripped_lines("\n".join(memory.long_term for _, memory in tapes[1:]))
        others -= stripped_lines(tapes[0][1].long_term)
        if others:
            text = tidy_text("\n".join(line for line in text.splitlines() if line.strip() not in others))
        for place, (name, memory) in enumerate(tapes):
            own_lost = find_lost_lines(memory.long_term, whole)
            saved = merge_lines(memory.long_term, (), own_lost) if place else text
            if saved != memory.long_term and (own_lost or not place):
                present = stripped_lines(memory.long_term)
                added = tuple(
                    number
                    for number, line in enumerate(saved.splitlines())
                    if line.strip() and line.strip() not in present
                )
                copied = memory.provenance if place else Source.OWN
                fact = MemorySaved(saved, memory.version, added, tuple(own_lost))
                await self._write(name, fact, copied)
        return lost

    async def append_daily(self, content: str, date: str | None = None) -> None:
        """Add lines to the note of a day, by default today. Raise `ValueError` as `check_day` does."""
        day = self.check_day(date)
        text = tidy_text(content)
        if not text:
            return
        current = (await self._read_tapes())[0][1]
        notes = {note.date: note.content for note in current.dailies}
        notes[day] = f"{notes[day]}\n{text}" if day in notes else text
        check_size(current, replace(current, dailies=tuple(DailyNote(*note) for note in sorted(notes.items()))))
        await self._write(self._tapes.names[0], MemoryNoted(day, text))

    async def forget(self, text: str) -> list[str]:
        """Remove every line that contains the text. Return the removed lines. Raise `ValueError` for an empty text."""
        needle = check_needle(text)
        removed: list[str] = []
        for name, memory in await self._read_tapes():
            lost = forget_lines(memory, needle, "")[1]
            if lost:
                await self._write(name, MemoryForgot(text))
                removed += [line for line in lost if line not in removed]
        return removed

    async def restore(self, version: int) -> None:
        """Bring an older version of the first tape back as a new one. Raise `EntryNotFound`, naming the versions."""
        changes = await self._tapes.fetch(self._tapes.names[0])
        ids = [entry.id for entry in changes]
        if version not in ids:
            raise EntryNotFound(missing_version_text(version, ids))
        older, lines = trace_lines([entry for entry in changes if entry.id <= version])
        sessions = {origin.session for origins in lines.values() for origin in origins}
        current = (await self._read_tapes())[0][1]
        older = without_old_notes(older, self.today(), self.retention_days)
        if not older.has_same_content(current):
            check_size(current, older)
            sources = tuple(sorted(filter(None, sessions)))
            fact = MemoryRestored(version, sources, older.long_term, _restored_notes(older))
            await self._write(self._tapes.names[0], fact, older.most_foreign)

    async def import_snapshot(self, content: MemorySnapshot) -> None:
        """Replace the whole memory, on all its tapes; the changes before stay on them."""
        tapes = await self._read_tapes()
        check_size(tapes[0][1], content)
        for name, memory in tapes[1:]:
            if not memory.is_empty:
                await self._write(name, MemoryCleared())
        if not content.has_same_content(tapes[0][1]):
            # A file may hold words from anywhere.
            fact = MemoryRestored(0, long_term=content.long_term, notes=_restored_notes(content))
            await self._write(tapes[0][0], fact, Source.WORLD)

    async def clear(self) -> None:
        """Empty the memory; the changes before stay on the tapes."""
        for name, memory in await self._read_tapes():
            if not memory.is_empty:
                await self._write(name, MemoryCleared())

    async def _read_tapes(self) -> list[tuple[str, MemorySnapshot]]:
        memories = [(name, await self._tapes.read(name)) for name in self._tapes.names]
        if not any(memory.dailies for _, memory in memories):
            return memories
        today, days = self.today(), self.retention_days
        return [(name, without_old_notes(memory, today, days)) for name, memory in memories]

    async def _write(self, tape: str, fact: ZoneChange, copied: Source = Source.OWN) -> None:
        """Write a change. `copied`: how foreign the words are that it takes from the memory itself."""
        mark = stamp_of(most_foreign(copied, self._tapes.find_source()))
        await self._tapes.write(tape, [replace(fact, **self._origin).to_entry(**mark)])


class SharedZones:
    """The memories of people and of the workspace; those that were asked for last are kept in memory.

    A turn reads a memory as it was when the turn first asked; what other chats write is there from its next turn on.
    """

    def __init__(
        self,
        open_tape: Callable[[str], TapeService],
        now: Clock,
        accounts: FindsAccounts | None = None,
        *,
        is_written_elsewhere: bool = False,
    ) -> None:
        """Read nothing yet. `is_written_elsewhere`: other processes write to the store, too."""
        self._is_written_elsewhere = is_written_elsewhere
        self._open_tape = open_tape
        self._now = now
        self._accounts = accounts or SeparateAccounts()
        self._projected: dict[str, ProjectedTape[ZoneState]] = {}  # the one that was asked for last is the last
        self._unused: dict[ChatFacts, tuple[object, Mapping[Scope, tuple[str, ...]]]] = {}
        """Who sees no memory, as nothing was ever kept on any of these tapes, and the links of accounts at that time."""

    async def open_zone(self, turn: Turn, scope: Scope, retention_days: int) -> SharedZone:
        """Open a memory for a turn that has access to it (see `choose_zones`)."""
        names = await self._pin_tapes(turn, scope)

        async def read(tape: str) -> MemorySnapshot:
            return (await self._pin_memory(turn, tape)).with_staged(turn.tape.staged_entries(tape))

        async def write(tape: str, entries: Sequence[TapeEntry]) -> None:
            turn.tape.stage(tape, entries)

        tapes = ZoneTapes(names, read, write, self._read_changes, lambda: turn.tape.source)
        origin = {"session": turn.session, "channel": turn.session.partition(":")[0], "by": turn.sender.id}
        return SharedZone(scope, tapes, origin, now=turn.now, zone=turn.zone, retention_days=retention_days)

    async def open_outside(
        self, tapes: tuple[str, ...], scope: Scope, *, zone: tzinfo, retention_days: int
    ) -> SharedZone:
        """Open a memory outside of turns, for the shell: its changes are durable at once."""

        async def write(tape: str, entries: Sequence[TapeEntry]) -> None:
            stored = await self._open_tape(tape).append(entries)
            if projected := self._projected.get(tape):
                await projected.follow(stored)
            self._unused.clear()

        async def read(tape: str) -> MemorySnapshot:
            return (await self._load(tape)).memory

        names = ZoneTapes(tapes, read, write, self._read_changes)
        return SharedZone(scope, names, {}, now=self._now, zone=zone, retention_days=retention_days)

    async def erase(self, tapes: Sequence[str]) -> int:
        """Erase these memories for good, with their older versions; return how many entries lost their content."""
        count = 0
        for tape in tapes:
            changes = len(await self._read_changes(tape))
            if changes:
                await self._open_tape(tape).reset(archive=False)
                count += changes
            self._projected.pop(tape, None)
        self._unused.clear()
        return count

    async def find_user_tapes(self, account: Account) -> tuple[str, ...]:
        """Return the tapes of the person with an account; the first one is written."""
        return tuple(user_tape(each) for each in await self._accounts.linked_accounts(account))

    async def follow(self, merged: MergeResult) -> None:
        """Take over the changes of a merged turn; forget everything if it erased a tape."""
        if merged.has_erased:
            self.forget_all()
        else:
            for tape, entries in merged.staged.items():
                if projected := self._projected.get(tape):
                    await projected.follow(entries)
                if tape.startswith(ZONE_TAPES):
                    self._unused.clear()

    async def find_traces(self, turn: Turn) -> list[str]:
        """Return the tapes with words from the turn's session, which is about to be erased.

        The fold of what is left would bring back what this session removed; so what is to stay is staged again.
        """
        account = read_facts(turn).account
        tapes = [WORKSPACE_TAPE]
        if account is not None:
            former = await self._accounts.former_accounts(account)
            tapes += [*await self.find_user_tapes(account), *(user_tape(each) for each in former)]
        found = []
        for tape in dict.fromkeys(tapes):
            changes = await self._read_changes(tape)
            if any(entry.data.get("session") == turn.session for entry in changes):
                turn.tape.stage(tape, restate_without(changes, lambda origin: origin.session == turn.session))
                found.append(tape)
        return found

    def sees_nothing(self, turn: Turn, facts: ChatFacts) -> bool:
        """Return true if it is known without reading that nothing was ever kept in any memory that the turn may see."""
        pinned: PinnedZones | None = turn.metadata.get(PinnedZones)
        if pinned is None:
            known = self._unused.get(facts)
            if known is None or known[0] is not self._accounts.links:
                return False
            tapes = known[1]
            memories = {tape: StoredMemory() for names in tapes.values() for tape in names}
            turn.metadata[PinnedZones] = pinned = PinnedZones(memories, dict(tapes), facts)
        return pinned.unused_by == facts and not any(map(turn.tape.staged_entries, pinned.memories))

    def note_unused(self, turn: Turn, facts: ChatFacts) -> None:
        """Remember for further turns that nothing was ever kept in what this one has read, if that still is so."""
        tapes = pin_zones(turn).tapes
        known = [self._projected.get(tape) for names in tapes.values() for tape in names]
        is_certain = not self._is_written_elsewhere
        if is_certain and all(projected is not None and not projected.position for projected in known):
            if len(self._unused) >= MAX_CACHED_ZONES:
                self._unused.clear()
            self._unused[facts] = (self._accounts.links, dict(tapes))

    def forget_unused(self) -> None:
        """Forget who sees no memory, since other memory may be seen now."""
        self._unused.clear()

    def forget_all(self) -> None:
        """Read every memory from its tape again: entries were erased."""
        self._projected.clear()
        self._unused.clear()

    async def is_unused(self, turn: Turn, scope: Scope) -> bool:
        """Return true if nothing was ever kept in a memory that the turn has access to."""
        pinned = pin_zones(turn)
        for tape in pinned.tapes.get(scope) or await self._pin_tapes(turn, scope):
            stored = pinned.memories.get(tape) or await self._pin_memory(turn, tape)
            if stored.head or turn.tape.staged_entries(tape):
                return False
        return True

    async def _pin_tapes(self, turn: Turn, scope: Scope) -> tuple[str, ...]:
        """Return the tapes of a memory, the same ones until the turn ends."""
        pinned = pin_zones(turn)
        if scope not in pinned.tapes:
            pinned.tapes[scope] = await self._find_tapes(turn, scope)
        return pinned.tapes[scope]

    async def _pin_memory(self, turn: Turn, tape: str) -> StoredMemory:
        """Return what a tape held when the turn first asked."""
        pinned = pin_zones(turn)
        if tape not in pinned.memories:
            pinned.memories[tape] = await self._load(tape)
        return pinned.memories[tape]

    async def _find_tapes(self, turn: Turn, scope: Scope) -> tuple[str, ...]:
        if scope is Scope.WORKSPACE:
            return (WORKSPACE_TAPE,)
        return await self.find_user_tapes((turn.session.partition(":")[0], turn.sender.id))

    async def _read_changes(self, tape: str) -> tuple[TapeEntry, ...]:
        return await self._open_tape(tape).read(ZoneChangesView())

    async def _load(self, tape: str) -> StoredMemory:
        projected = self._projected.pop(tape, None) or ProjectedTape(ZONE_PROJECTION, self._open_tape(tape))
        self._projected[tape] = projected  # before it is read: what is merged meanwhile must not be missed
        if len(self._projected) > MAX_CACHED_ZONES:
            del self._projected[next(iter(self._projected))]
        await (projected.catch_up() if self._is_written_elsewhere else projected.ensure_loaded())
        return StoredMemory(projected.state.memory, projected.position)


def pin_zones(turn: Turn) -> PinnedZones:
    """Return what the turn has read of shared memory; nothing at first."""
    if PinnedZones not in turn.metadata:
        turn.metadata[PinnedZones] = PinnedZones()
    pinned: PinnedZones = turn.metadata[PinnedZones]
    return pinned


def join_memories(memories: Sequence[MemorySnapshot]) -> MemorySnapshot:
    """Join memories, at least one: the first, and the lines of the others that it does not have."""
    joined = memories[0]
    for other in memories[1:]:
        notes = {note.date: note for note in joined.dailies}
        for note in other.dailies:
            earlier = notes.get(note.date)
            content = merge_lines(earlier.content, note.content.splitlines(), ()) if earlier else note.content
            source = most_foreign(note.provenance, *([earlier.provenance] if earlier else []))
            notes[note.date] = DailyNote(note.date, content, note.updated_at, source)
        text, source = joined.long_term, joined.provenance
        if other.long_term:
            text = merge_lines(text, other.long_term.splitlines(), ()) if text else other.long_term
            source = most_foreign(source, other.provenance)
        joined = replace(joined, long_term=text, dailies=sort_by_day(notes.values()), provenance=source)
    return joined


def _restored_notes(memory: MemorySnapshot) -> tuple[RestoredNote, ...]:
    return tuple(RestoredNote(note.date, note.content) for note in memory.dailies)
