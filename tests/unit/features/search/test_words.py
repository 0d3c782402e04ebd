"""Words, each with the newest entries that hold it, read in a few steps for all of them."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from bubbot.features.search.view import SearchResult, SearchView
from bubbot.features.search.words import WordsView
from bubbot.tape.entry import Kind, event, message
from bubbot.tape.query import TapeQuery, parse_moment
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.tape.view import read_together
from tests.doubles import CountingIds, SteppingClock

KINDS = (Kind.MESSAGE, Kind.ANCHOR)


@pytest.fixture
async def chat(store: TapeStore, ids: CountingIds) -> TapeService:
    made = TapeService(store, "chat", now=SteppingClock(step=timedelta(minutes=1)), new_id=ids)
    await made.append([message("user", text) for text in ("the blue door", "a door", "the volcano", "nothing")])
    return made


def find(*words: str, limit: int = 20) -> WordsView:
    return WordsView(words, KINDS, None, limit)


async def test_each_word_has_its_own_entries_newest_first(chat: TapeService) -> None:
    assert await chat.read(find("door", "blue", "absent")) == ((2, 1), (1,), ())


async def test_a_word_that_no_entry_holds_is_looked_for_by_spelling(chat: TapeService) -> None:
    assert await chat.read(find("volcnao", "door")) == ((3,), (2, 1))


async def test_hidden_entries_are_left_out(chat: TapeService) -> None:
    await chat.append([event("correction", {"corrects": 2, "hide": True})])
    assert await chat.read(find("door")) == ((1,),)


async def test_no_more_entries_of_a_word_are_read_than_wanted(chat: TapeService) -> None:
    assert await chat.read(find("door", limit=1)) == ((2,),)


async def test_entries_after_the_date_are_left_out(chat: TapeService) -> None:
    until = parse_moment((await chat.entry(1)).date)
    assert await chat.read(WordsView(("door",), KINDS, until, 20)) == ((1,),)


@dataclass(frozen=True)
class TogetherView:
    """Several searches read together."""

    views: tuple[SearchView, ...]

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], Any, list[SearchResult]]:
        """See `StepwiseView.steps`."""
        return read_together([view.steps(tape) for view in self.views])


async def test_views_that_are_read_together_find_what_each_finds_alone(chat: TapeService) -> None:
    views = tuple(SearchView(text, limit=3) for text in ("door", "volcnao", "absent", ""))
    assert await chat.read(TogetherView(views)) == [await chat.read(view) for view in views]
    first = next(TogetherView(views).steps("chat"))
    assert len(set(first)) == len(first), "what several ask is read once"
