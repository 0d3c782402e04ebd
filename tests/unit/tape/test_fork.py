"""A fork: what it shows, what its merge writes, what survives a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pytest

from bubbot.errors import AnchorNotFound, EntryInvalid, EntryNotFound, TapeConflict
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor, find_parents
from bubbot.tape.entry import TapeEntry, event, thaw
from bubbot.tape.fork import ForkedTape
from bubbot.tape.query import (
    BetweenAnchors,
    IdRanges,
    NewestAnchors,
    OpeningAnchor,
    Slice,
    TapeQuery,
    Window,
    ZoneSlice,
)
from bubbot.tape.service import TapeService
from bubbot.tape.store import ForkRecord, TapeStore
from bubbot.tape.view import QueryAnswers
from tests.doubles import CountingIds, SteppingClock
from tests.tapes import batch, note, notes, texts, whole


@pytest.fixture
async def fork(tape: TapeService) -> ForkedTape:
    """A fork of a tape with the entries 1 (`session/start`), 2 and 3."""
    await tape.append([anchor("session/start"), note("a", key="k"), note("b")])
    return await tape.open_fork()


@pytest.mark.law("T13")
async def test_a_fork_shows_its_parent_and_then_its_own(fork: ForkedTape) -> None:
    (own,) = await fork.append([note("c")])
    (found,) = await fork.fetch([TapeQuery("tape")])
    assert [entry.id for entry in found] == [1, 2, 3, 4]
    assert found[-1] == own
    assert (await fork.head(), fork.base, fork.delta) == (4, 3, (own,))


@pytest.mark.law("T13")
async def test_the_parent_shows_nothing_of_an_open_fork(fork: ForkedTape, tape: TapeService) -> None:
    await fork.append([note("c")])
    await fork.save()
    assert await tape.head() == 3


@pytest.mark.law("T13")
async def test_a_merge_appends_the_delta_with_the_ids_it_had(fork: ForkedTape, tape: TapeService) -> None:
    own = await fork.append([note("c"), note("d")])
    assert (await fork.merge()).delta == own
    (found,) = await tape.fetch([TapeQuery("tape")])
    assert found[3:] == own


@pytest.mark.law("T13")
async def test_a_merge_writes_what_was_staged_for_other_tapes_too(
    fork: ForkedTape, memory_store: InMemoryStore
) -> None:
    await fork.append([note("c")])
    fork.stage("inbox", [note("done", key="m1")])
    fork.stage("inbox", [note("again", key="m1")], if_absent=True)
    assert await texts(memory_store, "inbox") == []
    merged = await fork.merge()
    assert await texts(memory_store, "inbox") == ["done"]
    assert [entry.id for entry in merged.staged["inbox"]] == [1, 1]


@pytest.mark.law("T4", "T13")
async def test_a_merge_that_expects_the_head_conflicts_on_a_parent_that_moved_and_leaves_the_fork_open(
    fork: ForkedTape, tape: TapeService, memory_store: InMemoryStore
) -> None:
    await fork.append([note("c")])
    fork.stage("inbox", [note("done")])
    await tape.append([note("someone else")])
    with pytest.raises(TapeConflict):
        await fork.merge(expect_head=True)
    assert (await tape.head(), await memory_store.head("inbox")) == (4, 0)
    assert [record.id for record in await memory_store.forks()] == [fork.id]


@pytest.mark.law("T13")
async def test_a_discarded_fork_leaves_its_parent_as_it_was(
    fork: ForkedTape, tape: TapeService, memory_store: InMemoryStore
) -> None:
    before = await whole(memory_store)
    await fork.append([note("c")])
    fork.stage("inbox", [note("done")])
    await fork.save()
    await fork.discard()
    assert (await whole(memory_store), await memory_store.head("inbox")) == (before, 0)
    with pytest.raises(EntryNotFound):
        await fork.merge()


@pytest.mark.law("T13")
async def test_a_fork_comes_back_from_disk_with_what_it_had_saved(
    fork: ForkedTape, tape: TapeService, memory_store: InMemoryStore
) -> None:
    kept = await fork.append([note("c"), event("e", {"n": 1}, key="x")])
    fork.stage("inbox", [note("done")])
    await fork.save()
    await fork.append([note("lost")])
    (record,) = await memory_store.forks()
    again = tape.reopen_fork(record)
    assert again.delta == kept
    await again.merge()
    assert (await texts(memory_store))[1:4] == ["a", "b", "c"]
    assert await texts(memory_store, "inbox") == ["done"]


async def test_saving_twice_keeps_everything_once(fork: ForkedTape, memory_store: InMemoryStore) -> None:
    await fork.append([note("c")])
    await fork.save()
    await fork.save()
    await fork.append([note("d")])
    await fork.save()
    (record,) = await memory_store.forks()
    assert [entry.payload["content"] for staged in record.staged for entry in staged.entries] == ["c", "d"]


async def test_a_fork_opens_durably_with_its_first_entries(tape: TapeService, memory_store: InMemoryStore) -> None:
    fork = await tape.open_fork([note("a")], staged=[notes("x", tape="inbox")], stamp={"turn": 7})
    (record,) = await memory_store.forks()
    assert [[entry.payload["content"] for entry in staged.entries] for staged in record.staged] == [["a"], ["x"]]
    assert [thaw(entry.meta) for entry in fork.delta] == [{"turn": 7}]
    await fork.merge()
    assert (await texts(memory_store), await texts(memory_store, "inbox")) == (["a"], ["x"])


@pytest.mark.law("T5", "T13")
async def test_a_key_of_the_parent_or_of_the_fork_stands_once(fork: ForkedTape) -> None:
    stored = await fork.append([note("a", key="k"), note("c", key="n"), note("c", key="n")])
    again = await fork.append([note("other", key="n"), note("other", key="k")], if_absent=True)
    assert [entry.id for entry in (*stored, *again)] == [2, 4, 4, 4, 2]
    assert await fork.head() == 4


@pytest.mark.law("T3", "T5")
@pytest.mark.parametrize("key", ["k", "n"])
async def test_other_content_under_a_key_conflicts_and_adds_nothing(fork: ForkedTape, key: str) -> None:
    await fork.append([note("c", key="n")])
    with pytest.raises(TapeConflict):
        await fork.append([note("d"), note("other", key=key)])
    assert await fork.head() == 4


@pytest.mark.law("T13")
async def test_a_window_opened_in_a_fork_recalls_from_parent_and_fork(fork: ForkedTape) -> None:
    await fork.append([note("c"), anchor("phase/two", recalls=[(2, 2), (4, 4)]), note("d")])
    opening, window = await fork.fetch([TapeQuery("tape", OpeningAnchor()), TapeQuery("tape", Window())])
    assert ([entry.id for entry in opening], [entry.id for entry in window]) == ([5], [2, 4, 6])


@pytest.mark.law("T13")
async def test_a_zone_and_a_run_between_anchors_reach_from_the_parent_into_the_fork(tape: TapeService) -> None:
    missing: Literal["error", "empty"]
    await tape.append([anchor("memory/open", window=False), note("a"), anchor("one")])
    fork = await tape.open_fork()
    await fork.append([note("b"), anchor("two"), note("c"), anchor("memory/seal", window=False), note("d")])
    parts: list[Slice] = [
        ZoneSlice("memory/open", "memory/seal"),
        BetweenAnchors("one", "two"),
        IdRanges(((2, 2), (4, 6))),
    ]
    for missing in ("error", "empty"):
        found = await fork.fetch([TapeQuery("tape", part, missing=missing) for part in parts])
        assert [[entry.id for entry in entries] for entries in found] == [[1, 2, 3, 4, 5, 6, 7], [4], [2, 4, 5, 6]]


@pytest.mark.law("T13")
async def test_a_newer_anchor_of_the_fork_stands_for_its_name(tape: TapeService) -> None:
    await tape.append([anchor("topic/a"), anchor("topic/b"), anchor("topic/a")])
    fork = await tape.open_fork()
    query = TapeQuery("tape", NewestAnchors("topic/"))
    assert [entry.id for entry in (await fork.fetch([query]))[0]] == [2, 3]
    await fork.append([anchor("topic/b", window=False), anchor("topic/c")])
    assert [entry.id for entry in (await fork.fetch([query]))[0]] == [3, 4, 5]


async def test_an_anchor_missing_from_parent_and_fork_is_missing(fork: ForkedTape) -> None:
    await fork.append([anchor("mark", window=False)])
    parts: list[Slice] = [
        BetweenAnchors("mark", "session/start"),
        ZoneSlice("absent", "mark"),
        BetweenAnchors("session/start", "absent"),
    ]
    for part in parts:
        with pytest.raises(AnchorNotFound):
            await fork.fetch([TapeQuery("tape", part)])
        assert await fork.fetch([TapeQuery("tape", part, missing="empty")]) == [()]


@pytest.mark.law("T13")
async def test_a_run_between_anchors_is_empty_where_only_its_end_is_in_the_fork(tape: TapeService) -> None:
    await tape.append([note("a")])
    fork = await tape.open_fork()
    await fork.append([note("b"), anchor("two")])
    query = TapeQuery("tape", BetweenAnchors("absent", "two"), missing="empty")
    assert await fork.fetch([query]) == [()]


async def test_queries_on_other_tapes_go_to_the_store(fork: ForkedTape, memory_store: InMemoryStore) -> None:
    await memory_store.append([notes("x", tape="other")])
    fork.stage("other", [note("staged")])
    (found,) = await fork.fetch([TapeQuery("other")])
    assert [entry.payload["content"] for entry in found] == ["x"]


@dataclass(frozen=True, slots=True)
class Contents:
    """A view: the contents of all messages, oldest first."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        return (TapeQuery(tape, kinds=("message",)),)

    def fold(self, answers: QueryAnswers) -> tuple[str, ...]:
        return tuple(entry.payload["content"] for entry in answers[0])


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.law("T13")
async def test_a_view_of_a_fork_shows_what_the_view_of_the_parent_will(
    fork: ForkedTape, tape: TapeService, heavy: bool
) -> None:
    await fork.append([note("c")])
    told = await fork.read(Contents(heavy))
    await fork.merge()
    assert told == await tape.read(Contents(heavy)) == ("a", "b", "c")


