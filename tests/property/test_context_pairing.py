"""Whatever is on a tape, the context built from it is one that a provider takes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.ports.model import ModelRequest
from bubbot.runtime.compose import narrow_view
from bubbot.runtime.context.selectors import MessageStyle, select_messages
from bubbot.runtime.context.strategy import ModelContext
from bubbot.runtime.context.view import ContextView
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import OpeningAnchor, TapeQuery, evaluate
from tests.provider_rules import faults

IDS = st.sampled_from(["a", "b", "call_0", "call_1", ""])
TEXTS = st.sampled_from(["", " ", "\n", "hello", "{", '{"x": 1}', "[1]", "<b>", "é"])
JUNK = st.none() | st.integers(0, 3) | TEXTS | st.lists(st.integers(), max_size=2) | st.dictionaries(TEXTS, st.none())
STAMPED = "2026-11-21T20:21:00.000000+00:00"


def optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object in which any of these fields may be missing."""
    return st.fixed_dictionaries({}, optional=fields)


CALL = (
    st.builds(lambda i: {"id": i, "type": "function", "function": {"name": "tape_search", "arguments": "{}"}}, IDS)
    | optional(id=IDS | JUNK, function=optional(name=TEXTS | JUNK, arguments=TEXTS | JUNK) | JUNK)
    | JUNK
)
RESULT = st.builds(lambda i: {"tool_call_id": i, "content": "r"}, IDS) | optional(tool_call_id=IDS, content=JUNK) | JUNK
PART = st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}) | JUNK
MESSAGE = optional(
    role=st.sampled_from(["user", "assistant", "system", "tool", "developer"]) | JUNK,
    content=TEXTS | JUNK | st.lists(PART, max_size=2),
    tool_calls=st.lists(CALL, max_size=1),
    name=st.just("ann"),
)
TARGET = st.integers(0, 12) | JUNK
DATA = optional(corrects=TARGET, content=TEXTS | JUNK, hide=st.booleans()) | JUNK
CUTS = optional(
    **{"from": TARGET},
    results=st.lists(TARGET, max_size=2) | JUNK,
    left_out=st.lists(st.lists(TARGET, max_size=2) | st.just([2, 4]), max_size=6) | JUNK,
    since=st.just(STAMPED) | JUNK,
    until=st.just(STAMPED) | JUNK,
)
ENTRY = st.one_of(
    st.builds(lambda role, text: ("message", {"role": role, "content": text}), st.sampled_from(["user", "assistant"]), TEXTS),
    st.builds(lambda calls: ("tool_call", {"calls": calls}), st.lists(CALL, max_size=3)),
    st.builds(lambda results: ("tool_result", {"results": results}), st.lists(RESULT, max_size=3)),
    st.tuples(st.just("message"), MESSAGE),
    st.tuples(st.sampled_from(["tool_call", "tool_result"]), optional(calls=JUNK, results=JUNK, content=JUNK)),
    st.builds(lambda data: ("event", {"name": "correction", "data": data}), DATA),
    st.builds(lambda data: ("event", {"name": "context/cut", "data": data}), CUTS | JUNK),
    st.just(("anchor", {"name": "phase/x", "state": {"summary": "s"}})),
    st.just(("anchor", {"name": "phase/x"})),
    st.builds(lambda spans: ("anchor", {"name": "phase/y", "state": None, "recalls": spans}), st.lists(st.lists(st.integers(0, 12), max_size=2), max_size=2)),
)  # fmt: skip
TAPES = st.lists(ENTRY, max_size=14).map(
    lambda made: [
        anchor("session/start", {"owner": "human"}).with_id(1),
        *[TapeEntry(kind, payload, date=STAMPED).with_id(place) for place, (kind, payload) in enumerate(made, 2)],
    ]
)
VIEWS = st.builds(
    ContextView,
    st.sampled_from(["window", "messages", "full", "compact", "summary"]),
    st.builds(MessageStyle, st.none(), st.booleans(), st.booleans()),
    st.none() | st.integers(1, 200),
    st.booleans(),
    strategies=st.just(OWN_STRATEGIES),
)


def context_of(entries: Sequence[TapeEntry], view: ContextView) -> ModelContext:
    return view.fold([evaluate(entries, query) for query in view.queries("tape")])


def asks(*ids: str | None) -> TapeEntry:
    """An entry with one call for each id."""
    function = {"name": "f", "arguments": "{}"}
    return TapeEntry(
        "tool_call", {"calls": [{"function": function} if i is None else {"id": i, "function": function} for i in ids]}
    )


