"""Rules that can never apply are found from the names of the schema, before a run."""

from __future__ import annotations

import pytest

from bubbot.features.tasks.harness.dead_steps import find_dead_steps
from tests.harness_traces import make_harness

NODES, TOOLS, GATES = ("plan", "draft", "review"), ("fs.read", "fs.write", "search"), ("review",)


def find(scenario: str) -> list[tuple[int, str]]:
    """The lines and messages of the dead steps."""
    problems = find_dead_steps(make_harness(scenario), nodes=NODES, tools=TOOLS, gates=GATES)
    return [(problem.line, problem.message) for problem in problems]


@pytest.mark.parametrize(
    "scenario",
    [
        "Given the node draft; When tool fs.write is called; Then gate review was confirmed before",
        "Then tool fs.* is called at most 2 times",
        "When the artifact of plan is delivered; Then anchor task/anything is set",
        "Then tool search is called at least 2 times; And tool search is called at most 2 times",
        "Then tool search is called exactly 2 times",
        "Then tool search is called at least 2 times; And tool search is called at most 1 time within 1 minute",
        "When tool search is called; Then tool search is called at most 0 times; And tool fs.read is called",
    ],
)
def test_rules_that_can_apply_are_no_problem(scenario: str) -> None:
    assert find(scenario) == []


@pytest.mark.parametrize(
    ("scenario", "line", "message"),
    [
        (
            "When tool fs.wrte is called; Then it is refused",
            4,
            "The task has no tool 'fs.wrte', so 'one' can never apply; did you mean 'fs.write'?",
        ),
        (
            "Given the node drat; Then tool search is not called",
            4,
            "The task has no node 'drat', so 'one' can never apply; did you mean 'draft'?",
        ),
        (
            "Then gate draft is confirmed",
            3,
            (
                "The task has no gate 'draft', so 'one' can never apply;"
                " add it to the task, or remove the step 'gate draft is confirmed'."
            ),
        ),
        (
            "Then the artifact of plans exists",
            3,
            "The task has no node 'plans', so 'one' can never apply; did you mean 'plan'?",
        ),
        (
            "Then tool shell.* is not called",
            3,
            (
                "The task has no tool 'shell.*', so 'one' can never apply;"
                " add it to the task, or remove the step 'tool shell.* is not called'."
            ),
        ),
        (
            "Then tool search is called at least 3 times; And tool search is called at most 2 times",
            3,
            (
                "The step 'tool search is called at least 3 times' needs 3 events, and 'tool search is called at most 2 times'"
                " in line 4 of rules.feature allows 2; change one of them."
            ),
        ),
        (
            "Then tool search is called exactly 1 time; And tool search is not called",
            3,
            (
                "The step 'tool search is called exactly 1 time' needs 1 events, and 'tool search is not called'"
                " in line 4 of rules.feature allows 0; change one of them."
            ),
        ),
    ],
)
def test_a_rule_that_can_never_apply_is_told_with_the_nearest_name(scenario: str, line: int, message: str) -> None:
    assert find(scenario) == [(line, message)]


def test_what_all_rules_of_a_scenario_name_is_told_once() -> None:
    harness = make_harness("Given the artifact of zzz exists; Then tool a is not called; And tool b is not called")
    (problem,) = find_dead_steps(harness, nodes=["n"], tools=["a", "b"], gates=[])
    assert (problem.line, "no node 'zzz'" in problem.message) == (4, True)
