"""The tape as the rest of bubbot uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import md5
from types import MappingProxyType
from typing import TypeAlias

from msgspec import structs

from bubbot.concurrency import run_uninterrupted
from bubbot.errors import TapeConflict, TapeCorrupt
from bubbot.tape import entry as make
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, TapeEntry
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.fork import ForkedTape, OpeningFork, read_as_of
from bubbot.tape.handle import Clock, TapeFeatures, TapeHandle
from bubbot.tape.provenance import ON_READ, note_reads
from bubbot.tape.query import OpeningAnchor, TapeQuery, Window, evaluate
from bubbot.tape.references import ReferenceRegistry
from bubbot.tape.shards import count_shards, shard_tape
from bubbot.tape.store import Batch, ForkRecord, Lease, TapeStore
from bubbot.tape.window import WINDOW_CACHE_ENTRIES, LiveWindow
from bubbot.tape.withheld import withhold_for_people

NewId: TypeAlias = Callable[[], str]
"""A new unique id; passed in, so that tests can choose them."""


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
        references: ReferenceRegistry = KERNEL_REFERENCES,
        features: TapeFeatures | None = None,
    ) -> None:
        super().__init__(store, name, now, session, stamp, features=features)
        self._new_id = new_id
        self._references = references
        self._lease: Lease | None = None
        self._window: LiveWindow | None = None
        self._shard_count = count_shards(store)
        self._shards: dict[str, TapeService] = {}

    def shard(self, session: str) -> TapeService:
        """Return the shard of this system tape with the facts about a session (see `shard_tape`)."""
        if self._shard_count == 1:
            return self
        return self._open_shard(shard_tape(self.name, session, self._shard_count))

    def shards(self) -> tuple[TapeService, ...]:
        return tuple(map(self._open_shard, self.shards_of(self.name)))

    def _open_shard(self, name: str) -> TapeService:
        if name == self.name:
            return self
        if name not in self._shards:
            self._shards[name] = TapeService(
                self._store,
                name,
                now=self._now,
                new_id=self._new_id,
                stamp=self._stamp,
                references=self._references,
                features=self._features,
            )
        return self._shards[name]

    def write_under(self, lease: Lease) -> None:
        """Write under this lease from now on: once it is lost, writes raise `LeaseLost`."""
        self._lease = lease

    async def append(
        self,
        entries: Sequence[TapeEntry],
        *,
        if_absent: bool = False,
        other_tapes: Mapping[str, Sequence[TapeEntry]] = MappingProxyType({}),
        heads: Mapping[str, int] = MappingProxyType({}),
        lease: Lease | None = None,
        wakes: str = "",
    ) -> tuple[TapeEntry, ...]:
        """Append a batch durably, all or nothing (see `TapeStore.append`).

        Args:
            other_tapes: entries of other tapes, by tape, for the same transaction.
            heads: the newest ids that tapes must have, by tape, else `TapeConflict`.
            lease: the lease of the session that the facts on another tape are about; None: this tape's, if any.
            wakes: the session that has work after this; see `Batch`.
        """
        batch = Batch(self.name, self._stamped(entries), if_absent=if_absent, lease=lease or self._lease, wakes=wakes)
        others = [Batch(tape, self._stamped(extra), if_absent=if_absent) for tape, extra in other_tapes.items()]
        expected = [Batch(tape, (), expect_head=head) for tape, head in heads.items()]
        self._window = None
        return (await self._store.append([*expected, batch, *others]))[len(expected)]

    def append_deferred(
        self, entries: Sequence[TapeEntry], *, lease: Lease | None = None
    ) -> Awaitable[list[tuple[TapeEntry, ...]]]:
        """Append a batch that nobody waits for (see `TapeStore.append_deferred`). `lease`: see `append`."""
        self._window = None
        batch = Batch(self.name, self._stamped(entries), lease=lease or self._lease)
        return self._store.append_deferred([batch])

    async def append_at(self, head: int, entries: Sequence[TapeEntry]) -> tuple[TapeEntry, ...]:
        """Append a batch if the newest id is still `head`. Raise `TapeConflict` otherwise."""
        batch = Batch(self.name, self._stamped(entries), expect_head=head, lease=self._lease)
        self._window = None
        return (await self._store.append([batch]))[0]

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        answers = withhold_for_people(queries, await self._store.fetch(queries))
        if ON_READ.get() is not None:
            note_reads(answers)
        return answers

    @property
    def cached_entries(self) -> int:
        return self._window.cached_entries if self._window else 0

    def forget_window(self) -> None:
        """Drop the cached window after another writer has appended to the tape."""
        self._window = None

    async def _fetch_for_fork(self, query: TapeQuery, as_of: int) -> tuple[TapeEntry, ...]:
        """Answer from memory as long as the tape has not grown since the fork was opened (the usual case)."""
        if as_of == 0:  # a new tape
            return tuple(evaluate((), query))
        live, plain = self._window, query if query.as_of is None else replace(query, as_of=None)
        answer = live.answer(plain) if live is not None and live.head == as_of else None
        if answer is None:
            answer = (await self._store.fetch([replace(query, as_of=as_of)]))[0]
            if live is not None and live is self._window and live.head == as_of:
                live.cache_answer(plain, answer)
        return answer

    async def has_window(self) -> bool:
        """Return true if the tape has an anchor that opens a window."""
        if self._window is None and await self._refresh_window() and self._window is None:
            return bool((await self.fetch([_opening_query(self.name)]))[0])
        return self._window is not None

    async def head(self) -> int:
        return await self._store.head(self.name)

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

    async def reset(self, *, archive: bool = True, erase_also: tuple[tuple[str, tuple[int, ...]], ...] = ()) -> str:
        self._window = None
        batch, first = self._restart(await self.head(), archive=archive)
        await self._store.reset(self.name, structs.replace(batch, erase_also=erase_also), self._stamped(first))
        return batch.archive

    def fork(self, opening: Sequence[TapeEntry] = (), *, stamp: JsonObject = EMPTY_OBJECT) -> OpeningFork:
        """Open a fork, durably: `await` it, or use it as `async with`, which merges it at the end; see `open_fork`.

        Forks of it are no sub-tasks: what they write is merged like its own.
        """
        return OpeningFork(partial(self._open_fork, opening, stamp, (), has_subtasks=False))

    async def open_fork(
        self, opening: Sequence[TapeEntry] = (), *, stamp: JsonObject = EMPTY_OBJECT, staged: Sequence[Batch] = ()
    ) -> ForkedTape:
        """Open a fork, durably.

        Args:
            opening: the first entries of its delta.
            stamp: merged into the meta of every entry appended to the fork.
            staged: batches for other tapes.
        """
        return await self._open_fork(opening, stamp, staged)

    async def _open_fork(
        self,
        opening: Sequence[TapeEntry],
        stamp: JsonObject,
        staged: Sequence[Batch],
        *,
        has_subtasks: bool = True,
    ) -> ForkedTape:
        if self._window is not None:
            fork = self._make_fork(self._window.head, stamp, has_subtasks=has_subtasks)
            try:
                await fork.open(opening, staged, expect_head=True)
            except TapeConflict:  # another writer appended to the tape; this costs only time
                self._window = None
            else:
                return fork
        # Entries written meanwhile are not in the fork; only a merge with `expect_head` refuses them.
        fork = self._make_fork(await self._refresh_window(), stamp, has_subtasks=has_subtasks)
        await fork.open(opening, staged, expect_head=False)
        return fork

    def _make_fork(self, head: int, stamp: JsonObject, *, has_subtasks: bool) -> ForkedTape:
        epoch = self._lease.epoch if self._lease else 0
        record = ForkRecord(self._new_id(), self.name, head, (), session=self.session, epoch=epoch)
        return self.reopen_fork(record, stamp=stamp, has_subtasks=has_subtasks)

    async def _refresh_window(self) -> int:
        """Read the head and cache its window, or the newest part of a long one."""
        head = await self._store.head(self.name)
        if not head:
            return head
        newest = TapeQuery(self.name, Window(), missing="empty", newest=True, limit=WINDOW_CACHE_ENTRIES + 1)
        with suppress(TapeCorrupt):  # the reader of the damaged entry gets the error
            opening, entries = await self._store.fetch([_opening_query(self.name), newest])
            if opening and max(opening[0].id, *(entry.id for entry in entries[:1]), 0) == head:
                is_partial = len(entries) > WINDOW_CACHE_ENTRIES
                kept = entries[: WINDOW_CACHE_ENTRIES // 2] if is_partial else entries
                self._window = LiveWindow(opening[0], list(kept[::-1]), head, is_partial)
        return head

    def _extend_window(self, delta: Sequence[TapeEntry]) -> None:
        """Append the delta of a merge to the cached window."""
        self._window = self._window.extend(delta) if self._window else None

    def reopen_fork(
        self, record: ForkRecord, *, stamp: JsonObject = EMPTY_OBJECT, has_subtasks: bool = True
    ) -> ForkedTape:
        """Resume a fork that an earlier process left open, with everything it saved, under the lease of this tape."""
        if self._lease and self._lease.epoch != record.epoch:
            record = structs.replace(record, epoch=self._lease.epoch)
        return ForkedTape(
            self._store,
            record,
            now=self._now,
            new_id=self._new_id,
            session=self.session,
            stamp={**self._stamp, **stamp},
            references=self._references,
            fetch_parent=self._fetch_for_fork,
            on_merged=self._extend_window,
            features=self._features,
            has_subtasks=has_subtasks,
        )

    async def open_forks(self) -> list[ForkRecord]:
        """List the open forks of the tape, oldest first."""
        return await self._store.forks(self.name)

    @asynccontextmanager
    async def fork_tape(self, *, merge_back: bool = True) -> AsyncIterator[ForkedTape]:
        """Open a fork for the block and merge it at the end; discard it with `merge_back=False`.

        If the block raises or is cancelled, an `error` entry is added, the work is merged, and the exception
        propagates.
        """
        fork = await self.open_fork()
        try:
            yield fork
        except BaseException as raised:
            if merge_back:
                await fork.append([make.error(getattr(raised, "kind", type(raised).__name__), str(raised))])
                await run_uninterrupted(fork.merge())
            raise
        else:
            if merge_back:
                await fork.merge()
        finally:
            if not merge_back:
                await run_uninterrupted(fork.discard())


def _opening_query(tape: str) -> TapeQuery:
    return TapeQuery(tape, OpeningAnchor(), missing="empty")


def session_tape(workspace: str, session: str) -> str:
    """Build a session's tape name, as upstream: md5 of the workspace, two underscores, md5 of the session id."""
    return "__".join(md5(part.encode(), usedforsecurity=False).hexdigest()[:16] for part in (workspace, session))