def gives(*results: tuple[str, str]) -> TapeEntry:
    return TapeEntry("tool_result", {"results": [{"tool_call_id": i, "content": text} for i, text in results]})


def on_tape(*entries: TapeEntry) -> list[TapeEntry]:
    opened = anchor("session/start", {"owner": "human"})
    return [entry.with_id(place) for place, entry in enumerate([opened, *entries], 1)]


LATE = on_tape(
    TapeEntry("message", {"role": "user", "content": "x" * 300}),
    asks("a"),
    TapeEntry("message", {"role": "user", "content": "next"}),
    gives(("a", "late")),
    event("context/cut", {"from": 4}),
    TapeEntry("message", {"role": "user", "content": "last"}),
)


@pytest.mark.law("T12")
@given(TAPES, VIEWS)
@settings(max_examples=5 * settings().max_examples)
@example(on_tape(asks("a", "a"), gives(("a", "1"), ("a", "2"))), ContextView())
@example(on_tape(asks("a"), gives(("a", "1")), asks("a"), gives(("a", "2"))), ContextView())
@example(on_tape(asks("call_1", None), asks(None)), ContextView())
@example(LATE, ContextView("compact", budget=10_000, strategies=OWN_STRATEGIES))
def test_every_context_is_one_that_a_provider_takes(entries: list[TapeEntry], view: ContextView) -> None:
    context = context_of(entries, view)
    assert faults(context.messages, first_assistant=view.style.first_assistant) == []
    assert not view.ends_with_user or context.messages[-1]["role"] in ("user", "tool")


@given(TAPES, VIEWS)
def test_building_a_context_twice_gives_the_same_bytes(entries: list[TapeEntry], view: ContextView) -> None:
    assert context_of(entries, view) == context_of(list(entries), view)


@given(TAPES, VIEWS.filter(lambda view: view.strategy.start_event != ""))
def test_what_a_strategy_need_not_read_changes_nothing(entries: list[TapeEntry], view: ContextView) -> None:
    opening = evaluate(entries, TapeQuery("tape", OpeningAnchor()))
    newest = TapeQuery("tape", kinds=("event",), names=(view.strategy.start_event,), newest=True, limit=1)
    start = view.strategy.find_start(opening, evaluate(entries, newest))
    assert context_of(entries, replace(view, spans=None if start is None else ((start, None),))) == context_of(
        entries, view
    )


class EvaluatedTape:
    """A tape in memory that can only be read."""

    name = "tape"

    def __init__(self, entries: Sequence[TapeEntry]) -> None:
        self._entries = entries

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        return [tuple(evaluate(self._entries, query)) for query in queries]

    async def head(self) -> int:
        return len(self._entries)


SPOKEN = st.one_of(
    st.builds(lambda role, size: ("message", {"role": role, "content": "x" * size}), st.sampled_from(["user", "assistant"]), st.integers(0, 60)),
    st.builds(lambda i: ("tool_call", {"calls": [{"id": i, "function": {"name": "f", "arguments": "{}"}}]}), IDS),
    st.builds(lambda i, size: ("tool_result", {"results": [{"tool_call_id": i, "content": "r" * size}]}), IDS, st.sampled_from([1, 30, 1_500])),
    st.builds(lambda i: ("event", {"name": "correction", "data": {"corrects": i, "hide": True}}), st.integers(1, 30)),
    ENTRY,
)  # fmt: skip
WITH_FORKS = st.lists(st.tuples(SPOKEN, st.sampled_from(["", "", "", "f", "g"])), min_size=8, max_size=30).map(
    lambda made: [
        anchor("session/start", {"owner": "human"}).with_id(1),
        *[
            TapeEntry(kind, payload, {"fork": fork} if fork else {}, date=STAMPED).with_id(place)
            for place, ((kind, payload), fork) in enumerate(made, 2)
        ],
    ]
)


