"""A cached window answers as `evaluate` over the whole tape does, whatever is appended and asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bubbot.errors import AnchorNotFound
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import (
    EntryFinder,
    IdRanges,
    OpeningAnchor,
    Slice,
    TapeQuery,
    WholeTape,
    Window,
    ZoneSlice,
    evaluate,
)
from bubbot.tape.window import LiveWindow
from tests.property.strategies import KINDS, NAMES, entries, exactly, queries, rarely, some

CACHED = 12
parts: st.SearchStrategy[Slice] = st.one_of(
    st.just(Window()),
    st.just(OpeningAnchor()),
    st.just(WholeTape()),
    st.just(ZoneSlice("memory/open", "memory/seal")),
    st.builds(lambda low: IdRanges(((low, None),)), st.integers(-6, 3)),
    st.builds(lambda low, length: IdRanges(((low, low + length),)), st.integers(-6, 2), st.integers(0, 3)),
)
repeated = st.builds(
    TapeQuery,
    tape=st.just("tape"),
    part=parts,
    kinds=rarely((), some(KINDS)),
    names=st.one_of(st.just(()), some(NAMES)),
    newest=st.booleans(),
    limit=st.none() | st.integers(0, 5),
)
appends = st.lists(st.lists(entries(st.none()), max_size=5), min_size=1, max_size=8)


@pytest.fixture(autouse=True, scope="module")
def _small_cache() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bubbot.tape.window.WINDOW_CACHE_ENTRIES", CACHED)
        patch.setattr("bubbot.tape.window.MAX_ANSWERS", 4)
        patch.setattr("bubbot.tape.window.MAX_ANSWER_ENTRIES", 5)
        yield


def open_window(tape: Sequence[TapeEntry]) -> LiveWindow | None:
    """As the service opens it: the newest entries only, if it is long."""
    opening = EntryFinder(tape).opening_anchor()
    if opening is None:
        return None
    cached = evaluate(tape, TapeQuery("tape", Window()))
    is_partial = len(cached) > CACHED
    return LiveWindow(opening, cached[-(CACHED // 2) :] if is_partial else cached, len(tape), is_partial)


def near_the_head(query: TapeQuery, head: int) -> TapeQuery:
    """The query with ids counted from the newest one."""
    if not isinstance(query.part, IdRanges):
        return query
    spans = tuple((head + low, None if high is None else head + high) for low, high in query.part.spans)
    return TapeQuery("tape", IdRanges(spans), query.kinds, query.names, newest=query.newest, limit=query.limit)


@pytest.mark.law("T13")
@settings(max_examples=settings().max_examples * 5)
@given(added=appends, asked=st.lists(repeated, min_size=1, max_size=5), once=queries("tape"))
def test_a_cached_window_answers_as_the_whole_tape_does(
    added: list[list[TapeEntry]], asked: list[TapeQuery], once: TapeQuery
) -> None:
    tape: list[TapeEntry] = []
    window: LiveWindow | None = None
    followed: list[TapeQuery] = []
    for batch in added:
        numbered = [entry.with_id(len(tape) + place) for place, entry in enumerate(batch, 1)]
        tape += numbered
        window = window.extend(numbered) if window else None
        window = window or open_window(tape)
        if window is None:
            continue
        followed = [*followed, *(near_the_head(query, len(tape)) for query in asked)][-8:]
        assert (window.head, window.cached_entries <= CACHED + 4 * 5) == (len(tape), True)
        for query in [*followed, once, *followed]:
            if query.as_of is not None:
                continue
            try:
                wanted = evaluate(tape, query)
            except AnchorNotFound:
                assert window.answer(query) is None, query
                continue
            answer = window.answer(query)
            if answer is None:
                window.cache_answer(query, tuple(wanted))
            else:
                assert exactly(answer) == exactly(wanted), query
