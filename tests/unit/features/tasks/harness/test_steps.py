"""The vocabulary: for each step a run that satisfies it and one that violates it, with the events that are cited."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import Struct

from bubbot.features.tasks.harness.events import RunEvent
from bubbot.features.tasks.harness.formula import Atom, Formerly, Formula
from bubbot.features.tasks.harness.monitor import Monitor, RuleVerdict
from bubbot.features.tasks.harness.steps import (
    OWN_STEPS,
    PARAMETERS,
    Duty,
    Step,
    StepScope,
    compile_pattern,
    list_variants,
)
from tests.harness_traces import make_harness, make_monitor, parse_trace

FINISH = 'finished state="succeeded"'


class Case(Struct, frozen=True):
    """A step, and what it says of two runs.

    Attributes:
        pattern: of the step.
        scenario: one in which it is the rule, or decides what the rule is about.
        good: a run that satisfies it.
        bad: one whose last event violates it: of a duty the finish.
        cited: the events that the violation rests on.
        before_end: what is known of the good run before it finishes.
    """

    pattern: str
    scenario: str
    good: Sequence[str]
    bad: Sequence[str]
    cited: tuple[int, ...]
    before_end: str = "pending"


CASES = (
    Case(
        "the node {node}",
        "Given the node draft; Then tool web.fetch is not called",
        ["call web.fetch @research"],
        ["call web.fetch @research", "call web.fetch @draft"],
        (2,),
    ),
    Case(
        "the run starts",
        "When the run starts; Then tool plan is called no later than 5 seconds afterwards",
        ["started a", "+5 call plan"],
        ["started a", "+6 call plan", FINISH],
        (1, 2),
    ),
    Case(
        "tool {tool} {happens}",
        "When tool edit is called; Then tool test succeeds",
        ["call edit", "result test ok=false", "result test ok=true"],
        ["result test ok=true", "call edit", "result test ok=false", FINISH],
        (2, 4),
    ),
    Case(
        "tool {tool} {happens}",
        "Then tool test fails",
        ["result test ok=false"],
        ["result test ok=true", FINISH],
        (2,),
        "satisfied",
    ),
    Case(
        "tool {tool} is called and its {path} {check}",
        'When tool shell.run is called and its command matches "^rm"; Then it is refused',
        ['call shell.run command="ls"'],
        ['call shell.run command="ls"', 'call shell.run command="rm"'],
        (2,),
    ),
    Case(
        "tool {tool} is called and its {path} {check}",
        'Then tool fs.write is called and its "path" equals "report.md"',
        ['call fs.write path="report.md"'],
        ['call fs.write path="other.md"', FINISH],
        (2,),
        "satisfied",
    ),
    Case(
        "node {node} starts",
        "When node publish starts; Then gate review was confirmed before",
        ["confirmed review", "started publish"],
        ["started draft", "started publish"],
        (2,),
    ),
    Case(
        "node {node} ends as {state}",
        "Then node check ends as succeeded",
        ['ended check state="succeeded"'],
        ['ended check state="failed"', FINISH],
        (2,),
        "satisfied",
    ),
    Case(
        "the artifact of {node} is delivered",
        "When the artifact of plan is delivered; Then its steps.0.cost is at most 5",
        ['artifact plan steps=[{"cost":5}]'],
        ['artifact plan steps=[{"cost":5}]', 'artifact plan steps=[{"cost":6}]'],
        (2,),
    ),
    Case(
        "gate {gate} is {decision}",
        "When gate review is denied; Then tool deploy is not called",
        ["call deploy", "denied review"],
        ["call deploy", "denied review", "call deploy"],
        (2, 3),
    ),
    Case(
        "gate {gate} is {decision}",
        "Then gate review is confirmed",
        ["denied review", "confirmed review"],
        ["denied review", FINISH],
        (2,),
        "satisfied",
    ),
    Case(
        "anchor {anchor} is set",
        "When tool fs.write is called; Then anchor task/checkpoint is set",
        ["call fs.write", "anchor task/checkpoint"],
        ["anchor task/checkpoint", "call fs.write", "anchor other", FINISH],
        (2, 4),
    ),
    Case(
        "the artifact of {node} exists",
        "When tool deploy is called; Then the artifact of plan exists",
        ["artifact plan", "call deploy"],
        ["artifact other", "call deploy"],
        (2,),
    ),
    Case(
        "the artifact of {node} exists",
        "Then the artifact of plan exists",
        ["artifact plan"],
        ["artifact other", FINISH],
        (2,),
        "satisfied",
    ),
    Case(
        "field {path} of the artifact of {node} {check}",
        'Given field risk of the artifact of plan is one of "high", "unknown"; When tool deploy is called; Then it is refused',
        ['artifact plan risk="high"', 'artifact plan risk="low"', "call deploy"],
        ['artifact plan risk="low"', "call deploy", 'artifact plan risk="high"', "call deploy"],
        (4,),
    ),
    Case(
        "field {path} of the artifact of {node} {check}",
        "Then field score of the artifact of judge is at least 0.5",
        ["artifact judge score=0.1", "artifact judge score=0.5"],
        ["artifact judge score=0.5", "artifact judge score=0.1", FINISH],
        (2, 3),
    ),
    Case(
        "tool {tool} {happened} before",
        "When tool merge is called; Then tool test succeeded before",
        ["result test ok=true", "call merge"],
        ["call test", "result test ok=false", "call merge"],
        (3,),
    ),
    Case(
        "tool {tool} {happened} before",
        "When tool send is called; Then tool send was not called before",
        ["call send"],
        ["call send", "call send"],
        (1, 2),
    ),
    Case(
        "tool {tool} {happened} within the last {duration}",
        "When tool trade is called; Then tool quote was called within the last 2 minutes",
        ["call quote", "+120 call trade"],
        ["call quote", "+121 call trade"],
        (2,),
    ),
    Case(
        "tool {tool} {happened} within the last {duration}",
        "When tool ping is called; Then tool ping was not called within the last 5 seconds",
        ["call ping", "+6 call ping"],
        ["call ping", "+6 call ping", "+5 call ping"],
        (2, 3),
    ),
    Case(
        "gate {gate} was confirmed before",
        "When tool deploy is called; Then gate review was confirmed before",
        ["denied review", "confirmed review", "call deploy"],
        ["confirmed review", "call deploy", "denied review", "call deploy"],
        (3, 4),
    ),
    Case(
        "gate {gate} was confirmed within the last {duration}",
        "When tool deploy is called; Then gate review was confirmed within the last 1 hour",
        ["confirmed review", "+3600 call deploy"],
        ["confirmed review", "+3601 call deploy"],
        (2,),
    ),
    Case(
        "anchor {anchor} was set before",
        "When tool deploy is called; Then anchor 'task/checkpoint' was set before",
        ["anchor task/checkpoint", "call deploy"],
        ["anchor task/other", "call deploy"],
        (2,),
    ),
    Case(
        "its {path} {check}",
        'When tool fs.write is called; Then its path does not contain ".."',
        ['call fs.write path="a.md"', "call fs.write"],
        ['call fs.write path="a/../b.md"'],
        (1,),
    ),
    Case(
        "it is refused",
        'When tool http.get is called; And its url does not match "^https://"; Then it is refused',
        ['call http.get url="https://a"'],
        ['call http.get url="https://a"', 'call http.get url="http://a"'],
        (2,),
    ),
    Case(
        "it comes no later than {duration} after the run starts",
        "When tool order is called; Then it comes no later than 10 minutes after the run starts",
        ["started a", "+600 call order"],
        ["started a", "+601 call order"],
        (1, 2),
    ),
    Case(
        "tool {tool} is not called",
        "Then tool shell.* is not called",
        ["call fs.read"],
        ["call fs.read", "call shell.run"],
        (2,),
    ),
    Case(
        "tool {tool} is called at most {number} time(s)",
        "Then tool search is called at most 2 times",
        ["call search", "call search"],
        ["call search", "call other", "call search", "call search"],
        (1, 3, 4),
    ),
    Case(
        "tool {tool} is called at most {number} time(s)",
        "When anchor seal is set; Then tool search is called at most 1 time",
        ["call search", "call search", "anchor seal", "call search"],
        ["call search", "anchor seal", "call search", "call search"],
        (3, 4),
    ),
    Case(
        "tool {tool} is called at most {number} time(s) within {duration}",
        "Then tool search is called at most 2 times within 1 minute",
        ["call search", "call search", "+60 call search"],
        ["call search", "+61 call search", "call search", "+59 call search"],
        (2, 3, 4),
    ),
    Case(
        "tool {tool} is called at least {number} time(s)",
        "Then tool cite is called at least 2 times",
        ["call cite", "call cite"],
        ["call cite", "call other", FINISH],
        (1, 3),
        "satisfied",
    ),
    Case(
        "tool {tool} is called exactly {number} time(s)",
        "Then tool send is called exactly 1 time",
        ["call send"],
        ["call send", "call send"],
        (1, 2),
    ),
    Case(
        "tool {tool} is called exactly {number} time(s)",
        "Then tool send is called exactly 2 times",
        ["call send", "call send"],
        ["call send", FINISH],
        (1, 2),
    ),
    Case(
        "tool {tool} is called no later than {duration} afterwards",
        "When tool lock is called; Then tool unlock is called no later than 10 seconds afterwards",
        ["call lock", "+9 call lock", "call unlock"],
        ["call lock", "call unlock", "call lock", "+11 call unlock", FINISH],
        (3, 4),
    ),
)
ids = [f"{number}: {case.scenario}" for number, case in enumerate(CASES, 1)]


def judge_all(monitor: Monitor, events: Sequence[RunEvent]) -> list[list[RuleVerdict]]:
    """What each event would violate, each recorded afterwards."""
    judged = []
    for event in events:
        judged.append(monitor.judge(event))
        monitor.record(event)
    return judged


def test_the_vocabulary_is_small_and_each_step_has_a_case() -> None:
    assert len(OWN_STEPS) <= 25
    assert {case.pattern for case in CASES} == {step.pattern for step in OWN_STEPS}


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_a_good_run_is_pending_until_it_finishes_and_then_satisfied(case: Case) -> None:
    monitor = Monitor(make_harness(case.scenario))
    events = parse_trace(*case.good, FINISH)
    if case.before_end == "pending":
        assert [verdict.status for verdict in monitor.verdicts()] == ["pending"]
    assert judge_all(monitor, events[:-1]) == [[] for _ in case.good]
    assert [verdict.status for verdict in monitor.verdicts()] == [case.before_end]
    assert judge_all(monitor, events[-1:]) == [[]]
    assert [verdict.status for verdict in monitor.verdicts()] == ["satisfied"]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_a_bad_run_is_refused_at_its_last_event_with_the_events_that_decide(case: Case) -> None:
    harness = make_harness(case.scenario)
    monitor = Monitor(harness)
    *before, last = judge_all(monitor, parse_trace(*case.bad))
    violation = RuleVerdict(harness.rules[0].id, "violated", case.cited)
    assert last == [violation]
    assert not any(before)
    assert monitor.verdicts() == [violation]


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_what_is_refused_and_never_recorded_leaves_the_rule_unviolated(case: Case) -> None:
    monitor = Monitor(make_harness(case.scenario))
    *before, last = parse_trace(*case.bad)
    judge_all(monitor, before)
    verdicts = monitor.verdicts()
    first, second = monitor.judge(last), monitor.judge(last)
    assert first == second != []
    assert monitor.verdicts() == verdicts


@pytest.mark.parametrize(
    ("check", "values", "holds"),
    [
        ('equals "a"', 'x="a"', True),
        ("equals 1", "x=1.0", True),
        ("equals 1", "x=true", False),
        ("equals true", "x=true", True),
        ("equals null", "x=null", True),
        ("equals null", "y=1", False),
        ("does not equal 1", "x=2", True),
        ("does not equal 1", "y=1", True),
        ('contains "b"', 'x="abc"', True),
        ('contains "b"', 'x=["b"]', True),
        ('contains "b"', 'x={"b":1}', True),
        ("contains 1", "x=[true]", False),
        ('contains "b"', "x=5", False),
        (r'matches "^\d+$"', 'x="12"', True),
        (r'matches "^\d+$"', "x=12", False),
        (r'does not match "\"q\""', 'x="a"', True),
        ("matches 'say \"hi\"'", 'x="say\\u0020\\"hi\\""', True),
        ('is one of "a", "b" or 3', "x=3", True),
        ('is one of "a", "b"', 'x="c"', False),
        ('is not one of "a", "b"', 'x="c"', True),
        ("is at least 3", "x=3", True),
        ("is at least 3", "x=2.9", False),
        ("is at least 0", "x=true", False),
        ("is at most -1.5", "x=-2", True),
        ("is at most 3", 'x="1"', False),
    ],
)
def test_a_check_compares_values_as_json(check: str, values: str, *, holds: bool) -> None:
    monitor = make_monitor(f"When tool t is called; Then its x {check}")
    (event,) = parse_trace(f"call t {values}")
    assert (not monitor.judge(event)) is holds


@pytest.mark.parametrize(
    ("path", "holds"),
    [("x.y", True), ("x.z.1", True), ("x.z.2", False), ("x.z.y", False), ("x.y.0", False), ("z", False)],
)
def test_a_path_leads_through_objects_and_lists(path: str, *, holds: bool) -> None:
    monitor = make_monitor(f"When tool t is called; Then its {path} equals 1")
    (event,) = parse_trace('call t x={"y":1,"z":[0,1]}')
    assert (not monitor.judge(event)) is holds


def test_a_deadline_that_passed_refuses_no_later_call() -> None:
    monitor = make_monitor(
        "When tool lock is called; Then tool unlock is called no later than 10 seconds afterwards", "call lock"
    )
    late = parse_trace("call lock", "+60 call other", FINISH)
    assert monitor.judge(late[1]) == []
    monitor.record(late[1])
    assert monitor.verdicts()[0].status == "violated"
    assert monitor.judge(late[2]) == monitor.verdicts()


def test_a_deadline_runs_from_the_first_event_that_waits() -> None:
    monitor = make_monitor(
        "When tool lock is called; Then tool unlock is called no later than 10 seconds afterwards",
        "call lock",
        "+6 call lock",
        "+6 call unlock",
    )
    assert monitor.verdicts() == [RuleVerdict("rules/one/1", "violated", (1, 3))]


def test_conditions_of_given_hold_when_the_rule_is_checked() -> None:
    monitor = make_monitor("Given field risk of the artifact of plan equals 1; Then tool deploy is not called")
    calm, risky, again = parse_trace("call deploy", "artifact plan risk=1", "call deploy")
    assert monitor.judge(calm) == []
    monitor.record(risky)
    assert monitor.judge(again) == [RuleVerdict("rules/one/1", "violated", (3,))]


def test_a_duty_whose_condition_never_held_is_satisfied() -> None:
    scenario = "Given the artifact of plan exists; Then tool review is called at least 1 time"
    assert make_monitor(scenario, FINISH).verdicts()[0].status == "satisfied"
    assert make_monitor(scenario, "artifact plan", FINISH).verdicts()[0].status == "violated"


def known_tool(scope: StepScope, tool: str, number: int) -> Formula:
    return Formerly(Atom("call", tool, scope.node))


def test_a_package_may_add_steps_of_formulas_and_of_functions_over_all_events() -> None:
    calls: list[int] = []

    def is_balanced(events: Sequence[RunEvent]) -> bool:
        calls.append(len(events))
        names = [event.name for event in events]
        return names.count("open") == names.count("close")

    steps = (
        *OWN_STEPS,
        Step("state", "tool {tool} is known for {number} day(s)", "", known_tool),
        Step("state", "all is closed", "", lambda _scope: is_balanced),
    )
    scenario = "When tool leave is called; Then all is closed; And tool open is known for 2 days"
    monitor = make_monitor(scenario, "call open", steps=steps)
    assert calls == []
    _, leave, close, again = parse_trace("call open", "call leave", "call close", "call leave")
    assert monitor.judge(leave) == [RuleVerdict("rules/one/1", "violated", (2,))]
    monitor.record(close)
    assert monitor.judge(again) == []
    assert calls == [2, 3]


def test_a_function_over_all_events_is_not_called_while_a_duty_is_not_due() -> None:
    calls: list[int] = []

    def is_long(events: Sequence[RunEvent]) -> bool:
        calls.append(len(events))
        return len(events) > 2

    steps = (*OWN_STEPS, Step("state", "the run is long", "", lambda _scope: is_long))
    scenario = "Given the run is long; Then tool report is called"
    monitor = make_monitor(scenario, "call a", "call b", steps=steps)
    assert calls == []
    finish = parse_trace("call a", "call b", FINISH)[-1]
    assert monitor.judge(finish) == [RuleVerdict("rules/one/1", "violated", (3,))]
    assert calls == [3]


def test_a_package_may_add_a_duty() -> None:
    steps = (Step("total", "all is well", "", lambda _scope: Duty(Formerly(Atom("anchor", "well")))),)
    monitor = make_monitor("Then all is well", "call a", steps=steps)
    assert monitor.judge(parse_trace(FINISH)[0])[0].status == "violated"


@pytest.mark.parametrize("step", OWN_STEPS, ids=lambda step: step.pattern)
def test_each_step_is_documented_in_one_line(step: Step) -> None:
    assert step.brief
    assert "\n" not in step.brief


def test_each_parameter_is_documented_and_captures_once() -> None:
    for name, parameter in PARAMETERS.items():
        compiled, parameters = compile_pattern(f"x {{{name}}}")
        assert (compiled.groups, len(parameters), bool(parameter.brief)) == (1, 1, True)


def test_a_pattern_with_an_unknown_parameter_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown parameter \{tol\}; use one of \{tool\}"):
        compile_pattern("a {tol}")


def test_a_pattern_is_shown_with_its_choices_of_words() -> None:
    assert list_variants("tool {tool} {happens}") == [
        "tool {tool} is called",
        "tool {tool} succeeds",
        "tool {tool} fails",
    ]


def test_the_largest_number_is_counted_and_a_place_with_many_digits_is_none() -> None:
    monitor = make_monitor("Then tool a is called at most 0001000000 times within 1 day", "call a")
    assert monitor.judge(parse_trace("call b", "call a")[1]) == []
    monitor = make_monitor(f"When tool t is called; Then its x.{'9' * 5_000} equals 1")
    assert monitor.judge(parse_trace("call t x=[1]")[0]) != []


def test_a_name_with_many_stars_is_matched_in_time() -> None:
    monitor = make_monitor(f"Then tool '{'*a' * 30}*b' is not called; And tool 'a?[b]*' is not called")
    (event,) = parse_trace(f"call {'a' * 60}")
    assert monitor.judge(event) == []
    assert [each.rule for each in monitor.judge(parse_trace("call a?[b]c")[0])] == ["rules/one/2"]
    assert monitor.judge(parse_trace("call axb")[0]) == []
