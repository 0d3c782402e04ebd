"""What every tape store promises about resets: the archive keeps, the erasure blanks, nothing goes half way."""

from __future__ import annotations

import pytest

from bubbot.errors import AnchorNotFound, EntryNotFound, TapeConflict, TapeError
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import EMPTY_OBJECT, TapeEntry, event, thaw
from bubbot.tape.query import OpeningAnchor, TapeQuery
from bubbot.tape.store import ResetBatch, TapeStore
from tests.tapes import batch, note, notes, texts, whole

ERASED = event("tape/erased", {"archive": "old"})


@pytest.mark.law("T1")
async def test_an_archive_keeps_every_old_entry_readable(store: TapeStore) -> None:
    before = (await store.append([batch(note("a", key="k"), note("b"))]))[0]
    await store.reset("tape", ResetBatch("old"), [event("tape/archived")])
    assert (await whole(store, "old"))[:-1] == before


@pytest.mark.law("T16")
async def test_the_last_entry_of_an_archive_says_what_it_was_called_and_is_called_now(store: TapeStore) -> None:
    await store.append([notes("a")])
    for erase in (False, True):
        fact = event("tape/erased" if erase else "tape/archived").with_meta(EMPTY_OBJECT, "2026-11-22T10:00:00+00:00")
        await store.reset("tape", ResetBatch(f"old{erase}", erase=erase), [anchor("session/start"), fact])
        last = (await whole(store, f"old{erase}"))[-1]
        assert thaw(last.payload) == {"name": "tape/renamed", "data": {"from": "tape", "to": f"old{erase}"}}
        assert (last.date, last.erased) == (fact.date, False)


@pytest.mark.law("T16")
async def test_an_archive_takes_no_more_entries_and_no_blobs(store: TapeStore) -> None:
    await store.append([notes("a")])
    await store.reset("tape", ResetBatch("old"), [event("tape/archived")])
    with pytest.raises(TapeConflict, match="old is an archive"):
        await store.append([notes("b", tape="old")])
    with pytest.raises(TapeConflict, match="old is an archive"):
        await store.put_blob("old", b"x")


@pytest.mark.law("T17")
async def test_the_fact_of_an_erasure_names_what_it_covers(store: TapeStore) -> None:
    await store.append([notes("a", "b"), notes("in1", "in2", "in3", "in4", tape="inbox")])
    also = (("inbox", (1, 2, 4, 9)), ("nowhere", (1,)))
    await store.reset("tape", ResetBatch("old", erase=True, erase_also=also), [anchor("session/start"), ERASED])
    covers = {"old": [[1, 2]], "inbox": [[1, 2], [4, 4]]}
    assert thaw((await whole(store))[1].payload)["data"] == {"archive": "old", "covers": covers}


@pytest.mark.law("T17")
async def test_the_fact_of_an_erasure_is_never_erased(store: TapeStore) -> None:
    await store.append([notes("a")])
    await store.reset("tape", ResetBatch("old", erase=True), [ERASED])
    await store.reset("tape", ResetBatch("older", erase=True), [ERASED])
    assert [(entry.name, entry.erased) for entry in await whole(store, "older")] == [
        ("tape/erased", False),
        ("tape/renamed", False),
    ]


@pytest.mark.law("T17")
async def test_an_erasure_of_more_ranges_than_a_fact_holds_has_further_facts_on_the_tape_of_the_home(
    store: TapeStore,
) -> None:
    await store.append([notes(*map(str, range(500)), tape="inbox"), notes("a")])
    also = (("inbox", tuple(range(1, 500, 2))),)
    await store.reset("tape", ResetBatch("old", erase=True, erase_also=also), [ERASED])
    assert [entry.id for entry in await whole(store, "inbox") if entry.erased] == list(range(1, 500, 2))
    further = [fact.payload["data"]["covers"]["inbox"] for fact in await whole(store, "bubbot/home")]
    assert [len(spans) for spans in further] == [100, 51]


@pytest.mark.law("T1", "T17")
async def test_blobs_go_with_a_fact_on_the_tape_of_the_home_that_names_them(store: TapeStore) -> None:
    await store.append([notes("a")])
    digests = sorted([await store.put_blob("tape", b"x"), await store.put_blob("tape", b"y")])
    await store.reset("tape", ResetBatch("old", erase=True), [ERASED])
    (fact,) = await whole(store, "bubbot/home")
    data = {"tape": "old", "digests": digests, "reason": "erased"}
    assert thaw(fact.payload) == {"name": "blob/removed", "data": data}


