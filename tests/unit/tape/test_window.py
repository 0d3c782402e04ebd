"""The cached window of a live tape: what it answers, the store would answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import Kind, PackedObject, event, message
from bubbot.tape.query import AfterAnchor, IdRanges, OpeningAnchor, Slice, TapeQuery, WholeTape, Window, ZoneSlice
from bubbot.tape.service import TapeService
from bubbot.tape.window import LiveWindow
from tests.doubles import CountingIds, SteppingClock

MIN_PACKED_CHARS = 600
MAX_ANSWER_ENTRIES = 500
MAX_ANSWERS = 16


LIMIT = 20


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.tape.window.WINDOW_CACHE_ENTRIES", LIMIT)
    monkeypatch.setattr("bubbot.tape.service.WINDOW_CACHE_ENTRIES", LIMIT)


class Counted(InMemoryStore):
    """Counts how often it was asked, and the entries that it gave."""

    fetches = 0
    given = 0

    async def fetch(self, queries):  # type: ignore[no-untyped-def]
        answers = await super().fetch(queries)
        self.fetches += 1
        self.given += sum(map(len, answers))
        return answers


async def turn(tape: TapeService, number: int) -> None:
    """Append as a turn does, and compare with the store what the fork finds."""
    fork = await tape.open_fork()
    await fork.append([message("user", f"q{number}"), event("note", {"number": number})])
    head = await fork.head()
    for part in (IdRanges(((max(head - 5, 2), None),)), IdRanges(((2, None),)), Window()):
        query = TapeQuery(tape.name, part, kinds=(Kind.MESSAGE, Kind.EVENT), names=("note",))
        found = (await fork.fetch([query]))[0]
        first = part.spans[0][0] if isinstance(part, IdRanges) else 2
        assert [entry.id for entry in found] == list(range(first, head + 1))
    await fork.merge()


async def test_a_window_that_outgrows_the_cache_is_answered_like_any_other(
    small_cache: None, clock: SteppingClock, ids: CountingIds
) -> None:
    tape = TapeService(InMemoryStore(), "tape", now=clock, new_id=ids)
    await tape.ensure_bootstrap_anchor()
    for number in range(40):
        await turn(tape, number)
        if number == 25:
            tape.forget_window()
    assert tape.cached_entries <= 2 * LIMIT


async def test_its_newest_entries_come_from_memory(small_cache: None, clock: SteppingClock, ids: CountingIds) -> None:
    store = Counted()
    tape = TapeService(store, "tape", now=clock, new_id=ids)
    await tape.ensure_bootstrap_anchor()
    for number in range(40):
        await turn(tape, number)
    before = store.given
    start = await tape.head() - 4
    for number in range(5):
        fork = await tape.open_fork()
        await fork.append([message("user", f"r{number}")])
        assert len((await fork.fetch([TapeQuery("tape", IdRanges(((start, None),)))]))[0]) == 6 + number
        await fork.merge()
    assert store.given == before


async def test_a_turn_that_hands_off_and_the_next_one_read_nothing(clock: SteppingClock, ids: CountingIds) -> None:
    store = Counted()
    tape = TapeService(store, "tape", now=clock, new_id=ids)
    await tape.ensure_bootstrap_anchor()
    await turn(tape, 1)
    before = store.fetches
    fork = await tape.open_fork()
    (asked, _) = await fork.append([message("user", "go on"), event("note", {})])
    await fork.append([anchor("phase/next", {}, recalls=((asked.id, asked.id),)), message("assistant", "done")])
    window = TapeQuery("tape", Window())
    assert [entry.id for entry in (await fork.fetch([window]))[0]] == [asked.id, asked.id + 3]
    await fork.merge()
    fork = await tape.open_fork()
    assert [entry.id for entry in (await fork.fetch([window]))[0]] == [asked.id, asked.id + 3]
    assert store.fetches == before


async def test_the_first_turn_of_a_new_tape_reads_nothing(clock: SteppingClock, ids: CountingIds) -> None:
    store = Counted()
    tape = TapeService(store, "tape", now=clock, new_id=ids)
    fork = await tape.open_fork([event("before", {}), anchor("session/start")])
    await tape.append([event("other", {})])
    notes = TapeQuery("tape", WholeTape(), names=("other",))
    assert await fork.fetch([TapeQuery("tape", Window(), missing="empty"), notes]) == [(), ()]
    assert not await TapeService(store, "empty", now=clock, new_id=ids).has_window()
    assert store.fetches == 0


async def test_long_events_are_kept_as_text_but_those_of_the_last_turn(clock: SteppingClock, ids: CountingIds) -> None:
    tape = TapeService(InMemoryStore(), "tape", now=clock, new_id=ids)
    await tape.ensure_bootstrap_anchor()
    long = event("long", {"text": "x" * MIN_PACKED_CHARS})

    async def count_packed() -> int:
        fork = await tape.open_fork()  # loads the window, if it is not cached
        await fork.append([event("short", {}), long])
        await fork.merge()
        entries = (await tape.fetch([TapeQuery("tape", WholeTape(), names=("long", "short"))]))[0]
        assert {entry.payload["data"].get("text", "") for entry in entries} == {long.payload["data"]["text"], ""}
        return sum(type(entry.payload) is PackedObject for entry in entries)

    assert [await count_packed(), await count_packed()] == [0, 1]
    tape.forget_window()
    assert await count_packed() == 2


def live_window(first: int = 2, *, opening: int = 1, head: int = 6, is_partial: bool = False) -> LiveWindow:
    """A window of messages, opened by an anchor."""
    entries = [message("user", f"m{number}").with_id(number) for number in range(first, head + 1)]
    return LiveWindow(anchor("session/start").with_id(opening), entries, head, is_partial)


@pytest.mark.parametrize(
    ("part", "whole", "partial"),
    [
        (OpeningAnchor(), [1], [1]),
        (OpeningAnchor("fork"), None, None),
        (Window(), [2, 3, 4, 5, 6], None),
        (Window("fork"), None, None),
        (WholeTape(), None, None),
        (IdRanges(((1, None),)), None, None),
        (IdRanges(((2, None),)), [2, 3, 4, 5, 6], None),
        (IdRanges(((3, None),)), [3, 4, 5, 6], None),
        (IdRanges(((4, None),)), [4, 5, 6], [4, 5, 6]),
        (IdRanges(((7, None),)), [], []),
        (IdRanges(((1, 1),)), None, None),
        (IdRanges(((4, 4), (6, 9))), [4, 6], [4, 6]),
        (IdRanges(((3, 4), (6, None))), [3, 4, 6], None),
        (IdRanges(((6, None), (3, 4))), [3, 4, 6], None),
    ],
)
def test_a_window_answers_about_the_entries_that_it_holds(
    part: Slice, whole: list[int] | None, partial: list[int] | None
) -> None:
    for window, ids in ((live_window(), whole), (live_window(4, is_partial=True), partial)):
        answer = window.answer(TapeQuery("tape", part))
        assert (None if answer is None else [entry.id for entry in answer]) == ids


def is_cached(window: LiveWindow, query: TapeQuery) -> bool:
    """Whether the window caches an answer of its own, or one that the store gave."""
    answer = window.answer(query)
    if answer is None:
        answer = (message("user", "of the store").with_id(1),)
        window.cache_answer(query, answer)
    return window.answer(query) is answer


NAMED = TapeQuery("tape", WholeTape(), names=("note",), newest=True, limit=3)
ZONE = TapeQuery("tape", ZoneSlice("memory/open", "memory/seal"))


@pytest.mark.parametrize(
    ("query", "cached"),
    [
        (NAMED, True),
        (replace(NAMED, limit=1), True),
        (replace(NAMED, limit=MAX_ANSWER_ENTRIES), True),
        (replace(NAMED, limit=MAX_ANSWER_ENTRIES + 1), False),
        (replace(NAMED, limit=0), False),
        (replace(NAMED, limit=None), False),
        (replace(NAMED, newest=False), False),
        (replace(NAMED, names=()), False),
        (replace(NAMED, text="x"), False),
        (replace(NAMED, searchable_text="x"), False),
        (replace(NAMED, keys=("k",)), False),
        (replace(NAMED, since=SteppingClock()()), False),
        (replace(NAMED, until=SteppingClock()()), False),
        (ZONE, True),
        (TapeQuery("tape", AfterAnchor("phase/a")), False),
        (TapeQuery("tape", OpeningAnchor()), True),
        (TapeQuery("tape", OpeningAnchor("fork")), False),
        (TapeQuery("tape", Window("fork")), False),
        (TapeQuery("tape", Window()), True),
        (TapeQuery("tape", Window(), newest=True), False),
        (TapeQuery("tape", Window(), limit=2), False),
        (TapeQuery("tape", Window(), newest=True, limit=2), False),
        (TapeQuery("tape", IdRanges(((4, None),))), True),
        (TapeQuery("tape", IdRanges(((7, None),))), True),
        (TapeQuery("tape", IdRanges(((4, 5),))), False),
        (TapeQuery("tape", IdRanges(((1, None),))), False),
    ],
)  # fmt: skip
def test_an_answer_is_cached_if_appends_tell_how_it_changes(query: TapeQuery, cached: bool) -> None:
    assert is_cached(live_window(), query) is cached


def test_few_and_short_answers_are_cached() -> None:
    others = [replace(NAMED, names=(f"note{number}",)) for number in range(MAX_ANSWERS)]
    window = live_window(head=MAX_ANSWER_ENTRIES + 1)
    entries = tuple(window.entries)
    window.cache_answer(NAMED, (*entries, entries[0]))
    assert window.cached_entries == len(entries) == MAX_ANSWER_ENTRIES
    window.cache_answer(NAMED, (message("user", "newer than the window").with_id(window.head + 1),))
    assert window.answer(NAMED) is None
    assert is_cached(window, TapeQuery("tape", IdRanges(((2, None),))))
    assert is_cached(window, TapeQuery("tape", IdRanges(((4, None),))))  # in place of the other range
    for query in others[: MAX_ANSWERS - 2]:
        window.cache_answer(query, ())
    window.cache_answer(NAMED, entries)
    assert (window.answer(NAMED), window.cached_entries) == (entries, 2 * len(entries))
    window.cache_answer(others[-1], ())
    assert window.answer(others[-1]) is None


def test_a_window_of_many_entries_keeps_only_the_newest(small_cache: None) -> None:
    window, everything = live_window(head=2), TapeQuery("tape", Window())
    later = [message("user", f"m{number}").with_id(number) for number in range(3, LIMIT + 3)]
    assert window.answer(everything) is not None
    assert window.extend(later[:-1]) is window
    assert [entry.id for entry in window.answer(everything) or ()] == [*range(2, LIMIT + 2)]
    assert window.extend(later[-1:]) is window
    assert (window.answer(everything), window.cached_entries, window.is_partial) == (None, LIMIT // 2, True)


def test_appends_that_follow_extend_a_window_and_its_answers() -> None:
    window = live_window()
    note, other = event("note", {}).with_id(7), event("other", {}).with_id(8)
    for query in (NAMED, ZONE):
        window.cache_answer(query, ())
    assert window.extend(()) is window
    assert window.extend((note, other)) is window
    assert (window.answer(NAMED), window.answer(ZONE)) == ((note,), ())
    assert window.extend([anchor("memory/seal", window=False).with_id(9)]) is window
    assert (window.answer(NAMED), window.answer(ZONE)) == ((note,), None)
    assert live_window().extend([other]) is None


@pytest.mark.parametrize("ahead", [1, 2, 3])
def test_entries_from_one_on_that_is_not_written_yet_are_found_once_they_are(ahead: int) -> None:
    window = live_window()
    newest = TapeQuery("tape", IdRanges(((window.head + ahead, None),)))
    assert window.answer(newest) == ()
    window.extend([event("note", {}).with_id(7), event("note", {}).with_id(8)])
    assert [entry.id for entry in window.answer(newest) or ()] == [*range(6 + ahead, 9)]


def test_appends_that_leave_a_gap_or_repeat_an_entry_end_a_window() -> None:
    note, other = event("note", {}).with_id(7), event("other", {}).with_id(8)
    assert live_window().extend([other]) is None
    assert live_window().extend([note.with_id(6), other.with_id(7)]) is None


def test_long_events_of_a_window_that_was_just_read_are_kept_as_text() -> None:
    long = event("long", {"text": "x" * MIN_PACKED_CHARS}).with_id(2)
    assert type(LiveWindow(anchor("session/start").with_id(1), [long], 2).entries[0].payload) is PackedObject
