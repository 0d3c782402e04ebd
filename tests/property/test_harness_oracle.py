"""The harness of tasks against Dogwood, a language of policies over the history of events, with an engine of its own.

A rule is translated to a policy that forbids what the rule refuses, and a run to a trace; both must refuse the same events.
Dogwood bounds each look back by 24 hours, so runs are shorter, and has no bound of zero seconds. It cannot say `contains` and `matches` of fields.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

import pytest
from dogwood import native  # type: ignore[import-untyped]
from msgspec import Struct

from bubbot.features.tasks.facts import EventKind
from bubbot.features.tasks.harness.events import FieldCheck, RunEvent
from bubbot.features.tasks.harness.feature_files import HarnessRule
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
    Within,
)
from bubbot.features.tasks.harness.monitor import Monitor, RuleVerdict
from bubbot.features.tasks.harness.steps import OWN_STEPS, list_variants
from tests.harness_traces import make_harness, parse_trace

PAIRS, PROOF_PAIRS, PARTS = 60, 1000, 10

NAMES, NODES, TEXTS = ("a", "b", "c"), ("n", "m"), ("p", "q")
KINDS: tuple[EventKind, ...] = (
    "call",
    "result",
    "artifact",
    "confirmed",
    "denied",
    "started",
    "ended",
    "anchor",
    "finished",
)
DAY = "24h"
END = "end"
"""What the finish is called there; an action needs a name."""
SCOPE = 'callerPrincipal: Run::Agent::"it", callerResource: Run::Task::"it"'
POLICY_SCHEMA = "\n".join(
    [
        "namespace Run {",
        "  entity Agent; entity Task;",
        "  type Fields = { node: String, x: String, n: Long, ok: Bool };",
        *(
            f'  action "{name}" appliesTo {{ principal: [Agent], resource: [Task], context: {{ input: Fields }} }};'
            for name in (*NAMES, END)
        ),
        "}",
    ]
)
EVENT_SCHEMA = "\n".join(
    f"decision event <A>::{kind} {{ ...inputs(A), callerPrincipal: principalType(A), callerResource: resourceType(A) }}"
    for kind in KINDS
)


def quote(value: object) -> str:
    return str(value).lower() if isinstance(value, bool | int) else f'"{value}"'


def some(parts: Sequence[str]) -> str:
    """A disjunction, which there is none of."""
    return parts[0] if len(parts) == 1 else f"!({' && '.join(f'!({part})' for part in parts)})"


def window(seconds: float | None) -> str:
    return DAY if seconds is None else f"{int(seconds)}s"


def translate_check(places: Sequence[str], check: FieldCheck) -> str:
    """A condition on a field of an event that is one of `places`, which end before the fields."""
    field = f"input.{check.path}"
    match check:
        case FieldCheck(_, "equals", operand):
            holds = some([f"{place}{{ {field}: {quote(operand)} }}" for place in places])
        case FieldCheck(_, "is one of", tuple(operands)):
            holds = some([f"{place}{{ {field}: {quote(each)} }}" for place in places for each in operands])
        case FieldCheck(_, "is at least" | "is at most", operand):
            sign = ">=" if check.comparison == "is at least" else "<="
            holds = some([f"(exists (v: Long). ({place}{{ {field}: v }} && v {sign} {operand}))" for place in places])
        case _:
            raise NotImplementedError(check)
    return f"!({holds})" if check.is_negated else f"({holds})"


def translate_atom(atom: Atom) -> str:
    kinds = KINDS if atom.kind is None else (atom.kind,)
    names = [name for name in (*NAMES, END) if re.fullmatch(atom.name.replace("*", ".*") or ".*", name)]
    places = [f'Run::Action::"{name}"::{kind}' for kind in kinds for name in names]
    fields = f'{{ input.node: "{atom.node}" }}' if atom.node else "{}"
    parts = [
        f"({some([place + fields for place in places])})",
        *(translate_check(places, each) for each in atom.checks),
    ]
    return f"({' && '.join(parts)})"


def translate(formula: Formula) -> str:
    """The condition of a policy that holds where a formula does."""
    match formula:
        case Constant(is_true):
            return f"({'' if is_true else '!'}(exists (now: Timepoint). tp(now)))"
        case Atom():
            return translate_atom(formula)
        case Not(body):
            return f"(!{translate(body)})"
        case And(bodies):
            return f"({' && '.join(translate(body) for body in bodies)})"
        case Or(bodies):
            return f"({some([translate(body) for body in bodies])})"
        case Implies(condition, consequence):
            return f"(!({translate(condition)} && !{translate(consequence)}))"
        case Previously(body):
            return f"(previous within {DAY} {translate(body)})"
        case Formerly(body):
            return f"(formerly within {DAY} {translate(body)})"
        case Within(body, seconds):
            return f"(formerly within {window(seconds)} {translate(body)})"
        case Since(left, right):
            return f"({translate(left)} since within {DAY} {translate(right)})"
        case Count(body, number, seconds):
            past = f"formerly within {window(seconds)} (tp(t) && {translate(body)})"
            return f"({number} <= count for (t: Timepoint). where ({past}))"
    raise NotImplementedError(formula)


def translate_event(event: RunEvent) -> str:
    values = {"node": event.node, **event.values}
    fields = "input: { " + ", ".join(f"{key}: {quote(value)}" for key, value in values.items()) + " }"
    scope = 'scope(principal: Run::Agent::"it", resource: Run::Task::"it")'
    place = f'Run::Action::"{event.name or END}"::{event.kind}'
    return f"@{int(event.time)} {scope} request_context({fields}) {place}({fields}, {SCOPE})"


def list_forbidden(formula: Formula, trace: Sequence[RunEvent]) -> list[bool]:
    """Ask Dogwood at which events a formula holds."""
    policy = (
        "permit(principal, action, resource);\n"
        f"forbid(principal, action, resource) when temporal {{ {translate(formula)} }};"
    )
    validation = native.validate_policy(policy, POLICY_SCHEMA, EVENT_SCHEMA)
    assert validation["passed"], (validation, policy)
    log = native.replay(policy, POLICY_SCHEMA, "\n".join(map(translate_event, trace)), EVENT_SCHEMA)
    decisions = re.findall(r"^@\d+ \(time point \d+\): (true|false)$", log, re.MULTILINE)
    assert len(decisions) == len(trace)
    return [decision == "false" for decision in decisions]


def make_atom(chance: random.Random) -> Atom:
    checks = (
        FieldCheck("x", "equals", chance.choice(TEXTS), chance.random() < 0.3),
        FieldCheck("n", "equals", chance.randint(0, 3), chance.random() < 0.3),
        FieldCheck("ok", "equals", chance.random() < 0.5),
        FieldCheck("n", chance.choice(("is at least", "is at most")), chance.randint(0, 3)),
        FieldCheck("n", "is one of", (0, chance.randint(1, 3)), chance.random() < 0.3),
    )
    return Atom(
        chance.choice((None, "call", "call", "result", "artifact", "confirmed")),
        chance.choice(("", "*", "a", "b", "b")),
        chance.choice(("", "", "n")),
        tuple(chance.sample(checks, chance.choice((0, 0, 1, 2)))),
    )


def make_formula(chance: random.Random, depth: int) -> Formula:
    if depth == 0:
        return make_atom(chance)

    def part() -> Formula:
        return make_formula(chance, chance.randint(0, depth - 1))

    def parts() -> tuple[Formula, ...]:
        return tuple(part() for _ in range(chance.randint(1, 3)))

    def seconds() -> float | None:
        return chance.choice((None, 1, 2, 5, 20))

    make: Callable[[], Formula] = chance.choice(
        (
            lambda: Not(part()),
            lambda: And(parts()),
            lambda: Or(parts()),
            lambda: Implies(part(), part()),
            lambda: Previously(part()),
            lambda: Formerly(part()),
            lambda: Within(part(), seconds() or 1),
            lambda: Since(part(), part()),
            lambda: Count(part(), chance.randint(1, 4), seconds()),
        )
    )
    return make()


def make_scenario(chance: random.Random) -> str:
    """A scenario of steps that both can say."""
    tool, other, gate, node, text = (chance.choice(choices) for choices in (NAMES, NAMES, NAMES, NAMES, TEXTS))
    number, seconds = chance.randint(0, 3), chance.choice((1, 2, 5, 20))
    check = chance.choice(
        (
            f'x equals "{text}"',
            f'x does not equal "{text}"',
            f"n is one of 0, {number}",
            f"n is not one of 0, {number}",
            f"n is at least {number}",
            f"n is at most {number}",
            "ok equals true",
        )
    )
    happens = chance.choice(("is called", "succeeds", "fails"))
    happened = chance.choice(("was called", "was not called", "succeeded", "failed"))
    field = f"field {check.split()[0]} of the artifact of {node} {check.partition(' ')[2]}"
    events = (
        f"tool {tool} {happens}",
        f"tool * {happens}",
        f"tool {tool} is called and its {check}",
        f"node {node} starts",
        f"the artifact of {node} is delivered",
        f"gate {gate} is confirmed",
        f"gate {gate} is denied",
        f"anchor {node} is set",
    )
    states = (
        f"the artifact of {node} exists",
        field,
        f"tool {other} {happened} before",
        f"tool {other} {happened} within the last {seconds} seconds",
        f"gate {gate} was confirmed before",
        f"gate {gate} was confirmed within the last {seconds} seconds",
        f"anchor {node} was set before",
    )
    properties = (f"its {check}", "it is refused", f"it comes no later than {seconds} seconds after the run starts")
    totals = (
        f"tool {other} is not called",
        f"tool {other} is called at most {number} times",
        f"tool * is called at most {number} times within {seconds} seconds",
        f"tool {other} is called at least {number} times",
        f"tool {other} is called exactly {number} times",
    )
    steps = []
    if chance.random() < 0.25:
        steps.append("Given the node n")
    if chance.random() < 0.25:
        steps.append(f"Given {chance.choice(states)}")
    claims = [events, states, totals]
    if chance.random() < 0.65:
        steps.append(f"When {chance.choice((*events, 'the run starts'))}")
        if chance.random() < 0.3:
            steps.append(f"And its {check}")
        claims += [properties, (f"tool {other} is called no later than {seconds} seconds afterwards",)]
    steps.append(f"Then {chance.choice(chance.choice(claims))}")
    return "; ".join(steps)


def make_trace(chance: random.Random) -> list[RunEvent]:
    """A run that takes less than a day, seconds or hours between its events."""
    events, time = list[RunEvent](), 1_000_000
    length = chance.randint(4, 12)
    for number in range(1, length + 1):
        time += chance.choice((0, 1, 1, 2, 3, 5, 20, 3600))
        values = {"x": chance.choice(TEXTS), "n": chance.randint(0, 3), "ok": chance.random() < 0.5}
        kind, name = chance.choice(("call", "call", "call", "result", *KINDS[:-1])), chance.choice(NAMES)
        if number == length:
            kind, name = "finished", ""
        events.append(RunEvent(number, time, kind, name, chance.choice(NODES), values))
    return events


def list_values(formula: Formula, trace: Sequence[RunEvent]) -> list[bool]:
    """Where a formula holds, by our evaluator."""
    evaluator, values = Evaluator([formula]), []
    for event in trace:
        at = evaluator.peek(event)
        values.append(at.holds(evaluator.places[0]))
        evaluator.advance(at)
    return values


def refusal(rule: HarnessRule) -> Formula:
    """The formula of the events that a rule refuses; of a duty only the finish is."""
    return And((rule.at or Atom("finished"), Not(rule.holds)))


def compare(seed: int) -> list[bool]:
    """Compare one rule on one run. Return where Dogwood refuses."""
    chance = random.Random(seed)
    trace = make_trace(chance)
    if seed // PARTS % 2:
        formula = make_formula(chance, chance.randint(1, 3))
        forbidden = list_forbidden(formula, trace)
        assert list_values(formula, trace) == forbidden, (seed, formula)
        return forbidden
    scenario = make_scenario(chance)
    harness = make_harness(scenario)
    (rule,) = harness.rules
    assert list_values(rule.holds, trace) == list_forbidden(rule.holds, trace), (seed, scenario)
    forbidden = list_forbidden(refusal(rule), trace)
    monitor, judged = Monitor(harness), []
    for event in trace:
        judged.append(bool(monitor.judge(event)))
        monitor.record(event)
    if rule.at is None:  # one call too many is refused before the finish, where the duty fails for sure
        judged = [event.kind == "finished" and is_refused for event, is_refused in zip(trace, judged, strict=True)]
    assert judged == forbidden, (seed, scenario)
    return forbidden


@pytest.mark.parametrize("part", range(PARTS))
def test_dogwood_refuses_the_same_events(part: int) -> None:
    decisions = [is_refused for seed in range(part, PAIRS, PARTS) for is_refused in compare(seed)]
    assert True in decisions
    assert False in decisions


@pytest.mark.proof
@pytest.mark.parametrize("part", range(PARTS))
def test_dogwood_refuses_the_same_events_of_a_thousand_rules(part: int) -> None:
    decisions = [is_refused for seed in range(1000 + part, 1000 + PROOF_PAIRS, PARTS) for is_refused in compare(seed)]
    assert 0.05 < sum(decisions) / len(decisions) < 0.95


class Forbidden(Struct, frozen=True):
    """A move that a step forbids: the run until then, the move, and the events that are cited beside it."""

    rule: str
    run: Sequence[str]
    move: str
    cited: tuple[int, ...] = ()


DEPLOY = "When tool deploy is called; Then "
FORBIDDEN: dict[str, Forbidden] = {
    "the artifact of {node} exists": Forbidden(
        DEPLOY + "the artifact of plan exists", ["artifact other"], "call deploy"
    ),
    "field {path} of the artifact of {node} {check}": Forbidden(
        DEPLOY + "field risk of the artifact of plan is at most 2",
        ["artifact plan risk=2", "artifact plan risk=3"],
        "call deploy",
        (2,),
    ),
    "tool {tool} was called before": Forbidden(DEPLOY + "tool test was called before", ["result test"], "call deploy"),
    "tool {tool} was not called before": Forbidden(
        DEPLOY + "tool edit was not called before", ["call edit", "call test"], "call deploy", (1,)
    ),
    "tool {tool} succeeded before": Forbidden(
        DEPLOY + "tool test succeeded before", ["call test", "result test ok=false"], "call deploy"
    ),
    "tool {tool} failed before": Forbidden(
        DEPLOY + "tool test failed before", ["call test", "result test ok=true"], "call deploy"
    ),
    "tool {tool} was called within the last {duration}": Forbidden(
        DEPLOY + "tool test was called within the last 5 minutes", ["call test"], "+301 call deploy"
    ),
    "tool {tool} was not called within the last {duration}": Forbidden(
        DEPLOY + "tool deploy was not called within the last 1 hour", ["call deploy"], "+3600 call deploy", (1,)
    ),
    "tool {tool} succeeded within the last {duration}": Forbidden(
        DEPLOY + "tool test succeeded within the last 5 minutes", ["result test ok=true"], "+301 call deploy"
    ),
    "tool {tool} failed within the last {duration}": Forbidden(
        DEPLOY + "tool test failed within the last 1 day", ["result test ok=true"], "call deploy"
    ),
    "gate {gate} was confirmed before": Forbidden(
        DEPLOY + "gate review was confirmed before", ["confirmed review", "denied review"], "call deploy", (2,)
    ),
    "gate {gate} was confirmed within the last {duration}": Forbidden(
        DEPLOY + "gate review was confirmed within the last 10 seconds", ["confirmed review"], "+11 call deploy"
    ),
    "anchor {anchor} was set before": Forbidden(
        DEPLOY + "anchor task/checkpoint was set before", ["call test"], "call deploy"
    ),
    "its {path} {check}": Forbidden(DEPLOY + 'its target does not equal "live"', [], 'call deploy target="live"'),
    "it is refused": Forbidden(DEPLOY + "it is refused", ["call test"], "call deploy"),
    "it comes no later than {duration} after the run starts": Forbidden(
        DEPLOY + "it comes no later than 1 minute after the run starts", ["started a"], "+61 call deploy", (1,)
    ),
    "tool {tool} is not called": Forbidden(
        "When gate review is denied; Then tool deploy is not called",
        ["call deploy", "denied review"],
        "call deploy",
        (2,),
    ),
    "tool {tool} is called at most {number} time(s)": Forbidden(
        "Then tool deploy is called at most 1 time", ["call deploy"], "call deploy", (1,)
    ),
    "tool {tool} is called at most {number} time(s) within {duration}": Forbidden(
        "Then tool deploy is called at most 1 time within 1 minute",
        ["call deploy", "+61 call deploy"],
        "+60 call deploy",
        (2,),
    ),
    "tool {tool} is called exactly {number} time(s)": Forbidden(
        "Then tool deploy is called exactly 1 time", ["call deploy"], "call deploy", (1,)
    ),
}
CHECKS = {
    'equals "a"': 'x="b"',
    "does not equal 1": "x=1",
    'contains "a"': 'x=["b"]',
    'does not contain ".."': 'x="a/../b"',
    'matches "^https:"': 'x="http:"',
    'does not match "(?i)drop table"': 'x="DROP\\u0020TABLE"',
    'is one of "a", "b"': 'x="c"',
    'is not one of "a", "b"': 'x="b"',
    "is at least 2": "x=1",
    "is at most 2": "x=3",
}
MOVE_KINDS = ("state", "property", "limit")


def test_the_table_has_each_step_that_forbids_a_move() -> None:
    steps = [step.pattern for step in OWN_STEPS if step.kind in MOVE_KINDS]
    variants = {variant for pattern in steps for variant in list_variants(pattern)}
    assert {*FORBIDDEN} == variants | {"tool {tool} is called exactly {number} time(s)"}


def assert_forbidden(forbidden: Forbidden) -> None:
    monitor = Monitor(make_harness(forbidden.rule))
    *before, move = parse_trace(*forbidden.run, forbidden.move)
    for event in before:
        assert monitor.judge(event) == []
        monitor.record(event)
    assert monitor.judge(move) == [RuleVerdict("rules/one/1", "violated", (*forbidden.cited, move.number))]
    assert [verdict.status for verdict in monitor.verdicts()] == ["pending"]


@pytest.mark.parametrize("forbidden", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_a_forbidden_move_is_refused_before_it_happens(forbidden: Forbidden) -> None:
    assert_forbidden(forbidden)


@pytest.mark.parametrize(("check", "values"), CHECKS.items())
def test_a_forbidden_argument_is_refused_before_the_call(check: str, values: str) -> None:
    assert_forbidden(Forbidden(f"When tool t is called; Then its x {check}", [], f"call t {values}"))
