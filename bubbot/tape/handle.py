"""The operations on one tape: on the tape itself or on a fork of it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, tzinfo
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from msgspec import Struct

from bubbot.errors import ConfigError, EntryInvalid, EntryNotFound
from bubbot.tape import entry as make
from bubbot.tape.anchor import SESSION_START, CitedEntry, anchor, check_state, find_sources
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, Kind, TapeEntry, freeze_with_text, int_field, timestamp
from bubbot.tape.events import Correction, Handoff, TapeArchived, TapeErased
from bubbot.tape.provenance import PROVENANCE, Source, most_foreign, parse_source, stamp_of
from bubbot.tape.query import (
    AfterAnchor,
    BetweenAnchors,
    IdRanges,
    OpeningAnchor,
    Span,
    TapeQuery,
    Window,
    date_bounds,
    is_inside,
)
from bubbot.tape.shards import count_shards, shard_tapes
from bubbot.tape.store import ResetBatch, TapeStore
from bubbot.tape.view import QueryAnswers, StepwiseView, View

T = TypeVar("T")

CORRECTION = "correction"
"""The event that corrects an entry: `{"corrects": id, "content": text}`; with `"hide": true` it hides the entry."""

Clock: TypeAlias = Callable[[], datetime]
"""The current time as an aware datetime; passed in, so that tests can stop it."""


class TapeMemory(Protocol):
    """What is remembered on a tape: a long-term text and a note for each day. Each change is a new version."""

    async def save_long_term(self, content: str) -> list[str]:
        """Replace the long-term text; return the lines that are lost."""
        ...

    async def append_daily(self, content: str, date: str | None = None) -> None:
        """Add lines to the note of a day, an ISO date; by default today."""
        ...

    async def forget(self, text: str) -> list[str]:
        """Remove every line that holds the text, and return these lines."""
        ...

    async def get_context(self, recent_days: int = 7) -> str:
        """Return the block that a model is shown."""
        ...

    async def export(self) -> str:
        """Return everything remembered, as Markdown."""
        ...


class TapeFeatures(Struct, frozen=True):
    """What features add to a tape; given by the app, since the tape knows no feature.

    Attributes:
        search: returns the entries that hold words, best first: tape, words, at most so many.
        open_memory: returns the memory of a tape or fork.
    """

    search: Callable[[TapeHandle, str, int], Awaitable[tuple[TapeEntry, ...]]]
    open_memory: Callable[[TapeHandle], TapeMemory]


class TapeHandle(ABC):
    """One tape, to append and to read.

    Attributes:
        session: the session id; empty for tapes without one.
        source: the provenance of the next entries; `own` outside of turns, where the owner writes.
    """

    source: Source

    def __init__(
        self,
        store: TapeStore,
        name: str,
        now: Clock,
        session: str = "",
        stamp: JsonObject = EMPTY_OBJECT,
        *,
        features: TapeFeatures | None = None,
    ) -> None:
        """Merge `stamp` into the meta of every appended entry. `features`: None if nothing needs them."""
        self._store = store
        self._features = features
        self.name = name
        self.session = session
        self._now = now
        self._set_stamp(stamp)

    def _set_stamp(self, stamp: JsonObject) -> None:
        self._stamp: JsonObject
        self._stamp, self._stamp_text = freeze_with_text(stamp, "meta")
        self.source = parse_source(stamp[PROVENANCE]) if PROVENANCE in stamp else Source.OWN

    @abstractmethod
    async def append(self, entries: Sequence[TapeEntry], *, if_absent: bool = False) -> tuple[TapeEntry, ...]:
        """Append a batch, all or nothing, and return the stored entries (see `TapeStore.append`)."""

    @abstractmethod
    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """Return the entries of each query, all from one state of the tape."""

    @abstractmethod
    async def head(self) -> int:
        """Return the newest id; 0 for an empty tape."""

    @abstractmethod
    async def as_of(self, spans: Sequence[Sequence[int]]) -> TapeHandle:
        """Return the tape as it was at an earlier time, to read it.

        It stores nothing, and reads what each query needs and the moved entries, not the whole tape. What was erased
        since stays erased.

        Args:
            spans: the current ids of the entries that were 1, 2, 3 … then: `((1, n),)` for the tape at the head `n`, or
                the `as_of` of a `loop.step`.
        """

    @abstractmethod
    async def reset(self, *, archive: bool = True, erase_also: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> str:
        """Restart the tape with `session/start` and a fact about the old entries; return the archive name.

        Args:
            archive: True keeps the old entries under the archive name; False erases them.
            erase_also: entries of other tapes to erase with them, as (tape, ids).
        """

    def shards_of(self, tape: str) -> tuple[str, ...]:
        """Return all tapes of a system tape (see `shard_tapes`)."""
        return shard_tapes(tape, count_shards(self._store))

    async def put_blob(self, data: bytes) -> str:
        """Store bytes with the tape at once, also in a fork, and return their digest: an uncited blob is harmless."""
        return await self._store.put_blob(self.name, data)

    async def get_blob(self, digest: str) -> bytes:
        """Read the bytes of a blob of this tape. Raise `EntryNotFound` if there is none."""
        return await self._store.get_blob(self.name, digest)

    async def read(self, view: View[T] | StepwiseView[T]) -> T:
        """Return the view's value on this tape. There is no other way to read a view."""
        if hasattr(view, "steps"):  # `isinstance` on a protocol takes longer than many views
            return await self._read_stepwise(cast("StepwiseView[T]", view))
        results = await self.fetch(view.queries(self.name))
        return await asyncio.to_thread(view.fold, results) if view.heavy else view.fold(results)

    async def _read_stepwise(self, view: StepwiseView[T]) -> T:
        steps = view.steps(self.name)
        value: list[T] = []

        def advance(answers: QueryAnswers | None) -> tuple[TapeQuery, ...] | None:
            try:
                return next(steps) if answers is None else steps.send(answers)
            except StopIteration as end:  # a thread cannot raise it
                value.append(end.value)
                return None

        queries = advance(None)
        while queries is not None:
            answers = await self.fetch(queries)
            queries = await asyncio.to_thread(advance, answers)
        return value[0]

    async def search(self, words: str, *, limit: int = 20) -> tuple[TapeEntry, ...]:
        """Find the entries that hold these words, typing mistakes allowed, best first.

        Raises:
            ConfigError: the tape was opened without features; `bubbot.open_store` opens it with them.
        """
        return await self._require_features().search(self, words, limit)

    @property
    def memory(self) -> TapeMemory:
        """The memory of this tape; of a fork, with what the fork has changed. Raise `ConfigError` as `search` does."""
        return self._require_features().open_memory(self)

    def _require_features(self) -> TapeFeatures:
        if self._features is None:
            raise ConfigError(f"the tape {self.name} was opened without search and memory; bubbot.open_store has them")
        return self._features

    async def append_event(self, name: str, data: JsonObject | None = None, *, key: str | None = None) -> TapeEntry:
        return (await self.append([make.event(name, data, key=key)]))[0]

    async def append_system(self, content: str) -> TapeEntry:
        return (await self.append([make.system(content)]))[0]

    async def handoff(
        self,
        name: str,
        state: JsonObject | None = None,
        *,
        recalls: Sequence[tuple[int, int]] = (),
        copied: Source = Source.OWN,
    ) -> TapeEntry:
        """Open a new window: append the anchor and the `handoff` event in one batch; return the anchor.

        Args:
            state: what the next phase needs.
            recalls: see `anchor`.
            copied: the provenance of words that the state copies from other entries.

        Raises:
            EntryInvalid: the state breaks its contract (see `check_anchor_state`).
        """
        state = state or {}
        if name.startswith("memory/"):
            raise EntryInvalid(f"{name} is a name of the memory zone, which never opens a window; choose another")
        await self.check_anchor_state(state)
        mark = stamp_of(most_foreign(self.source, copied))
        opening = anchor(name, state, recalls=recalls, meta=mark)
        stored = await self.append([opening, Handoff(name, state).to_entry(**mark)])
        return stored[0]

    async def check_anchor_state(self, state: JsonObject) -> None:
        """Check the state of a new anchor against its contract (see `check_state`).

        Its parents must be anchors that are stored already, so no anchor is its own ancestor. What it cites of other tapes
        must be stored, too.

        Raises:
            EntryInvalid: names the key and its value.
        """
        parents = check_state(state, await self.head(), self.name)
        queries = [TapeQuery(tape, IdRanges(((entry_id, entry_id),))) for tape, entry_id in parents]
        answers = await self.fetch(queries) if queries else ()
        for (tape, entry_id), found in zip(parents, answers, strict=True):
            if not found or found[0].kind != Kind.ANCHOR:
                place = f"entry {entry_id}" if tape == self.name else f"entry {entry_id} of the tape {tape}"
                reason = "which is not an anchor" if found else "which does not exist"
                raise EntryInvalid(f"handoff state: parents names {place}, {reason}")
        for tape, entry_id in await self._find_missing_sources(state):
            raise EntryInvalid(
                f"handoff state: source_ids names entry {entry_id} of the tape {tape}, which does not exist"
            )

    async def keep_sources(self, state: JsonObject) -> JsonObject:
        """Return a state that cites no entry of another tape that is not there any more, since that tape began again."""
        missing = await self._find_missing_sources(state)
        if not missing:
            return state
        kept = [each for each in state["source_ids"] if type(each) is int or tuple(each) not in missing]
        return {**state, "source_ids": kept} if kept else {k: v for k, v in state.items() if k != "source_ids"}

    async def _find_missing_sources(self, state: JsonObject) -> list[CitedEntry]:
        """Return the entries of other tapes that a state cites and that do not exist."""
        cited = [each for each in find_sources(state, self.name) if each[0] != self.name]
        queries = [TapeQuery(tape, IdRanges(((entry_id, entry_id),))) for tape, entry_id in cited]
        answers = await self.fetch(queries) if queries else ()
        return [each for each, found in zip(cited, answers, strict=True) if not found]

    async def ensure_bootstrap_anchor(self) -> None:
        """Write `session/start` once: on a tape without an anchor that opens a window."""
        if not (await self.fetch([TapeQuery(self.name, OpeningAnchor(), missing="empty")]))[0]:
            await self.append([self._bootstrap()])

    def _bootstrap(self) -> TapeEntry:
        return anchor(
            SESSION_START, {"owner": "human"}, meta={"session": self.session} if self.session else EMPTY_OBJECT
        )

    async def correct(self, entry_id: int, content: str, sender: JsonObject | None = None) -> TapeEntry:
        """Append a correction that gives an entry a new text; the original stays.

        Args:
            sender: who corrects, in the form of `meta.sender`.

        Raises:
            EntryNotFound: the tape has no such entry.
        """
        return await self._append_correction(Correction(entry_id, content), sender)

    async def hide(self, entry_id: int) -> TapeEntry:
        """Append a correction that hides an entry from context and search. Raise `EntryNotFound`."""
        return await self._append_correction(Correction(entry_id, hide=True))

    async def _append_correction(self, correction: Correction, sender: JsonObject | None = None) -> TapeEntry:
        head = await self.head()
        if not 1 <= correction.corrects <= head:
            raise EntryNotFound(
                f"there is no entry {correction.corrects} to correct; this tape has entries 1 to {head}"
            )
        meta: dict[str, Any] = {} if sender is None else {"sender": sender}
        return (await self.append([correction.to_entry(**meta)]))[0]

    async def find_corrections(self, spans: Sequence[Span]) -> list[TapeEntry]:
        """Find all corrections of entries in these spans, wherever they stand on the tape."""
        entries = (await self.fetch([TapeQuery(self.name, kinds=(Kind.EVENT,), names=(CORRECTION,))]))[0]
        return [entry for entry in entries if is_inside(int_field(entry.data, "corrects"), spans)]

    async def entry(self, entry_id: int) -> TapeEntry:
        """Return one entry by its id. Raise `EntryNotFound` if there is none."""
        entries = (await self.fetch([TapeQuery(self.name, IdRanges(((entry_id, entry_id),)))]))[0]
        if not entries:
            raise EntryNotFound(f"there is no entry {entry_id}; this tape has entries 1 to {await self.head()}")
        return entries[0]

    async def from_last_anchor(self, kinds: Sequence[str] = ()) -> tuple[TapeEntry, ...]:
        """Return the entries of the window. Raise `AnchorNotFound` on a tape without one."""
        return (await self.fetch([TapeQuery(self.name, Window(), tuple(kinds))]))[0]

    async def after_anchor(self, name: str, kinds: Sequence[str] = ()) -> tuple[TapeEntry, ...]:
        """Return the entries after the newest anchor of this name. Raise `AnchorNotFound`."""
        return (await self.fetch([TapeQuery(self.name, AfterAnchor(name), tuple(kinds))]))[0]

    async def between_anchors(self, first: str, second: str, kinds: Sequence[str] = ()) -> tuple[TapeEntry, ...]:
        """Return the entries from the newest `first` to the first `second` after it, without the anchors.

        Raises:
            AnchorNotFound: one of the anchors is missing.
        """
        return (await self.fetch([TapeQuery(self.name, BetweenAnchors(first, second), tuple(kinds))]))[0]

    async def between_dates(
        self, start: str | None = None, end: str | None = None, kinds: Sequence[str] = (), *, zone: tzinfo | None = None
    ) -> tuple[TapeEntry, ...]:
        """Return the entries between two dates, both included; None leaves that end open.

        Args:
            start: a date stands for its first moment.
            end: a date stands for its last moment.
            kinds: any of these; empty for all.
            zone: the time zone of texts without an offset; None for UTC.

        Raises:
            ValueError: names the text that is not a date.
        """
        since, until = date_bounds(start, end, zone) if zone else date_bounds(start, end)
        return (await self.fetch([TapeQuery(self.name, kinds=tuple(kinds), since=since, until=until)]))[0]

    def _stamped(self, entries: Sequence[TapeEntry], first: int | None = None) -> tuple[TapeEntry, ...]:
        """Return the entries with the handle's stamp and a date; with ids from `first` on if given."""
        stamp, text, now = self._stamp, self._stamp_text, self._now
        ids = [entry.id for entry in entries] if first is None else range(first, first + len(entries))
        return tuple(
            [
                entry.stamped(stamp, text, entry.date or timestamp(now()), entry_id)
                for entry, entry_id in zip(entries, ids, strict=True)
            ]
        )

    def _restart(self, old_head: int, *, archive: bool) -> tuple[ResetBatch, Sequence[TapeEntry]]:
        """Build the reset, and the first entries of the new tape, not stamped yet."""
        moment = self._now()
        name = f"{self.name}@{moment.strftime('%Y%m%dT%H%M%S.%f')}"
        fact = TapeArchived(name, old_head) if archive else TapeErased(archive=name, entries=old_head)
        return ResetBatch(name, erase=not archive), [self._bootstrap(), fact.to_entry()]


def spans_of(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Combine ids into ascending inclusive ranges."""
    ordered = sorted(set(ids))
    gaps = [(last, first) for last, first in pairwise(ordered) if last + 1 != first]
    firsts, lasts = [first for _, first in gaps], [last for last, _ in gaps]
    return list(zip([*ordered[:1], *firsts], [*lasts, *ordered[-1:]], strict=True))


def ids_of(spans: Sequence[Span], head: int) -> list[int]:
    """List the ids of ranges, up to the head."""
    return [entry_id for low, high in spans for entry_id in range(low, (head if high is None else high) + 1)]
