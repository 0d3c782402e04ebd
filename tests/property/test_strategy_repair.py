"""Any context strategy of a package: whatever it returns, the request is one that providers take, and shows what it answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bubbot.app.guard import guard_strategy
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import StrategyFailed
from bubbot.runtime.context.selectors import ContextMessage, MessageStyle, select_messages
from bubbot.runtime.context.strategy import ContextInput, ContextStrategy, ModelContext
from bubbot.runtime.context.view import ContextView
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import IdRanges, Slice, Window, evaluate
from tests.property.test_context_pairing import ORDINARY, TAPES, asks, context_of, gives, on_tape
from tests.provider_rules import faults

Fold = Callable[[ContextInput], ModelContext]
PICKS = st.lists(st.integers(0, 30), max_size=12)
PARTS = st.sampled_from([Window(), IdRanges(()), IdRanges(((1, 3),))])
STYLES = st.builds(MessageStyle, st.none(), st.booleans())
TALKS = TAPES | ORDINARY.map(lambda entries: on_tape(*entries))


def odd(fold: Fold, part: Slice = Window(), name: str = "odd") -> ContextView:  # noqa: B008 - a value
    """A view with the strategy of a package."""
    strategy = guard_strategy(ContextStrategy(name, fold, part=lambda _: part))
    return ContextView(name, strategies=OWN_STRATEGIES.extend([name], lambda _: strategy))


def picking(places: Sequence[int]) -> Fold:
    """A strategy that shows these messages in this order, as far as there are so many."""

    def fold(source: ContextInput) -> ModelContext:
        messages = select_messages(source.entries, source.style)
        return ModelContext(tuple([messages[place] for place in places if place < len(messages)]))

    return fold


def read(view: ContextView, entries: list[TapeEntry]) -> ModelContext:
    """Build the context as a turn does: with what the view reads besides."""
    answers = [evaluate(entries, query) for query in view.queries("tape")]
    answers += [evaluate(entries, query) for query in view.further_queries("tape", answers)]
    return view.fold(answers)


def shown_alone(entry: TapeEntry, entries: list[TapeEntry], style: MessageStyle) -> bool:
    """Whether the messages of the whole tape show an entry at all: one may be hidden or blank."""
    return any(entry.id in each.ids for each in select_messages(entries, style))


TWO_CALLS = on_tape(
    TapeEntry("message", {"role": "user", "content": "q"}), asks("a", "b"), gives(("a", "1"), ("b", "2"))
)


@pytest.mark.law("T8", "T10", "T12")
@given(TALKS, PICKS, PARTS, STYLES, st.lists(st.integers(0, 30), max_size=3))
@example(TWO_CALLS, [3], Window(), MessageStyle(), [1])
@example(TWO_CALLS, [2, 3], Window(), MessageStyle(first_assistant=False), [1])
@example(TWO_CALLS, [1, 1, 3], Window(), MessageStyle(), [1])
@example(TWO_CALLS, [], IdRanges(()), MessageStyle(), [1])
def test_every_choice_becomes_a_request_that_providers_take_and_that_shows_what_it_answers(
    entries: list[TapeEntry], picks: list[int], part: Slice, style: MessageStyle, asked: list[int]
) -> None:
    people = [entry for entry in entries if entry.kind == "message" and entry.payload.get("role") == "user"]
    answered = sorted({people[place % len(people)].id for place in asked}) if people else []
    view = replace(odd(picking(picks), part), style=style, ends_with_user=True, answered=tuple(answered))
    context = read(view, entries)
    assert faults(context.messages, first_assistant=style.first_assistant) == []
    assert context.messages[-1]["role"] in ("user", "tool")
    for entry in people:
        if entry.id in answered and shown_alone(entry, entries, style):
            assert entry.id in context.ids
    assert read(view, list(entries)) == context
    rebuilt = ContextView.from_json(view.as_json(), view.strategies)
    assert read(rebuilt, entries).texts == context.texts


@pytest.mark.law("T12")
@given(TALKS, STYLES)
def test_a_choice_that_needs_no_repair_stays_as_it_is(entries: list[TapeEntry], style: MessageStyle) -> None:
    view = ContextView(style=style)
    assert context_of(entries, view) == context_of(entries, replace(view, is_repaired=False))


def test_a_call_whose_result_is_left_out_has_one_that_says_so() -> None:
    messages = read(odd(picking([1, 3])), TWO_CALLS).messages
    assert [each["content"] for each in messages] == ["", "[this result is not shown here]", "2"]


def test_a_message_that_is_answered_stands_before_what_is_newer() -> None:
    view = replace(odd(picking([1, 2, 3])), answered=(2,), ends_with_user=True)
    assert [each["role"] for each in read(view, TWO_CALLS).messages] == ["user", "assistant", "tool", "tool"]


def message(ids: Any = (), **fields: Any) -> ModelContext:
    return ModelContext((ContextMessage(fields, ids),))


def called(**function: Any) -> ModelContext:
    return message(role="assistant", content="", tool_calls=[{"id": "a", "function": function}])


NONSENSE: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "texts": lambda: ["hello"],
    "no messages": lambda: ModelContext(cast("Any", None)),
    "a text": lambda: ModelContext(cast("Any", ("hello",))),
    "a role": lambda: message(role="system", content="x"),
    "no text": lambda: message(role="user", content=" "),
    "no parts": lambda: message(role="user", content=[]),
    "odd parts": lambda: message(role="user", content=[{"type": "text", "text": ""}]),
    "a result": lambda: message(role="tool", content="x"),
    "calls": lambda: message(role="assistant", content="", tool_calls=["f"]),
    "no call": lambda: message(role="assistant", content="", tool_calls=[]),
    "a call of a person": lambda: message(role="user", content="x", tool_calls=[{"id": "a"}]),
    "a name": lambda: called(name="a b", arguments="{}"),
    "arguments": lambda: called(name="f", arguments="x"),
    "an entry": lambda: message((99,), role="user", content="x"),
    "ids": lambda: message(("1",), role="user", content="x"),
    "a fact": lambda: ModelContext((), cast("Any", ("fact",))),
    "facts": lambda: ModelContext((), (TapeEntry("tool_call", {"calls": []}),)),
}


@pytest.mark.law("T12")
@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_refused_by_name(name: str) -> None:
    with pytest.raises(StrategyFailed, match="The installed context strategy odd failed: fold: "):
        read(odd(lambda _: cast("ModelContext", NONSENSE[name]())), TWO_CALLS)


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyError("x"), SystemExit(3), StopIteration(), RecursionError()])
@pytest.mark.parametrize("hook", ["fold", "part", "find_further"])
def test_what_any_of_its_code_raises_is_refused_by_name(hook: str, error: BaseException) -> None:
    def fail(*_: object) -> Any:
        raise error

    hooks: dict[str, Any] = {hook: fail}
    strategy = guard_strategy(replace(ContextStrategy("odd", picking([0])), **hooks))
    view = ContextView("odd", strategies=OWN_STRATEGIES.extend(["odd"], lambda _: strategy))
    with pytest.raises(
        StrategyFailed, match=f"The installed context strategy odd failed: {hook}: {type(error).__name__}"
    ):
        read(view, TWO_CALLS)


@pytest.mark.parametrize(
    ("hook", "value"), [("part", "all"), ("part", None), ("find_further", 3), ("find_further", ["x"])]
)
def test_what_its_other_code_returns_is_looked_at_too(hook: str, value: object) -> None:
    hooks: dict[str, Any] = {hook: lambda *_: value}
    strategy = guard_strategy(replace(ContextStrategy("odd", picking([0])), **hooks))
    view = ContextView("odd", strategies=OWN_STRATEGIES.extend(["odd"], lambda _: strategy))
    with pytest.raises(StrategyFailed, match=f"odd failed: {hook}: "):
        read(view, TWO_CALLS)