@pytest.mark.law("T6", "T13")
async def test_a_correction_in_a_fork_may_name_the_parents_entries_and_its_own(fork: ForkedTape) -> None:
    await fork.append([note("c")])
    await fork.correct(2, "A")
    await fork.hide(4)
    with pytest.raises(EntryNotFound, match="1 to 6"):
        await fork.correct(7, "?")


@pytest.mark.law("T13")
async def test_a_reset_in_a_fork_hides_the_parent_and_renumbers_the_delta(fork: ForkedTape) -> None:
    await fork.append([note("c")])
    archive = await fork.reset()
    await fork.append([note("d")])
    assert archive.startswith("tape@")
    assert [(entry.id, entry.name or entry.payload["content"]) for entry in fork.delta] == [
        (1, "c"),
        (2, "session/start"),
        (3, "tape/archived"),
        (4, "d"),
    ]
    assert await fork.fetch([TapeQuery("tape")]) == [fork.delta]


@pytest.mark.law("T13")
@pytest.mark.parametrize("saved", [False, True])
async def test_the_merge_of_a_reset_archives_the_parent(
    fork: ForkedTape, tape: TapeService, memory_store: InMemoryStore, saved: bool
) -> None:
    before = await whole(memory_store)
    archive = await fork.reset()
    if saved:
        await fork.save()
        (record,) = await memory_store.forks()
        fork = tape.reopen_fork(record)
    delta = fork.delta
    await fork.merge()
    assert ((await whole(memory_store, archive))[:-1], await whole(memory_store)) == (before, delta)