@pytest.mark.law("T17")
async def test_the_blobs_of_single_erased_entries_of_other_tapes_go_with_them(store: TapeStore) -> None:
    digests = [await store.put_blob("other", data) for data in (b"x", b"y")]
    cites = [event("step", {"system": digest}) for digest in (*digests, digests[1])]
    await store.append([batch(*cites, tape="other")])
    await store.reset("tape", ResetBatch("old", erase=True, erase_also=(("other", (1, 2)),)), [ERASED])
    with pytest.raises(EntryNotFound):
        await store.get_blob("other", digests[0])
    assert await store.get_blob("other", digests[1]) == b"y"


async def test_a_reset_starts_the_tape_anew_with_the_first_entries(store: TapeStore) -> None:
    await store.append([notes("a", "b")])
    first = await store.reset("tape", ResetBatch("old"), [anchor("session/start"), event("tape/archived")])
    assert [entry.id for entry in first] == [1, 2]
    assert await whole(store) == first


async def test_the_list_of_tapes_says_what_was_archived_from_where(store: TapeStore) -> None:
    await store.append([notes("a", "b")])
    await store.reset("tape", ResetBatch("old"), [event("tape/archived")])
    assert [(tape.name, tape.head, tape.archived_from) for tape in await store.tapes()] == [
        ("old", 3, "tape"),
        ("tape", 1, None),
    ]


async def test_a_key_of_the_archive_is_free_on_the_new_tape(store: TapeStore) -> None:
    await store.append([batch(note("a", key="k"))])
    await store.reset("tape", ResetBatch("old"), [note("b", key="k")])
    assert (await texts(store, "old"), await texts(store)) == (["a", ""], ["b"])


async def test_blobs_follow_their_tape_into_the_archive(store: TapeStore) -> None:
    await store.append([notes("a")])
    digest = await store.put_blob("tape", b"x")
    await store.reset("tape", ResetBatch("old"), [event("tape/archived")])
    assert await store.get_blob("old", digest) == b"x"
    with pytest.raises(EntryNotFound):
        await store.get_blob("tape", digest)


async def test_a_tape_that_was_never_written_can_be_reset(store: TapeStore) -> None:
    await store.reset("tape", ResetBatch("old"), [event("tape/archived")])
    assert [(tape.name, tape.head) for tape in await store.tapes()] == [("tape", 1)]


async def test_a_tape_can_be_reset_again_and_again(store: TapeStore) -> None:
    for number in range(3):
        await store.append([notes(str(number))])
        await store.reset("tape", ResetBatch(f"old{number}"), [event("tape/archived")])
    assert [(tape.name, tape.head) for tape in await store.tapes()] == [
        ("old0", 2),
        ("old1", 3),
        ("old2", 3),
        ("tape", 1),
    ]


@pytest.mark.law("T3")
@pytest.mark.parametrize("erase", [False, True])
async def test_a_reset_that_conflicts_leaves_the_tape_as_it_was(store: TapeStore, erase: bool) -> None:
    before = (await store.append([notes("a")]))[0]
    digest = await store.put_blob("tape", b"x")
    with pytest.raises(TapeConflict):
        await store.reset("tape", ResetBatch("old", erase=erase), [ERASED, note("b", key="k"), note("c", key="k")])
    assert await whole(store) == before
    assert await store.get_blob("tape", digest) == b"x"
    assert [tape.name for tape in await store.tapes()] == ["tape"]


@pytest.mark.law("T17")
async def test_an_erasure_without_the_fact_of_it_is_refused(store: TapeStore) -> None:
    before = (await store.append([notes("a")]))[0]
    with pytest.raises(TapeError, match="no fact"):
        await store.reset("tape", ResetBatch("old", erase=True), [event("tape/archived")])
    assert await whole(store) == before


@pytest.mark.law("T17")
async def test_erasure_blanks_the_content_and_keeps_id_kind_date_and_key(store: TapeStore) -> None:
    await store.append([batch(anchor("phase/one"), note("secret", key="k", date="2026-11-21", sender="me"))])
    await store.reset("tape", ResetBatch("old", erase=True), [ERASED])
    assert (await whole(store, "old"))[:-1] == (
        TapeEntry("anchor", EMPTY_OBJECT, id=1, erased=True),
        TapeEntry("message", EMPTY_OBJECT, EMPTY_OBJECT, "2026-11-21", "k", 2, erased=True),
    )


@pytest.mark.law("T17")
async def test_the_fact_of_an_erasure_is_on_the_new_tape(store: TapeStore) -> None:
    await store.append([notes("a")])
    first = await store.reset("tape", ResetBatch("old", erase=True), [anchor("session/start"), ERASED])
    assert [entry.name for entry in first] == ["session/start", "tape/erased"]
    assert await whole(store) == first


