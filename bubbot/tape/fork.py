"""A fork: a private overlay on a tape, durable while it is open, merged in one transaction."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bubbot.errors import AnchorNotFound, TapeConflict
from bubbot.tape.anchor import recalled
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
    evaluate,
    matcher,
    unlimited,
)
from bubbot.tape.store import Batch, ForkRecord, TapeStore


@dataclass(frozen=True, slots=True)
class MergeResult:
    """What a merge stored: the delta on the fork's own tape, and what was staged, by tape."""

    delta: tuple[TapeEntry, ...]
    staged: Mapping[str, tuple[TapeEntry, ...]]


class ForkedTape(TapeHandle):
    """Reads as its parent would after the merge. `id` names it on disk; `base` is the parent's head at opening.

    Appends are kept in memory until `save` makes them durable; `merge` needs no `save` before it. Appends to
    other tapes are staged and merged in the same transaction.
    """

    def __init__(
        self,
        store: TapeStore,
        record: ForkRecord,
        *,
        now: Clock,
        session: str = "",
        stamp: JsonObject = EMPTY_OBJECT,
        parent: Callable[[TapeQuery], Awaitable[tuple[TapeEntry, ...]]] | None = None,
        merged: Callable[[Sequence[TapeEntry]], None] = lambda _: None,
    ) -> None:
        """`parent` answers queries on the tape as it was at `base` (else the store does); `merged` is told of the
        delta after the merge."""
        super().__init__(record.tape, now, session, stamp)
        self._ask_parent = parent
        self._tell_merged = merged
        self.id = record.id
        self.base = record.base
        self._store = store
        self._reset = record.reset
        self._unsaved: list[Batch] = []
        self._reset_saved = record.reset is not None
        self._others = [batch for batch in record.staged if batch.tape != record.tape]
        own = [entry for batch in record.staged if batch.tape == record.tape for entry in batch.entries]
        self._delta = [entry.stored(self._floor + place) for place, entry in enumerate(own, 1)]

    @property
    def _floor(self) -> int:
        """The id below the first one of the delta: a reset hides the parent."""
        return 0 if self._reset else self.base

    @property
    def delta(self) -> tuple[TapeEntry, ...]:
        """What the merge will append, with the ids it will have."""
        return tuple(self._delta)

    def staged(self, tape: str) -> tuple[TapeEntry, ...]:
        """What the merge will append to another tape, as things stand."""
        return tuple(entry for batch in self._others if batch.tape == tape for entry in batch.entries)

    async def append(self, entries: Sequence[TapeEntry], *, keep_first: bool = False) -> tuple[TapeEntry, ...]:
        """Appends to the overlay (see `TapeStore.append`); durable after `save` or `merge`."""
        stored: list[TapeEntry] = []
        fresh: list[TapeEntry] = []
        for entry in map(self._stamped, entries):
            known = await self._known(entry, fresh, keep_first=keep_first)
            if known is None:
                known = entry.stored(self._floor + len(self._delta) + len(fresh) + 1)
                fresh.append(known)
            stored.append(known)
        self._delta += fresh
        if fresh:
            self._unsaved.append(Batch(self.name, tuple(fresh)))
        return tuple(stored)

    async def _known(self, entry: TapeEntry, fresh: list[TapeEntry], *, keep_first: bool) -> TapeEntry | None:
        if entry.key is None:
            return None
        found: TapeEntry | None = next((old for old in [*self._delta, *fresh] if old.key == entry.key), None)
        if found is None and not self._reset:
            stored = (await self._store.fetch([TapeQuery(self.name, keys=(entry.key,))]))[0]
            found = stored[0] if stored else None
        if found is not None and not (keep_first or found.erased or found.same_content(entry)):
            raise TapeConflict(f"{self.name} already has other content under the key {entry.key} (entry {found.id})")
        return found

    def stage(self, tape: str, entries: Sequence[TapeEntry], *, keep_first: bool = False) -> None:
        """Adds entries of another tape to the merge."""
        batch = Batch(tape, tuple(self._stamped(entry) for entry in entries), keep_first=keep_first)
        self._others.append(batch)
        self._unsaved.append(batch)

    async def save(self) -> None:
        """Makes everything appended and staged so far durable."""
        if self._unsaved or (self._reset and not self._reset_saved):
            await self._store.extend_fork(self.id, tuple(self._unsaved), self._reset)
            self._unsaved.clear()
            self._reset_saved = self._reset is not None

    async def merge(self) -> MergeResult:
        """Appends the delta and what was staged in one transaction and closes the fork.

        Raises `TapeConflict` where the parent's head is no longer `base`; nothing is written then.
        """
        own = Batch(self.name, tuple(self._delta), expect_head=self._floor)
        reset = (self.name, self._reset) if self._reset else None
        stored = await self._store.merge_fork(self.id, [own, *self._others], reset)
        staged: dict[str, tuple[TapeEntry, ...]] = {}
        for batch, entries in zip(self._others, stored[1:], strict=True):
            staged[batch.tape] = (*staged.get(batch.tape, ()), *entries)
        self._tell_merged(stored[0])
        return MergeResult(stored[0], staged)

    async def discard(self) -> None:
        """Closes the fork and leaves the parent as it is."""
        await self._store.drop_fork(self.id)

    async def reset(self, *, archive: bool = True, also: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> str:
        """Staged: the merge puts the parent aside, and the delta becomes the first entries of the new tape.

        The second reset of one fork changes nothing, except that erasing goes beyond archiving.
        """
        if self._reset is None:
            how, first = self._restart(self.base, archive=archive)
            self._reset = replace(how, also=also)
            self._delta = [entry.stored(place) for place, entry in enumerate(self._delta, 1)]
            await self.append(first)
        elif not archive:
            if not self._reset.erase:
                await self.append([event("tape/erased", {"archive": self._reset.archive, "entries": self.base})])
            self._reset = replace(self._reset, erase=True, also=(*self._reset.also, *also))
            self._reset_saved = False
        return self._reset.archive

    async def head(self) -> int:
        """The id the newest entry will have."""
        return self._floor + len(self._delta)

    async def put_blob(self, data: bytes) -> str:
        """Kept at once, not staged: a blob that nothing cites is harmless."""
        return await self._store.put_blob(self.name, data)

    async def get_blob(self, digest: str) -> bytes:
        """The bytes of a blob of this tape."""
        return await self._store.get_blob(self.name, digest)

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """As the parent would answer after the merge. Another tape's queries go to the store."""
        return [await self._find(query) for query in queries]

    async def _find(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        if query.tape != self.name:
            return (await self._store.fetch([query]))[0]
        if self._reset:
            return tuple(evaluate(self._delta, query))
        if isinstance(query.part, IndexProposals):  # the overlay is not indexed
            return tuple(await self._parent(query))
        try:
            parent, own = await self._halves(query)
        except AnchorNotFound:
            if query.missing == "empty":
                return ()
            raise
        return tuple(arrange([*parent, *own], query))

    async def _halves(self, query: TapeQuery) -> tuple[list[TapeEntry], list[TapeEntry]]:
        """What the parent and the overlay contribute, both ascending."""
        overlay = EntryFinder(self._delta)
        match query.part:
            case Window() if opening := overlay.opening():
                spans = (*recalled(opening), (opening.id + 1, None))
                return await self._both(query, IdRanges(spans), IdRanges(spans))
            case OpeningAnchor():
                return (
                    ([], self._own(query, OpeningAnchor()))
                    if overlay.opening()
                    else await self._both(query, OpeningAnchor())
                )
            case AfterAnchor(name) if overlay.newest(name):
                return [], self._own(query, query.part)
            case BetweenAnchors(first, second):
                if overlay.newest(first):
                    return [], self._own(query, query.part)
                return await self._between(query, first, overlay.first(second, 0))
            case ZoneSlice(opens, seals):
                seal = overlay.newest(seals)
                if seal is None:
                    return await self._both(query, query.part)
                if overlay.newest(opens, seal.id):
                    return [], self._own(query, query.part)
                rest = self._own(query, IdRanges(((1, seal.id),)))
                start = await self._parent(
                    TapeQuery(self.name, kinds=("anchor",), names=(opens,), newest=True, limit=1)
                )
                if not start:
                    raise AnchorNotFound(f"the tape {self.name} has no anchor {opens} before {seals} (entry {seal.id})")
                return await self._parent(unlimited(query, IdRanges(((start[0].id, None),)))), rest
            case _:
                own = query.part if isinstance(query.part, IdRanges) else WholeTape()
                return await self._both(query, query.part, own)

    async def _between(
        self, query: TapeQuery, first: str, second: TapeEntry | None
    ) -> tuple[list[TapeEntry], list[TapeEntry]]:
        """`first` is the parent's; `second` is the overlay's, where the parent has none after it."""
        try:
            return await self._both(query, query.part)
        except AnchorNotFound:
            if second is None:
                raise
            parent = await self._parent(replace(unlimited(query, AfterAnchor(first)), missing="error"))
            return parent, self._own(query, IdRanges(((1, second.id - 1),)))

    async def _both(
        self, query: TapeQuery, part: Slice, own: Slice | None = None
    ) -> tuple[list[TapeEntry], list[TapeEntry]]:
        """The parent's answer to `part` (cut to the limit where that is safe) and the overlay's to `own`."""
        asked = replace(query, part=part, missing="error")
        parent = await self._parent(asked)
        return (parent[::-1] if query.newest else parent), self._own(query, own) if own else []

    async def _parent(self, query: TapeQuery) -> list[TapeEntry]:
        found = await self._ask_parent(query) if self._ask_parent else (await self._store.fetch([query]))[0]
        return [entry for entry in found if entry.id <= self.base]

    def _own(self, query: TapeQuery, part: Slice) -> list[TapeEntry]:
        if isinstance(part, WholeTape):
            wanted = matcher(query)
            return [entry for entry in self._delta if wanted.passes(entry)]
        return evaluate(self._delta, unlimited(query, part))