@pytest.mark.law("T17")
@pytest.mark.parametrize("saved", [False, True])
async def test_erasing_after_archiving_in_one_fork_erases(
    fork: ForkedTape, tape: TapeService, memory_store: InMemoryStore, saved: bool
) -> None:
    await memory_store.append([notes("in", "stays", tape="inbox")])
    archive = await fork.reset()
    await fork.save()
    assert await fork.reset(archive=False, erase_also=(("inbox", (1,)),)) == archive
    if saved:
        await fork.save()
        (record,) = await memory_store.forks()
        fork = tape.reopen_fork(record)
    await fork.merge()
    assert [entry.erased for entry in await whole(memory_store, archive)] == [True, True, True, False]
    assert await texts(memory_store, "inbox") == ["", "stays"]
    assert [entry.name for entry in await whole(memory_store)] == ["session/start", "tape/archived", "tape/erased"]


@pytest.mark.law("T4", "T17")
async def test_an_erasing_fork_does_not_erase_what_it_has_not_seen(
    fork: ForkedTape, tape: TapeService, memory_store: InMemoryStore
) -> None:
    await fork.reset(archive=False)
    await tape.append([note("meanwhile")])
    with pytest.raises(TapeConflict):
        await fork.merge()
    assert (await texts(memory_store))[-1] == "meanwhile"


