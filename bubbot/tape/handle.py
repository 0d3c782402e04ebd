"""What can be done with one tape, whether it is the tape itself or a fork of it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, tzinfo
from typing import TypeAlias, TypeVar

from bubbot.errors import EntryInvalid, EntryNotFound
from bubbot.tape import entry as make
from bubbot.tape.anchor import SESSION_START, anchor, check_state
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, TapeEntry, freeze, timestamp
from bubbot.tape.query import AfterAnchor, BetweenAnchors, IdRanges, OpeningAnchor, Span, TapeQuery, Window, date_bounds
from bubbot.tape.store import ResetBatch
from bubbot.tape.view import StepwiseView, View

T = TypeVar("T")

CORRECTION = "correction"
"""The event that corrects an entry: `{"corrects": id, "content": text}`, or hides it: `{"corrects": id, "hide": true}`."""

Clock: TypeAlias = Callable[[], datetime]
"""The current time as an aware datetime; passed in, so that tests can hold it still."""


class TapeHandle(ABC):
    """Appends and reads of one tape.

    `session` is the session id, for the tapes that have one; `stamp` is merged into the meta of every entry
    appended.
    """

    def __init__(self, name: str, now: Clock, session: str = "", stamp: JsonObject = EMPTY_OBJECT) -> None:
        self.name = name
        self.session = session
        self._now = now
        self._stamp: JsonObject = freeze(stamp, "meta")

    @abstractmethod
    async def append(self, entries: Sequence[TapeEntry], *, keep_first: bool = False) -> tuple[TapeEntry, ...]:
        """Appends a batch, all or nothing, and returns the stored entries (see `TapeStore.append`)."""

    @abstractmethod
    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """What each query finds, all from one state of the tape."""

    @abstractmethod
    async def head(self) -> int:
        """The newest id; 0 for an empty tape."""

    @abstractmethod
    async def put_blob(self, data: bytes) -> str:
        """Keeps bytes beside the tape and returns their digest."""

    @abstractmethod
    async def get_blob(self, digest: str) -> bytes:
        """The bytes of a blob of this tape. Raises `EntryNotFound`."""

    @abstractmethod
    async def reset(self, *, archive: bool = True, also: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> str:
        """Starts the tape anew with `session/start` and a fact of what became of the old entries.

        `archive=True` keeps them under the archive name that is returned; `archive=False` erases them, and the
        entries of other tapes named in `also`.
        """

    async def read(self, view: View[T]) -> T:
        """The one door to views: what the view makes of this tape."""
        found = await self.fetch(view.queries(self.name))
        if isinstance(view, StepwiseView):
            while more := await asyncio.to_thread(view.further, self.name, found):
                found = [*found, *await self.fetch(more)]
        return await asyncio.to_thread(view.fold, found) if view.heavy else view.fold(found)

    async def append_event(self, name: str, data: JsonObject | None = None, *, key: str | None = None) -> TapeEntry:
        """Appends one event."""
        return (await self.append([make.event(name, data, key=key)]))[0]

    async def append_system(self, content: str) -> TapeEntry:
        """Appends one system message."""
        return (await self.append([make.system(content)]))[0]

    async def handoff(
        self, name: str, state: JsonObject | None = None, *, recalls: Sequence[tuple[int, int]] = ()
    ) -> TapeEntry:
        """Opens a new window: the anchor, then the `handoff` event, in one batch. Returns the anchor.

        Raises `EntryInvalid` where the state breaks its contract.
        """
        state = state or {}
        if name.startswith("memory/"):
            raise EntryInvalid(f"{name} is a name of the memory zone, which never opens a window; choose another")
        check_state(state, await self.head())
        stored = await self.append(
            [anchor(name, state, recalls=recalls), make.event("handoff", {"name": name, "state": state})]
        )
        return stored[0]

    async def ensure_bootstrap_anchor(self) -> None:
        """Writes `session/start` once: on a tape that has no anchor to open a window."""
        if not (await self.fetch([TapeQuery(self.name, OpeningAnchor(), missing="empty")]))[0]:
            await self.append([self._bootstrap()])

    def _bootstrap(self) -> TapeEntry:
        return anchor(
            SESSION_START, {"owner": "human"}, meta={"session": self.session} if self.session else EMPTY_OBJECT
        )

    async def correct(self, entry_id: int, content: str, sender: JsonObject | None = None) -> TapeEntry:
        """Corrects an entry by a new one that names it; the original stays. Raises `EntryNotFound`.

        Args:
            sender: who corrects, as `meta.sender` of messages names people.
        """
        return await self._correction(entry_id, {"corrects": entry_id, "content": content}, sender)

    async def hide(self, entry_id: int) -> TapeEntry:
        """Hides an entry from context and search by a new one that names it. Raises `EntryNotFound`."""
        return await self._correction(entry_id, {"corrects": entry_id, "hide": True})

    async def _correction(self, entry_id: int, data: JsonObject, sender: JsonObject | None = None) -> TapeEntry:
        head = await self.head()
        if not 1 <= entry_id <= head:
            raise EntryNotFound(f"there is no entry {entry_id} to correct; this tape has entries 1 to {head}")
        made = make.event(CORRECTION, data) if sender is None else make.event(CORRECTION, data, sender=sender)
        return (await self.append([made]))[0]

    async def entry(self, entry_id: int) -> TapeEntry:
        """One entry by its id. Raises `EntryNotFound`."""
        found = (await self.fetch([TapeQuery(self.name, IdRanges(((entry_id, entry_id),)))]))[0]
        if not found:
            raise EntryNotFound(f"there is no entry {entry_id}; this tape has entries 1 to {await self.head()}")
        return found[0]

    async def from_last_anchor(self, kinds: Sequence[str] = ()) -> tuple[TapeEntry, ...]:
        """The entries of the window. Raises `AnchorNotFound` on a tape without one."""
        return (await self.fetch([TapeQuery(self.name, Window(), tuple(kinds))]))[0]

    async def after_anchor(self, name: str, kinds: Sequence[str] = ()) -> tuple[TapeEntry, ...]:
        """The entries after the newest anchor of this name. Raises `AnchorNotFound`."""
        return (await self.fetch([TapeQuery(self.name, AfterAnchor(name), tuple(kinds))]))[0]

    async def between_anchors(self, first: str, second: str, kinds: Sequence[str] = ()) -> tuple[TapeEntry, ...]:
        """From the newest `first` to the first `second` after it, both left out. Raises `AnchorNotFound`."""
        return (await self.fetch([TapeQuery(self.name, BetweenAnchors(first, second), tuple(kinds))]))[0]

    async def between_dates(
        self, start: str | None = None, end: str | None = None, kinds: Sequence[str] = (), *, zone: tzinfo | None = None
    ) -> tuple[TapeEntry, ...]:
        """The entries of these dates, both included; either may be left out. A date alone is its whole day.

        Raises `ValueError` naming a text that is not a date.
        """
        since, until = date_bounds(start, end, zone) if zone else date_bounds(start, end)
        return (await self.fetch([TapeQuery(self.name, kinds=tuple(kinds), since=since, until=until)]))[0]

    def _stamped(self, entry: TapeEntry) -> TapeEntry:
        """The entry with the handle's stamp in its meta and a date, where it has none."""
        return entry.stamped(self._stamp, entry.date or timestamp(self._now()))

    def _restart(self, old_head: int, *, archive: bool) -> tuple[ResetBatch, list[TapeEntry]]:
        """How to put the tape aside, and the first entries of the new one."""
        moment = self._now()
        name = f"{self.name}@{moment.strftime('%Y%m%dT%H%M%S.%f')}"
        fact = "tape/archived" if archive else "tape/erased"
        first = [self._bootstrap(), make.event(fact, {"archive": name, "entries": old_head})]
        return ResetBatch(name, erase=not archive), [self._stamped(entry) for entry in first]


def spans_of(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Ids in ascending order as inclusive ranges."""
    spans: list[tuple[int, int]] = []
    for entry_id in sorted(set(ids)):
        if spans and spans[-1][1] + 1 == entry_id:
            spans[-1] = (spans[-1][0], entry_id)
        else:
            spans.append((entry_id, entry_id))
    return spans


def ids_of(spans: Sequence[Span], head: int) -> list[int]:
    """The ids of ranges, up to the head."""
    return [entry_id for low, high in spans for entry_id in range(low, (head if high is None else high) + 1)]