@pytest.mark.law("T17")
async def test_the_list_of_tapes_counts_what_was_erased(store: TapeStore) -> None:
    await store.append([notes("a", "b")])
    await store.reset("tape", ResetBatch("old", erase=True), [ERASED])
    assert [(tape.name, tape.erased) for tape in await store.tapes()] == [("old", 2), ("tape", 0)]


@pytest.mark.law("T17")
async def test_blobs_of_an_erased_tape_are_gone(store: TapeStore) -> None:
    await store.append([notes("a")])
    digest = await store.put_blob("tape", b"x")
    await store.reset("tape", ResetBatch("old", erase=True), [ERASED])
    for tape in ("tape", "old"):
        with pytest.raises(EntryNotFound):
            await store.get_blob(tape, digest)


@pytest.mark.law("T17")
async def test_erasure_reaches_the_earlier_archives_of_the_tape_and_their_blobs(store: TapeStore) -> None:
    await store.append([notes("a"), notes("x", tape="other")])
    digest = await store.put_blob("tape", b"x")
    await store.reset("tape", ResetBatch("older"), [note("b")])
    await store.reset("other", ResetBatch("other@old"), [event("tape/archived")])
    await store.reset("tape", ResetBatch("old", erase=True), [ERASED])
    assert [await texts(store, name) for name in ("older", "old", "other@old")] == [["", ""], ["", ""], ["x", ""]]
    with pytest.raises(EntryNotFound):
        await store.get_blob("older", digest)


@pytest.mark.law("T17")
async def test_erasure_reaches_the_named_entries_of_other_tapes_and_no_more(store: TapeStore) -> None:
    await store.append([notes("a"), notes("in1", "in2", "in3", tape="inbox"), notes("out", tape="outbox")])
    also = (("inbox", (1, 3, 3)), ("outbox", (7,)), ("nowhere", (1,)))
    await store.reset("tape", ResetBatch("old", erase=True, erase_also=also), [ERASED])
    assert await texts(store, "inbox") == ["", "in2", ""]
    assert [entry.erased for entry in await whole(store, "inbox")] == [True, False, True]
    assert await texts(store, "outbox") == ["out"]


@pytest.mark.law("T17")
async def test_an_archive_does_not_touch_other_tapes(store: TapeStore) -> None:
    await store.append([notes("a"), notes("in", tape="inbox")])
    await store.reset("tape", ResetBatch("old", erase_also=(("inbox", (1,)),)), [event("tape/archived")])
    assert await texts(store, "inbox") == ["in"]


@pytest.mark.law("T17")
async def test_what_is_erased_already_can_be_named_again(store: TapeStore) -> None:
    await store.append([notes("a"), notes("in", tape="inbox")])
    for name in ("old", "older"):
        await store.reset("tape", ResetBatch(name, erase=True, erase_also=(("inbox", (1,)), ("old", (1,)))), [ERASED])
    assert [entry.erased for entry in await whole(store, "inbox")] == [True]


@pytest.mark.law("T5", "T17")
async def test_an_erased_key_still_counts_as_seen(store: TapeStore) -> None:
    await store.append([notes("a"), batch(note("in", key="k"), tape="inbox")])
    await store.reset("tape", ResetBatch("old", erase=True, erase_also=(("inbox", (1,)),)), [ERASED])
    for keep_first in (False, True):
        stored = (await store.append([batch(note("again", key="k"), tape="inbox", keep_first=keep_first)]))[0]
        assert [(entry.id, entry.erased) for entry in stored] == [(1, True)]
    assert await store.head("inbox") == 1


@pytest.mark.law("T11", "T17")
async def test_an_erased_anchor_opens_no_window(store: TapeStore) -> None:
    await store.append([notes("a"), batch(anchor("one"), anchor("two"), anchor("memory/open", window=False), tape="b")])
    await store.reset("tape", ResetBatch("old", erase=True, erase_also=(("b", (2, 3)),)), [ERASED])
    assert [entry.id for entry in (await store.fetch([TapeQuery("b", OpeningAnchor())]))[0]] == [1]
    await store.reset("tape", ResetBatch("older", erase=True, erase_also=(("b", (1,)),)), [ERASED])
    with pytest.raises(AnchorNotFound):
        await store.fetch([TapeQuery("b", OpeningAnchor())])


@pytest.mark.law("T17")
async def test_erased_text_is_found_by_no_search_and_no_name(store: TapeStore) -> None:
    await store.append([batch(note("secret"), event("secret", {"secret": "secret"}))])
    await store.reset("tape", ResetBatch("old", erase=True), [ERASED])
    queries = [TapeQuery("old", text="secret"), TapeQuery("old", names=("secret",), kinds=("event",))]
    assert await store.fetch(queries) == [(), ()]