async def test_archiving_twice_in_one_fork_is_archiving_once(fork: ForkedTape) -> None:
    assert await fork.reset() == await fork.reset()
    assert [entry.name for entry in fork.delta] == ["session/start", "tape/archived"]


@pytest.mark.law("T5")
async def test_after_a_reset_the_parents_keys_are_free(fork: ForkedTape, memory_store: InMemoryStore) -> None:
    await fork.reset()
    await fork.append([note("new", key="k")])
    await fork.merge()
    assert "new" in await texts(memory_store)


async def test_blobs_of_a_fork_are_kept_at_once_beside_the_parent(fork: ForkedTape, tape: TapeService) -> None:
    digest = await fork.put_blob(b"x")
    assert await tape.get_blob(digest) == await fork.get_blob(digest) == b"x"


async def test_entries_of_a_fork_are_stamped_and_dated_like_those_of_the_tape(
    tape: TapeService, ids: CountingIds
) -> None:
    fork = await tape.open_fork(stamp={"turn": 1, "origin": "human"})
    (own,) = await fork.append([note("a", origin="agent:x")])
    assert thaw(own.meta) == {"turn": 1, "origin": "agent:x"}
    assert own.date.startswith("2026-11-21T20:21:")
    assert fork.id == "fork-1"


@pytest.mark.parametrize(
    "staged", [(), (batch(note("a")), batch(note("x"), tape="other"), batch(note("b"), note("c")))]
)
def test_a_fork_numbers_what_its_record_staged(tape: TapeService, staged: Sequence[object]) -> None:
    record = ForkRecord("f", "tape", 5, tuple(staged))  # type: ignore[arg-type]  # batches
    delta: tuple[TapeEntry, ...] = tape.reopen_fork(record).delta
    assert [entry.id for entry in delta] == list(range(6, 6 + len(delta)))


@pytest.mark.law("T13")
async def test_a_merge_onto_a_parent_that_moved_gives_the_next_ids_and_moves_references_along(
    fork: ForkedTape, tape: TapeService
) -> None:
    await fork.append([note("c")])
    await fork.correct(4, "d")
    await fork.correct(2, "e")
    await fork.handoff("phase", {"source_ids": [2, 4]}, recalls=[(3, 4)])
    fork.stage("other", [note("copy", source=["tape", 4])])
    await tape.append([note("someone else")])
    merged = await fork.merge()
    assert [entry.id for entry in merged.delta] == [5, 6, 7, 8, 9]
    assert (await whole_of(tape))[4:] == merged.delta
    _, correction, of_the_parents, opening, handoff = merged.delta
    assert (correction.payload["data"]["corrects"], of_the_parents.payload["data"]["corrects"]) == (5, 2)
    assert opening.payload["state"] == handoff.payload["data"]["state"] == {"source_ids": (2, 5)}
    assert opening.payload["recalls"] == ((3, 3), (5, 5))
    assert merged.staged["other"][0].meta["source"] == ("tape", 5)


