"""Steps that can never fire, or never together: found before a run, from the names of the schema."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from bubbot.features.tasks.facts import EventKind
from bubbot.features.tasks.harness.feature_files import Harness, HarnessProblem, HarnessRule
from bubbot.features.tasks.harness.formula import And, Atom, Constant, Count, Formula, Not, name_pattern, walk

_NOUNS: dict[EventKind | None, str] = {
    "call": "tool",
    "result": "tool",
    "artifact": "node",
    "started": "node",
    "ended": "node",
    "confirmed": "gate",
    "denied": "gate",
}
"""What the name of an event of each kind is; anchors can have any name."""


def find_dead_steps(
    harness: Harness, *, nodes: Collection[str], tools: Collection[str], gates: Collection[str]
) -> list[HarnessProblem]:
    """Find the rules that name what the task does not have, and counts that contradict each other.

    Args:
        nodes: of the task, gates included.
        tools: that some node may call, names or patterns such as `web.*`.
        gates: the nodes that are gates.

    Returns:
        Problems in the order of the rules.
    """
    known = {"node": nodes, "tool": tools, "gate": gates}
    named: dict[tuple[str, str, str, str], HarnessRule] = {}  # the first rule of each scenario that names it
    for rule in harness.rules:
        for noun, name in _list_names(rule):
            named.setdefault((rule.path, rule.scenario, noun, name), rule)
    unknown = [
        HarnessProblem(rule.path, rule.line, _describe_unknown(rule, noun, name, known[noun]))
        for (_, _, noun, name), rule in named.items()
        if not _is_known(name, known[noun])
    ]
    return sorted(dict.fromkeys([*unknown, *_find_contradictions(harness)]), key=lambda each: (each.path, each.line))


def _list_names(rule: HarnessRule) -> Iterator[tuple[str, str]]:
    """Yield what a rule names: the noun and the name."""
    for formula in (rule.at, rule.holds):
        for atom in walk(formula) if formula is not None else ():
            if isinstance(atom, Atom):
                if atom.node:
                    yield "node", atom.node
                if atom.name and (noun := _NOUNS.get(atom.kind)):
                    yield noun, atom.name


def _is_known(name: str, known: Collection[str]) -> bool:
    return name in known or any(_fits(each, name) or _fits(name, each) for each in known)


def _fits(name: str, pattern: str) -> bool:
    return "*" in pattern and re.match(name_pattern(pattern), name) is not None


def _describe_unknown(rule: HarnessRule, noun: str, name: str, known: Collection[str]) -> str:
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    near = process.extractOne(name, sorted(known), scorer=OSA.normalized_similarity, score_cutoff=0.5)
    advice = f"did you mean {near[0]!r}?" if near else f"add it to the task, or remove the step {rule.text!r}."
    return f"The task has no {noun} {name!r}, so {rule.scenario!r} can never apply; {advice}"


def _find_contradictions(harness: Harness) -> Iterator[HarnessProblem]:
    """Yield duties that need more calls than another rule allows. Only rules without a scope are compared."""
    limits: dict[str, tuple[HarnessRule, int]] = {}  # of each event the lowest limit
    for rule in harness.rules:
        for event, limit in _list_limits(rule):
            key = repr(event)
            if key not in limits or limit < limits[key][1]:
                limits[key] = rule, limit
    needs = [(rule, event, number) for rule in harness.rules for event, number in _list_needs(rule)]
    for duty, event, number in needs:
        rule, limit = limits.get(repr(event), (duty, number))
        if number > limit:
            message = (
                f"The step {duty.text!r} needs {number} events, and {rule.text!r} in line {rule.line} of {rule.path} allows"
                f" {limit}; change one of them."
            )
            yield HarnessProblem(duty.path, duty.line, message)


def _list_needs(rule: HarnessRule) -> Iterator[tuple[Formula, int]]:
    if rule.at is None:
        for part in _list_conjuncts(rule.holds):
            if isinstance(part, Count) and part.seconds is None:
                yield part.body, part.number


def _list_limits(rule: HarnessRule) -> Iterator[tuple[Formula, int]]:
    for part in _list_conjuncts(rule.holds):
        match part:
            case Not(Count(body, number, None)) if rule.at is None or repr(rule.at) == repr(body):
                yield body, number - 1
            case Not(Constant(is_true=True)) if isinstance(rule.at, Atom):
                yield rule.at, 0
            case _:
                pass


def _list_conjuncts(formula: Formula) -> tuple[Formula, ...]:
    return formula.bodies if isinstance(formula, And) else (formula,)
