"""A fork reads as a plain tape to which the same was appended, before the merge and after it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import product
from typing import TypeAlias

import pytest
from hypothesis import event as label
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbot.errors import BubbotError, TapeConflict
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, canonical, event
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import OpeningAnchor, TapeQuery, Window, ZoneSlice
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, ResetBatch, TapeStore
from tests.doubles import CountingIds, SteppingClock
from tests.property.bench import Bench, answer
from tests.property.bench import bench as open_bench
from tests.property.strategies import KEYS, NAMES, entries, exactly, keyed_apart, queries, texts, thorough, unkeyed
from tests.raw import raw, rows
from tests.tapes import whole


@dataclass(frozen=True, slots=True)
class Append:
    entries: tuple[TapeEntry, ...]
    keep_first: bool = False


@dataclass(frozen=True, slots=True)
class Correct:
    id: int
    content: str | None


@dataclass(frozen=True, slots=True)
class Restart:
    archive: bool


@dataclass(frozen=True, slots=True)
class SaveAndReopen:
    """As after a crash: the fork goes on from what is on disk."""


Step: TypeAlias = Append | Correct | Restart | SaveAndReopen

keyed = entries(st.none() | st.sampled_from(KEYS))
appends = st.builds(Append, st.lists(keyed, max_size=4).map(tuple), st.booleans())
# Resets are rare: most of what can go wrong is between a parent and its overlay.
steps: st.SearchStrategy[Step] = st.one_of(
    appends,
    appends,
    appends,
    st.builds(Correct, st.integers(0, 12), st.none() | texts),
    st.just(SaveAndReopen()),
    st.builds(Restart, st.booleans()),
)


class Pair:
    """A fork of a tape, and a plain tape beside it that is given the same, in a store of its own."""

    def __init__(self, store: TapeStore, name: str) -> None:
        self.store = store
        self.plain_store = InMemoryStore()
        self.tape = service(store, name)
        self.plain = service(self.plain_store, name)
        self.erase = False
        self.archive = ""

    async def open(self, parent: Sequence[TapeEntry]) -> None:
        for tape in (self.tape, self.plain):
            await tape.append(parent)
        await self.begin()

    async def begin(self) -> None:
        """A fork of the tape as it is now."""
        self.archive, self.erase = "", False
        self.parent = await whole(self.store, self.tape.name)
        self.fork = await self.tape.open_fork()

    async def do(self, step: Step) -> None:
        match step:
            case Append(given_entries, keep_first):
                done = [await append(tape, given_entries, keep_first=keep_first) for tape in (self.fork, self.plain)]
                assert done[0] == done[1]
            case Correct(entry_id, content):
                done = [await correct(tape, entry_id, content) for tape in (self.fork, self.plain)]
                assert done[0] == done[1]
            case SaveAndReopen():
                await self.reopen()
            case Restart(archive):
                await self.restart(archive=archive)

    async def reopen(self) -> None:
        await self.fork.save()
        records = [record for record in await self.store.forks() if record.tape == self.tape.name]
        assert len(records) == 1
        self.fork = self.tape.reopen_fork(records[0])

    async def restart(self, *, archive: bool) -> None:
        """The plain tape starts anew with the delta so far and what a reset writes."""
        again, erased, delta = bool(self.archive), self.erase, self.fork.delta
        self.archive = await self.fork.reset(archive=archive)
        self.erase = erased or not archive
        data = {"archive": self.archive, "entries": len(self.parent)}
        fact = event("tape/archived" if archive else "tape/erased", data)
        if not again:
            await self.plain_store.reset(self.plain.name, ResetBatch("old"), [entry.with_id(0) for entry in delta])
            await self.plain.append([anchor("session/start", {"owner": "human"}), fact])
        elif self.erase and not erased:
            await self.plain.append([fact])

    async def same(self, source: TapeHandle, asked: Sequence[TapeQuery]) -> None:
        """The source answers as the plain tape."""
        assert await source.head() == await self.plain.head()
        for query in (TapeQuery(self.plain.name), *asked):
            wanted = await answer(self.plain, query)
            found = await answer(source, query)
            assert (found if isinstance(found, type) else [without_covers(one) for one in found]) == wanted
            label(f"{type(query.part).__name__}: {'error' if isinstance(wanted, type) else 'found' if wanted else '-'}")


def without_covers(entry: tuple[object, ...]) -> tuple[object, ...]:
    """An entry of `exactly` as the fork holds it: the fact of an erasure learns what it covers with the merge."""
    payload = json.loads(str(entry[2]))
    if payload.get("name") != "tape/erased" or "covers" not in payload.get("data", {}):
        return entry
    del payload["data"]["covers"]
    return (*entry[:2], canonical(payload), *entry[3:])


def service(store: TapeStore, name: str) -> TapeService:
    """A tape whose clock stands still, so that the same steps give the same entries."""
    return TapeService(store, name, now=SteppingClock(step=timedelta(0)), new_id=CountingIds(f"fork-of-{name}"))


async def append(
    tape: TapeHandle, given_entries: Sequence[TapeEntry], *, keep_first: bool
) -> list[tuple[object, ...]] | type[BubbotError]:
    try:
        return exactly(await tape.append(given_entries, if_absent=keep_first))
    except BubbotError as error:
        return type(error)


async def correct(tape: TapeHandle, entry_id: int, content: str | None) -> list[tuple[object, ...]] | type[BubbotError]:
    try:
        made = await (tape.hide(entry_id) if content is None else tape.correct(entry_id, content))
        return exactly([made])
    except BubbotError as error:
        return type(error)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with open_bench(tmp_path_factory.mktemp("forks") / "bubbot.db") as opened:
        yield opened


async def forks_and_merges(
    store: TapeStore, name: str, parent: Sequence[TapeEntry], done: Sequence[Step], asked: Sequence[TapeQuery]
) -> None:
    pair = Pair(store, name)
    await pair.open(parent)
    for step in done:
        await pair.do(step)
    asked = [replace(query, tape=name) for query in asked]
    await pair.same(pair.fork, asked)
    assert await whole(store, name) == pair.parent
    await pair.reopen()
    await pair.same(pair.fork, asked)
    delta = pair.fork.delta
    merged = exactly((await pair.fork.merge()).delta)
    assert [without_covers(entry) for entry in merged] == exactly(delta)
    await pair.same(pair.tape, asked)
    if pair.archive:
        archived = (await whole(store, pair.archive))[:-1]  # the last one says how it was called
        assert [entry.id for entry in archived] == [entry.id for entry in pair.parent]
        assert all(entry.erased for entry in archived) if pair.erase else archived == pair.parent


parents = unkeyed(10).map(keyed_apart)
asking = st.lists(queries(""), min_size=1, max_size=3)


@pytest.mark.law("T13")
@settings(max_examples=settings().max_examples * 3)
@given(parents, st.lists(steps, max_size=6), asking)
def test_a_fork_in_memory_reads_and_merges_as_a_plain_tape(
    bench: Bench, parent: list[TapeEntry], done: list[Step], asked: list[TapeQuery]
) -> None:
    bench.run(forks_and_merges(InMemoryStore(), bench.fresh(), parent, done, asked))


@pytest.mark.law("T13")
@given(parents, st.lists(steps, max_size=6), asking)
def test_a_fork_in_sqlite_reads_and_merges_as_a_plain_tape(
    bench: Bench, parent: list[TapeEntry], done: list[Step], asked: list[TapeQuery]
) -> None:
    bench.run(forks_and_merges(bench.store, bench.fresh(), parent, done, asked))


@pytest.mark.law("T13")
@settings(max_examples=settings().max_examples * 4)
@given(parents, st.lists(appends, min_size=1, max_size=2), asking)
def test_a_fork_of_appends_answers_every_kind_of_query_as_its_parent_will(
    bench: Bench, parent: list[TapeEntry], done: list[Append], asked: list[TapeQuery]
) -> None:
    async def check(name: str) -> None:
        pair = Pair(InMemoryStore(), name)
        await pair.open(parent)
        for step in done:
            await pair.do(step)
        await pair.same(pair.fork, thorough([replace(query, tape=name) for query in asked]))

    bench.run(check(bench.fresh()))


turns = st.builds(Append, st.lists(keyed, min_size=1, max_size=4).map(tuple), st.just(True))
hows = st.sampled_from(["fork", "fork", "fork", "append", "reset"])


@pytest.mark.law("T9", "T13")
@settings(max_examples=settings().max_examples * 2)
@given(parents, st.lists(st.tuples(turns, hows), min_size=3, max_size=6), asking)
def test_forks_one_after_the_other_read_as_a_plain_tape(
    bench: Bench, parent: list[TapeEntry], done: list[tuple[Append, str]], asked: list[TapeQuery]
) -> None:
    """What a tape keeps in memory from one turn to the next shows nothing that is not there."""

    async def check(name: str) -> None:
        pair = Pair(InMemoryStore(), name)
        await pair.open([anchor("start"), *parent])
        queried = [replace(query, tape=name) for query in asked]
        windows = [replace(query, part=part) for query in queried for part in (Window(), OpeningAnchor())]
        standing = [TapeQuery(name, names=(one,), newest=True, limit=2) for one in NAMES]
        standing += [TapeQuery(name, ZoneSlice(one, other), missing="empty") for one, other in product(NAMES, NAMES)]
        for turn, how in done:
            if how == "append":
                await pair.fork.discard()
                await append(pair.tape, turn.entries, keep_first=True)
                await append(pair.plain, turn.entries, keep_first=True)
            else:
                await pair.do(turn)
                if how == "reset":
                    await pair.do(Restart(archive=True))
                await pair.fork.merge()
            await pair.begin()
            await pair.same(pair.fork, [TapeQuery(name, Window()), *queried, *windows, *standing])

    bench.run(check(bench.fresh()))


@pytest.mark.law("T1", "T13")
@given(parents, st.lists(steps, max_size=4))
def test_a_discarded_fork_leaves_every_byte_of_the_database_as_it_was(
    bench: Bench, parent: list[TapeEntry], done: list[Step]
) -> None:
    async def check(name: str) -> None:
        pair, earlier = Pair(bench.store, name), await position(bench.store)
        await pair.open(parent)
        with raw(bench.path) as conn:
            before = rows(conn, after=earlier)
        for step in done:
            await pair.do(step)
        pair.fork.stage(f"{name}-other", [event("staged")])
        await pair.fork.save()
        await pair.fork.discard()
        with raw(bench.path) as conn:
            assert rows(conn, after=earlier) == before

    bench.run(check(bench.fresh()))


@pytest.mark.law("T3", "T4", "T13")
@given(parents, st.lists(steps, max_size=4), st.lists(keyed, min_size=1, max_size=2))
def test_a_merge_that_comes_too_late_changes_nothing_and_the_fork_stays_open(
    bench: Bench, parent: list[TapeEntry], done: list[Step], meanwhile: list[TapeEntry]
) -> None:
    async def check(name: str) -> None:
        pair, earlier = Pair(bench.store, name), await position(bench.store)
        await pair.open(parent)
        for step in done:
            await pair.do(step)
        pair.fork.stage(f"{name}-other", [event("staged")])
        await pair.fork.save()
        await bench.store.append([Batch(name, tuple(meanwhile), if_absent=True), Batch(name, (event("late"),))])
        with raw(bench.path) as conn:
            before = rows(conn, after=earlier)
        with pytest.raises(TapeConflict):
            await pair.fork.merge(expect_head=True)
        with raw(bench.path) as conn:
            assert rows(conn, after=earlier) == before
        assert pair.fork.id in [record.id for record in await bench.store.forks()]
        await pair.fork.discard()

    bench.run(check(bench.fresh()))


async def position(store: SqliteStore) -> int:
    """The newest global position."""
    return int((await store.deployment_head()).partition(":")[0])