@pytest.mark.law("T7", "T13")
async def test_what_an_anchor_cites_of_tapes_moves_along_and_has_to_be_there(
    fork: ForkedTape, tape: TapeService, memory_store: InMemoryStore
) -> None:
    await memory_store.append([batch(note("theirs"), tape="other")])
    await fork.append([note("c")])
    with pytest.raises(EntryInvalid, match="source_ids names entry 2 of the tape other, which does not exist"):
        await fork.handoff("phase", {"source_ids": [["other", 2]]})
    await fork.handoff("phase", {"source_ids": [4, ["tape", 4], ["other", 1]]})
    await tape.append([note("someone else")])
    opening, handoff = (await fork.merge()).delta[1:]
    state = {"source_ids": (5, ("tape", 5), ("other", 1))}
    assert opening.payload["state"] == handoff.payload["data"]["state"] == state
    assert await tape.keep_sources({"source_ids": [["other", 1], ["other", 9], 2]}) == {"source_ids": [["other", 1], 2]}
    assert await tape.keep_sources({"phase": "a", "source_ids": [["other", 9]]}) == {"phase": "a"}


@pytest.mark.law("T13")
async def test_the_parents_of_an_anchor_move_along_with_a_rebase(
    fork: ForkedTape, tape: TapeService, memory_store: InMemoryStore
) -> None:
    await memory_store.append([batch(*(anchor("theirs") for _ in range(4)), tape="other")])
    first = await fork.handoff("one", {"parents": [1]})
    await fork.handoff("two", {"parents": [1, first.id, ["tape", first.id], ["other", first.id]]})
    assert [find_parents(entry, "tape") for entry in fork.delta[2:3]] == [(("tape", 1), ("tape", 4), ("other", 4))]
    await tape.append([note("someone else"), note("and more")])
    one, _, two, handoff = (await fork.merge()).delta
    assert (one.id, two.payload["state"]["parents"]) == (6, (1, 6, ("tape", 6), ("other", 4)))
    assert handoff.payload["data"]["state"] == two.payload["state"]


async def whole_of(tape: TapeService) -> tuple[TapeEntry, ...]:
    return (await tape.fetch([TapeQuery(tape.name)]))[0]


@pytest.mark.law("T13")
@pytest.mark.parametrize("phase", ["", "phase"])
async def test_a_fork_reads_its_parent_as_it_was(fork: ForkedTape, tape: TapeService, phase: str) -> None:
    own = await fork.append([note("c", key="new")])
    asked = [
        TapeQuery("tape", Window()),
        TapeQuery("tape", OpeningAnchor()),
        TapeQuery("tape", newest=True, limit=2),
        TapeQuery("tape", kinds=("message",), as_of=2),
        TapeQuery("tape", as_of=4),
        TapeQuery("tape", keys=("theirs", "new")),
    ]
    before = await fork.fetch(asked)
    other = await tape.open_fork()
    if phase:
        await other.handoff(phase, {})
    await other.append([note("x", key="theirs"), note("y", key="new")])
    await other.merge()
    assert await fork.fetch(asked) == before
    assert (await fork.append([note("z", key="theirs")]))[0].id == 5
    assert (await fork.append([note("c", key="new")])) == own


@pytest.mark.law("T5", "T13")
@pytest.mark.parametrize("saved", [False, True])
async def test_keys_that_the_parent_got_meanwhile_stand_once(
    fork: ForkedTape, tape: TapeService, memory_store: InMemoryStore, saved: bool
) -> None:
    await fork.append([note("same", key="same")])
    await fork.append([note("mine", key="first"), note("plain")], if_absent=True)
    await fork.correct(4, "corrected")
    await tape.append([note("same", key="same"), note("theirs", key="first")])
    if saved:
        await fork.save()
        (record,) = await memory_store.forks()
        fork = tape.reopen_fork(record)
    merged = await fork.merge()
    assert [entry.id for entry in merged.delta] == [4, 5, 6, 7]
    assert (await texts(memory_store))[3:6] == ["same", "theirs", "plain"]
    assert merged.delta[-1].payload["data"]["corrects"] == 4
    await tape.open_fork()
    assert await tape.from_last_anchor() == (await whole(memory_store))[1:]


