"""A tape that is read forwards, as it was at one entry after another."""

from __future__ import annotations

from collections.abc import Sequence

from bubbot.tape.entry import TapeEntry
from bubbot.tape.handle import Clock
from bubbot.tape.provenance import ON_READ, note_reads
from bubbot.tape.query import IdRanges, OpeningAnchor, TapeQuery, Window, arrange, select, union
from bubbot.tape.service import NewId, TapeService
from bubbot.tape.store import TapeStore
from bubbot.tape.window import WINDOW_CACHE_ENTRIES, LiveWindow
from bubbot.tape.withheld import withhold_for_people

PAGE_ENTRIES = 500
"""Entries that are read at a time."""
MAX_PAGES = 8
"""Pages that are kept: turns that run side by side are read a little apart."""
MAX_BLOBS = 16
"""Blobs that are kept, since the requests of a window share their system prompt and their tools."""
MAX_BLOB_BYTES = 2**20
"""Larger ones, such as images, are read each time."""


class ReplayedTape(TapeService):
    """A tape whose past is read forwards. It has the entries that it had when it was opened, and is not written to.

    It keeps the window of the newest entry as of which it was read, and extends it by what follows, as the service of a live tape does
    with what is appended: what was decoded for one request is there for the next.
    """

    def __init__(self, store: TapeStore, name: str, head: int, *, now: Clock, new_id: NewId, session: str = "") -> None:
        """Open it as it is with this newest entry."""
        super().__init__(store, name, now=now, new_id=new_id, session=session)
        self._head = head
        self._pages: dict[int, tuple[TapeEntry, ...]] = {}
        self._blobs: dict[str, bytes] = {}

    async def head(self) -> int:
        return self._head

    async def get_blob(self, digest: str) -> bytes:
        data = self._blobs.get(digest)
        if data is None:
            data = await super().get_blob(digest)
            if len(data) <= MAX_BLOB_BYTES:
                self._blobs[digest] = data
                if len(self._blobs) > MAX_BLOBS:
                    del self._blobs[next(iter(self._blobs))]
        return data

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        answers = withhold_for_people(queries, [await self._find(query) for query in queries])
        if ON_READ.get() is not None:
            note_reads(answers)
        return answers

    async def _find(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        if query.tape != self.name:
            return (await self._store.fetch([query]))[0]
        as_of = self._head if query.as_of is None else min(query.as_of, self._head)
        match query.part:
            case IdRanges(spans) if all(high is not None and high - low < PAGE_ENTRIES for low, high in spans):
                found = [entry for low, high in union(spans) for entry in await self._read(low, min(high or 0, as_of))]
                return tuple(arrange(select(found, query), query))
        if query.as_of is None:
            return (await self._store.fetch([query]))[0]
        await self._advance(as_of)
        return await self._fetch_for_fork(query, as_of)

    async def _read(self, low: int, high: int) -> list[TapeEntry]:
        """Return the entries of a range of ids."""
        found: list[TapeEntry] = []
        for page in range((low - 1) // PAGE_ENTRIES, (high - 1) // PAGE_ENTRIES + 1):
            entries = self._pages.pop(page, None)
            if entries is None:
                part = IdRanges(((page * PAGE_ENTRIES + 1, min((page + 1) * PAGE_ENTRIES, self._head)),))
                entries = (await self._store.fetch([TapeQuery(self.name, part)]))[0]
                if len(self._pages) >= MAX_PAGES:
                    del self._pages[next(iter(self._pages))]
            self._pages[page] = entries  # the last that was used
            found += [entry for entry in entries if low <= entry.id <= high]
        return found

    async def _advance(self, as_of: int) -> None:
        """Let the window be that of an entry, unless it is that of a later one already."""
        window = self._window
        if window is not None and window.head < as_of <= window.head + MAX_PAGES * PAGE_ENTRIES:
            window = window.extend(await self._read(window.head + 1, as_of))
        if window is None or window.head < as_of:
            opening = TapeQuery(self.name, OpeningAnchor(), missing="empty", as_of=as_of)
            newest = TapeQuery(
                self.name, Window(), missing="empty", newest=True, limit=WINDOW_CACHE_ENTRIES + 1, as_of=as_of
            )
            (anchors, entries) = await self._store.fetch([opening, newest])
            window = None
            if anchors and max(anchors[0].id, *(entry.id for entry in entries[:1]), 0) == as_of:
                is_partial = len(entries) > WINDOW_CACHE_ENTRIES
                kept = entries[: WINDOW_CACHE_ENTRIES // 2] if is_partial else entries
                window = LiveWindow(anchors[0], list(kept[::-1]), as_of, is_partial)
        self._window = window
