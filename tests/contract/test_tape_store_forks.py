"""What every tape store promises about open forks: kept until they are merged in one go, or dropped."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import structs

from bubbot.errors import EntryNotFound, TapeConflict
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, thaw
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.references import Rebase
from bubbot.tape.store import Batch, ForkRecord, ResetBatch, TapeStore
from tests.tapes import batch, note, notes, texts, whole

ODD = TapeEntry("hologram", {"n": [2**70, 0.1, None, "漢\x00"]}, {"by": {"id": 7}}, "2026-11-21", "k")


@pytest.fixture
async def opened(store: TapeStore) -> TapeStore:
    """A tape with two entries and the open fork f on it."""
    await store.append([notes("a", "b")])
    await store.open_fork(ForkRecord("f", "tape", 2, (notes("c"),)))
    return store


async def test_an_open_fork_comes_back_as_it_was_given(store: TapeStore) -> None:
    await store.append([notes("a")])
    staged = (batch(ODD, note("c")), batch(note("x", key="y"), tape="other", keep_first=True))
    record = ForkRecord(
        "f", "tape", 1, staged, ResetBatch("old", erase=True, erase_also=(("inbox", (1, 2)), ("outbox", ())))
    )
    await store.open_fork(record)
    assert await store.forks() == [record]


async def test_open_forks_are_listed_oldest_first(store: TapeStore) -> None:
    for name in ("z", "a", "m"):
        await store.open_fork(ForkRecord(name, name, 0, ()))
    assert [record.id for record in await store.forks()] == ["z", "a", "m"]


async def test_a_fork_of_another_head_than_the_tape_has_is_a_conflict(store: TapeStore) -> None:
    await store.append([notes("a")])
    for base in (0, 2):
        with pytest.raises(TapeConflict):
            await store.open_fork(ForkRecord("f", "tape", base, ()))
    assert await store.forks() == []


@pytest.mark.law("T13")
async def test_an_open_fork_changes_nothing_on_the_tape(opened: TapeStore) -> None:
    assert await texts(opened) == ["a", "b"]
    assert [tape.name for tape in await opened.tapes()] == ["tape"]


async def test_extending_adds_batches_in_order(opened: TapeStore) -> None:
    await opened.extend_fork("f", [notes("d", tape="other"), batch(ODD)])
    await opened.extend_fork("f", [notes("e")])
    (record,) = await opened.forks()
    assert record.staged == (notes("c"), notes("d", tape="other"), batch(ODD), notes("e"))


async def test_extending_can_say_how_the_merge_resets(opened: TapeStore) -> None:
    await opened.extend_fork("f", [], ResetBatch("old"))
    await opened.extend_fork("f", [notes("d")])
    (record,) = await opened.forks()
    assert record.reset == ResetBatch("old")


async def test_a_later_reset_of_a_fork_replaces_the_earlier(opened: TapeStore) -> None:
    await opened.extend_fork("f", [], ResetBatch("old"))
    await opened.extend_fork("f", [], ResetBatch("old", erase=True))
    (record,) = await opened.forks()
    assert record.reset == ResetBatch("old", erase=True)


async def test_a_fork_that_is_not_open_can_be_neither_extended_nor_merged(store: TapeStore) -> None:
    with pytest.raises(EntryNotFound, match="no fork f"):
        await store.extend_fork("f", [notes("a")])
    with pytest.raises(EntryNotFound, match="no fork f"):
        await store.merge_fork("f", [notes("a")])
    assert await store.tapes() == []


@pytest.mark.law("T13")
async def test_a_merge_appends_exactly_the_batches_in_order_and_closes_the_fork(opened: TapeStore) -> None:
    stored = await opened.merge_fork("f", [batch(note("c"), ODD, expect_head=2), notes("x", tape="other"), notes("d")])
    assert [[entry.id for entry in entries] for entries in stored] == [[3, 4], [1], [5]]
    assert (await whole(opened))[2:] == (*stored[0], *stored[2])
    assert await whole(opened, "other") == stored[1]
    assert await opened.forks() == []


@pytest.mark.law("T3", "T4", "T13")
async def test_a_merge_onto_a_tape_that_has_moved_writes_nothing_and_leaves_the_fork_open(opened: TapeStore) -> None:
    await opened.append([notes("someone else")])
    before = await opened.forks()
    with pytest.raises(TapeConflict):
        await opened.merge_fork("f", [notes("x", tape="other"), batch(note("c"), expect_head=2)])
    assert (await texts(opened), await texts(opened, "other")) == (["a", "b", "someone else"], [])
    assert await opened.forks() == before


async def test_a_fork_is_merged_once(opened: TapeStore) -> None:
    await opened.merge_fork("f", [notes("c")])
    with pytest.raises(EntryNotFound):
        await opened.merge_fork("f", [notes("c")])
    assert await texts(opened) == ["a", "b", "c"]


async def test_an_empty_merge_closes_the_fork(opened: TapeStore) -> None:
    assert await opened.merge_fork("f", [Batch("tape", (), expect_head=2)]) == [()]
    assert (await opened.forks(), await texts(opened)) == ([], ["a", "b"])


@pytest.mark.law("T13")
async def test_a_dropped_fork_is_forgotten_and_leaves_the_tape_as_it_was(opened: TapeStore) -> None:
    before = await whole(opened), await opened.tapes()
    await opened.extend_fork("f", [notes("d"), notes("x", tape="other")])
    await opened.drop_fork("f")
    assert (await whole(opened), await opened.tapes()) == before
    assert await opened.forks() == []


async def test_dropping_a_fork_that_is_not_open_is_fine(store: TapeStore) -> None:
    await store.drop_fork("f")
    assert await store.forks() == []


async def test_forks_do_not_touch_each_other(opened: TapeStore) -> None:
    await opened.open_fork(ForkRecord("g", "other", 0, (notes("x", tape="other"),)))
    await opened.drop_fork("f")
    assert [(record.id, record.staged) for record in await opened.forks()] == [("g", (notes("x", tape="other"),))]


async def test_a_merge_with_a_reset_archives_the_tape_and_starts_it_with_the_delta(opened: TapeStore) -> None:
    stored = await opened.merge_fork(
        "f", [batch(note("c"), event("tape/archived"), expect_head=0)], ("tape", ResetBatch("old"))
    )
    assert [entry.id for entry in stored[0]] == [1, 2]
    assert await whole(opened) == stored[0]
    assert await texts(opened, "old") == ["a", "b", ""]


@pytest.mark.law("T17")
async def test_a_merge_with_an_erasing_reset_blanks_the_old_entries(opened: TapeStore) -> None:
    await opened.merge_fork("f", [batch(note("c"), event("tape/erased"))], ("tape", ResetBatch("old", erase=True)))
    assert (await texts(opened, "old"), await texts(opened)) == (["", "", ""], ["c", ""])


@pytest.mark.law("T4", "T13")
@pytest.mark.parametrize("erase", [False, True])
async def test_a_merge_with_a_reset_puts_nothing_aside_that_the_fork_has_not_seen(
    opened: TapeStore, erase: bool
) -> None:
    await opened.append([notes("someone else")])
    before = await whole(opened), await opened.tapes(), await opened.forks()
    with pytest.raises(TapeConflict):
        await opened.merge_fork("f", [batch(event("tape/erased"))], ("tape", ResetBatch("old", erase=erase)))
    assert (await whole(opened), await opened.tapes(), await opened.forks()) == before


@pytest.mark.law("T3")
async def test_a_merge_with_a_reset_that_conflicts_leaves_everything_as_it_was(opened: TapeStore) -> None:
    before = await whole(opened), await opened.tapes(), await opened.forks()
    batches = [batch(event("tape/erased")), batch(note("x"), tape="other", expect_head=9)]
    with pytest.raises(TapeConflict):
        await opened.merge_fork("f", batches, ("tape", ResetBatch("old", erase=True)))
    assert (await whole(opened), await opened.tapes(), await opened.forks()) == before


async def test_a_merge_onto_a_tape_that_was_never_written_makes_it(store: TapeStore) -> None:
    await store.open_fork(ForkRecord("f", "new", 0, ()))
    await store.merge_fork("f", [batch(note("a"), tape="new", expect_head=0)])
    assert await texts(store, "new") == ["a"]


async def test_a_staged_entry_under_a_stored_key_is_not_written_again(opened: TapeStore) -> None:
    await opened.append([batch(note("first", key="k"), tape="other")])
    await opened.merge_fork("f", [batch(note("x", key="k"), tape="other", keep_first=True)])
    assert await texts(opened, "other") == ["first"]


def delta(*entries: TapeEntry, base: int, tape: str = "tape", if_absent: tuple[str, ...] = ()) -> Batch:
    """What a fork with this base merges, ready to be rebased."""
    return structs.replace(batch(*entries, tape=tape), rebase=Rebase(base, KERNEL_REFERENCES, frozenset(if_absent)))


@pytest.mark.law("T13")
async def test_a_tape_may_have_several_open_forks_also_of_earlier_heads(store: TapeStore) -> None:
    await store.append([notes("a", "b")])
    records = [ForkRecord(name, "tape", base, (notes(name),)) for name, base in (("f", 2), ("g", 2), ("h", 1))]
    for record in records:
        await store.open_fork(record, expect_head=False)
    assert await store.forks() == records
    with pytest.raises(TapeConflict):
        await store.open_fork(ForkRecord("i", "tape", 3, ()), expect_head=False)


@pytest.mark.law("T13")
async def test_a_delta_on_a_tape_that_has_grown_gets_the_next_ids_and_its_references_move_along(
    opened: TapeStore,
) -> None:
    await opened.append([notes("x", "y")])
    own = delta(
        note("c", source=["tape", 3]),
        anchor("phase", {"source_ids": [1, 3, 9]}, recalls=[(1, 3)]),
        event("correction", {"corrects": 3, "content": "3"}),
        event("loop.step", {"head": 5, "shown": [[2, 4], ["other", [[3, 3]]], ["tape", [[3, 4]]]], "step": 3}),
        event("theirs", {"corrects": 3}),
        base=2,
    )
    copied = batch(note("copy", source=["tape", 3], inbound=["inbox", 3]), tape="other")
    stored, other = await opened.merge_fork("f", [own, copied])
    assert [entry.id for entry in stored] == [5, 6, 7, 8, 9]
    assert (await whole(opened))[4:] == stored
    assert thaw(stored[0].meta) == {"source": ["tape", 5]}
    assert thaw(stored[1].payload) == {
        "name": "phase", "state": {"source_ids": [1, 5, 9]}, "recalls": [[1, 2], [5, 5]]
    }  # fmt: skip
    assert thaw(stored[2].payload["data"]) == {"corrects": 5, "content": "3"}
    assert thaw(stored[3].payload["data"]) == {
        "head": 7, "shown": [[2, 2], [5, 6], ["other", [[3, 3]]], ["tape", [[5, 6]]]], "step": 3
    }  # fmt: skip
    assert thaw(stored[4].payload["data"]) == {"corrects": 3}
    assert thaw(other[0].meta) == {"source": ["tape", 5], "inbound": ["inbox", 3]}


@pytest.mark.law("T13")
async def test_a_delta_on_a_tape_as_its_fork_saw_it_is_written_as_it_is(opened: TapeStore) -> None:
    entries = (note("c"), event("correction", {"corrects": 3, "content": "d"}), event("reaction", {"entry": 7}))
    (stored,) = await opened.merge_fork("f", [delta(*entries, base=2)])
    assert stored == tuple(entry.with_id(place) for place, entry in enumerate(entries, 3))


@pytest.mark.law("T5", "T13")
async def test_a_key_that_the_tape_got_meanwhile_stands_once_and_references_go_to_that_entry(
    opened: TapeStore,
) -> None:
    await opened.append([batch(note("x"), note("c", key="k"))])
    own = delta(note("c", key="k"), note("d"), *[event("correction", {"corrects": id_}) for id_ in (3, 4)], base=2)
    (stored,) = await opened.merge_fork("f", [own])
    assert [entry.id for entry in stored] == [4, 5, 6, 7]
    assert [entry.payload["data"]["corrects"] for entry in stored[2:]] == [4, 5]
    assert await texts(opened) == ["a", "b", "x", "c", "d", "", ""]


@pytest.mark.law("T5", "T13")
async def test_other_content_under_a_key_that_the_tape_got_meanwhile_is_a_conflict_and_writes_nothing(
    opened: TapeStore,
) -> None:
    await opened.append([batch(note("theirs", key="k"))])
    before = await whole(opened), await opened.forks()
    with pytest.raises(TapeConflict):
        await opened.merge_fork("f", [notes("x", tape="other"), delta(note("c"), note("mine", key="k"), base=2)])
    assert (await whole(opened), await opened.forks()) == before
    assert await texts(opened, "other") == []
    (stored,) = await opened.merge_fork("f", [delta(note("mine", key="k"), note("c"), base=2, if_absent=("k",))])
    assert [(entry.id, entry.payload["content"]) for entry in stored] == [(3, "theirs"), (4, "c")]


@pytest.mark.law("T13")
async def test_two_hundred_forks_of_one_tape_all_merge_in_the_order_they_finish(store: TapeStore) -> None:
    await store.append([notes("a")])
    for number in range(200):
        await store.open_fork(ForkRecord(f"f{number}", "tape", 1, ()))

    async def merge(number: int) -> tuple[TapeEntry, ...]:
        own = delta(note(f"{number}"), event("correction", {"corrects": 2, "content": f"{number}"}), base=1)
        return (await store.merge_fork(f"f{number}", [own]))[0]

    merged = await asyncio.gather(*map(merge, range(200)))
    assert await store.forks() == []
    assert await whole(store) == ((await whole(store))[0], *sorted(sum(merged, ()), key=lambda entry: entry.id))
    assert all(second.payload["data"]["corrects"] == first.id == second.id - 1 for first, second in merged)
    assert [tape.head for tape in await store.tapes()] == [401]


INNER = ForkRecord("f/inner", "tape", 3, (notes("d"),))


@pytest.mark.law("T13")
async def test_a_fork_of_a_fork_names_its_parent_and_needs_it_open(opened: TapeStore) -> None:
    await opened.open_fork(INNER)
    assert [(record.id, record.parent) for record in await opened.forks()] == [("f", ""), ("f/inner", "f")]
    assert (await opened.forks())[1] == INNER
    with pytest.raises(EntryNotFound, match="no fork g"):
        await opened.open_fork(ForkRecord("g/inner", "tape", 3, ()))


@pytest.mark.law("T3", "T13")
async def test_a_fork_of_a_fork_merges_into_that_fork_and_writes_to_no_tape(opened: TapeStore) -> None:
    await opened.open_fork(INNER)
    before = await whole(opened), await opened.tapes()
    added = [notes("more"), notes("d"), notes("x", tape="other")]
    assert await opened.merge_fork("f/inner", added) == [one.entries for one in added]
    (record,) = await opened.forks()
    assert record.staged == (notes("c"), *added)
    assert (await whole(opened), await opened.tapes()) == before
    with pytest.raises(EntryNotFound):
        await opened.merge_fork("f/inner", added)


@pytest.mark.law("T3", "T13")
async def test_a_fork_with_open_forks_is_not_merged(opened: TapeStore) -> None:
    await opened.open_fork(INNER)
    before = await whole(opened), await opened.forks()
    with pytest.raises(TapeConflict, match="open forks"):
        await opened.merge_fork("f", [notes("c")])
    assert (await whole(opened), await opened.forks()) == before
    await opened.merge_fork("f/inner", [])
    await opened.merge_fork("f", [notes("c")])
    assert await opened.forks() == []


@pytest.mark.law("T13")
async def test_dropping_a_fork_drops_its_forks_and_no_others(opened: TapeStore) -> None:
    await opened.open_fork(INNER)
    for name in ("f/inner/most", "f0", "f.", "g", "g/inner"):
        await opened.open_fork(ForkRecord(name, "tape", 2, (notes(name),)))
    await opened.drop_fork("f")
    assert [record.id for record in await opened.forks()] == ["f0", "f.", "g", "g/inner"]
    assert [record.staged for record in await opened.forks()] == [
        (notes(name),) for name in ("f0", "f.", "g", "g/inner")
    ]