@pytest.mark.law("T5", "T13")
async def test_other_content_under_a_key_that_the_parent_got_meanwhile_is_a_conflict(
    fork: ForkedTape, tape: TapeService
) -> None:
    await fork.append([note("mine", key="x")])
    await tape.append([note("theirs", key="x")])
    with pytest.raises(TapeConflict):
        await fork.merge()
    assert await tape.head() == 4


@pytest.mark.law("T13")
async def test_two_hundred_forks_of_one_tape_merge_as_they_finish(store: TapeStore) -> None:
    """Some are opened while others merge."""
    tape = TapeService(store, "tape", now=SteppingClock(), new_id=CountingIds())
    await tape.append([anchor("session/start")])

    async def work(number: int) -> None:
        fork = await tape.open_fork([note(f"{number}")])
        await fork.correct(fork.base + 1, f"{number}")
        await fork.merge()

    await asyncio.gather(*map(work, range(200)))
    assert await store.forks() == []
    entries = await whole(store)
    assert len(entries) == 401
    for first, second in zip(entries[1::2], entries[2::2], strict=True):
        assert second.payload["data"] == {"corrects": first.id, "content": first.payload["content"]}
    fork = await tape.open_fork()
    assert (await fork.fetch([TapeQuery("tape", Window())]))[0] == entries[1:]


@pytest.mark.law("T5", "T13")
async def test_the_window_kept_in_memory_has_an_entry_once_that_two_forks_wrote(
    fork: ForkedTape, tape: TapeService, memory_store: InMemoryStore
) -> None:
    other = await tape.open_fork([note("same", key="same")])
    await fork.append([note("x"), note("same", key="same"), note("y")])
    await other.merge()
    assert [entry.id for entry in (await fork.merge()).delta] == [5, 4, 6]
    again = await tape.open_fork()
    assert await again.from_last_anchor() == (await whole(memory_store))[1:]


@pytest.fixture
async def inner(fork: ForkedTape) -> ForkedTape:
    """A fork of a fork that has the entry 4."""
    await fork.append([note("c", key="c")])
    return await fork.fork([note("d")], stamp={"agent": "x"})


@pytest.mark.law("T13")
async def test_a_fork_of_a_fork_shows_that_fork_and_its_own_entries(fork: ForkedTape, inner: ForkedTape) -> None:
    await inner.append([note("e")])
    assert (inner.base, await inner.head()) == (4, 6)
    assert [entry.payload.get("content") for entry in await inner.from_last_anchor()] == ["a", "b", "c", "d", "e"]
    assert await fork.head() == 4
    assert [entry.meta for entry in inner.delta] == [{"fork": inner.id, "agent": "x"}] * 2
    assert (await inner.append([note("c", key="c")]))[0].id == 4
    await fork.append([note("later")])
    assert [entry.payload.get("content") for entry in await inner.from_last_anchor()] == ["a", "b", "c", "d", "e"]


async def test_a_fork_of_a_fork_is_durable_with_what_it_stands_on(
    inner: ForkedTape, tape: TapeService, memory_store: InMemoryStore
) -> None:
    records = await memory_store.forks()
    outer = tape.reopen_fork(records[0])
    again = outer.reopen_fork(records[1])
    assert [entry.payload["content"] for entry in (*outer.delta, *again.delta)] == ["c", "d"]
    assert (again.id, again.delta) == (inner.id, inner.delta)


@pytest.mark.law("T13")
async def test_a_fork_of_a_fork_merges_into_that_fork_with_the_next_ids(
    fork: ForkedTape, inner: ForkedTape, tape: TapeService, memory_store: InMemoryStore
) -> None:
    await inner.correct(5, "corrected")
    await inner.append([note("c", key="late"), note("f")])
    inner.stage("other", [note("copy", source=["tape", 5])])
    await fork.append([note("later"), note("c", key="late")])
    merged = await inner.merge()
    assert [entry.id for entry in merged.delta] == [7, 8, 6, 9]
    assert merged.delta[1].payload["data"]["corrects"] == 7
    assert fork.staged_entries("other")[0].meta["source"] == ("tape", 7)
    assert [record.id for record in await memory_store.forks()] == [fork.id]
    assert tape.reopen_fork((await memory_store.forks())[0]).delta == fork.delta
    await tape.append([note("someone else")])
    done = await fork.merge()
    assert [entry.payload.get("content") for entry in done.delta] == ["c", "later", "c", "d", None, "f"]
    assert (done.delta[3].meta["fork"], done.delta[4].payload["data"]["corrects"]) == (inner.id, 8)
    assert done.staged["other"][0].meta["source"] == ("tape", 8)
    assert await memory_store.forks() == []


