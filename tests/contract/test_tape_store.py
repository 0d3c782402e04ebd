"""What every tape store promises about appends: ids, batches, heads, keys, concurrency, closing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bubbot.errors import StoreUnavailable, TapeConflict
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import Batch, ForkRecord, ResetBatch, TapeStore
from tests.tapes import batch, note, notes, texts, whole


@pytest.mark.law("T2")
async def test_ids_start_at_one_and_have_no_gap(store: TapeStore) -> None:
    await store.append([notes("a", "b")])
    await store.append([notes("c")])
    assert [entry.id for entry in await whole(store)] == [1, 2, 3]


@pytest.mark.law("T2")
async def test_each_tape_counts_its_own_ids(store: TapeStore) -> None:
    stored = await store.append([notes("a", tape="one"), notes("b", tape="two"), notes("c", tape="one")])
    assert [[entry.id for entry in entries] for entries in stored] == [[1], [1], [2]]


@pytest.mark.law("T2")
async def test_the_id_of_a_given_entry_does_not_count(store: TapeStore) -> None:
    (stored,) = (await store.append([batch(note("a").with_id(77))]))[0]
    assert stored.id == 1


async def test_an_append_returns_what_a_fetch_will_find(store: TapeStore) -> None:
    stored = (await store.append([batch(note("a", key="k", date="2026-11-21", by="me"), event("x", {"n": 1}))]))[0]
    assert stored == await whole(store)


async def test_entries_stand_in_the_order_they_were_appended(store: TapeStore) -> None:
    wanted = [str(number) for number in range(30)]
    for start in range(0, 30, 5):
        await store.append([notes(*wanted[start : start + 5])])
    assert await texts(store) == wanted


async def test_a_tape_that_was_never_written_is_empty(store: TapeStore) -> None:
    assert (await store.head("nowhere"), await whole(store, "nowhere"), await store.tapes()) == (0, (), [])


async def test_an_empty_batch_makes_no_tape(store: TapeStore) -> None:
    assert await store.append([batch()]) == [()]
    assert await store.tapes() == []


async def test_an_append_of_nothing_is_fine(store: TapeStore) -> None:
    assert await store.append([]) == []


async def test_what_nobody_waits_for_is_written_before_what_is_asked_for_after_it(store: TapeStore) -> None:
    along = store.append_deferred([notes("a")])
    await store.append([notes("b")])
    assert await texts(store) == ["a", "b"]
    assert [entry.id for entry in (await along)[0]] == [1]


async def test_what_nobody_waits_for_is_written_without_another_write_and_when_the_store_is_closed(
    store: TapeStore,
) -> None:
    async with asyncio.timeout(60):
        assert [entry.id for entry in (await store.append_deferred([notes("a")]))[0]] == [1]
    late = store.append_deferred([notes("b")])
    await store.aclose()
    assert [entry.id for entry in (await late)[0]] == [2]


async def test_the_head_is_the_newest_id(store: TapeStore) -> None:
    await store.append([notes("a", "b", "c")])
    assert await store.head("tape") == 3


async def test_tapes_are_listed_by_name_with_their_heads(store: TapeStore) -> None:
    await store.append([notes("a", tape="b"), notes("a", "b", tape="a")])
    assert [(tape.name, tape.head, tape.archived_from) for tape in await store.tapes()] == [
        ("a", 2, None),
        ("b", 1, None),
    ]


@pytest.mark.law("T3")
async def test_a_batch_whose_last_entry_conflicts_writes_nothing(store: TapeStore) -> None:
    await store.append([batch(note("first", key="k"))])
    with pytest.raises(TapeConflict):
        await store.append([batch(note("a"), note("b"), note("other", key="k"))])
    assert await texts(store) == ["first"]


@pytest.mark.law("T3")
async def test_a_conflict_at_the_end_of_the_second_batch_undoes_the_first(store: TapeStore) -> None:
    await store.append([batch(note("first", key="k"), tape="two")])
    with pytest.raises(TapeConflict):
        await store.append([notes("a", tape="one"), batch(note("b"), note("other", key="k"), tape="two")])
    assert (await texts(store, "one"), await texts(store, "two")) == ([], ["first"])


@pytest.mark.law("T3")
async def test_a_conflict_leaves_no_new_tape_behind(store: TapeStore) -> None:
    with pytest.raises(TapeConflict):
        await store.append([notes("a", tape="new"), batch(note("b"), tape="other", expect_head=5)])
    assert await store.tapes() == []


@pytest.mark.law("T3")
async def test_ids_go_on_without_a_gap_after_a_conflict(store: TapeStore) -> None:
    await store.append([batch(note("a", key="k"))])
    with pytest.raises(TapeConflict):
        await store.append([batch(note("b"), note("other", key="k"))])
    assert [entry.id for entry in (await store.append([notes("c")]))[0]] == [2]


@pytest.mark.law("T4")
@pytest.mark.parametrize("stale", [0, 1, 3])
async def test_a_stale_head_is_a_conflict_and_writes_nothing(store: TapeStore, stale: int) -> None:
    await store.append([notes("a", "b")])
    with pytest.raises(TapeConflict):
        await store.append([batch(note("c"), expect_head=stale)])
    assert await texts(store) == ["a", "b"]


@pytest.mark.law("T4")
async def test_an_expected_head_that_is_right_lets_the_append_through(store: TapeStore) -> None:
    await store.append([batch(note("a"), expect_head=0)])
    await store.append([batch(note("b"), expect_head=1)])
    assert await texts(store) == ["a", "b"]


@pytest.mark.law("T4")
async def test_an_expected_head_counts_what_an_earlier_batch_of_the_append_wrote(store: TapeStore) -> None:
    await store.append([notes("a"), batch(note("b"), expect_head=1)])
    assert await texts(store) == ["a", "b"]


@pytest.mark.law("T4")
async def test_a_stale_head_is_a_conflict_for_an_empty_batch_too(store: TapeStore) -> None:
    with pytest.raises(TapeConflict):
        await store.append([batch(expect_head=1)])


@pytest.mark.law("T5")
async def test_the_same_content_under_a_key_returns_the_stored_entry(store: TapeStore) -> None:
    first = (await store.append([batch(note("a", key="k", date="2026-11-21", by="me"))]))[0]
    again = (await store.append([batch(note("a", key="k", date="2026-11-22", by="you"))]))[0]
    assert (again, await whole(store)) == (first, first)


@pytest.mark.law("T5")
@pytest.mark.parametrize(
    "other",
    [
        TapeEntry("message", {"n": 2}, key="k"),
        TapeEntry("system", {"n": 1}, key="k"),
        TapeEntry("message", {"n": 1.0}, key="k"),
        TapeEntry("message", {"n": True}, key="k"),
    ],
)
async def test_other_content_under_a_key_is_a_conflict(store: TapeStore, other: TapeEntry) -> None:
    await store.append([batch(TapeEntry("message", {"n": 1}, key="k"))])
    with pytest.raises(TapeConflict, match="key k"):
        await store.append([batch(other)])
    assert await store.head("tape") == 1


@pytest.mark.law("T5")
async def test_the_order_of_the_payloads_keys_is_no_other_content(store: TapeStore) -> None:
    await store.append([batch(TapeEntry("message", {"a": 1, "b": 2}, key="k"))])
    stored = (await store.append([batch(TapeEntry("message", {"b": 2, "a": 1}, key="k"))]))[0]
    assert [entry.id for entry in stored] == [1]


@pytest.mark.law("T5")
async def test_a_stored_key_in_a_batch_skips_that_entry_only(store: TapeStore) -> None:
    await store.append([batch(note("old", key="k"))])
    stored = (await store.append([batch(note("a"), note("old", key="k"), note("b"))]))[0]
    assert [entry.id for entry in stored] == [2, 1, 3]
    assert await texts(store) == ["old", "a", "b"]


@pytest.mark.law("T5")
async def test_keep_first_keeps_the_stored_entry_whatever_comes(store: TapeStore) -> None:
    first = (await store.append([batch(note("first", key="k"))]))[0]
    again = (await store.append([batch(note("other", key="k"), keep_first=True)]))[0]
    assert (again, await whole(store)) == (first, first)


@pytest.mark.law("T5")
async def test_a_key_repeated_within_a_batch_is_stored_once(store: TapeStore) -> None:
    stored = (await store.append([batch(note("a", key="k"), note("a", key="k"))]))[0]
    assert [entry.id for entry in stored] == [1, 1]
    assert await texts(store) == ["a"]


@pytest.mark.law("T5")
async def test_a_key_repeated_with_other_content_within_a_batch_is_a_conflict(store: TapeStore) -> None:
    with pytest.raises(TapeConflict):
        await store.append([batch(note("a", key="k"), note("b", key="k"))])
    assert await whole(store) == ()


@pytest.mark.law("T5")
async def test_keep_first_within_a_batch_keeps_the_first(store: TapeStore) -> None:
    await store.append([batch(note("a", key="k"), note("b", key="k"), keep_first=True)])
    assert await texts(store) == ["a"]


@pytest.mark.law("T5")
async def test_the_same_key_on_two_tapes_is_two_entries(store: TapeStore) -> None:
    await store.append([batch(note("a", key="k"), tape="one"), batch(note("b", key="k"), tape="two")])
    assert (await texts(store, "one"), await texts(store, "two")) == (["a"], ["b"])


@pytest.mark.law("T2", "T3")
async def test_many_appenders_at_once_leave_no_gap_and_no_duplicate(store: TapeStore) -> None:
    jobs = [store.append([notes(f"{name}a", f"{name}b")]) for name in range(120)]
    stored = [entries for (entries,) in await asyncio.gather(*jobs)]
    assert sorted(entry.id for entries in stored for entry in entries) == list(range(1, 241))
    assert all(second.id == first.id + 1 for first, second in stored)
    assert [entry.id for entry in await whole(store)] == list(range(1, 241))


@pytest.mark.law("T4")
async def test_of_many_appenders_with_one_head_exactly_one_wins(store: TapeStore) -> None:
    jobs = [store.append([batch(note(str(name)), expect_head=0)]) for name in range(40)]
    ends = await asyncio.gather(*jobs, return_exceptions=True)
    assert sum(isinstance(end, TapeConflict) for end in ends) == 39
    assert await store.head("tape") == 1


@pytest.mark.law("T5")
async def test_of_many_appenders_with_one_key_all_receive_the_same_entry(store: TapeStore) -> None:
    jobs = [store.append([batch(note("a", key="k"))]) for _ in range(40)]
    assert {entries[0].id for (entries,) in await asyncio.gather(*jobs)} == {1}
    assert await store.head("tape") == 1


async def test_one_fetch_answers_queries_of_several_tapes_in_their_order(store: TapeStore) -> None:
    await store.append([notes("a", tape="one"), notes("b", tape="two")])
    found = await store.fetch([TapeQuery("two"), TapeQuery("nowhere"), TapeQuery("one")])
    assert [[entry.payload["content"] for entry in entries] for entries in found] == [["b"], [], ["a"]]


async def test_closing_twice_is_fine(store: TapeStore) -> None:
    await store.aclose()
    await store.aclose()


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.append([notes("a")]),
        lambda store: store.fetch([TapeQuery("tape")]),
        lambda store: store.fetch([TapeQuery("tape", text="a")]),
        lambda store: store.head("tape"),
        lambda store: store.tapes(),
        lambda store: store.forks(),
        lambda store: store.open_fork(ForkRecord("f", "tape", 0, ())),
        lambda store: store.extend_fork("f", [Batch("tape", ())]),
        lambda store: store.merge_fork("f", []),
        lambda store: store.drop_fork("f"),
        lambda store: store.reset("tape", ResetBatch("old"), []),
        lambda store: store.put_blob("tape", b"x"),
        lambda store: store.get_blob("tape", "x"),
    ],
)
async def test_use_after_closing_is_an_error_of_ours(
    store: TapeStore, use: Callable[[TapeStore], Awaitable[object]]
) -> None:
    await store.aclose()
    with pytest.raises(StoreUnavailable, match="closed"):
        await use(store)
