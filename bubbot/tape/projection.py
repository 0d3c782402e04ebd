"""Projections: states folded from the facts of a tape, and the runner that loads, follows and checkpoints them.

The tape alone decides. A state in memory is the fold of everything up to a position; a checkpoint is an event
`<name>/checkpoint {version, after, state}` that replaces folding the entries up to `after`. A checkpoint is skipped if
it is unreadable, comes from another version, or needs an entry erased since: at worst the fold begins at the first
entry.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from bubbot.errors import TapeCorrupt
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, event
from bubbot.tape.fact import Fact, FactState, decode_state, encode_state, find_cited
from bubbot.tape.handle import TapeHandle, spans_of
from bubbot.tape.query import IdRanges, Span, TapeQuery
from bubbot.tape.references import EntryId
from bubbot.tape.store import SharesWriting

log = logging.getLogger(__name__)

S = TypeVar("S")

PAGE_ENTRIES = 5_000
"""Entries read at a time, so that a long tape neither fills the memory nor holds up the event loop."""
MAX_CHECKPOINTS_TRIED = 20
"""How many of the newest checkpoints are tried."""
_UNREADABLE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    TapeCorrupt,
    msgspec.ValidationError,
)


def _cites_nothing(_state: JsonObject) -> Iterable[int]:
    return ()


def _ignore_entries(_entries: Sequence[TapeEntry]) -> None: ...


@dataclass(frozen=True, kw_only=True)
class LegacyAnchor(Generic[S]):
    """A bookkeeping anchor of earlier versions of bubbot, read as a checkpoint of version 0.

    Attributes:
        name: of the anchor. Its state holds `after`.
        decode: see `Projection.decode`; `cited` also holds the `lasting` entries.
        cited_ids: see `Projection.cited_ids`.
        lasting: the names of facts that the anchor does not cover: they are read from the beginning up to `after`.
    """

    name: str
    decode: Callable[[JsonObject, Sequence[TapeEntry]], S]
    cited_ids: Callable[[JsonObject], Iterable[int]] = _cites_nothing
    lasting: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Projection(Generic[S]):
    """A state folded from the facts on a tape.

    A checkpoint holds ids, numbers and times, no words of people: it cites their entries instead.

    Attributes:
        name: the prefix of its checkpoints' name.
        version: of the state and of `apply`; checkpoints of other versions are not read, except `older_versions`.
        tapes: its tape, which may have shards; if it ends with a slash, the prefix of all its tapes.
        events: the names of the facts it is made of.
        initial: builds the state of an empty tape.
        apply: returns the state after these facts, in the order of the tape. It depends on nothing but its arguments;
            an erased entry changes nothing. It owns the given state and may change and return it.
        encode: builds what a checkpoint stores.
        decode: reads that, with the entries it cites in the order of their ids.
        cited_ids: returns the ids of the entries that a stored state needs.
        interval: facts between two checkpoints.
        size: the size of a checkpoint, counted in facts; at least so many facts lie between two.
        legacy: the anchor that earlier versions wrote instead of checkpoints.
        combine: adds up the states of several tapes, or of the shards of one.
        older_versions: earlier versions that `decode` also reads.
    """

    name: str
    version: int
    tapes: str
    events: tuple[str, ...]
    initial: Callable[[], S]
    apply: Callable[[S, Sequence[TapeEntry]], S]
    encode: Callable[[S], JsonObject]
    decode: Callable[[JsonObject, Sequence[TapeEntry]], S]
    cited_ids: Callable[[JsonObject], Iterable[int]] = _cites_nothing
    interval: int
    size: Callable[[S], int] = lambda _: 0
    legacy: LegacyAnchor[S] | None = None
    combine: Callable[[Sequence[S]], S] | None = None
    older_versions: Collection[int] = ()

    @property
    def checkpoint_name(self) -> str:
        return f"{self.name}/checkpoint"

    def reads(self, tape: str) -> bool:
        """Return true if the projection reads this tape, which may be a shard."""
        if self.tapes.endswith("/"):
            return tape.startswith(self.tapes)
        return tape == self.tapes or tape.startswith(f"{self.tapes}/")

    def combine_states(self, states: Sequence[S]) -> S:
        """Add up the states of several tapes; for none, return that of an empty tape."""
        if self.combine is None or len(states) < 2:
            return states[0] if states else self.initial()
        return self.combine(states)

    def selects(self, entry: TapeEntry) -> bool:
        return entry.kind == Kind.EVENT and entry.name in self.events


F = TypeVar("F", bound=FactState)


def project_facts(
    state: type[F],
    *,
    name: str,
    version: int,
    tapes: str,
    interval: int,
    older_versions: Collection[int] = (),
) -> Projection[F]:
    """Make the projection of a `FactState`: its fields decide what checkpoints hold and cite. See `Projection`.

    Args:
        state: a field gets its default from a checkpoint that lacks it.
    """
    return Projection(
        name=name,
        version=version,
        tapes=tapes,
        events=tuple(event_name for fact in state.FACTS for event_name in fact.EVENTS),
        initial=state,
        apply=lambda before, entries: before.apply(entries),
        encode=encode_state,
        decode=lambda saved, cited: decode_state(state, saved, cited),
        cited_ids=lambda saved: find_cited(state, saved),
        interval=interval,
        size=lambda current: len(find_cited(state, encode_state(current))),
        older_versions=older_versions,
    )


def checkpoint_model(state: type[FactState]) -> type[msgspec.Struct]:
    """Make the payload model of the checkpoints of a state of facts, which declares what they cite."""
    fields: list[Any] = [("version", int), ("after", EntryId), ("state", state)]
    return msgspec.defstruct(f"{state.__name__}Checkpoint", fields, frozen=True)


@dataclass(frozen=True)
class _Snapshot(Generic[S]):
    """A state, the last id that it covers, and the number of facts folded since its checkpoint."""

    state: S
    position: int
    folded: int = 0


@dataclass(frozen=True)
class _Candidate(Generic[S]):
    after: int
    state: JsonObject
    decode: Callable[[JsonObject, Sequence[TapeEntry]], S]
    cited_ids: Callable[[JsonObject], Iterable[int]]
    lasting: tuple[str, ...] = ()


class ProjectedTape(Generic[S]):
    """The state of one projection on one tape.

    `state` is as of the last `load`, `catch_up` or `follow`. The first of these calls loads it.
    """

    def __init__(
        self,
        projection: Projection[S],
        tape: TapeHandle,
        on_applied: Callable[[Sequence[TapeEntry]], None] = _ignore_entries,
    ) -> None:
        """Read nothing yet. `on_applied` is called with facts that are folded after the first load."""
        self.projection = projection
        self._tape = tape
        self._on_applied = on_applied
        self._state = projection.initial()
        self._position = 0
        self._folded = 0
        self._is_loaded = False
        self._is_writing = False
        self._is_checkpoint_unusable = False
        self._lock = asyncio.Lock()

    @property
    def state(self) -> S:
        return self._state

    @property
    def position(self) -> int:
        """The last id that the state covers."""
        return self._position

    @property
    def is_loaded(self) -> bool:
        return self._is_loaded

    async def load(self) -> S:
        """Read the state from the tape again: a checkpoint and the facts after it."""
        async with self._lock:
            await self._load()
        return self._state

    async def ensure_loaded(self) -> S:
        """Load the state unless it is loaded."""
        if not self._is_loaded:
            async with self._lock:
                if not self._is_loaded:
                    await self._load()
        return self._state

    async def catch_up(self) -> S:
        """Fold what any process appended since."""
        async with self._lock:
            if self._is_loaded:
                await self._read_on()
            else:
                await self._load()
        return self._state

    async def read_up_to(self, head: int) -> None:
        """Fold what any process appended, up to `head`, which is or was the newest id of the tape."""
        async with self._lock:
            if not self._is_loaded:
                await self._load()
            elif head > self._position:
                async for page in self._pages(self._position):
                    self._apply(page)
            self._position = max(self._position, head)

    async def follow(self, entries: Sequence[TapeEntry]) -> None:
        """Fold entries that this process has appended; read entries that are missing before them."""
        if self._fold_next(entries):
            return
        earlier = self._position
        if self._is_loaded and entries and entries[0].id > earlier + 1:
            await asyncio.sleep(0)  # another task may be about to hand over an entry of the same commit
        async with self._lock:
            if not self._is_loaded:
                await self._load()
                return
            fresh = sorted([entry for entry in entries if entry.id > self._position], key=attrgetter("id"))
            if not fresh:
                # They are folded already, or the tape was archived. Do not read on here: that would fold what other tasks
                # are about to hand over; they would find it folded, read on, and so forth.
                if entries and entries[-1].id <= earlier:
                    await self._load_if_reset()
                return
            if fresh[-1].id - self._position == len(fresh):
                self._apply(fresh)
            else:
                await self._read_on()
            self._position = max(self._position, fresh[-1].id)

    def _fold_next(self, entries: Sequence[TapeEntry]) -> bool:
        """Fold entries that follow the state directly (the usual case); return false if they do not."""
        if not self._is_loaded or self._lock.locked() or not entries:
            return False
        if entries[0].id != self._position + 1 or entries[-1].id != self._position + len(entries):
            return False  # ids ascend, except for entries whose keys were stored before
        self._apply(entries)
        return True

    async def append(self, *facts: Fact | TapeEntry, if_absent: bool = False) -> tuple[TapeEntry, ...]:
        """Append facts in one batch and fold them; return the stored entries (see `TapeStore.append`).

        A checkpoint that is due is written before: the facts count once they are stored, even if it fails.
        """
        entries = [fact.to_entry() if isinstance(fact, Fact) else fact for fact in facts]
        await self.write_checkpoint()
        stored = await self._tape.append(entries, if_absent=if_absent)
        await self.follow(stored)
        return stored

    async def write_checkpoint(self, head: int = 0, *, force: bool = False) -> bool:
        """Write a checkpoint if enough facts came since the last one; return true if one was written.

        Before that it neither reads nor writes.

        Args:
            head: the newest id of the tape that the caller knows.
            force: write one in any case.
        """
        if not self._is_loaded:
            await self.load()
        if self._is_writing or not (force or self._is_due(head)):
            return False
        self._is_writing = True
        try:
            async with self._lock:
                await self._read_on()
                if not (force or self._is_due(head)):
                    return False
                state = self.projection.encode(self._state)
                if await self._fetch_cited(self.projection.cited_ids(state)) is None:
                    await self._load()  # an entry was erased: load the state without it
                    state = self.projection.encode(self._state)
                after, folded = self._position, self._folded
            data = {"version": self.projection.version, "after": after, "state": state}
            (stored,) = await self._tape.append([event(self.projection.checkpoint_name, data)])
            self._folded -= folded
            self._is_checkpoint_unusable = False
            if stored.id == self._position + 1:
                self._position = stored.id
            return True
        finally:
            self._is_writing = False

    def _is_due(self, head: int) -> bool:
        facts = self._folded + max(0, head - self._position)
        if self._is_checkpoint_unusable:
            return True
        return facts >= self.projection.interval and facts >= self.projection.size(self._state)

    def _apply(self, entries: Sequence[TapeEntry]) -> None:
        facts = [entry for entry in entries if self.projection.selects(entry)]
        self._state = self._fold(self._state, facts)
        self._position = entries[-1].id
        self._folded += len(facts)
        self._on_applied(facts)

    def _fold(self, state: S, facts: Sequence[TapeEntry]) -> S:
        try:
            return self.projection.apply(state, facts)
        except TapeCorrupt as error:
            raise TapeCorrupt(f"{self._tape.name}: {error}") from error

    async def _read_on(self) -> None:
        """Fold the facts after the position; load the state if the tape was archived and restarted since."""
        if not await self._load_if_reset():
            async for page in self._pages(self._position):
                self._apply(page)

    async def _load_if_reset(self) -> bool:
        """Load the state if the tape was archived and restarted since; return true if so."""
        if await self._tape.head() >= self._position:
            return False
        await self._load()
        return True

    async def _load(self) -> None:
        snapshot = await self._restore()
        state, position, folded = snapshot.state, snapshot.position, 0
        async for page in self._pages(position):
            state, position, folded = self._fold(state, page), page[-1].id, folded + len(page)
        self._state, self._position, self._folded = state, position, folded
        self._is_loaded = True

    async def _pages(self, position: int) -> AsyncIterator[tuple[TapeEntry, ...]]:
        while True:
            page = await self._fetch_facts((position + 1, None), self.projection.events, PAGE_ENTRIES)
            if page:
                yield page
            if len(page) < PAGE_ENTRIES:
                return
            position = page[-1].id

    async def _restore(self) -> _Snapshot[S]:
        """Return the state of the newest usable checkpoint, else that of an empty tape."""
        self._is_checkpoint_unusable = False
        seen: set[int] = set()
        for limit in (1, MAX_CHECKPOINTS_TRIED):
            try:
                entries = await self._fetch_checkpoints(limit)
            except TapeCorrupt as error:
                log.warning(
                    "checkpoint damaged, folding the tape from the beginning: %s",
                    error,
                    extra={"action": "projection.damaged", "tape": self._tape.name},
                )
                entries = []
                self._is_checkpoint_unusable = True
            candidates = [candidate for entry in entries if entry.id not in seen for candidate in self._read(entry)]
            seen |= {entry.id for entry in entries}
            for candidate in sorted(candidates, key=lambda item: item.after, reverse=True):
                if (snapshot := await self._decode(candidate)) is not None:
                    return snapshot
                self._is_checkpoint_unusable = True
            if not entries:
                break
        return _Snapshot(self.projection.initial(), 0)

    async def _fetch_checkpoints(self, limit: int) -> list[TapeEntry]:
        """Return the newest checkpoints and the newest legacy anchors."""
        names = [(Kind.EVENT, self.projection.checkpoint_name)]
        if self.projection.legacy is not None:
            names.append((Kind.ANCHOR, self.projection.legacy.name))
        queries = [
            TapeQuery(self._tape.name, kinds=(kind,), names=(name,), newest=True, limit=limit) for kind, name in names
        ]
        return [entry for found in await self._tape.fetch(queries) for entry in found]

    def _read(self, entry: TapeEntry) -> Iterator[_Candidate[S]]:
        """Yield the candidate of a checkpoint or anchor; nothing if it is erased, damaged or of another version."""
        projection, legacy = self.projection, self.projection.legacy
        try:
            if entry.erased:
                return
            if entry.kind == Kind.EVENT:
                data = entry.data
                if data["version"] not in (projection.version, *projection.older_versions):
                    return
                after, state = data["after"], data["state"]
                candidate = _Candidate(after, state, projection.decode, projection.cited_ids)
            elif legacy is not None:
                state = entry.payload["state"]
                after = state["after"]
                candidate = _Candidate(after, state, legacy.decode, legacy.cited_ids, legacy.lasting)
            else:
                return
            if type(after) is not int or not 0 <= after < entry.id or not isinstance(state, Mapping):
                raise ValueError(f"after is {after!r}")
        except _UNREADABLE as error:
            self._warn_unreadable(error)
            self._is_checkpoint_unusable = True
            return
        yield candidate

    async def _decode(self, candidate: _Candidate[S]) -> _Snapshot[S] | None:
        """Return the state of a checkpoint; None if it is damaged or an entry that it cites was erased."""
        try:
            ids = [_check_id(entry_id, candidate.after) for entry_id in candidate.cited_ids(candidate.state)]
        except _UNREADABLE as error:
            self._warn_unreadable(error)
            return None
        cited = await self._fetch_cited(ids)
        if cited is None:
            return None
        if candidate.lasting:
            cited = [*cited, *await self._fetch_facts((1, candidate.after), candidate.lasting)]
        try:
            state = candidate.decode(candidate.state, sorted(cited, key=lambda entry: entry.id))
        except _UNREADABLE as error:
            self._warn_unreadable(error)
            return None
        return _Snapshot(state, candidate.after)

    async def _fetch_cited(self, ids: Iterable[int]) -> list[TapeEntry] | None:
        """Return these entries; None if the content of one was erased."""
        spans = spans_of(list(ids))
        if not spans:
            return []
        (found,) = await self._tape.fetch([TapeQuery(self._tape.name, IdRanges(tuple(spans)))])
        count = sum(high - low + 1 for low, high in spans)
        return None if len(found) < count or any(entry.erased for entry in found) else list(found)

    async def _fetch_facts(self, span: Span, names: tuple[str, ...], limit: int | None = None) -> tuple[TapeEntry, ...]:
        query = TapeQuery(self._tape.name, IdRanges((span,)), kinds=(Kind.EVENT,), names=names, limit=limit)
        return (await self._tape.fetch([query]))[0]

    def _warn_unreadable(self, error: Exception) -> None:
        log.warning(
            "checkpoint not readable, passed over: %s of %s: %s",
            self.projection.name,
            self._tape.name,
            type(error).__name__,
            extra={"action": "projection.unreadable", "tape": self._tape.name},
        )


def _check_id(value: object, after: int) -> int:
    if type(value) is not int or not 1 <= value <= after:
        raise ValueError(f"{value!r} is not the id of an entry up to {after}")
    return value


async def read_projection(projection: Projection[S], tape: TapeHandle) -> S:
    """Return the state of a tape without writing a checkpoint."""
    return await ProjectedTape(projection, tape).load()


async def read_combined_projection(projection: Projection[S], tapes: Iterable[TapeHandle]) -> S:
    """Return the combined state of several tapes, such as shards, without writing checkpoints."""
    return projection.combine_states([await read_projection(projection, tape) for tape in tapes])


@dataclass
class _Watch:
    """What to call if a tape has moved on from `head`; None: not asked for yet."""

    tape: str
    on_moved: Callable[[], Awaitable[None]]
    head: int | None = None


class _SharedLock:
    """A lock in all processes. See `ProjectionRunner.lock`."""

    def __init__(self, runner: ProjectionRunner, store: SharesWriting, tape: str) -> None:
        self._runner, self._store, self._tape = runner, store, tape
        self._own = asyncio.Lock()  # so that the tasks of this process wait without a connection each
        self._held: AbstractAsyncContextManager[None] | None = None

    async def __aenter__(self) -> None:
        await self._own.acquire()
        try:
            held = self._store.exclusive(f"changes of {self._tape}")
            await held.__aenter__()
            try:
                await self._runner.read_on()
            except BaseException as error:
                await held.__aexit__(type(error), error, error.__traceback__)
                raise
            self._held = held
        except BaseException:
            self._own.release()
            raise

    async def __aexit__(self, *raised: Any) -> None:
        held, self._held = self._held, None
        try:
            assert held is not None
            await held.__aexit__(*raised)
        finally:
            self._own.release()


class ProjectionRunner:
    """The projections of a process, each in memory once.

    If several processes write to the store, `read_on` folds what the others wrote: whoever answers by a state asks for it
    at each step. With one process it costs nothing.
    """

    def __init__(self, shared: SharesWriting | None = None) -> None:
        """Read nothing. `shared`: the store, if several processes write to it."""
        self._shared = shared
        self._by_tape: dict[str, dict[str, ProjectedTape[Any]]] = {}  # by its name, then by that of the projection
        self._read_on: dict[str, list[ProjectedTape[Any]]] = {}
        self._watches: list[_Watch] = []
        self._on_erased: list[Callable[[], None]] = []
        self._erasure: int | None = None

    @property
    def is_shared(self) -> bool:
        """True if several processes may write to the store."""
        return self._shared is not None

    def project(
        self,
        projection: Projection[S],
        tape: TapeHandle,
        on_applied: Callable[[Sequence[TapeEntry]], None] = _ignore_entries,
        *,
        reads_on: bool = True,
    ) -> ProjectedTape[S]:
        """Return the projection of a tape without reading it. Only the first caller's `on_applied` counts.

        `reads_on`: `read_on` includes it; false for one that its user reads on each time.
        """
        projected = self._by_tape.setdefault(tape.name, {})
        if projection.name not in projected:
            new = projected[projection.name] = ProjectedTape(projection, tape, on_applied)
            if reads_on:
                self._read_on.setdefault(tape.name, []).append(new)
        return projected[projection.name]

    def watch(self, tape: str, on_moved: Callable[[], Awaitable[None]]) -> None:
        """Let `read_on` call this if entries were appended to a tape since the last time, by whatever process.

        For states that are not projections. With one process it is never called.
        """
        self._watches.append(_Watch(tape, on_moved))

    def watch_erasures(self, on_erased: Callable[[], None]) -> None:
        """Let `read_on` call this if entries of any tape were erased: nobody may go on with what was read before."""
        self._on_erased.append(on_erased)

    async def read_on(self) -> None:
        """Fold what other processes have appended: one question to the store, and one for each tape that moved.

        Raises:
            StoreError: the store cannot be asked. Nobody may decide by what was known before.
        """
        if self._shared is None:
            return
        heads = await self._shared.heads({*self._read_on, *(watch.tape for watch in self._watches)})
        if heads.erasure != self._erasure:
            await self._forget_erased()
            self._erasure = heads.erasure
        for tape, found in list(self._read_on.items()):
            head = heads.tapes.get(tape, 0)
            for projected in found:
                if projected.position < head or not projected.is_loaded:
                    await projected.read_up_to(head)
                elif projected.position > head:  # this process has written since, or the tape was archived
                    await projected.catch_up()
        for watch in self._watches:
            head, before = heads.tapes.get(watch.tape, 0), watch.head
            watch.head = head
            if before not in (None, head):
                await watch.on_moved()

    async def _forget_erased(self) -> None:
        """Read again what may hold words that were erased."""
        for on_erased in self._on_erased if self._erasure is not None else ():
            on_erased()
        for projected in [each for found in self._by_tape.values() for each in found.values()]:
            if projected.is_loaded:
                await projected.load()

    def lock(self, tape: str) -> AbstractAsyncContextManager[None]:
        """Make a lock for what changes the facts of a tape: it reads them, decides, and appends.

        One holder at a time in all processes that write to the store; what the others wrote is folded before.
        """
        return asyncio.Lock() if self._shared is None else _SharedLock(self, self._shared, tape)

    async def catch_up(self) -> None:
        """Load the projections that are not loaded and fold what was appended to all their tapes."""
        for projected in [each for found in self._by_tape.values() for each in found.values()]:
            await projected.catch_up()

    async def follow(self, stored: Mapping[str, Sequence[TapeEntry]]) -> None:
        """Fold entries that this process has appended, by tape."""
        for tape, entries in stored.items():
            for projected in list(self._by_tape.get(tape, {}).values()):
                await projected.follow(entries)

    async def write_checkpoints(self, tape: str) -> None:
        for projected in list(self._by_tape.get(tape, {}).values()):
            await projected.write_checkpoint()

    def combined(self, projection: Projection[S]) -> S:
        """Return the combined state of a projection's tapes; for none, that of an empty tape."""
        return projection.combine_states(
            [found[projection.name].state for found in self._by_tape.values() if projection.name in found]
        )