@pytest.mark.law("T4", "T13")
async def test_a_fork_of_a_fork_may_expect_the_head(fork: ForkedTape, inner: ForkedTape) -> None:
    await fork.append([note("later")])
    with pytest.raises(TapeConflict, match="has entries to 5, not to 4"):
        await inner.merge(expect_head=True)
    assert len(fork.delta) == 2
    await inner.merge()
    assert len(fork.delta) == 3


@pytest.mark.law("T5", "T13")
@pytest.mark.parametrize("expect_head", [False, True])
async def test_a_key_that_may_be_skipped_may_be_skipped_by_every_merge(
    fork: ForkedTape, inner: ForkedTape, tape: TapeService, memory_store: InMemoryStore, expect_head: bool
) -> None:
    await inner.append([note("mine", key="first")], if_absent=True)
    await inner.merge(expect_head=expect_head)
    await tape.append([note("theirs", key="first")])
    (record,) = await memory_store.forks()
    await tape.reopen_fork(record).merge()
    assert (await texts(memory_store))[3:] == ["theirs", "c", "d"]


@pytest.mark.law("T5", "T13")
async def test_a_fork_of_a_fork_conflicts_over_a_key_and_changes_nothing(fork: ForkedTape, inner: ForkedTape) -> None:
    await inner.append([note("mine", key="k2")])
    await fork.append([note("theirs", key="k2")])
    before = fork.delta
    with pytest.raises(TapeConflict, match="other content under the key k2"):
        await inner.merge()
    assert fork.delta == before


@pytest.mark.law("T13")
async def test_a_discarded_fork_of_a_fork_leaves_that_fork_as_it_was(
    fork: ForkedTape, inner: ForkedTape, memory_store: InMemoryStore
) -> None:
    before = fork.delta
    inner.stage("other", [note("x")])
    await inner.save()
    await inner.discard()
    assert (fork.delta, [record.id for record in await memory_store.forks()]) == (before, [fork.id])
    await fork.merge()
    assert await memory_store.head("other") == 0


@pytest.mark.law("T13")
async def test_a_fork_is_neither_merged_nor_reset_while_forks_of_it_are_open(
    fork: ForkedTape, inner: ForkedTape, memory_store: InMemoryStore
) -> None:
    with pytest.raises(TapeConflict, match="still has open forks"):
        await fork.merge()
    for one in (fork, inner):
        with pytest.raises(TapeConflict, match="not reset"):
            await one.reset()
    await fork.discard()
    assert await memory_store.forks() == []


async def test_forks_of_a_fork_merge_while_it_is_appended_to_and_saved(store: TapeStore) -> None:
    tape = TapeService(store, "tape", now=SteppingClock(), new_id=CountingIds())
    fork = await tape.open_fork([note("start")])

    async def work(number: int) -> None:
        inner = await fork.fork([note(f"{number}")])
        await inner.correct(inner.base + 1, f"{number}")
        await fork.append([note("between")])
        await inner.merge()
        await fork.save()

    await asyncio.gather(*map(work, range(20)))
    (record,) = await store.forks()
    assert tape.reopen_fork(record).delta == fork.delta
    assert [entry.id for entry in fork.delta] == list(range(1, 62))
    for entry in fork.delta:
        if entry.name == "correction":
            corrected = fork.delta[entry.payload["data"]["corrects"] - 1]
            assert corrected.payload["content"] == entry.payload["data"]["content"]
    await fork.merge()
    assert await whole(store) == fork.delta
