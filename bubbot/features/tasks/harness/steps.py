"""The vocabulary of harness files: each step, and the formula that it stands for.

A scenario reads

    Given …   the scope: the node in which tools are called, or a state that must hold when the rule is checked
    When …    the event that its rules are about; it may be left out
    Then …    the rules, one a step

A rule is a *move* or a *duty*. A move must hold at each event that it is about, and refuses the others; a duty must hold when
the run finishes. What a step becomes depends on its kind and on the When:

    kind        after Given   after When      after Then, with a When              after Then, without
    scope       the node      –               –                                    –
    start       –             the event       –                                    –
    event       –             the event       duty: it happens after each When     duty: it happens
    state       a condition   –               move: it holds at each When          duty: it holds at the end
    property    –             a condition     move: the event has it               –
    limit       –             –               move, for what happens afterwards    move
    total       –             –               duty, for what happens afterwards    duty
    deadline    –             –               duty                                 –

Conditions of Given hold when the rule is checked: at the When, without one at the event of the move, or at the end.

In a pattern, `{tool}` and its like stand for parameters (`PARAMETERS`), and `(s)` for letters that may be left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bubbot.features.tasks.facts import EventKind
from bubbot.features.tasks.harness.events import Comparison, FieldCheck, RunEvent, Scalar
from bubbot.features.tasks.harness.formula import (
    And,
    Atom,
    Constant,
    Count,
    Formerly,
    Formula,
    Implies,
    Not,
    Or,
    Previously,
    Since,
    Within,
)
from bubbot.json_schema import MAX_NUMBER_DIGITS

StepKind: TypeAlias = Literal["scope", "start", "event", "state", "property", "limit", "total", "deadline"]
Keyword: TypeAlias = Literal["Given", "When", "Then"]

KEYWORDS: dict[StepKind, tuple[Keyword, ...]] = {
    "scope": ("Given",),
    "start": ("When",),
    "event": ("When", "Then"),
    "state": ("Given", "Then"),
    "property": ("When", "Then"),
    "limit": ("Then",),
    "total": ("Then",),
    "deadline": ("Then",),
}
"""After which keywords a step of each kind may stand."""
NEED_WHEN: tuple[StepKind, ...] = ("property", "deadline")
"""The kinds that after Then need a When."""


class StepScope(Struct, frozen=True):
    """What the scenario says around a step.

    Attributes:
        node: the node in which tools are called; empty for any.
        trigger: the event of the When, with its conditions; None without a When.
    """

    node: str = ""
    trigger: Formula | None = None

    def tool(self, tool: str, verb: str, *checks: FieldCheck) -> Formula:
        """Build the formula of a call (`is called`, `was called`) or of its result (`succeeds`, `failed`, …)."""
        if verb.endswith("called"):
            return Atom("call", tool, self.node, checks)
        return Atom("result", tool, self.node, (FieldCheck("ok", "equals", verb.startswith("succe")),))

    def later(self, event: Formula) -> Formula:
        """Restrict an event to what comes after the first event of the When, if there is one."""
        return event if self.trigger is None else And((event, Previously(Formerly(self.trigger))))


class Move(Struct, frozen=True):
    """A rule that must hold at each event at which `at` holds."""

    at: Formula
    holds: Formula


class Duty(Struct, frozen=True):
    """A rule that must hold when the run finishes."""

    holds: Formula


TraceTest: TypeAlias = Callable[[Sequence[RunEvent]], bool]
Meaning: TypeAlias = Formula | TraceTest | Move | Duty
"""What a step stands for: `Move` for a limit, `Duty` for a total or a deadline, a formula or a function of all events up to
the checked one for the other kinds."""


class Step(Struct, frozen=True):
    """One sentence of the vocabulary.

    Attributes:
        brief: one line for the reference.
        build: gets the scope and then the parameters in the order of the pattern; a `ValueError` is a sentence that says
            what is wrong with them. For `scope` it returns nothing of use: the parameter is the node.
    """

    kind: StepKind
    pattern: str
    brief: str
    build: Callable[..., Meaning]

    def match(self, text: str) -> tuple[Any, ...] | None:
        """Return the parameters if a text is this step, else None. Raise `ValueError`, a sentence, if one is wrong."""
        compiled, parameters = compile_pattern(self.pattern)
        found = compiled.fullmatch(text)
        if found is None:
            return None
        return tuple(parameter.convert(part) for parameter, part in zip(parameters, found.groups(), strict=True))


class StepParameter(Struct, frozen=True):
    """A blank in patterns.

    Attributes:
        expression: the regular expression of its texts, without groups that capture.
        brief: one line for the reference.
    """

    expression: str
    convert: Callable[[str], Any]
    brief: str


_QUOTED = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
_NAME = rf"(?:{_QUOTED}|[\w*][\w.*/:-]*)"
_SCALAR = rf"(?:{_QUOTED}|-?\d+(?:\.\d+)?|true|false|null)"
_VERBS: dict[str, tuple[Comparison, bool]] = {
    "equals": ("equals", False),
    "does not equal": ("equals", True),
    "contains": ("contains", False),
    "does not contain": ("contains", True),
    "matches": ("matches", False),
    "does not match": ("matches", True),
    "is one of": ("is one of", False),
    "is not one of": ("is one of", True),
    "is at least": ("is at least", False),
    "is at most": ("is at most", False),
}
MAX_NUMBER = 1_000_000
"""The largest number of calls that a step can name."""
_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def read_name(text: str) -> str:
    """Read a name, with or without quotes. In quotes, a backslash before the quote takes it in."""
    if text[:1] not in ('"', "'"):
        return text
    return text[1:-1].replace("\\" + text[0], text[0])


def read_scalar(text: str) -> Scalar:
    """Read a text in quotes, a number, `true`, `false` or `null`. Raise `ValueError`, a sentence, if it is too large."""
    if text[:1] in ('"', "'"):
        return read_name(text)
    if len(text) > MAX_NUMBER_DIGITS:
        raise ValueError(f"the number has more than {MAX_NUMBER_DIGITS} digits; write it as a text in quotes")
    value: Scalar = json.loads(text)
    return value


def read_number(text: str) -> int:
    """Read a whole number. Raise `ValueError`, a sentence, if it is too large."""
    if len(digits := text.lstrip("0")) > len(str(MAX_NUMBER)) or int(text) > MAX_NUMBER:
        shown = digits if len(digits) <= 20 else f"{digits[:20]}… ({len(digits)} digits)"
        raise ValueError(f"the number is {shown}, and may be {MAX_NUMBER} at most; write a smaller one")
    return int(text)


def read_duration(text: str) -> float:
    """Read a duration, as in `5 minutes`. Return seconds."""
    number, unit = text.split()
    return float(number) * _UNIT_SECONDS[unit.removesuffix("s")]


def read_check(text: str) -> FieldCheck:
    """Read a comparison with its value; the check has no path yet."""
    verb = max((verb for verb in _VERBS if text.startswith(verb + " ")), key=len)
    rest = text[len(verb) + 1 :]
    comparison, is_negated = _VERBS[verb]
    values = tuple(read_scalar(part) for part in re.findall(_SCALAR, rest))
    if comparison == "is one of":
        return FieldCheck("", comparison, values, is_negated)
    if len(values) > 1:
        raise ValueError(f"{verb} takes one value, not {len(values)}; write: is one of {rest}")
    check = FieldCheck("", comparison, values[0], is_negated)
    check.compile()
    return check


PARAMETERS: dict[str, StepParameter] = {
    "tool": StepParameter(_NAME, read_name, "the name of a tool, in quotes or not; `*` stands for any text"),
    "node": StepParameter(_NAME, read_name, "the name of a node"),
    "gate": StepParameter(_NAME, read_name, "the name of a node that is a gate"),
    "anchor": StepParameter(_NAME, read_name, "the name of an anchor"),
    "path": StepParameter(_NAME, read_name, "a field; names joined by dots, a number for a place in a list"),
    "state": StepParameter(_NAME, read_name, "how a node ended, such as succeeded"),
    "number": StepParameter(r"\d+", read_number, f"a whole number up to {MAX_NUMBER}"),
    "duration": StepParameter(
        r"\d+(?:\.\d+)? (?:second|minute|hour|day)s?", read_duration, "a number of seconds, minutes, hours or days"
    ),
    "decision": StepParameter("confirmed|denied", str, "confirmed, denied"),
    "happens": StepParameter("is called|succeeds|fails", str, "is called, succeeds, fails"),
    "happened": StepParameter(
        "was called|was not called|succeeded|failed", str, "was called, was not called, succeeded, failed"
    ),
    "check": StepParameter(
        rf"(?:{'|'.join(_VERBS)}) {_SCALAR}(?:(?:, or |, | or ){_SCALAR})*",
        read_check,
        ", ".join(_VERBS) + "; then a value: a text in quotes, a number, true, false, null",
    ),
}
"""What may stand in braces in a pattern."""


@cache
def compile_pattern(pattern: str) -> tuple[re.Pattern[str], tuple[StepParameter, ...]]:
    """Compile the pattern of a step. Raise `ValueError`, with all parameters there are, if it names an unknown one."""
    expression, parameters = "", []
    for part in re.split(r"(\{\w+\}|\(\w+\))", pattern):
        if part.startswith("{") and part.endswith("}"):
            name = part[1:-1]
            if name not in PARAMETERS:
                known = ", ".join(f"{{{each}}}" for each in PARAMETERS)
                raise ValueError(f"The step {pattern!r} has the unknown parameter {part}; use one of {known}.")
            parameters.append(PARAMETERS[name])
            expression += f"({PARAMETERS[name].expression})"
        elif part.startswith("(") and part.endswith(")"):
            expression += f"(?:{re.escape(part[1:-1])})?"
        else:
            expression += re.escape(part)
    return re.compile(expression), tuple(parameters)


def list_variants(pattern: str) -> list[str]:
    """Return a pattern with each choice of words in place of the parameters that are nothing else, such as `{happens}`."""
    for name, parameter in PARAMETERS.items():
        if f"{{{name}}}" in pattern and re.fullmatch(r"[a-z |]+", parameter.expression):
            words = parameter.expression.split("|")
            return [each for word in words for each in list_variants(pattern.replace(f"{{{name}}}", word, 1))]
    return [pattern]


FIRST_EVENT: Formula = And((Atom(), Not(Previously(Constant(is_true=True)))))


def before(event: Formula) -> Formula:
    """Hold if it happened before this event."""
    return Previously(Formerly(event))


def lately(event: Formula, seconds: float) -> Formula:
    """Hold if it happened before this event, at most `seconds` ago."""
    return Or((And((event, Count(event, 2, seconds))), And((Not(event), Count(event, 1, seconds)))))


def unanswered(trigger: Formula, answer: Formula) -> Formula:
    """Hold if an event came after which no answer came yet."""
    return Since(Not(answer), trigger)


def answered(trigger: Formula, answer: Formula) -> Formula:
    """Hold if an answer came after each event, or if there was no such event."""
    return Implies(Formerly(trigger), Not(unanswered(trigger, answer)))


def overdue(trigger: Formula, answer: Formula, seconds: float) -> Formula:
    """Hold if before this event there was an unanswered one, more than `seconds` ago."""
    waiting = Previously(unanswered(trigger, answer))
    begins_to_wait = And((trigger, Or((answer, Not(waiting)))))
    return And((waiting, Not(lately(begins_to_wait, seconds))))


def _check_of(path: str, check: FieldCheck) -> FieldCheck:
    return FieldCheck(path, check.comparison, check.operand, check.is_negated)


def _tool_happens(scope: StepScope, tool: str, verb: str) -> Formula:
    return scope.tool(tool, verb)


def _tool_called_with(scope: StepScope, tool: str, path: str, check: FieldCheck) -> Formula:
    return scope.tool(tool, "is called", _check_of(path, check))


def _node_starts(_scope: StepScope, node: str) -> Formula:
    return Atom("started", node)


def _node_ends(_scope: StepScope, node: str, state: str) -> Formula:
    return Atom("ended", node, checks=(FieldCheck("state", "equals", state),))


def _artifact_delivered(_scope: StepScope, node: str) -> Formula:
    return Atom("artifact", node)


def _gate_decided(_scope: StepScope, gate: str, decision: str) -> Formula:
    kind: EventKind = "confirmed" if decision == "confirmed" else "denied"
    return Atom(kind, gate)


def _anchor_set(scope: StepScope, anchor: str) -> Formula:
    return Atom("anchor", anchor, scope.node)


def _run_starts(_scope: StepScope) -> Formula:
    return FIRST_EVENT


def _scope_node(_scope: StepScope, _node: str) -> Formula:
    return Constant(is_true=True)


def _artifact_exists(_scope: StepScope, node: str) -> Formula:
    return Formerly(Atom("artifact", node))


def _artifact_field(_scope: StepScope, path: str, node: str, check: FieldCheck) -> Formula:
    newest = Atom("artifact", node, checks=(_check_of(path, check),))
    return Since(Not(Atom("artifact", node)), newest)


def _tool_before(scope: StepScope, tool: str, verb: str) -> Formula:
    happened = before(scope.tool(tool, verb))
    return Not(happened) if "not" in verb else happened


def _tool_lately(scope: StepScope, tool: str, verb: str, seconds: float) -> Formula:
    happened = lately(scope.tool(tool, verb), seconds)
    return Not(happened) if "not" in verb else happened


def _gate_confirmed_before(_scope: StepScope, gate: str) -> Formula:
    return Previously(Since(Not(Atom("denied", gate)), Atom("confirmed", gate)))


def _gate_confirmed_lately(scope: StepScope, gate: str, seconds: float) -> Formula:
    return And((_gate_confirmed_before(scope, gate), lately(Atom("confirmed", gate), seconds)))


def _anchor_set_before(scope: StepScope, anchor: str) -> Formula:
    return before(_anchor_set(scope, anchor))


def _refused(_scope: StepScope) -> Formula:
    return Constant(is_true=False)


def _own_field(_scope: StepScope, path: str, check: FieldCheck) -> Formula:
    return Atom(checks=(_check_of(path, check),))


def _soon_after_start(_scope: StepScope, seconds: float) -> Formula:
    return Within(FIRST_EVENT, seconds)


def _at_most(scope: StepScope, tool: str, number: int) -> Move:
    call = scope.later(scope.tool(tool, "is called"))
    return Move(call, Not(Count(call, number + 1)))


def _at_most_within(scope: StepScope, tool: str, number: int, seconds: float) -> Move:
    call = scope.later(scope.tool(tool, "is called"))
    return Move(call, Not(Count(call, number + 1, seconds)))


def _never(scope: StepScope, tool: str) -> Move:
    is_too_late = Constant(is_true=True) if scope.trigger is None else before(scope.trigger)
    return Move(scope.tool(tool, "is called"), Not(is_too_late))


def _at_least(scope: StepScope, tool: str, number: int) -> Duty:
    return Duty(Count(scope.later(scope.tool(tool, "is called")), number))


def _exactly(scope: StepScope, tool: str, number: int) -> Duty:
    call = scope.later(scope.tool(tool, "is called"))
    return Duty(And((Count(call, number), Not(Count(call, number + 1)))))


def _no_later_than(scope: StepScope, tool: str, seconds: float) -> Duty:
    trigger, call = scope.trigger or FIRST_EVENT, scope.tool(tool, "is called")
    return Duty(And((Not(Formerly(overdue(trigger, call, seconds))), answered(trigger, call))))


OWN_STEPS: tuple[Step, ...] = (
    Step("scope", "the node {node}", "the rules are about tools that this node calls", _scope_node),
    Step("start", "the run starts", "the first event of the run", _run_starts),
    Step("event", "tool {tool} {happens}", "a call of the tool, or the end of one", _tool_happens),
    Step(
        "event",
        "tool {tool} is called and its {path} {check}",
        "a call of the tool with an argument like this",
        _tool_called_with,
    ),
    Step("event", "node {node} starts", "the node starts", _node_starts),
    Step("event", "node {node} ends as {state}", "the node ends in this state", _node_ends),
    Step("event", "the artifact of {node} is delivered", "the node delivers its artifact", _artifact_delivered),
    Step("event", "gate {gate} is {decision}", "a person decides at the gate", _gate_decided),
    Step("event", "anchor {anchor} is set", "the anchor is set, such as task/checkpoint", _anchor_set),
    Step("state", "the artifact of {node} exists", "the node has delivered its artifact", _artifact_exists),
    Step(
        "state",
        "field {path} of the artifact of {node} {check}",
        "the newest artifact of the node has a field like this",
        _artifact_field,
    ),
    Step("state", "tool {tool} {happened} before", "the tool was called, succeeded or failed earlier", _tool_before),
    Step(
        "state",
        "tool {tool} {happened} within the last {duration}",
        "the tool was called, succeeded or failed earlier, and not longer ago",
        _tool_lately,
    ),
    Step(
        "state",
        "gate {gate} was confirmed before",
        "the newest decision at the gate is a confirmation",
        _gate_confirmed_before,
    ),
    Step(
        "state",
        "gate {gate} was confirmed within the last {duration}",
        "the newest decision at the gate is a confirmation, and not older",
        _gate_confirmed_lately,
    ),
    Step("state", "anchor {anchor} was set before", "the anchor was set earlier", _anchor_set_before),
    Step(
        "property",
        "its {path} {check}",
        "an argument of the call, or a field of the artifact, is like this",
        _own_field,
    ),
    Step("property", "it is refused", "the event must not happen", _refused),
    Step(
        "property",
        "it comes no later than {duration} after the run starts",
        "the event happens in the first time of the run",
        _soon_after_start,
    ),
    Step("limit", "tool {tool} is not called", "no call of the tool; with a When none afterwards", _never),
    Step("limit", "tool {tool} is called at most {number} time(s)", "no more calls than this", _at_most),
    Step(
        "limit",
        "tool {tool} is called at most {number} time(s) within {duration}",
        "no more calls than this in any such span of time",
        _at_most_within,
    ),
    Step("total", "tool {tool} is called at least {number} time(s)", "as many calls in the end, or more", _at_least),
    Step(
        "total",
        "tool {tool} is called exactly {number} time(s)",
        "as many calls in the end; one more is refused at once",
        _exactly,
    ),
    Step(
        "deadline",
        "tool {tool} is called no later than {duration} afterwards",
        "each When is followed by a call in this time",
        _no_later_than,
    ),
)
"""The vocabulary without that of packages; 25 steps at most, so that a person can know them."""
