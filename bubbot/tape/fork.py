"""A fork: a private overlay on a tape, durable while it is open, merged in one transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bubbot.errors import AnchorNotFound, TapeConflict
from bubbot.tape.anchor import recalled_ranges
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, TapeEntry, event
from bubbot.tape.handle import Clock, TapeHandle
from bubbot.tape.query import (
    AfterAnchor,
    BetweenAnchors,
    EntryFinder,
    IdRanges,
    IndexProposals,
    OpeningAnchor,
    Slice,
    TapeQuery,
    WholeTape,
    Window,
    ZoneSlice,
    arrange,
    build_matcher,
    evaluate,
    without_limit,
)
from bubbot.tape.store import Batch, ForkRecord, TapeStore


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The entries that a merge stored.

    Attributes:
        delta: on the fork's own tape.
        staged: on other tapes, by tape.
    """

    delta: tuple[TapeEntry, ...]
    staged: Mapping[str, tuple[TapeEntry, ...]]


class ForkedTape(TapeHandle):
    """Reads as its parent would after the merge.

    Appends stay in memory until `save` makes them durable; `merge` needs no `save` before it. Appends to other tapes
    are staged and merged in the same transaction.

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
        session: str = "",
        stamp: JsonObject = EMPTY_OBJECT,
        fetch_parent: Callable[[TapeQuery], Awaitable[tuple[TapeEntry, ...]]] | None = None,
        on_merged: Callable[[Sequence[TapeEntry]], None] = lambda _: None,
    ) -> None:
        """Open or reopen the fork of a record.

        Args:
            store: holds the parent and the record.
            record: the fork on disk, with everything saved so far.
            now: the clock.
            session: the session id.
            stamp: merged into the meta of every appended entry.
            fetch_parent: answers queries on the tape as it was at `base`; None: the store does.
            on_merged: called with the delta after the merge.
        """
        super().__init__(record.tape, now, session, stamp)
        self._fetch_parent = fetch_parent
        self._on_merged = on_merged
        self.id = record.id
        self.base = record.base
        self._store = store
        self._reset = record.reset
        self._unsaved: list[Batch] = []
        self._is_reset_saved = record.reset is not None
        self._staged = [batch for batch in record.staged if batch.tape != record.tape]
        own = [entry for batch in record.staged if batch.tape == record.tape for entry in batch.entries]
        self._delta = [entry.with_id(self._floor + place) for place, entry in enumerate(own, 1)]

    @property
    def _floor(self) -> int:
        """The id before the first one of the delta; a reset hides the parent."""
        return 0 if self._reset else self.base

    @property
    def delta(self) -> tuple[TapeEntry, ...]:
        """The entries that the merge will append, with their future ids."""
        return tuple(self._delta)

    def staged_entries(self, tape: str) -> tuple[TapeEntry, ...]:
        """Return the entries staged so far for another tape."""
        return tuple(entry for batch in self._staged if batch.tape == tape for entry in batch.entries)

    async def append(self, entries: Sequence[TapeEntry], *, if_absent: bool = False) -> tuple[TapeEntry, ...]:
        """Append to the overlay (see `TapeStore.append`); durable after `save` or `merge`."""
        stored: list[TapeEntry] = []
        fresh: list[TapeEntry] = []
        for entry in map(self._stamped, entries):
            stored_entry = await self._find_by_key(entry, fresh, keep_first=if_absent)
            if stored_entry is None:
                stored_entry = entry.with_id(self._floor + len(self._delta) + len(fresh) + 1)
                fresh.append(stored_entry)
            stored.append(stored_entry)
        self._delta += fresh
        if fresh:
            self._unsaved.append(Batch(self.name, tuple(fresh)))
        return tuple(stored)

    async def _find_by_key(self, entry: TapeEntry, fresh: list[TapeEntry], *, keep_first: bool) -> TapeEntry | None:
        if entry.key is None:
            return None
        existing: TapeEntry | None = next((other for other in [*self._delta, *fresh] if other.key == entry.key), None)
        if existing is None and not self._reset:
            stored = (await self._store.fetch([TapeQuery(self.name, keys=(entry.key,))]))[0]
            existing = stored[0] if stored else None
        if existing is not None and not (keep_first or existing.erased or existing.same_content(entry)):
            raise TapeConflict(f"{self.name} already has other content under the key {entry.key} (entry {existing.id})")
        return existing

    def stage(self, tape: str, entries: Sequence[TapeEntry], *, if_absent: bool = False) -> None:
        """Add entries of another tape to the merge."""
        batch = Batch(tape, tuple(self._stamped(entry) for entry in entries), if_absent=if_absent)
        self._staged.append(batch)
        self._unsaved.append(batch)

    async def save(self) -> None:
        """Make everything appended and staged so far durable."""
        if self._unsaved or (self._reset and not self._is_reset_saved):
            await self._store.extend_fork(self.id, tuple(self._unsaved), self._reset)
            self._unsaved.clear()
            self._is_reset_saved = self._reset is not None

    async def merge(self) -> MergeResult:
        """Append the delta and the staged entries in one transaction and close the fork.

        Raises:
            TapeConflict: the parent's head is no longer `base`; nothing is written.
        """
        own = Batch(self.name, tuple(self._delta), expect_head=self._floor)
        reset = (self.name, self._reset) if self._reset else None
        stored = await self._store.merge_fork(self.id, [own, *self._staged], reset)
        staged: dict[str, tuple[TapeEntry, ...]] = {}
        for batch, entries in zip(self._staged, stored[1:], strict=True):
            staged[batch.tape] = (*staged.get(batch.tape, ()), *entries)
        self._on_merged(stored[0])
        return MergeResult(stored[0], staged)

    async def discard(self) -> None:
        """Close the fork and leave the parent as it is."""
        await self._store.drop_fork(self.id)

    async def reset(self, *, archive: bool = True, erase_also: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> str:
        """Stage a reset: the merge puts the parent aside, and the delta starts the new tape.

        The second reset of one fork changes nothing, except that erasing goes beyond archiving.
        """
        if self._reset is None:
            batch, first = self._restart(self.base, archive=archive)
            self._reset = replace(batch, erase_also=erase_also)
            self._delta = [entry.with_id(place) for place, entry in enumerate(self._delta, 1)]
            await self.append(first)
        elif not archive:
            if not self._reset.erase:
                await self.append([event("tape/erased", {"archive": self._reset.archive, "entries": self.base})])
            self._reset = replace(self._reset, erase=True, erase_also=(*self._reset.erase_also, *erase_also))
            self._is_reset_saved = False
        return self._reset.archive

    async def head(self) -> int:
        """Return the future id of the newest entry."""
        return self._floor + len(self._delta)

    async def put_blob(self, data: bytes) -> str:
        """Store bytes at once, not staged: a blob that nothing cites is harmless."""
        return await self._store.put_blob(self.name, data)

    async def get_blob(self, digest: str) -> bytes:
        """Read the bytes of a blob of this tape."""
        return await self._store.get_blob(self.name, digest)

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """Return what the parent would find after the merge. Queries of other tapes go to the store."""
        return [await self._find(query) for query in queries]

    async def _find(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        if query.tape != self.name:
            return (await self._store.fetch([query]))[0]
        if self._reset:
            return tuple(evaluate(self._delta, query))
        if isinstance(query.part, IndexProposals):  # the overlay is not indexed
            return tuple(await self._parent_entries(query))
        try:
            parent, own = await self._split(query)
        except AnchorNotFound:
            if query.missing == "empty":
                return ()
            raise
        return tuple(arrange([*parent, *own], query))

    async def _split(self, query: TapeQuery) -> tuple[list[TapeEntry], list[TapeEntry]]:
        """Split the answer into what the parent and the overlay contribute, both ascending."""
        overlay = EntryFinder(self._delta)
        match query.part:
            case Window() if opening := overlay.opening_anchor():
                spans = (*recalled_ranges(opening), (opening.id + 1, None))
                return await self._split_plain(query, IdRanges(spans), IdRanges(spans))
            case OpeningAnchor():
                return (
                    ([], self._own_entries(query, OpeningAnchor()))
                    if overlay.opening_anchor()
                    else await self._split_plain(query, OpeningAnchor())
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
                return await self._parent_entries(without_limit(query, IdRanges(((start[0].id, None),)))), rest
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
            return parent, self._own_entries(query, IdRanges(((1, second.id - 1),)))

    async def _split_plain(
        self, query: TapeQuery, part: Slice, own: Slice | None = None
    ) -> tuple[list[TapeEntry], list[TapeEntry]]:
        """Return the parent's answer to `part` (cut to the limit if that is safe) and the overlay's to `own`."""
        parent_query = replace(query, part=part, missing="error")
        parent = await self._parent_entries(parent_query)
        return (parent[::-1] if query.newest else parent), self._own_entries(query, own) if own else []

    async def _parent_entries(self, query: TapeQuery) -> list[TapeEntry]:
        entries = await self._fetch_parent(query) if self._fetch_parent else (await self._store.fetch([query]))[0]
        return [entry for entry in entries if entry.id <= self.base]

    def _own_entries(self, query: TapeQuery, part: Slice) -> list[TapeEntry]:
        if isinstance(part, WholeTape):
            matching = build_matcher(query)
            return [entry for entry in self._delta if matching.matches(entry)]
        return evaluate(self._delta, without_limit(query, part))
