"""The tape as the rest of bubbot sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from hashlib import md5
from types import MappingProxyType
from typing import TypeAlias

from bubbot.errors import TapeConflict, TapeCorrupt
from bubbot.tape import entry as make
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, TapeEntry
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import Clock, TapeHandle
from bubbot.tape.query import OpeningAnchor, TapeQuery, Window
from bubbot.tape.store import Batch, ForkRecord, TapeStore
from bubbot.tape.window import WINDOW_CACHE_ENTRIES, LiveWindow

NewId: TypeAlias = Callable[[], str]
"""A fresh unique id; passed in, so that tests can name them."""


class TapeService(TapeHandle):
    """One tape in a store: appends are durable when they return."""

    def __init__(
        self,
        store: TapeStore,
        name: str,
        *,
        now: Clock,
        new_id: NewId,
        session: str = "",
        stamp: JsonObject = EMPTY_OBJECT,
    ) -> None:
        super().__init__(name, now, session, stamp)
        self._store = store
        self._new_id = new_id
        self._live: LiveWindow | None = None

    async def append(
        self,
        entries: Sequence[TapeEntry],
        *,
        keep_first: bool = False,
        also: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({}),
    ) -> tuple[TapeEntry, ...]:
        """Appends a batch durably, all or nothing (see `TapeStore.append`); `also` are entries of other tapes that
        go into the same transaction."""
        batch = Batch(self.name, tuple(self._stamped(entry) for entry in entries), keep_first=keep_first)
        others = [
            Batch(tape, tuple(self._stamped(entry) for entry in more), keep_first=keep_first)
            for tape, more in also.items()
        ]
        self._live = None
        return (await self._store.append([batch, *others]))[0]

    async def append_along(self, entries: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        """Appends a batch that nobody waits for (see `TapeStore.append_along`)."""
        self._live = None
        return (await self._store.append_along([Batch(self.name, tuple(map(self._stamped, entries)))]))[0]

    async def append_at(self, head: int, entries: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        """Appends a batch if the newest id is still `head`. Raises `TapeConflict`."""
        batch = Batch(self.name, tuple(self._stamped(entry) for entry in entries), expect_head=head)
        self._live = None
        return (await self._store.append([batch]))[0]

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """What each query finds, all from one state of the database."""
        return await self._store.fetch(queries)

    @property
    def kept(self) -> int:
        """Entries of the window that are kept in memory."""
        return self._live.kept if self._live else 0

    def forget_window(self) -> None:
        """Reads the window anew for the next fork: somebody else has written to the tape."""
        self._live = None

    async def _fetch_for_fork(self, query: TapeQuery) -> tuple[TapeEntry, ...]:
        """While a fork is open its parent stands still: what it asks again and again is answered from memory."""
        live = self._live
        found = live.answer(query) if live else None
        if found is None:
            found = (await self._store.fetch([query]))[0]
            if live is not None and live is self._live:
                live.keep(query, found)
        return found

    async def has_window(self) -> bool:
        """Whether the tape has an anchor that opens a window."""
        return self._live is not None or bool((await self.fetch([_opening(self.name)]))[0])

    async def head(self) -> int:
        """The newest id; 0 for an empty tape."""
        return await self._store.head(self.name)

    async def put_blob(self, data: bytes) -> str:
        """Keeps bytes beside the tape and returns their digest."""
        return await self._store.put_blob(self.name, data)

    async def get_blob(self, digest: str) -> bytes:
        """The bytes of a blob of this tape."""
        return await self._store.get_blob(self.name, digest)

    async def reset(self, *, archive: bool = True, also: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> str:
        """Starts the tape anew in one transaction (see `TapeHandle.reset`)."""
        self._live = None
        how, first = self._restart(await self.head(), archive=archive)
        await self._store.reset(self.name, replace(how, also=also), first)
        return how.archive

    async def open_fork(
        self, opening: Sequence[TapeEntry] = (), *, stamp: JsonObject = EMPTY_OBJECT, staged: Sequence[Batch] = ()
    ) -> ForkedTape:
        """Opens a fork that holds `opening` and `staged`, durable when this returns."""
        if self._live is not None:
            try:
                return await self._opened(self._live.head, opening, stamp, staged)
            except TapeConflict:  # it was written past this object; nothing is lost but the time
                self._live = None
        return await self._opened(await self._refreshed(), opening, stamp, staged)

    async def _opened(
        self, head: int, opening: Sequence[TapeEntry], stamp: JsonObject, staged: Sequence[Batch]
    ) -> ForkedTape:
        record = ForkRecord(self._new_id(), self.name, head, ())
        fork = self.reopen_fork(record, stamp=stamp)
        await fork.append(opening)
        own = Batch(self.name, fork.delta)
        record = replace(record, staged=(own, *staged))
        await self._store.open_fork(record)
        return self.reopen_fork(record, stamp=stamp)

    async def _refreshed(self) -> int:
        """The head, with the window of that head in memory where it is not too long to be kept."""
        head = await self._store.head(self.name)
        queries = [_opening(self.name), TapeQuery(self.name, Window(), missing="empty")]
        with suppress(TapeCorrupt):  # whoever reads the damaged entry is told
            opening, entries = await self._store.fetch(
                [replace(query, limit=WINDOW_CACHE_ENTRIES + 1) for query in queries]
            )
            if (
                opening
                and len(entries) <= WINDOW_CACHE_ENTRIES
                and max(opening[0].id, *(entry.id for entry in entries[-1:]), 0) == head
            ):
                self._live = LiveWindow(opening[0], list(entries), head)
        return head

    def _merged(self, delta: Sequence[TapeEntry]) -> None:
        """What a fork has merged continues the window."""
        self._live = self._live.extended(delta) if self._live else None

    def reopen_fork(self, record: ForkRecord, *, stamp: JsonObject = EMPTY_OBJECT) -> ForkedTape:
        """A fork that was open when an earlier process died, with what it had saved."""
        return ForkedTape(
            self._store,
            record,
            now=self._now,
            session=self.session,
            stamp={**self._stamp, **stamp},
            parent=self._fetch_for_fork,
            merged=self._merged,
        )

    @asynccontextmanager
    async def fork_tape(self, *, merge_back: bool = True) -> AsyncIterator[ForkedTape]:
        """A fork for the block: merged at its end, or discarded with `merge_back=False`.

        A block that raises or is cancelled is a fact too: an `error` entry is added, what it did is merged,
        and the exception goes on.
        """
        fork = await self.open_fork()
        try:
            yield fork
        except BaseException as raised:
            if merge_back:
                await fork.append([make.error(getattr(raised, "kind", type(raised).__name__), str(raised))])
                await asyncio.shield(fork.merge())
            raise
        else:
            if merge_back:
                await fork.merge()
        finally:
            if not merge_back:
                await asyncio.shield(fork.discard())


def _opening(tape: str) -> TapeQuery:
    return TapeQuery(tape, OpeningAnchor(), missing="empty")


def session_tape(workspace: str, session: str) -> str:
    """The tape name of a session, as upstream: md5 of the workspace, two underscores, md5 of the session id."""
    return "__".join(md5(part.encode(), usedforsecurity=False).hexdigest()[:16] for part in (workspace, session))
