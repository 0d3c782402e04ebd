"""A fork: a private overlay on a tape or on another fork, durable while it is open, merged in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any

from msgspec import Struct, structs

from bubbot.concurrency import run_uninterrupted, uninterrupted
from bubbot.errors import AnchorNotFound, TapeConflict
from bubbot.tape.anchor import recalled_ranges
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, TapeEntry
from bubbot.tape.events import KERNEL_REFERENCES, TapeErased
from bubbot.tape.handle import Clock, TapeFeatures, TapeHandle
from bubbot.tape.provenance import ON_READ, Source, most_foreign, note_reads, stamp_of
from bubbot.tape.query import (
    AfterAnchor,
    BetweenAnchors,
    EntryFinder,
    IdRanges,
    IndexProposals,
    NewestAnchors,
    OpeningAnchor,
    Ranked,
    Slice,
    TapeQuery,
    WholeTape,
    Window,
    ZoneSlice,
    arrange,
    evaluate,
    select,
    without_limit,
)
from bubbot.tape.references import Rebase, RecordedState, ReferenceRegistry, entries_as_of
from bubbot.tape.store import Batch, ForkRecord, Lease, TapeStore
from bubbot.tape.withheld import withhold_for_people

_NO_KEYS: frozenset[str] = frozenset()
_OF_WINDOW = (Window, OpeningAnchor)


class MergeResult(Struct, frozen=True):
    """The entries that a merge stored.

    Attributes:
        delta: on the fork's own tape.
        staged: on other tapes, by tape; those of a nested fork have no ids until the outermost merge.
    """

    delta: tuple[TapeEntry, ...]
    staged: Mapping[str, tuple[TapeEntry, ...]]

    @property
    def has_erased(self) -> bool:
        """True if it erased a tape, or entries: what was read before may hold them."""
        return any(entry.name in TapeErased.EVENTS for entry in self.delta)


class OpeningFork:
    """A fork that is being opened: `await` it to get it, or use it as `async with`.

    The block merges the fork at its end. It discards it if the block raises or is cancelled, or after
    `ForkedTape.discard()`. A fork that was awaited is merged or discarded by whoever has it.
    """

    def __init__(self, open_fork: Callable[[], Awaitable[ForkedTape]]) -> None:
        self._open = open_fork
        self._fork: ForkedTape | None = None

    def __await__(self) -> Generator[Any, None, ForkedTape]:
        return self._open().__await__()

    async def __aenter__(self) -> ForkedTape:
        self._fork = await self._open()
        return self._fork

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        fork = self._fork
        if fork is None or fork.is_closed:
            return
        if kind is not None:
            await run_uninterrupted(fork.discard())
            return
        try:
            await fork.merge()
        except BaseException:
            await run_uninterrupted(fork.discard())
            raise


class ForkedTape(TapeHandle):
    """A private overlay: it reads as its parent was at `base`, followed by its own entries.

    Appends stay in memory until `save` makes them durable; `merge` needs no `save` before it. Entries for other tapes
    are staged and merged in the same transaction. Forks of one parent merge in the order in which they finish.

    Attributes:
        id: its name on disk.
        base: the parent's head when the fork was opened.
    """

    def __init__(
        self,
        store: TapeStore,
        record: ForkRecord,
        *,
        now: Clock,
        new_id: Callable[[], str],
        session: str = "",
        stamp: JsonObject = EMPTY_OBJECT,
        references: ReferenceRegistry = KERNEL_REFERENCES,
        parent: ForkedTape | None = None,
        fetch_parent: Callable[[TapeQuery, int], Awaitable[tuple[TapeEntry, ...]]] | None = None,
        on_merged: Callable[[Sequence[TapeEntry]], None] = lambda _: None,
        features: TapeFeatures | None = None,
        has_subtasks: bool = True,
    ) -> None:
        """Open or reopen the fork of a record.

        Args:
            record: the fork on disk, with everything saved so far.
            stamp: merged into the meta of every appended entry.
            references: the references that move along if the delta gets other ids.
            parent: the outer fork; None for a fork of the tape itself.
            fetch_parent: answers a query on the tape as of an id; None: the parent or the store answers.
            on_merged: called with the delta after the merge.
            features: search and memory, if anything needs them.
            has_subtasks: its forks are sub-tasks: what they write is marked as theirs, and only their result is shown.
        """
        super().__init__(store, record.tape, now, session, stamp, features=features)
        self._lease = Lease(record.tape, record.epoch) if record.epoch else None
        self._fetch_parent = fetch_parent or partial(_fetch_one, parent or store)
        self._on_merged = on_merged
        self.id = record.id
        self.base = record.base
        self._record = ForkRecord(record.id, record.tape, record.base, (), session=record.session, epoch=record.epoch)
        self._new_id = new_id
        self._references = references
        self._parent = parent
        self._lock = asyncio.Lock()  # forks of this fork may merge while it is appended to or saved
        self._reset = record.reset
        self._unsaved: list[Batch] = []
        self._is_closed = False
        self._has_subtasks = has_subtasks
        self._is_reset_saved = record.reset is not None
        self._staged = [batch for batch in record.staged if batch.tape != record.tape]
        own = [entry for batch in record.staged if batch.tape == record.tape for entry in batch.entries]
        self._if_absent = {
            entry.key
            for batch in record.staged
            if batch.tape == record.tape and batch.if_absent
            for entry in batch.entries
            if entry.key is not None
        }
        self._delta = [entry.with_id(self._floor + place) for place, entry in enumerate(own, 1)]

    @property
    def is_nested(self) -> bool:
        """True for a fork of a fork."""
        return self._parent is not None

    @property
    def is_closed(self) -> bool:
        """True once it was merged or discarded."""
        return self._is_closed

    @property
    def is_reset(self) -> bool:
        """True if the tape begins anew when the fork is merged."""
        return self._reset is not None

    @property
    def lease(self) -> Lease | None:
        """The lease under which the fork was opened, if any."""
        return self._lease

    def raise_source(self, source: Source) -> None:
        """Mark what is written and staged from now on as made of words at least this foreign.

        An entry whose meta has a provenance keeps it. The mark never goes down again: the writer of all later entries
        has seen those words.
        """
        if source is not self.source and most_foreign(source, self.source) is source:
            self._set_stamp({**self._stamp, **stamp_of(source)})

    @property
    def _floor(self) -> int:
        """The id before the first one of the delta; a reset hides the parent."""
        return 0 if self._reset else self.base

    @property
    def delta(self) -> tuple[TapeEntry, ...]:
        """The entries that the merge will append, with the ids they get if the parent has not grown."""
        return tuple(self._delta)

    def staged_entries(self, tape: str) -> tuple[TapeEntry, ...]:
        return tuple(entry for batch in self._staged if batch.tape == tape for entry in batch.entries)

    async def append(self, entries: Sequence[TapeEntry], *, if_absent: bool = False) -> tuple[TapeEntry, ...]:
        """Append to the overlay (see `TapeStore.append`); durable after `save` or `merge`."""
        async with self._lock:
            return await self._append(self._numbered(entries), if_absent=if_absent)

    def _numbered(self, entries: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        """Stamp the entries and give them the next ids, which they get unless one is stored already."""
        return self._stamped(entries, self._floor + len(self._delta) + 1)

    async def _append(self, entries: tuple[TapeEntry, ...], *, if_absent: bool = False) -> tuple[TapeEntry, ...]:
        """Append entries that have their `_numbered` ids."""
        keys = frozenset([entry.key for entry in entries if entry.key is not None])
        if not keys:
            self._add(entries, _NO_KEYS)
            self._unsaved += self._batches(entries, _NO_KEYS)
            return entries
        absent = keys if if_absent else _NO_KEYS
        stored, fresh = await self._place(entries, absent)
        self._add(fresh, absent)
        self._unsaved += self._batches(fresh, absent)
        return stored

    async def _place(
        self, entries: Sequence[TapeEntry], if_absent: frozenset[str]
    ) -> tuple[tuple[TapeEntry, ...], list[TapeEntry]]:
        """Give the entries their ids without adding them; return the entry that stands for each, and the new ones."""
        stored: list[TapeEntry] = []
        fresh: list[TapeEntry] = []
        next_id = self._floor + len(self._delta) + 1
        for entry in entries:
            existing = None if entry.key is None else await self._find_by_key(entry.key, fresh)
            if existing is None:
                existing = entry.with_id(next_id)
                next_id += 1
                fresh.append(existing)
            elif not (entry.key in if_absent or existing.erased or existing.same_content(entry)):
                raise TapeConflict(
                    f"{self.name} already has other content under the key {entry.key} (entry {existing.id})"
                )
            stored.append(existing)
        return tuple(stored), fresh

    def _add(self, fresh: Sequence[TapeEntry], if_absent: frozenset[str]) -> None:
        self._delta += fresh
        if if_absent:
            self._if_absent |= if_absent & {entry.key for entry in fresh}

    def _batches(self, fresh: Sequence[TapeEntry], if_absent: frozenset[str]) -> list[Batch]:
        """Build the batches that make entries of the delta durable."""
        if not if_absent:
            return [Batch(self.name, tuple(fresh), lease=self._lease)] if fresh else []
        runs = groupby(fresh, key=lambda entry: entry.key in if_absent)
        return [Batch(self.name, tuple(run), if_absent=is_absent, lease=self._lease) for is_absent, run in runs]

    async def _find_by_key(self, key: str, fresh: Sequence[TapeEntry] = ()) -> TapeEntry | None:
        existing: TapeEntry | None = next((other for other in [*self._delta, *fresh] if other.key == key), None)
        if existing is None and not self._reset:
            stored = await self._parent_entries(TapeQuery(self.name, keys=(key,)))
            existing = stored[0] if stored else None
        return existing

    def stage(self, tape: str, entries: Sequence[TapeEntry], *, if_absent: bool = False) -> None:
        """Add entries for another tape to the merge."""
        batch = Batch(tape, self._stamped(entries), if_absent=if_absent, lease=self._lease)
        self._staged.append(batch)
        self._unsaved.append(batch)

    async def open(
        self, opening: Sequence[TapeEntry], staged: Sequence[Batch] = (), *, expect_head: bool = True
    ) -> None:
        """Store a new fork, the first entries of its delta and batches for other tapes; durable when it returns.

        `expect_head`: see `TapeStore.open_fork`.
        """
        # Without the lock: nobody else has this fork yet.
        await self._append(self._numbered(opening))
        self._staged += staged
        own, record = Batch(self.name, self.delta, lease=self._lease), self._record
        await self._store.open_fork(
            ForkRecord(record.id, record.tape, record.base, (own, *staged), None, record.session, record.epoch),
            expect_head=expect_head,
        )
        self._unsaved.clear()

    async def save(self) -> None:
        """Make everything appended and staged so far durable."""
        async with self._lock:
            await self._save()

    async def _save(self) -> None:
        if self._unsaved or (self._reset and not self._is_reset_saved):
            unsaved = tuple(self._unsaved)
            await self._store.extend_fork(self.id, unsaved, self._reset)
            del self._unsaved[: len(unsaved)]
            self._is_reset_saved = self._reset is not None

    def fork(self, opening: Sequence[TapeEntry] = (), *, stamp: JsonObject = EMPTY_OBJECT) -> OpeningFork:
        """Open a fork of this fork; save this one's entries, too. `await` it, or use it as `async with`.

        In a turn it is a sub-task: what it writes carries its id as `fork` in the meta.

        Args:
            opening: the first entries of its delta.
            stamp: merged into the meta of every entry appended to it.
        """
        return OpeningFork(partial(self._open_nested, opening, stamp))

    async def _open_nested(self, opening: Sequence[TapeEntry], stamp: JsonObject) -> ForkedTape:
        async with self._lock:
            await self._save()
            record = structs.replace(
                self._record, id=f"{self.id}/{self._new_id()}", base=self._floor + len(self._delta)
            )
            fork = self.reopen_fork(record, stamp=stamp)
            await fork.open(opening)
        return fork

    def reopen_fork(self, record: ForkRecord, *, stamp: JsonObject = EMPTY_OBJECT) -> ForkedTape:
        """Resume a nested fork with everything it saved."""
        mark = {"fork": record.id} if self._has_subtasks else EMPTY_OBJECT
        return ForkedTape(
            self._store,
            structs.replace(record, epoch=self._record.epoch),
            now=self._now,
            new_id=self._new_id,
            session=self.session,
            stamp={**self._stamp, **stamp, **mark},
            references=self._references,
            parent=self,
            features=self._features,
            has_subtasks=self._has_subtasks,
        )

    async def merge(self, *, expect_head: bool = False) -> MergeResult:
        """Append the delta and the staged entries to the parent in one transaction and close the fork.

        If the parent has grown, the delta gets the next ids, and declared references to its entries follow.

        Args:
            expect_head: raise `TapeConflict` instead.

        Raises:
            TapeConflict: the parent has grown and `expect_head` is set or a reset would archive what it got; or it has
                other content under a key of the delta; or forks of this fork are open. Nothing is written.
        """
        async with self._lock:
            rebase = Rebase(self._floor, self._references, frozenset(self._if_absent))
            expected = self._floor if expect_head or self._reset else None
            own = Batch(self.name, tuple(self._delta), expect_head=expected, rebase=rebase, lease=self._lease)
            if self._parent is not None:
                self._parent.raise_source(self.source)
                result = await self._parent.adopt(self.id, own, self._staged)
                self._is_closed = True
                return result
            reset = (self.name, self._reset) if self._reset else None
            stored = await self._store.merge_fork(self.id, [own, *self._staged], reset)
            self._is_closed = True
            self._on_merged(stored[0])
            return MergeResult(stored[0], _group_by_tape(self._staged, stored[1:]))

    async def merge_instead(self, entries: Sequence[TapeEntry]) -> MergeResult:
        """Append these entries to the parent, a fork, instead of the delta, and close this fork, in one transaction.

        It drops the delta and the staged entries. The new entries carry this fork's stamp.

        Raises:
            TapeConflict: see `merge`.
        """
        if self._parent is None:
            raise TapeConflict(f"the fork {self.id} is no fork of a fork: merge or discard it")
        async with self._lock:
            own = self._stamped(entries, self._floor + 1)
            rebase = Rebase(self._floor, self._references)
            self._parent.raise_source(self.source)
            result = await self._parent.adopt(self.id, Batch(self.name, own, rebase=rebase, lease=self._lease), ())
            self._is_closed = True
            return result

    @uninterrupted
    async def adopt(self, fork: str, own: Batch, staged: Sequence[Batch]) -> MergeResult:
        """Append the delta of a nested fork, stage what it staged, and close it, in one transaction.

        Args:
            fork: the id of the nested fork.
            own: its delta.
            staged: its batches for other tapes.

        Raises:
            TapeConflict: see `merge`.
        """
        async with self._lock:
            head = self._floor + len(self._delta)
            if own.expect_head is not None and own.expect_head != head:
                raise TapeConflict(f"the fork {self.id} has entries to {head}, not to {own.expect_head}")
            moved, if_absent = None, frozenset[str]()
            if own.rebase is not None:
                keyed = {
                    entry.key: await self._find_by_key(entry.key) for entry in own.entries if entry.key is not None
                }
                moved, if_absent = own.rebase.plan(self.name, own.entries, head, keyed.get), own.rebase.if_absent
            if moved is not None:
                own = structs.replace(own, entries=tuple([moved.move(self.name, entry) for entry in own.entries]))
                staged = [
                    structs.replace(batch, entries=tuple([moved.move(batch.tape, entry) for entry in batch.entries]))
                    for batch in staged
                ]
            stored, fresh = await self._place(own.entries, if_absent)
            unsaved = tuple(self._unsaved)
            await self._store.merge_fork(fork, [*unsaved, *self._batches(fresh, if_absent), *staged])
            del self._unsaved[: len(unsaved)]
            self._add(fresh, if_absent)
            self._staged += staged
            return MergeResult(stored, _group_by_tape(staged, [batch.entries for batch in staged]))

    async def discard(self) -> None:
        """Close the fork and its forks without a change to the parent."""
        await self._store.drop_fork(self.id)
        self._is_closed = True

    async def reset(self, *, archive: bool = True, erase_also: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> str:
        """Stage a reset: the merge puts the parent aside, and the delta starts the new tape.

        A second reset of the same fork changes nothing, unless it erases and the first one archived.

        Raises:
            TapeConflict: this is a fork of a fork, or has open forks.
        """
        async with self._lock:
            if self._parent is not None or any(record.parent == self.id for record in await self._store.forks()):
                raise TapeConflict(
                    f"{self.name} is not reset while a fork of a fork is open: merge or discard it first"
                )
            if self._reset is None:
                batch, first = self._restart(self.base, archive=archive)
                self._reset = structs.replace(batch, erase_also=erase_also)
                self._delta = [entry.with_id(place) for place, entry in enumerate(self._delta, 1)]
                await self._append(self._numbered(first))
            elif not archive:
                if not self._reset.erase:
                    fact = TapeErased(archive=self._reset.archive, entries=self.base).to_entry()
                    await self._append(self._numbered([fact]))
                self._reset = structs.replace(
                    self._reset, erase=True, erase_also=(*self._reset.erase_also, *erase_also)
                )
                self._is_reset_saved = False
            return self._reset.archive

    async def head(self) -> int:
        """Return the newest id, the delta included."""
        return self._floor + len(self._delta)

    async def as_of(self, spans: Sequence[Sequence[int]]) -> ForkedTape:
        return await read_as_of(
            self,
            spans,
            self._store,
            now=self._now,
            new_id=self._new_id,
            references=self._references,
            features=self._features,
        )

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """Return what the parent, as it was at `base`, would find after the merge.

        Queries of other tapes go to the store.
        """
        answers = withhold_for_people(queries, [await self._find(query) for query in queries])
        if ON_READ.get() is not None:
            note_reads(answers)
        return answers

    async def _find(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        if query.tape != self.name:
            return (await self._store.fetch([query]))[0]
        if self._parent is not None and isinstance(query.part, _OF_WINDOW) and not query.part.fork:
            query = replace(query, part=type(query.part)(self.id))
        if self._reset:
            return tuple(evaluate(self._delta, query))
        if type(query.part) in (IndexProposals, Ranked):  # the overlay is not indexed, and is no past
            return await self._parent_entries(query)
        if query.newest and type(query.part) is WholeTape:
            newest = select(self._visible(query), query)[::-1]
            if newest and query.limit is not None and len(newest) >= query.limit:
                return tuple(newest[: max(query.limit, 0)])
            older = await self._parent_entries(query)
            return (*newest, *older)[: query.limit] if newest else older
        try:
            parent, own = await self._split(query)
        except AnchorNotFound:
            if query.missing == "empty":
                return ()
            raise
        return tuple(arrange([*parent, *own], query))

    async def _split(self, query: TapeQuery) -> tuple[list[TapeEntry], list[TapeEntry]]:
        """Return the entries that the parent and the overlay contribute to the answer, both ascending."""
        overlay = EntryFinder(self._visible(query))
        match query.part:
            case Window(fork) if opening := overlay.opening_anchor(fork):
                recalled = recalled_ranges(opening)
                shown = IdRanges((*recalled, (opening.id + 1, None)))
                return await self._split_plain(query, IdRanges(recalled), shown)
            case OpeningAnchor(fork):
                return (
                    ([], self._own_entries(query, query.part))
                    if overlay.opening_anchor(fork)
                    else await self._split_plain(query, query.part)
                )
            case AfterAnchor(name) if overlay.newest_anchor(name):
                return [], self._own_entries(query, query.part)
            case BetweenAnchors(first, second):
                if overlay.newest_anchor(first):
                    return [], self._own_entries(query, query.part)
                return await self._split_between(query, first, overlay.first_anchor(second, 0))
            case ZoneSlice(opens, seals):
                seal = overlay.newest_anchor(seals)
                if seal is None:
                    return await self._split_plain(query, query.part)
                if overlay.newest_anchor(opens, seal.id):
                    return [], self._own_entries(query, query.part)
                rest = self._own_entries(query, IdRanges(((1, seal.id),)))
                start = await self._parent_entries(
                    TapeQuery(self.name, kinds=("anchor",), names=(opens,), newest=True, limit=1)
                )
                if not start:
                    raise AnchorNotFound(f"the tape {self.name} has no anchor {opens} before {seals} (entry {seal.id})")
                zone = without_limit(query, IdRanges(((start[0].id, None),)))
                return list(await self._parent_entries(zone)), rest
            case NewestAnchors(prefix):
                newer = overlay.newest_anchors(prefix)
                stored = await self._parent_entries(without_limit(query, query.part) if newer else query)
                rest = [entry for entry in stored if entry.name not in newer]
                return sorted(rest, key=lambda entry: entry.id), self._own_entries(query, query.part)
            case _:
                own = query.part if isinstance(query.part, IdRanges) else WholeTape()
                return await self._split_plain(query, query.part, own)

    async def _split_between(
        self, query: TapeQuery, first: str, second: TapeEntry | None
    ) -> tuple[list[TapeEntry], list[TapeEntry]]:
        """Split a slice whose `first` is the parent's; `second` is the overlay's if the parent has none after it."""
        try:
            return await self._split_plain(query, query.part)
        except AnchorNotFound:
            if second is None:
                raise
            parent = await self._parent_entries(replace(without_limit(query, AfterAnchor(first)), missing="error"))
            return list(parent), self._own_entries(query, IdRanges(((1, second.id - 1),)))

    async def _split_plain(
        self, query: TapeQuery, part: Slice, own: Slice | None = None
    ) -> tuple[list[TapeEntry], list[TapeEntry]]:
        """Return the parent's answer to `part` (cut to the limit if that is safe) and the overlay's to `own`."""
        is_alone = type(part) in (
            OpeningAnchor,
            ZoneSlice,
        )  # the overlay adds nothing: the parent may find nothing
        is_asked = part is query.part and (query.missing == "error" or is_alone)
        parent = await self._parent_entries(query if is_asked else replace(query, part=part, missing="error"))
        return list(parent[::-1] if query.newest else parent), self._own_entries(query, own) if own else []

    async def _parent_entries(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        part = query.part
        if self._parent is None and isinstance(part, _OF_WINDOW) and part.fork and part.fork.startswith(f"{self.id}/"):
            # Everything on the tape was written before the sub-task existed.
            query = replace(query, part=type(part)())
        return await self._fetch_parent(query, self.base if query.as_of is None else min(query.as_of, self.base))

    def _visible(self, query: TapeQuery) -> list[TapeEntry]:
        """Return the own entries as of the query."""
        return self._delta if query.as_of is None else self._delta[: max(query.as_of - self._floor, 0)]

    def _own_entries(self, query: TapeQuery, part: Slice) -> list[TapeEntry]:
        if isinstance(part, WholeTape):
            return select(self._visible(query), query)
        return evaluate(self._visible(query), without_limit(query, part))


async def read_as_of(
    tape: TapeHandle,
    spans: Sequence[Sequence[int]],
    store: TapeStore,
    *,
    now: Clock,
    new_id: Callable[[], str],
    references: ReferenceRegistry,
    features: TapeFeatures | None = None,
) -> ForkedTape:
    """Build the tape as it was at an earlier time (see `TapeHandle.as_of`), as a fork that is never stored.

    Its delta is the entries that got other ids since, with their old ids; all other entries are its parent's.

    Args:
        spans: see `TapeHandle.as_of`.
        references: the references that moved along.
    """
    state = RecordedState.parse(spans)
    query = TapeQuery(tape.name, IdRanges(state.moved))
    moved = state.pick_moved((await tape.fetch([query]))[0]) if state.moved else []
    base = min(state.base, await tape.head())
    delta = entries_as_of(tape.name, moved, references, first=base + 1)
    return ForkedTape(
        store,
        ForkRecord("", tape.name, base, (Batch(tape.name, tuple(delta)),)),
        now=now,
        new_id=new_id,
        session=tape.session,
        references=references,
        fetch_parent=partial(_fetch_one, tape),
        features=features,
    )


async def _fetch_one(source: TapeStore | TapeHandle, query: TapeQuery, as_of: int) -> tuple[TapeEntry, ...]:
    return (await source.fetch([replace(query, as_of=as_of)]))[0]


def _group_by_tape(
    batches: Sequence[Batch], stored: Sequence[tuple[TapeEntry, ...]]
) -> dict[str, tuple[TapeEntry, ...]]:
    tapes: dict[str, tuple[TapeEntry, ...]] = {}
    for batch, entries in zip(batches, stored, strict=True):
        tapes[batch.tape] = (*tapes.get(batch.tape, ()), *entries)
    return tapes
