"""The incremental evaluator against a definition of the logic that reads the whole trace for each value."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.features.tasks.harness.events import FieldCheck, RunEvent
from bubbot.features.tasks.harness.formula import (
    And,
    Atom,
    Constant,
    Count,
    Evaluator,
    Formerly,
    Formula,
    Implies,
    Not,
    Or,
    Previously,
    Since,
    TracePredicate,
    Within,
)

A, B, C = Atom("call", "a"), Atom("call", "b"), Atom("call", "c", checks=(FieldCheck("n", "is at least", 2),))
LEAVES = (
    A,
    B,
    C,
    Atom("call", "*"),
    Atom("call", node="x"),
    Constant(is_true=True),
    TracePredicate(lambda trace: sum(event.name == "a" for event in trace) % 2 == 1),
)


def define(formula: Formula, trace: Sequence[RunEvent], i: int) -> bool:
    """Return the value of a formula at `trace[i]`, as its operators are defined."""

    def at(part: Formula, j: int) -> bool:
        return define(part, trace, j)

    def near(j: int, seconds: float | None) -> bool:
        return seconds is None or trace[i].time - trace[j].time <= seconds

    past = range(i + 1)
    match formula:
        case Constant(is_true):
            return is_true
        case Atom(kind, name, node, checks):
            event = trace[i]
            has_name = name in ("", "*", event.name)
            passes = all(check.compile()(event.values) for check in checks)
            return event.kind == kind and has_name and node in ("", event.node) and passes
        case TracePredicate(test):
            return test(trace[: i + 1])
        case Not(body):
            return not at(body, i)
        case And(bodies):
            return all(at(body, i) for body in bodies)
        case Or(bodies):
            return any(at(body, i) for body in bodies)
        case Implies(condition, consequence):
            return not at(condition, i) or at(consequence, i)
        case Previously(body):
            return i > 0 and at(body, i - 1)
        case Formerly(body):
            return any(at(body, j) for j in past)
        case Within(body, seconds):
            return any(at(body, j) for j in past if near(j, seconds))
        case Since(left, right):
            return any(at(right, j) and all(at(left, k) for k in range(j + 1, i + 1)) for j in past)
        case Count(body, number, seconds):
            return sum(at(body, j) for j in past if near(j, seconds)) >= number
    raise NotImplementedError(formula)


seconds = st.integers(0, 6).map(float)
formulas = st.recursive(
    st.sampled_from(LEAVES),
    lambda parts: st.one_of(
        st.builds(Not, parts),
        st.builds(And, st.lists(parts, min_size=1, max_size=3).map(tuple)),
        st.builds(Or, st.lists(parts, min_size=1, max_size=3).map(tuple)),
        st.builds(Implies, parts, parts),
        st.builds(Previously, parts),
        st.builds(Formerly, parts),
        st.builds(Within, parts, seconds),
        st.builds(Since, parts, parts),
        st.builds(Count, parts, st.integers(0, 4), st.none() | seconds),
    ),
    max_leaves=6,
)


@st.composite
def traces(draw: st.DrawFn, size: int = 10) -> list[RunEvent]:
    events, time = list[RunEvent](), 0
    for number in range(1, draw(st.integers(1, size)) + 1):
        time += draw(st.integers(0, 3))
        name, node = draw(st.sampled_from("abc")), draw(st.sampled_from("xy"))
        events.append(RunEvent(number, time, "call", name, node, {"n": draw(st.integers(0, 3))}))
    return events


def evaluate(formula: Formula, trace: Sequence[RunEvent]) -> list[bool]:
    """The values at each event."""
    evaluator, values = Evaluator([formula]), []
    for event in trace:
        at = evaluator.peek(event)
        values.append(at.holds(evaluator.places[0]))
        evaluator.advance(at)
    return values


def cite(formula: Formula, names: str) -> tuple[int, ...]:
    """The citation at the last of events that are a second apart."""
    trace = [RunEvent(number, number, "call", name) for number, name in enumerate(names, 1)]
    evaluator = Evaluator([formula])
    for event in trace[:-1]:
        evaluator.advance(evaluator.peek(event))
    return evaluator.peek(trace[-1]).cite(evaluator.places[0])


@given(formulas, traces())
def test_each_value_is_that_of_the_definition(formula: Formula, trace: list[RunEvent]) -> None:
    assert evaluate(formula, trace) == [define(formula, trace, i) for i in range(len(trace))]


@given(st.lists(formulas, min_size=2, max_size=4), traces())
def test_formulas_that_share_parts_do_not_disturb_each_other(many: list[Formula], trace: list[RunEvent]) -> None:
    evaluator = Evaluator(many)
    for i, event in enumerate(trace):
        at = evaluator.peek(event)
        assert [at.holds(place) for place in evaluator.places] == [define(formula, trace, i) for formula in many]
        evaluator.advance(at)


@given(formulas, traces(), traces())
def test_a_peek_changes_nothing(formula: Formula, trace: list[RunEvent], others: list[RunEvent]) -> None:
    evaluator, values = Evaluator([formula]), []
    for event in trace:
        for other in others:
            evaluator.peek(other).holds(evaluator.places[0])
            evaluator.peek(other).cite(evaluator.places[0])
        at = evaluator.peek(event)
        values.append(at.holds(evaluator.places[0]))
        evaluator.advance(at)
    assert values == evaluate(formula, trace)


@given(formulas, traces(), traces())
def test_a_final_value_stays(formula: Formula, trace: list[RunEvent], later: list[RunEvent]) -> None:
    evaluator = Evaluator([formula])
    for event in trace[:-1]:
        evaluator.advance(evaluator.peek(event))
    at = evaluator.peek(trace[-1])
    if at.is_final(evaluator.places[0]):
        moved = [
            RunEvent(len(trace) + each.number, trace[-1].time + each.time, each.kind, each.name, each.node, each.values)
            for each in later
        ]
        values = evaluate(formula, [*trace, *moved])[len(trace) - 1 :]
        assert set(values) == {values[0]}


@given(formulas, traces(size=14))
def test_a_citation_is_short_ascending_and_not_of_the_future(formula: Formula, trace: list[RunEvent]) -> None:
    evaluator = Evaluator([formula])
    for event in trace:
        at = evaluator.peek(event)
        citation = at.cite(evaluator.places[0])
        assert len(citation) <= 8
        assert list(citation) == sorted(set(citation))
        assert all(1 <= number <= event.number for number in citation)
        evaluator.advance(at)


@pytest.mark.parametrize(
    ("formula", "names", "expected"),
    [
        (Formerly(A), "babab", (2,)),
        (Within(A, 2), "aabb", (2,)),
        (Within(A, 1), "abbb", (1,)),
        (Previously(A), "bab", (2,)),
        (Since(Not(B), A), "baca", (2,)),
        (Since(Not(B), A), "acbc", (3,)),
        (Count(A, 2), "babac", (2, 4)),
        (Count(A, 2), "babbc", (2,)),
        (Count(A, 2, 2), "aacaa", (4, 5)),
        (And((Formerly(A), Formerly(B))), "cbcac", (2, 4)),
        (And((Formerly(A), Previously(B))), "cacbc", (2, 4)),
        (Or((Formerly(C), Formerly(B))), "abc", (2,)),
        (Implies(Formerly(A), Formerly(B)), "cabc", (2, 3)),
        (Not(Count(A, 10)), "a" * 12, (5, 6, 7, 8, 9, 10, 11, 12)),
    ],
)
def test_a_citation_names_the_events_that_decide(formula: Formula, names: str, expected: tuple[int, ...]) -> None:
    assert cite(formula, names) == expected


def test_one_and_true_are_different_operands() -> None:
    number, truth = (Atom("call", checks=(FieldCheck("n", "equals", value),)) for value in (1, True))
    evaluator = Evaluator([number, truth])
    at = evaluator.peek(RunEvent(1, 0, "call", "a", values={"n": True}))
    assert [at.holds(place) for place in evaluator.places] == [False, True]


def test_an_event_that_seems_earlier_counts_as_simultaneous() -> None:
    trace = [RunEvent(1, 100, "call", "a"), RunEvent(2, 10, "call", "b"), RunEvent(3, 103, "call", "a")]
    assert evaluate(Within(B, 3), trace) == [False, True, True]


@pytest.mark.parametrize("formula", [Within(A, 5), Count(A, 1, 5)])
def test_a_bound_includes_its_end(formula: Formula) -> None:
    trace = [RunEvent(1, 100, "call", "a"), RunEvent(2, 105, "call", "b"), RunEvent(3, 105.1, "call", "b")]
    assert evaluate(formula, trace) == [True, True, False]


def test_a_bounded_count_forgets_events_that_are_too_old() -> None:
    formula = Count(A, 1000, 10)
    evaluator = Evaluator([formula])
    for number in range(1, 2000):
        evaluator.advance(evaluator.peek(RunEvent(number, number, "call", "a")))
    cell = evaluator.peek(RunEvent(2000, 2000, "call", "b"))
    assert cell.cite(evaluator.places[0]) == tuple(range(1992, 2000))
    assert deep_size(evaluator) < 20_000


def deep_size(value: object, seen: set[int] | None = None) -> int:
    """The bytes of an object and of what it holds, functions and types left out."""
    seen = set() if seen is None else seen
    if id(value) in seen or callable(value):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if isinstance(value, dict):
        return size + sum(deep_size(each, seen) for pair in value.items() for each in pair)
    if isinstance(value, str | bytes | int | float):
        return size
    parts = [*value] if hasattr(value, "__iter__") else []
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    parts += [getattr(value, name) for name in slots if hasattr(value, name)]
    return size + sum(deep_size(each, seen) for each in [*parts, getattr(value, "__dict__", {})])


def is_timed(formula: Formula) -> bool:
    evaluator = Evaluator([formula])
    return evaluator.places[0] in evaluator.timed


def test_only_bounds_make_a_formula_timed() -> None:
    assert not is_timed(Since(Not(A), And((B, Count(C, 2)))))
    assert is_timed(Not(And((A, Since(A, Within(B, 5))))))
    assert is_timed(Count(A, 2, 5))
    assert is_timed(Previously(Within(A, 5)))
