"""Judging while it runs: judge foresees what record finds, verdicts come to an end, and memory stays small."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.features.tasks.facts import EventKind
from bubbot.features.tasks.harness.events import RunEvent
from bubbot.features.tasks.harness.feature_files import Harness, parse_harness
from bubbot.features.tasks.harness.formula import EVENT_SECONDS
from bubbot.features.tasks.harness.monitor import Monitor, RuleVerdict
from tests.harness_traces import make_monitor, parse_trace

SCENARIOS = (
    "Given the node n; Then tool a is called at most 2 times",
    "Given field x of the artifact of a is at least 2; When tool b is called; Then tool a was called before",
    "When tool a is called; Then tool b is called no later than 3 seconds afterwards",
    "When tool a is called; Then tool b succeeds",
    "Then tool b is called exactly 2 times",
    "Then gate a is confirmed",
    "When tool b is called; And its x equals 1; Then gate a was confirmed within the last 4 seconds",
    "Then tool * is called at most 3 times within 5 seconds",
    "When anchor a is set; Then tool a is not called; And tool b is called at least 1 time",
    "Then field x of the artifact of b equals 1",
)
HARNESS: Harness = parse_harness(
    {
        f"{number}.feature": "\n".join(["Feature: f", " Scenario: s", *(f"  {step}" for step in scenario.split("; "))])
        for number, scenario in enumerate(SCENARIOS)
    }
)
KINDS: tuple[EventKind, ...] = ("call", "call", "call", "result", "artifact", "confirmed", "denied", "anchor")


@st.composite
def events(draw: st.DrawFn) -> list[RunEvent]:
    found, time = list[RunEvent](), 0.0
    for number in range(1, draw(st.integers(1, 25)) + 1):
        time += draw(st.sampled_from([0, 1, 2, 5]))
        values = {"x": draw(st.integers(0, 3)), "ok": draw(st.booleans())}
        kind, name, node = draw(st.sampled_from(KINDS)), draw(st.sampled_from("ab")), draw(st.sampled_from("nm"))
        found.append(RunEvent(number, time, kind, name, node, values))
    return found


def finish(trace: list[RunEvent]) -> RunEvent:
    return RunEvent(len(trace) + 1, trace[-1].time + 1, "finished", "", values={"state": "succeeded"})


@given(events())
def test_what_judge_foresees_is_what_record_finds(trace: list[RunEvent]) -> None:
    monitor, plain = Monitor(HARNESS), Monitor(HARNESS)
    violated = set[str]()
    for event in [*trace, finish(trace)]:
        foreseen = monitor.judge(event)
        assert monitor.judge(event) == foreseen
        monitor.record(event)
        plain.record(event)
        assert monitor.verdicts() == plain.verdicts()
        after = {verdict.rule: verdict for verdict in monitor.verdicts() if verdict.status == "violated"}
        new = [verdict for verdict in foreseen if verdict.rule not in violated]
        deadlines = {each for each in after.keys() - violated if each.startswith("2/")}
        assert {verdict.rule for verdict in new} | deadlines == after.keys() - violated
        assert all(after[verdict.rule] == verdict for verdict in new)
        violated = {*after}


@given(events())
def test_a_run_that_obeys_violates_no_move(trace: list[RunEvent]) -> None:
    monitor = Monitor(HARNESS)
    for event in trace:
        if not monitor.judge(event):
            monitor.record(event)
    moves = {rule.id for rule in HARNESS.rules if rule.at is not None}
    assert not [each for each in monitor.verdicts() if each.rule in moves and each.status == "violated"]


@given(events())
def test_after_the_finish_there_is_a_verdict_for_each_rule_in_order_and_none_is_pending(trace: list[RunEvent]) -> None:
    monitor = Monitor(HARNESS)
    for event in [*trace, finish(trace)]:
        monitor.record(event)
    verdicts = monitor.verdicts()
    assert [verdict.rule for verdict in verdicts] == [rule.id for rule in HARNESS.rules]
    assert "pending" not in {verdict.status for verdict in verdicts}
    for verdict in verdicts:
        assert len(verdict.events) <= 8
        assert list(verdict.events) == sorted(set(verdict.events))


@given(events(), st.integers(0, 24))
def test_a_settled_verdict_never_changes(trace: list[RunEvent], moment: int) -> None:
    monitor = Monitor(HARNESS)
    for event in trace[:moment]:
        monitor.record(event)
    settled = [verdict for verdict in monitor.verdicts() if verdict.status != "pending"]
    for event in [*trace[moment:], finish(trace)]:
        monitor.record(event)
    assert set(settled) <= set(monitor.verdicts())


def test_a_satisfied_move_cites_the_newest_events_that_it_was_about() -> None:
    monitor = make_monitor("Then tool a is called at most 99 times", *["call a", "call b"] * 10)
    assert monitor.verdicts() == [RuleVerdict("rules/one/1", "pending", (5, 7, 9, 11, 13, 15, 17, 19))]


def test_the_first_violation_is_kept() -> None:
    monitor = make_monitor("Then tool a is not called", "call b", "call a", "call a")
    assert monitor.verdicts() == [RuleVerdict("rules/one/1", "violated", (2,))]


def test_a_violated_move_does_not_excuse_the_next_one() -> None:
    monitor = make_monitor("Then tool a is not called", "call a")
    assert monitor.judge(parse_trace("call b", "call a")[1]) == [RuleVerdict("rules/one/1", "violated", (2,))]


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_duties_are_due_however_the_run_ends(state: str) -> None:
    monitor = make_monitor("Then tool a is called")
    (event,) = parse_trace(f'finished state="{state}"')
    assert monitor.judge(event) == [RuleVerdict("rules/one/1", "violated", (1,))]


def test_a_harness_without_rules_allows_everything() -> None:
    monitor = Monitor(Harness())
    (event,) = parse_trace("finished")
    assert (monitor.judge(event), monitor.verdicts()) == ([], [])


SLOW = r"^(a|aa)+$"
"""A pattern that takes longer than a search may, if the text nearly matches."""
NEARLY = json.dumps("a" * 90 + "!")


@pytest.mark.parametrize(
    "scenario",
    [
        f"When tool t is called; And its x matches '{SLOW}'; Then it is refused",
        f"When tool t is called; Then its x matches '{SLOW}'",
        f"When tool t is called; Then its x does not match '{SLOW}'",
        f"When tool t is called and its x matches '{SLOW}'; Then tool other is not called",
        f"When tool t is called and its x matches '{SLOW}'; Then tool other is called",
        f"Then tool t is called and its x matches '{SLOW}'",
    ],
)
def test_a_text_that_is_slow_to_search_is_refused_whatever_the_rule_says_of_it(scenario: str) -> None:
    monitor = make_monitor(scenario)
    (event,) = parse_trace(f"call t x={NEARLY}")
    verdict = RuleVerdict("rules/one/1", "violated", (1,), is_undecided=True)
    assert monitor.judge(event) == [verdict]
    (short,) = parse_trace('call t x="b"')
    assert all(not each.is_undecided for each in monitor.judge(short))


def test_a_move_whose_search_was_too_slow_is_violated_by_what_happened_all_the_same() -> None:
    scenario = f"When tool t is called; Then its x does not match '{SLOW}'"
    monitor = make_monitor(scenario, "call t x=1", f"call t x={NEARLY}", "call t x=1")
    assert monitor.verdicts() == [RuleVerdict("rules/one/1", "violated", (2,))]


def test_many_slow_searches_take_no_longer_together_than_an_event_may() -> None:
    steps = "; ".join(f"Then its x does not match '{SLOW}{number}'" for number in range(40))
    monitor = make_monitor(f"When tool t is called; {steps}")
    (event,) = parse_trace(f"call t x={NEARLY}")
    began = time.thread_time()
    assert [verdict.is_undecided for verdict in monitor.judge(event)] == [True] * 40
    assert time.thread_time() - began < 4 * EVENT_SECONDS  # each alone takes a fifth of it
