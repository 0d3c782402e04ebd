"""A tape whose past is read forwards answers as its store does, whatever is asked, as of whichever entry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbot.errors import AnchorNotFound, EntryNotFound
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.replay import ReplayedTape
from bubbot.tape.store import Batch, TapeStore
from tests.doubles import START
from tests.property.strategies import entries, queries
from tests.property.test_live_window import near_the_head, repeated


@pytest.fixture(autouse=True, scope="module")
def _small_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bubbot.tape.replay.PAGE_ENTRIES", 4)
        patch.setattr("bubbot.tape.replay.MAX_PAGES", 2)
        patch.setattr("bubbot.tape.replay.WINDOW_CACHE_ENTRIES", 12)
        patch.setattr("bubbot.tape.window.WINDOW_CACHE_ENTRIES", 12)
        yield


async def answer(tape: TapeStore | ReplayedTape, query: TapeQuery) -> Sequence[tuple[int, str]] | str:
    try:
        return [(entry.id, entry.texts[0]) for entry in (await tape.fetch([query]))[0]]
    except AnchorNotFound as error:
        return str(error)


@pytest.mark.law("T9")
@settings(max_examples=settings().max_examples * 5)
@given(
    stored=st.lists(entries(st.none()), min_size=1, max_size=40),
    later=st.lists(entries(st.none()), max_size=3),
    asked=st.lists(st.tuples(st.integers(0, 6), st.lists(repeated | queries("tape"), min_size=1, max_size=3)), min_size=1, max_size=12),
    back=st.sets(st.integers(0, 11), max_size=2),
)  # fmt: skip
def test_a_tape_that_is_read_forwards_answers_as_its_store(
    stored: list[TapeEntry],
    later: list[TapeEntry],
    asked: list[tuple[int, list[TapeQuery]]],
    back: set[int],
) -> None:
    async def ask() -> None:
        store = InMemoryStore()
        await store.append([Batch("tape", tuple(stored))])
        replayed = ReplayedTape(store, "tape", len(stored), now=lambda: START, new_id=str)
        if later:
            await store.append([Batch("tape", tuple(later))])
        at = 1
        for number, (step, wanted) in enumerate(asked):
            at = min(at + step, len(stored))
            as_of = max(at - 5, 0) if number in back else at
            for query in wanted:
                past = replace(near_the_head(query, as_of), as_of=as_of)
                assert await answer(replayed, past) == await answer(store, past)
        assert await replayed.head() == len(stored)

    asyncio.run(ask())


async def test_blobs_are_read_once_and_missing_ones_are_an_error() -> None:
    store = InMemoryStore()
    digest = await store.put_blob("tape", b"words")
    tape = ReplayedTape(store, "tape", 0, now=lambda: START, new_id=str)
    assert [await tape.get_blob(digest) for _ in range(2)] == [b"words"] * 2
    with pytest.raises(EntryNotFound):
        await tape.get_blob("0" * 64)
