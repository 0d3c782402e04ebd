"""The cached window of a live tape: what it answers, the store would answer."""

from __future__ import annotations

import pytest

from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape import service as service_module
from bubbot.tape import window as window_module
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import MIN_PACKED_CHARS, Kind, PackedObject, event, message
from bubbot.tape.query import IdRanges, TapeQuery, WholeTape, Window
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock

LIMIT = 20


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window_module, "WINDOW_CACHE_ENTRIES", LIMIT)
    monkeypatch.setattr(service_module, "WINDOW_CACHE_ENTRIES", LIMIT)


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