@pytest.mark.law("T13")
@given(
    WITH_FORKS,
    st.sampled_from(["compact", "summary", "retrieval"]),
    st.builds(MessageStyle, st.none(), st.booleans(), st.booleans()),
    st.integers(10, 200),
    st.sampled_from(["", "f"]),
)
@settings(max_examples=5 * settings().max_examples)
def test_what_a_window_has_no_room_for_need_not_be_read(
    entries: list[TapeEntry], selector: str, style: MessageStyle, budget: int, fork: str
) -> None:
    view = ContextView(selector, style, budget, fork=fork, strategies=OWN_STRATEGIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bubbot.runtime.compose.SHORT_WINDOW", 0)
        patch.setattr("bubbot.runtime.compose.PAGE_ENTRIES", 2)
        narrow = asyncio.run(narrow_view(cast("TapeHandle", EvaluatedTape(entries)), view))
    whole = context_of(entries, view)
    assert context_of(entries, narrow) == whole
    if narrow.spans and not any(entry.name == "context/cut" for entry in entries):
        assert whole.facts  # what is left out unread is always recorded, so that the next request extends this one


@given(TAPES, st.builds(MessageStyle, st.none(), st.booleans()))
def test_every_entry_cited_is_on_the_tape(entries: list[TapeEntry], style: MessageStyle) -> None:
    ids = context_of(entries, ContextView(style=style)).ids
    assert set(ids) <= {entry.id for entry in entries}


ORDINARY = st.lists(
    st.one_of(
        st.builds(lambda role, text: [TapeEntry("message", {"role": role, "content": text})], st.sampled_from(["user", "assistant"]), TEXTS),
        st.builds(lambda i: [asks(i), gives((i, "r"))], st.sampled_from(["a", "b", "c"])),
        st.builds(lambda i, j: [asks(i, j), gives((i, "1"), (j, "2"))], IDS, IDS),
        st.just([event("correction", {"corrects": 1, "content": "rather this"})]),
    ),
    max_size=8,
).map(lambda groups: [entry for group in groups for entry in group])  # fmt: skip


@given(ORDINARY, ORDINARY, st.builds(MessageStyle, st.none(), st.booleans()))
def test_a_longer_window_extends_the_messages_of_the_shorter_one(
    first: list[TapeEntry], more: list[TapeEntry], style: MessageStyle
) -> None:
    asked = TapeEntry("message", {"role": "user", "content": "question"})
    short = context_of(on_tape(asked, *first), ContextView(style=style)).messages
    long = context_of(on_tape(asked, *first, *more), ContextView(style=style)).messages
    assert long[: len(short)] == short


@pytest.mark.law("T8")
@given(TAPES, st.lists(VIEWS, min_size=1, max_size=2))
def test_what_is_kept_with_the_entries_changes_no_context(entries: list[TapeEntry], views: list[ContextView]) -> None:
    """Entries that were shown before, to models that spoilt what they were given, show what fresh ones show."""
    views += [replace(view, style=replace(view.style, stamps=UTC)) for view in views]
    for length in range(1, len(entries) + 1):
        for view in views:
            fresh = context_of([entry.with_id(entry.id) for entry in entries[:length]], view)
            used = context_of(entries[:length], view)
            assert used == fresh
            request = ModelRequest("system", used.messages, texts=used.texts)
            assert request.as_bytes() == replace(request, texts=()).as_bytes()
            for message in used.messages:
                for part in message.get("content") or (), message.get("tool_calls", ()):
                    if isinstance(part, list):
                        part.clear()
                message.clear()  # type: ignore[attr-defined]


FRESH_IDS = st.sampled_from([f"call_{place}" for place in range(40)])
EXCHANGES = st.lists(FRESH_IDS, min_size=1, max_size=2, unique=True).map(
    lambda ids: [
        (
            "tool_call",
            {"calls": [{"id": i, "type": "function", "function": {"name": "x", "arguments": "{}"}} for i in ids]},
        ),
        ("tool_result", {"results": [{"tool_call_id": i, "content": f"r{i}"} for i in reversed(ids)]}),
    ]
)
"""What a bot writes in one step."""


@given(st.lists(EXCHANGES | st.lists(ENTRY, max_size=4), max_size=8), st.booleans())
def test_a_context_that_grows_is_the_one_that_is_built_at_once(
    pieces: list[list[tuple[str, Any]]], shows_times: bool
) -> None:
    style, entries = (
        MessageStyle(UTC if shows_times else None),
        [TapeEntry("message", {"role": "user", "content": "a"}, id=1)],
    )
    for piece in pieces:
        start = len(entries) + 1
        meta = {"context": False} if len(piece) == 3 else {}
        entries += [TapeEntry(kind, data, meta, STAMPED, id=place) for place, (kind, data) in enumerate(piece, start)]
        at_once = select_messages([replace(entry) for entry in entries], style)
        assert select_messages(entries, style) == at_once
