"""Projections: what a state is after a load, whatever happened to checkpoints, entries and processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bubbot.errors import StoreUnavailable, TapeCorrupt
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import JsonObject, TapeEntry, event
from bubbot.tape.projection import LegacyAnchor, ProjectedTape, Projection, ProjectionRunner
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, ResetBatch
from tests.doubles import CountingIds, SteppingClock
from tests.tapes import whole

TAPE = "bubbot/todo/a"


def apply(state: frozenset[int], entries: Sequence[TapeEntry]) -> frozenset[int]:
    """The tasks that are not done."""
    for entry in entries:
        if entry.name == "todo/added":
            state |= {entry.id}
        else:
            state -= {entry.payload["data"]["id"]}
    return state


def decode(data: JsonObject, cited: Sequence[TapeEntry]) -> frozenset[int]:
    return frozenset(data["open"])


def cited_ids(data: JsonObject) -> Iterable[int]:
    ids: Iterable[int] = data["open"]
    return ids


TODO = Projection[frozenset[int]](
    name="todo",
    version=2,
    tapes="bubbot/todo/",
    events=("todo/added", "todo/done"),
    initial=frozenset,
    apply=apply,
    encode=lambda state: {"open": sorted(state)},
    decode=decode,
    cited_ids=cited_ids,
    interval=10,
    size=len,
    legacy=LegacyAnchor(name="todo/mark", decode=decode, cited_ids=cited_ids),
    combine=lambda states: frozenset().union(*states),
)


class CountingStore(InMemoryStore):
    """Counts the entries that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0
        self.fetches = 0

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.fetch`."""
        found = await super().fetch(queries)
        self.read += sum(map(len, found))
        self.fetches += 1
        return found


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


def service(store: InMemoryStore, name: str = TAPE) -> TapeService:
    return TapeService(store, name, now=SteppingClock(), new_id=CountingIds())


def projected(store: InMemoryStore, projection: Projection[frozenset[int]] = TODO) -> ProjectedTape[frozenset[int]]:
    """What a new process has."""
    return ProjectedTape(projection, service(store))


async def add(store: InMemoryStore, count: int = 1) -> tuple[TapeEntry, ...]:
    return await service(store).append([event("todo/added") for _ in range(count)])


async def done(store: InMemoryStore, *ids: int) -> tuple[TapeEntry, ...]:
    return await service(store).append([event("todo/done", {"id": one}) for one in ids])


async def erase(store: InMemoryStore, *ids: int) -> None:
    """Erases entries of the tape, as a reset of a session does."""
    fact = [event("tape/erased", {"archive": "s@1", "entries": 0})]
    await store.append([Batch("s", (event("x"),))])
    await store.reset("s", ResetBatch("s@1", erase=True, erase_also=((TAPE, ids),)), fact)


async def checkpointed(store: InMemoryStore) -> None:
    """Fifteen tasks, of which the second and the last are open, and a checkpoint."""
    await add(store, 15)
    await done(store, *(number for number in range(1, 15) if number != 2))
    assert await projected(store).write_checkpoint()


async def checkpoints(store: InMemoryStore) -> list[Any]:
    return [entry.payload["data"] for entry in await whole(store, TAPE) if entry.name == "todo/checkpoint"]


async def test_a_checkpoint_is_an_event_with_version_position_and_state(store: CountingStore) -> None:
    await checkpointed(store)
    (data,) = await checkpoints(store)
    assert data == {"version": 2, "after": 28, "state": {"open": (2, 15)}}


async def test_a_load_reads_the_checkpoint_what_it_cites_and_what_follows(store: CountingStore) -> None:
    await checkpointed(store)
    await add(store, 3)
    store.read = 0
    assert await projected(store).load() == {2, 15, 30, 31, 32}
    assert store.read == 1 + 2 + 3


async def test_a_checkpoint_is_written_when_enough_has_happened_and_reads_nothing_before(store: CountingStore) -> None:
    first = projected(store)
    await first.load()
    store.fetches = 0
    for _ in range(9):
        (entry,) = await add(store)
        assert not await first.write_checkpoint(entry.id)
    assert store.fetches == 0
    (entry,) = await add(store)
    assert await first.write_checkpoint(entry.id)
    assert store.fetches == 2, "what is new, and what the checkpoint cites"
    assert not await first.write_checkpoint(entry.id)
    assert len(await checkpoints(store)) == 1


async def test_an_append_is_one_batch_that_is_folded_behind_a_checkpoint_that_is_due(store: CountingStore) -> None:
    first = projected(store)
    stored = await first.append(*[event("todo/added") for _ in range(10)])
    assert first.state == {*range(1, 11)} == {entry.id for entry in stored}
    await first.append(event("todo/done", {"id": 3}, key="k"))
    assert [data["after"] for data in await checkpoints(store)] == [10]
    await first.append(event("todo/done", {"id": 4}, key="k"), if_absent=True)
    assert 4 in first.state, "what was stored under the key counts"


async def test_a_large_state_is_written_less_often(store: CountingStore) -> None:
    await add(store, 25)
    first = projected(store)
    assert await first.write_checkpoint()
    await add(store, 12)
    assert not await first.write_checkpoint(38), "a checkpoint would be as large as 37 facts"


async def test_processes_that_live_for_one_fact_write_checkpoints_too(store: CountingStore) -> None:
    for _ in range(59):
        (entry,) = await add(store)
        one = projected(store)
        await one.load()
        await one.write_checkpoint(entry.id)
        await done(store, entry.id)
    store.read = 0
    assert await projected(store).load() == set()
    assert store.read <= 1 + 1 + 10


class TestFollowing:
    async def test_entries_handed_over_are_not_read(self, store: CountingStore) -> None:
        first = projected(store)
        await first.load()
        store.fetches = 0
        await first.follow(await add(store, 3))
        await first.follow(await done(store, 2))
        assert (set(first.state), first.position, store.fetches) == ({1, 3}, 4, 0)

    async def test_entries_in_between_are_read(self, store: CountingStore) -> None:
        first = projected(store)
        await first.load()
        await add(store, 3)
        await first.follow(await done(store, 2))
        assert (set(first.state), first.position) == ({1, 3}, 4)

    async def test_the_same_entries_twice_or_late_change_nothing(self, store: CountingStore) -> None:
        first = projected(store)
        await first.load()
        entries = [*await add(store, 3), *await done(store, 2)]
        await first.follow(entries[2:])
        await first.follow(entries[:2])
        await first.follow(entries)
        assert first.state == {1, 3}

    async def test_entries_handed_over_in_the_wrong_order_by_two_tasks_are_not_read(self, store: CountingStore) -> None:
        first = projected(store)
        await first.load()
        entries = [*await add(store, 1), *await done(store, 1)]
        store.fetches = 0
        await asyncio.gather(first.follow(entries[1:]), first.follow(entries[:1]))
        assert (first.state, first.position, store.fetches) == (frozenset(), 2, 0)

    async def test_entries_that_were_read_because_of_a_gap_make_nobody_read_again(self, store: CountingStore) -> None:
        """Else one gap had the entries of all later tasks read before these handed them over, for ever."""
        first = projected(store)
        await first.load()
        entries = [*await add(store, 10)]
        store.fetches = 0
        await first.follow(entries[1:2])
        assert (first.position, store.fetches) == (10, 1)
        for entry in entries:
            more = await add(store)
            await first.follow([entry])
            await first.follow(more)
        assert (len(first.state), first.position, store.fetches) == (20, 20, 1)

    async def test_before_the_first_load_it_is_loaded(self, store: CountingStore) -> None:
        entries = await add(store, 3)
        first = projected(store)
        await first.follow(entries[2:])
        assert first.state == {1, 2, 3}

    async def test_what_another_process_appended_is_caught_up_with(self, store: CountingStore) -> None:
        heard = list[int]()
        first = ProjectedTape(TODO, service(store), lambda applied: heard.extend(entry.id for entry in applied))
        await add(store)
        await first.catch_up()
        await add(store, 2)
        assert await first.catch_up() == {1, 2, 3}
        assert heard == [2, 3]

    async def test_entries_of_other_names_count_for_the_position_only(self, store: CountingStore) -> None:
        first = projected(store)
        await first.load()
        await first.follow(await service(store).append([event("todo/else"), event("todo/added")]))
        assert (set(first.state), first.position) == ({2}, 2)

    @pytest.mark.parametrize("how", ["follow", "catch up", "checkpoint"])
    async def test_a_tape_that_was_put_aside_is_loaded_again(self, store: CountingStore, how: str) -> None:
        first = projected(store)
        await first.follow(await add(store, 12))
        await service(store).reset()
        entries = await add(store)
        if how == "follow":
            await first.follow(entries)
        elif how == "catch up":
            await first.catch_up()
        else:
            await first.write_checkpoint(entries[0].id, force=True)
        assert first.state == {entries[0].id}


class TestUnusable:
    """Checkpoints that are passed over."""

    async def test_one_of_a_newer_version_gives_way_to_an_older_one(self, store: CountingStore) -> None:
        await checkpointed(store)
        await add(store)
        await service(store).append([event("todo/checkpoint", {"version": 3, "after": 30, "state": {"else": 1}})])
        assert await projected(store).load() == {2, 15, 30}

    async def test_one_of_an_older_version_that_means_the_same_is_read(self, store: CountingStore) -> None:
        await add(store, 3)
        await service(store).append([event("todo/checkpoint", {"version": 1, "after": 3, "state": {"open": [1]}})])
        assert await ProjectedTape(replace(TODO, older_versions=(1,)), service(store)).load() == {1}

    async def test_without_one_of_this_version_the_fold_begins_at_the_beginning(self, store: CountingStore) -> None:
        await add(store, 3)
        await service(store).append([event("todo/checkpoint", {"version": 1, "after": 3, "state": {"open": [1]}})])
        assert await projected(store).load() == {1, 2, 3}

    @pytest.mark.parametrize(
        "data",
        [
            {},
            {"version": 2},
            {"version": 2, "after": "1", "state": {"open": []}},
            {"version": 2, "after": -1, "state": {"open": []}},
            {"version": 2, "after": 99, "state": {"open": []}},
            {"version": 2, "after": 3, "state": [1]},
            {"version": 2, "after": 3, "state": {}},
            {"version": 2, "after": 3, "state": {"open": [7]}},
            {"version": 2, "after": 3, "state": {"open": ["1"]}},
            {"version": 2, "after": 3, "state": {"open": 1}},
        ],
    )
    async def test_a_damaged_one_is_passed_over_with_a_warning(
        self, store: CountingStore, data: dict[str, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        await add(store, 3)
        await service(store).append([event("todo/checkpoint", data)])
        first = projected(store)
        with caplog.at_level(logging.WARNING):
            assert await first.load() == {1, 2, 3}
        assert "checkpoint not readable" in caplog.text
        assert await first.write_checkpoint(), "a readable one is written at once"

    async def test_one_whose_row_is_damaged_too(self, store: CountingStore, caplog: pytest.LogCaptureFixture) -> None:
        await checkpointed(store)

        class Damaged(TapeService):
            async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
                if any("todo/checkpoint" in query.names for query in queries):
                    raise TapeCorrupt("the entry cannot be read")
                return await super().fetch(queries)

        tape = Damaged(store, TAPE, now=SteppingClock(), new_id=CountingIds())
        assert await ProjectedTape(TODO, tape).load() == {2, 15}
        assert "damaged" in caplog.text

    @pytest.mark.law("T17")
    async def test_one_that_cites_an_erased_entry_and_a_fresh_one_is_written(self, store: CountingStore) -> None:
        await checkpointed(store)
        await erase(store, 2)
        first = projected(store)
        assert await first.load() == {15}
        assert await first.write_checkpoint()
        store.read = 0
        assert await projected(store).load() == {15}
        assert store.read == 2

    @pytest.mark.law("T17")
    async def test_a_process_that_knew_the_erased_entry_writes_a_checkpoint_without_it(
        self, store: CountingStore
    ) -> None:
        first = projected(store)
        await first.follow(await add(store, 3))
        await erase(store, 2)
        assert await first.write_checkpoint(force=True)
        assert first.state == {1, 3}
        assert (await checkpoints(store))[-1]["state"] == {"open": (1, 3)}


class TestLegacy:
    async def test_an_anchor_of_an_earlier_version_is_read_as_a_checkpoint(self, store: CountingStore) -> None:
        await add(store, 50)
        await done(store, *range(1, 50))
        await service(store).append([anchor("todo/mark", {"after": 99, "open": [50]}, window=False)])
        await add(store)
        store.read = 0
        assert await projected(store).load() == {50, 101}
        assert store.read == 3

    async def test_the_one_that_counts_further_wins(self, store: CountingStore) -> None:
        await checkpointed(store)
        await done(store, 15)
        await service(store).append([anchor("todo/mark", {"after": 30, "open": [2]}, window=False)])
        store.read = 0
        assert await projected(store).load() == {2}
        assert store.read == 3

    async def test_a_damaged_one_is_passed_over(self, store: CountingStore) -> None:
        await add(store, 3)
        await service(store).append([anchor("todo/mark", {"open": [1]}, window=False)])
        assert await projected(store).load() == {1, 2, 3}


class TestFaults:
    async def test_a_checkpoint_that_cannot_be_written_is_due_again(self, store: CountingStore) -> None:
        await add(store, 12)
        first = projected(store)
        await first.load()
        working = store.append

        async def failing(batches: Sequence[Batch]) -> list[tuple[TapeEntry, ...]]:
            raise StoreUnavailable("no")

        store.append = failing  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            await first.write_checkpoint()
        store.append = working  # type: ignore[method-assign]
        assert await first.write_checkpoint()

    async def test_two_tasks_write_one(self, store: CountingStore) -> None:
        await add(store, 12)
        first = projected(store)
        assert sorted(await asyncio.gather(first.write_checkpoint(), first.write_checkpoint())) == [False, True]

    async def test_a_long_tape_is_read_page_by_page(
        self, store: CountingStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bubbot.tape.projection.PAGE_ENTRIES", 4)
        await add(store, 8)
        assert await projected(store).load() == set(range(1, 9))
        assert store.fetches == 1 + 3


class TestRunner:
    async def test_a_tape_is_projected_once(self, store: CountingStore) -> None:
        runner = ProjectionRunner()
        assert runner.project(TODO, service(store)) is runner.project(TODO, service(store))

    async def test_a_merge_is_followed_by_all_it_concerns(self, store: CountingStore) -> None:
        runner = ProjectionRunner()
        one, two = (runner.project(TODO, service(store, f"bubbot/todo/{name}")) for name in "ab")
        await runner.catch_up()
        await runner.follow({TAPE: await add(store), "bubbot/else": ()})
        assert (set(one.state), set(two.state)) == ({1}, set())

    async def test_shards_are_added_up(self, store: CountingStore) -> None:
        runner = ProjectionRunner()
        assert runner.combined(TODO) == frozenset()
        for name in "ab":
            tape = service(store, f"bubbot/todo/{name}")
            await tape.append([event("todo/added") for _ in range(1 if name == "a" else 3)])
            runner.project(TODO, tape)
        await runner.catch_up()
        assert runner.combined(TODO) == {1, 2, 3}

    async def test_the_checkpoints_of_a_tape_are_written_if_they_are_due(self, store: CountingStore) -> None:
        runner = ProjectionRunner()
        for name in "ab":
            await service(store, f"bubbot/todo/{name}").append([event("todo/added") for _ in range(12)])
            runner.project(TODO, service(store, f"bubbot/todo/{name}"))
        await runner.write_checkpoints(TAPE)
        await runner.write_checkpoints(TAPE)
        assert [await store.head(f"bubbot/todo/{name}") for name in "ab"] == [13, 12]

    def test_a_projection_knows_its_tapes(self) -> None:
        assert TODO.reads("bubbot/todo/x")
        assert not TODO.reads("bubbot/todo")
        assert replace(TODO, tapes="bubbot/todo").reads("bubbot/todo")
        assert not replace(TODO, tapes="bubbot/todo").reads("bubbot/todos")
