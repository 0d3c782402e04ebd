"""What a store promises about its global position: it never goes back and skips nothing; gaps are nobody's business."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bubbot.features.search.view import SearchView
from bubbot.ports.store import KeepsChain, OrdersEntries
from bubbot.stores.sqlite.indexer import Indexer
from bubbot.stores.sqlite.schema import restore_triggers
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.entry import event
from bubbot.tape.service import TapeService
from bubbot.tape.store import ForkRecord, ResetBatch, TapeStore
from tests.doubles import CountingIds, CountingSalt, SteppingClock
from tests.tapes import notes, whole


def spread_positions(path: Path, step: int) -> None:
    """Leave gaps in a closed database, as another store may: each position becomes a multiple of `step`."""
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("BEGIN")
        for trigger in ("entries_insert", "entries_update", "erased_update"):
            conn.execute(f"DROP TRIGGER {trigger}")
        conn.execute("UPDATE entries SET seq = -seq")
        conn.execute("UPDATE entries SET seq = -seq * ?", (step,))
        conn.execute("UPDATE erased SET fact = fact * ?", (step,))
        restore_triggers(conn)
        conn.execute("COMMIT")


@pytest.fixture
async def gappy_sqlite_store(new_database: Path, tmp_path: Path, clock: SteppingClock) -> AsyncIterator[SqliteStore]:
    """A database whose first entries stand at 5, 10, … 50."""
    path = Path(shutil.copy(new_database, tmp_path / "gappy.db"))
    store = await open_store(path, salt=CountingSalt(), now=clock)
    await store.append([notes(*"abcdefgh", tape="before"), notes("i", "j", tape="chat")])
    await store.aclose()
    spread_positions(path, 5)
    store = await open_store(path, salt=CountingSalt(), now=clock)
    yield store
    await store.aclose()


@pytest.fixture(params=["memory", "sqlite", "gappy_sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> TapeStore:
    found: TapeStore = request.getfixturevalue(f"{request.param}_store")
    return found


class Export:
    """A reader that writes down how far it came, and goes on from there."""

    def __init__(self, store: TapeStore, checkpoint: int = 0) -> None:
        assert isinstance(store, OrdersEntries)
        self._store = store
        self.checkpoint = checkpoint
        self.lines: list[tuple[str, int]] = []

    async def step(self, limit: int) -> bool:
        page: list[Any] = await self._store.read_after(self.checkpoint, limit)
        for line in page:
            assert line.position > self.checkpoint
            self.checkpoint = line.position
            self.lines.append((line.tape, line.entry.id))
        return bool(page)


async def existing(store: TapeStore) -> list[tuple[str, int]]:
    return [(tape.name, entry_id) for tape in await store.tapes() for entry_id in range(1, tape.head + 1)]


@pytest.mark.law("T2")
async def test_positions_rise_over_all_tapes_and_tell_each_entry_once(store: TapeStore) -> None:
    assert isinstance(store, OrdersEntries)
    before = await store.newest_position()
    await store.append([notes("a", tape="one")])
    await store.append([notes("b", "c", tape="two")])
    await store.append([notes("d", tape="one")])
    found = await store.read_after(before, 10)
    assert [(each.tape, each.entry.id) for each in found] == [("one", 1), ("two", 1), ("two", 2), ("one", 2)]
    assert [each.entry for each in found if each.tape == "two"] == list(await whole(store, "two"))
    positions = [each.position for each in found]
    assert positions == sorted(set(positions))
    assert (positions[0] > before, positions[-1]) == (True, await store.newest_position())
    assert await store.read_after(positions[-1], 10) == []


@pytest.mark.law("T2")
async def test_an_export_that_goes_on_from_its_checkpoint_misses_and_repeats_nothing(store: TapeStore) -> None:
    lines: list[tuple[str, int]] = []
    checkpoint = 0

    async def write(tape: str) -> None:
        for number in range(7):
            await store.append([notes(str(number), tape=tape), notes("x", tape="shared")])

    async def export() -> None:
        nonlocal checkpoint
        while len(lines) < 20:
            reader = Export(store, checkpoint)  # each page by a process of its own
            await reader.step(3)
            lines.extend(reader.lines)
            checkpoint = reader.checkpoint
            await asyncio.sleep(0)

    await asyncio.gather(write("one"), write("two"), export())
    rest = Export(store, checkpoint)
    while await rest.step(4):
        pass
    assert len(lines + rest.lines) == len(set(lines + rest.lines))
    assert sorted(lines + rest.lines) == sorted(await existing(store))
    for tape in ("one", "two", "shared"):
        ids = [entry_id for name, entry_id in lines + rest.lines if name == tape]
        assert ids == sorted(ids)


@pytest.mark.law("T2")
async def test_merges_resets_and_refused_appends_leave_the_order_as_it_was(store: TapeStore) -> None:
    await store.append([notes("a")])
    await store.open_fork(ForkRecord("f", "tape", 1, ()))
    early = Export(store)
    while await early.step(2):
        pass
    await store.append([notes("b", tape="other")])
    await store.merge_fork("f", [notes("c")])
    await store.reset("tape", ResetBatch("old", erase=True), [event("tape/erased", {"archive": "old", "entries": 2})])
    late = Export(store, early.checkpoint)
    while await late.step(2):
        pass
    assert late.lines[:3] == [("other", 1), ("old", 2), ("old", 3)]
    assert late.lines[-1] == ("tape", 1)


async def test_a_deployment_head_of_earlier_is_found_again(store: TapeStore) -> None:
    if not isinstance(store, KeepsChain):
        return
    await store.append([notes("a", tape="one")])
    kept = await store.deployment_head()
    await store.append([notes("b", tape="two"), notes("c", tape="one")])
    assert await store.deployment_head(int(kept.partition(":")[0])) == kept
    assert await store.deployment_head() != kept


async def test_the_index_counts_entries_and_finds_them_past_gaps(gappy_sqlite_store: SqliteStore) -> None:
    store = gappy_sqlite_store
    assert (await store.count_entries(), await store.newest_position()) == (10, 50)
    filler = Indexer(store)
    store.indexer = filler
    try:
        await filler.step(4)
        state = await store.index_state()
        assert state is not None
        assert (state.position, state.entries, state.behind, state.fresh) == (20, 4, 6, True)
        tape = TapeService(store, "chat", now=SteppingClock(), new_id=CountingIds())
        await tape.append(notes("the volcano erupts").entries)
        assert [hit.id for hit in (await tape.read(SearchView("volcano"))).hits] == [3]
        await filler.fill()
        assert [hit.id for hit in (await tape.read(SearchView("volcano"))).hits] == [3]
        state = await store.index_state()
        assert state is not None
        assert (state.entries, state.behind, state.fresh) == (11, 0, True)
    finally:
        await filler.aclose()
