"""What every tape store promises about the erasure of single entries of any tapes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bubbot.errors import EntryNotFound, TapeConflict
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import event, thaw
from bubbot.tape.store import Batch, ForkRecord, ResetBatch, TapeStore
from tests.tapes import batch, note, notes, texts, whole

pytestmark = pytest.mark.law("T17")
FACT = Batch("bubbot/home", (event("tape/erased", {"reason": "person"}),))
DIGEST = blob_digest(b"x")


async def erased_ids(store: TapeStore, tape: str) -> Sequence[int]:
    return [entry.id for entry in await whole(store, tape) if entry.erased]


async def removed_blobs(store: TapeStore) -> Sequence[tuple[str, tuple[str, ...]]]:
    facts = [entry.data for entry in await whole(store, "bubbot/home") if entry.name == "blob/removed"]
    return [(fact["tape"], fact["digests"]) for fact in facts]


async def test_the_entries_of_several_tapes_are_blanked_under_one_fact_that_names_the_reason(store: TapeStore) -> None:
    await store.append([notes("a", "b", "c"), notes("in1", "in2", "in3", tape="inbox")])
    ((fact,),) = await store.erase([FACT], [("tape", (1, 3)), ("inbox", (2, 3, 9)), ("nowhere", (1,))])
    covers = {"tape": [[1, 1], [3, 3]], "inbox": [[2, 3]]}
    assert thaw(fact.payload)["data"] == {"reason": "person", "covers": covers}
    assert (await texts(store), await texts(store, "inbox")) == (["", "b", ""], ["in1", "", ""])
    assert (await erased_ids(store, "tape"), await erased_ids(store, "inbox")) == ([1, 3], [2, 3])


async def test_the_rest_of_a_batch_is_appended_in_the_same_transaction(store: TapeStore) -> None:
    await store.append([notes("a")])
    stored = await store.erase([FACT, notes("what stays"), notes("a sum", tape="sums")], [("tape", (1,))])
    assert [len(entries) for entries in stored] == [1, 1, 1]
    assert (await texts(store), await texts(store, "sums")) == (["", "what stays"], ["a sum"])


async def test_an_erased_tape_goes_on(store: TapeStore) -> None:
    await store.append([batch(note("a", key="k"), note("b"))])
    await store.erase([FACT], [("tape", (1, 2))])
    await store.append([batch(note("other words", key="k"), note("c"))])
    assert await texts(store) == ["", "", "c"]


async def test_archives_are_reached_except_for_the_fact_of_their_name(store: TapeStore) -> None:
    await store.append([notes("a", "b")])
    await store.reset("tape", ResetBatch("old"), [event("tape/archived")])
    await store.erase([FACT], [("old", (1, 3))])
    assert await erased_ids(store, "old") == [1]


async def test_facts_of_erasures_are_never_erased(store: TapeStore) -> None:
    await store.append([notes("a")])
    await store.erase([FACT], [("tape", (1,))])
    await store.erase([FACT], [("bubbot/home", (1,)), ("tape", (1,))])
    assert [entry.erased for entry in await whole(store, "bubbot/home")] == [False, False]
    assert "covers" in (await whole(store, "bubbot/home"))[0].data


async def test_an_erasure_that_finds_nothing_is_a_fact_that_covers_nothing(store: TapeStore) -> None:
    ((fact,),) = await store.erase([FACT], [("tape", (1,))])
    assert fact.data["covers"] == {}


async def test_an_erasure_without_a_fact_is_refused_and_erases_nothing(store: TapeStore) -> None:
    await store.append([notes("a")])
    await store.erase([FACT], [])  # an earlier fact is not the fact of this one
    for batches in ([], [notes("b")], [notes("b"), FACT], [Batch("bubbot/home", (note("b"),))]):
        with pytest.raises(EntryNotFound, match="no fact"):
            await store.erase(batches, [("tape", (1,))])
    assert await texts(store) == ["a"]


async def test_an_erasure_with_a_conflict_erases_nothing(store: TapeStore) -> None:
    await store.append([batch(note("a", key="k"))])
    with pytest.raises(TapeConflict):
        await store.erase([FACT, batch(note("b", key="k"))], [("tape", (1,))])
    assert await texts(store) == ["a"]
    assert await whole(store, "bubbot/home") == ()


async def test_more_ranges_than_a_fact_holds_go_into_further_facts(store: TapeStore) -> None:
    await store.append([notes(*map(str, range(300)))])
    fact = batch(event("tape/erased"), tape="people")
    await store.erase([fact], [("tape", tuple(range(1, 301, 2)))])
    assert await erased_ids(store, "tape") == list(range(1, 301, 2))
    assert len((await whole(store, "people"))[0].data["covers"]["tape"]) == 100
    assert len((await whole(store, "bubbot/home"))[0].data["covers"]["tape"]) == 50
    await store.erase([FACT], [("bubbot/home", (1,))])
    assert await erased_ids(store, "bubbot/home") == []


async def test_a_blob_goes_with_the_last_entry_that_cites_it(store: TapeStore) -> None:
    await store.put_blob("tape", b"x")
    other = await store.put_blob("tape", b"nobody cites it")
    await store.append([batch(event("file", {"digest": DIGEST}), event("again", {"digest": DIGEST}))])
    await store.erase([FACT], [("tape", (1,))])
    assert await store.get_blob("tape", DIGEST) == b"x"
    await store.erase([FACT], [("tape", (2,))])
    with pytest.raises(EntryNotFound):
        await store.get_blob("tape", DIGEST)
    assert await store.get_blob("tape", other)
    assert await removed_blobs(store) == [("tape", (DIGEST,))]


async def test_a_blob_that_an_open_fork_cites_stays(store: TapeStore) -> None:
    await store.put_blob("tape", b"x")
    await store.append([batch(event("file", {"digest": DIGEST}))])
    await store.open_fork(ForkRecord("fork", "tape", 1, (batch(event("step", {"system": DIGEST})),)))
    await store.erase([FACT], [("tape", (1,))])
    assert await store.get_blob("tape", DIGEST) == b"x"


async def test_further_blobs_go_whatever_cites_them(store: TapeStore) -> None:
    await store.put_blob("tape", b"x")
    await store.append([batch(event("step", {"system": DIGEST}))])
    await store.erase([FACT], [], [("tape", (DIGEST, "0" * 64)), ("nowhere", (DIGEST,))])
    with pytest.raises(EntryNotFound):
        await store.get_blob("tape", DIGEST)
    assert await removed_blobs(store) == [("tape", (DIGEST,))]
