"""Feature files: what Gherkin offers works, and what is wrong is said with file, line and the way out."""

from __future__ import annotations

import pytest

from bubbot.features.tasks.harness.feature_files import (
    MAX_CONDITIONS,
    MAX_STEPS,
    HarnessInvalid,
    HarnessProblem,
    parse_harness,
)
from bubbot.features.tasks.harness.formula import Formula
from bubbot.features.tasks.harness.monitor import Monitor
from bubbot.features.tasks.harness.steps import OWN_STEPS, Step, StepScope
from tests.harness_traces import parse_trace

WHOLE = """@safety
Feature: files

  Background:
    Given the node draft

  @paths @safety
  Scenario Outline: no <what> in paths
    When tool fs.write is called
    Then its path does not contain "<what>"
    And tool fs.read was called before
    Examples:
      | what |
      | ..   |
      | ~    |

  Rule: calls are few
    Background:
      Given the artifact of plan exists

    @few
    Scenario: few searches
      # a comment
      Then tool search is called at most 2 times
      But tool search is called at least 1 time
"""


def list_problems(
    text: str, path: str = "checks.feature", steps: tuple[Step, ...] = OWN_STEPS
) -> list[tuple[int, str]]:
    """The lines and messages of the problems of a file."""
    with pytest.raises(HarnessInvalid) as caught:
        parse_harness({path: text}, steps)
    assert {problem.path for problem in caught.value.problems} == {path}
    return [(problem.line, problem.message) for problem in caught.value.problems]


def scenario(*steps: str) -> str:
    """A file whose steps begin in line 3."""
    return "\n".join(["Feature: f", "  Scenario: s", *(f"    {step}" for step in steps)])


def test_each_then_of_each_example_is_a_rule() -> None:
    rules = parse_harness({"scripts/files.feature": WHOLE}).rules
    assert [(rule.id, rule.line, rule.at is None) for rule in rules] == [
        ("files/no-in-paths/1", 10, False),
        ("files/no-in-paths/2", 11, False),
        ("files/no-in-paths/3", 10, False),
        ("files/no-in-paths/4", 11, False),
        ("files/few-searches/1", 24, False),
        ("files/few-searches/2", 25, True),
    ]
    assert [rule.text for rule in rules[:3:2]] == ['its path does not contain ".."', 'its path does not contain "~"']
    assert {rule.path for rule in rules} == {"scripts/files.feature"}
    assert rules[0].scenario == "no .. in paths"


def test_backgrounds_of_the_feature_and_of_a_rule_hold_in_its_scenarios() -> None:
    monitor = Monitor(parse_harness({"files.feature": WHOLE}))
    elsewhere, _, _, _, third = parse_trace(
        "call fs.write @other", "artifact plan", "call search @draft", "call search @draft", "call search @draft"
    )
    assert monitor.judge(elsewhere) == []
    for event in parse_trace("call search @draft", "call search @draft", "call search @draft"):
        assert monitor.judge(event) == []
        monitor.record(event)
    monitor.record(parse_trace("artifact plan")[0])
    assert [verdict.rule for verdict in monitor.judge(third)] == ["files/few-searches/1"]


def test_the_order_of_givens_does_not_matter() -> None:
    first, second = (
        parse_harness({"a.feature": scenario(*givens, "Then tool b is not called")})
        for givens in (
            ("Given the node n", "And tool a was called before"),
            ("Given tool a was called before", "And the node n"),
        )
    )
    assert first.rules[0].at == second.rules[0].at


def test_rules_come_in_the_order_of_paths_and_ids_differ_between_files_of_one_name() -> None:
    text = scenario("Then tool a is not called")
    rules = parse_harness({"b/x.feature": text, "a/x.feature": text, "a/w.feature": text}).rules
    assert [(rule.path, rule.id) for rule in rules] == [
        ("a/w.feature", "w/s/1"),
        ("a/x.feature", "x/s/1"),
        ("b/x.feature", "x/s/2"),
    ]


def test_keywords_of_other_languages_are_understood() -> None:
    text = '# language: de\nFunktionalität: f\n  Szenario: Größe\n    Dann tool "a" is not called\n'
    assert [rule.id for rule in parse_harness({"a.feature": text}).rules] == ["a/größe/1"]


def test_no_file_is_a_harness_without_rules() -> None:
    assert parse_harness({}).rules == ()


def test_an_unknown_step_is_told_with_the_nearest_ones() -> None:
    ((line, message),) = list_problems(scenario("Given the node a", 'Then tool "x" is caled at most 3 times'))
    assert line == 4
    assert message.startswith(
        """The step 'tool "x" is caled at most 3 times' is unknown; the nearest steps are"""
        " 'tool {tool} is called at most {number} time(s)'"
    )


def test_a_step_that_is_like_no_other_points_to_the_list() -> None:
    assert list_problems(scenario("Then zzzz")) == [(3, "The step 'zzzz' is unknown; see the list of steps.")]


@pytest.mark.parametrize(
    ("steps", "line", "message"),
    [
        (["Then the node a"], 3, "The step 'the node a' cannot follow Then; it can follow Given."),
        (["Given node a starts"], 3, "The step 'node a starts' cannot follow Given; it can follow When or Then."),
        (
            ["Then it is refused"],
            3,
            "The step 'it is refused' needs an event before it, such as: When tool {tool} is called.",
        ),
        (
            ["When its x equals 1", "Then it is refused"],
            3,
            "The step 'its x equals 1' needs an event before it, such as: When tool {tool} is called.",
        ),
        (
            ["When tool a is called", "And tool b is called", "Then it is refused"],
            4,
            "The step 'tool b is called' is a second event; begin a new scenario for it.",
        ),
        (
            ["Then tool a is not called", "When tool b is called", "Then it is refused"],
            4,
            "The step 'tool b is called' comes after Then; begin a new scenario for it.",
        ),
        (
            ["When tool a is called", "Given the node n", "Then it is refused"],
            4,
            "The step 'the node n' comes after When; put Given first.",
        ),
        (
            ["Given the node n", "And the node m", "Then tool a is not called"],
            4,
            "The step 'the node m' names a second node; begin a new scenario for it.",
        ),
        (["When tool a is called"], 2, "The scenario 's' has no Then, so it has no rule."),
        ([], 2, "The scenario 's' has no steps."),
        (
            ["* tool a is not called"],
            3,
            "The step 'tool a is not called' needs Given, When or Then before it, not * or And.",
        ),
        (
            ["Then tool a is not called", "  | x |"],
            3,
            "The step 'tool a is not called' takes no table and no text below it; remove it.",
        ),
        (
            ["When tool a is called", 'Then its x matches "("'],
            4,
            """The step 'its x matches "("' cannot be read: '(' is not a regular expression: missing ), """,
        ),
        (
            ["When tool a is called", 'Then its x is at least "3"'],
            4,
            """The step 'its x is at least "3"' cannot be read: is at least needs a number, not "3".""",
        ),
        (
            ["When tool a is called", 'Then its x equals "a", "b"'],
            4,
            """The step 'its x equals "a", "b"' cannot be read: equals takes one value, not 2; write: is one of "a", "b".""",
        ),
        (["Then tool a is not called", "Foo"], 4, "'Foo' cannot stand here"),
    ],
)
def test_a_problem_is_one_sentence_with_the_line_and_the_fix(steps: list[str], line: int, message: str) -> None:
    ((at, problem),) = list_problems(scenario(*steps))
    assert at == line
    assert problem.startswith(message)
    assert problem.endswith(".")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "The file has no scenario; write Feature: and Scenario:, or remove the file."),
        ("Feature: f\n", 1, "The file has no scenario; write Feature: and Scenario:, or remove the file."),
        ("Feature: f\n @tag", 3, "The file ends too early; Gherkin expects Rule:, a tag."),
        ("# language: xx\nFeature: f", 1, "Gherkin has no language 'xx'; remove the line."),
        (
            "Feature: f\n Scenario Outline: s\n  Then tool <a> is not called\n  Examples:\n   | a |\n   | b | c |\n",
            6,
            "Inconsistent cell count within the table.",
        ),
        (
            "Feature: f\n Scenario Outline: s\n  Then tool <a> is not called\n  Examples:\n   | a |\n",
            2,
            "The scenario 's' has no examples.",
        ),
    ],
)
def test_an_error_of_the_syntax_is_a_sentence_with_its_line(text: str, line: int, message: str) -> None:
    assert list_problems(text) == [(line, message)]


def test_all_problems_of_all_files_are_told_at_once() -> None:
    with pytest.raises(HarnessInvalid) as caught:
        parse_harness({"b.feature": "Foo", "a.feature": scenario("Then foo is bar", "And bar is foo")})
    assert [(problem.path, problem.line) for problem in caught.value.problems] == [
        ("a.feature", 3),
        ("a.feature", 4),
        ("b.feature", 1),
    ]
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    assert caught.value.kind == "harness_invalid"


def test_a_problem_reads_as_one_sentence() -> None:
    assert str(HarnessProblem("a.feature", 3, "The step is wrong.")) == "a.feature, line 3: The step is wrong."


def test_a_problem_in_each_example_of_an_outline_is_told_once() -> None:
    text = (
        "Feature: f\n Scenario Outline: s\n  Then tool a is caled\n  And tool <a> is not called\n  Examples:\n"
        "   | a |\n   | b |\n   | c |\n"
    )
    assert [line for line, _ in list_problems(text)] == [3]


def test_a_text_that_two_steps_claim_is_ambiguous() -> None:
    def build(_scope: StepScope) -> Formula:
        raise NotImplementedError

    steps = (
        *OWN_STEPS,
        Step("property", "it is {decision}", "", build),
        Step("property", "it is confirmed", "", build),
    )
    ((_, message),) = list_problems(scenario("When tool a is called", "Then it is confirmed"), steps=steps)
    assert message == (
        "The step 'it is confirmed' has more than one meaning: 'it is {decision}', 'it is confirmed'; change a pattern."
    )


def test_what_a_step_of_a_package_says_about_its_parameters_is_told_with_the_line() -> None:
    def build(_scope: StepScope, number: int) -> Formula:
        raise ValueError(f"{number} is odd")

    steps = (*OWN_STEPS, Step("state", "it is {number} o'clock", "", build))
    assert list_problems(scenario("Then it is 3 o'clock"), steps=steps) == [
        (3, """The step "it is 3 o'clock" cannot be read: 3 is odd.""")
    ]


def outline(steps: int, rows: int, *, step: str = "Then tool <t> is not called", cell: str = "a") -> str:
    lines = [f"    {step}"] * steps
    table = [f"      | {cell} |"] * rows
    return "\n".join(["Feature: f", "  Scenario Outline: s", *lines, "    Examples:", "      | t |", *table])


def test_steps_are_counted_with_all_their_examples_and_backgrounds_before_they_are_made() -> None:
    assert len(parse_harness({"a.feature": outline(20, 100)}).rules) == MAX_STEPS
    message = (
        "With the scenario 's' the scripts have more than 2000 steps, counted once for each example and background"
    )
    assert list_problems(outline(300, 300)) == [(2, f"{message}; write fewer.")]
    background = "\n".join(["Feature: f", "  Background:", *["    Given the artifact of a exists"] * 40])
    scenarios = "\n".join(f"  Scenario: {name}\n    Then tool a is not called" for name in range(50))
    ((line, problem),) = list_problems(f"{background}\n{scenarios}")
    assert (line, "more than 2000 steps" in problem) == (139, True)
    with pytest.raises(HarnessInvalid, match=r"^b\.feature, line 2: With the scenario 's'"):
        parse_harness({"a.feature": outline(20, 60), "b.feature": outline(20, 60)})


@pytest.mark.parametrize(
    "text",
    [
        outline(1, 1, step=f"Then tool {'<t>' * 2_000} is not called", cell="a" * 65_000),
        outline(1, 1, step='Then tool a is not called\n"""\n' + "<t>" * 2_000 + '\n"""', cell="a" * 65_000),
        outline(1, 1, step="Then tool a is not called\n|" + "<t>" * 2_000 + "|", cell="a" * 65_000),
        outline(1, 1, cell="a" * 65_000).replace("Outline: s", "Outline: s" + "<t>" * 2_000),
    ],
    ids=["step", "text", "table", "name"],
)
def test_a_step_that_its_example_makes_too_long_is_refused_before_it_is_made(text: str) -> None:
    ((line, problem),) = list_problems(text)
    assert line == 2
    assert "characters with its examples, and may not have more than 10000; shorten it." in problem


def test_a_scenario_has_few_conditions_since_each_rule_has_them_all() -> None:
    conditions = [f"Given the artifact of a{number} exists" for number in range(MAX_CONDITIONS)]
    assert len(parse_harness({"a.feature": scenario(*conditions, "Then tool a is not called")}).rules) == 1
    ((line, problem),) = list_problems(scenario(*conditions, "When tool a is called", "Then it is refused"))
    assert (line, "a scenario may have 50 steps with Given or When" in problem) == (53, True)


def test_files_that_take_long_to_parse_are_refused() -> None:
    for text in (scenario("Then tool a is not called") + "\n#" * 10_000, "@tag " * 120_000 + "\nFeature: f"):
        ((_, problem),) = list_problems(text)
        assert problem == "With this file the scripts have more than 10000 lines or 500000 characters; shorten them."


@pytest.mark.parametrize("number", ["1000001", "9" * 50, "9" * 5_000])
def test_a_number_that_is_too_large_is_told_with_its_line(number: str) -> None:
    ((line, problem),) = list_problems(scenario(f"Then tool a is called at most {number} times within 1 day"))
    assert line == 3
    assert "may be 1000000 at most; write a smaller one" in problem


def test_a_value_of_thousands_of_digits_is_told_with_its_line() -> None:
    ((line, problem),) = list_problems(scenario("When tool a is called", f"Then its x equals {'9' * 5_000}"))
    assert (line, "has more than 1000 digits; write it as a text in quotes" in problem) == (4, True)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [("a{99999999999}", "the repetition number is too large"), ("(" * 3_000 + ")" * 3_000, "is nested too deep")],
)
def test_a_pattern_that_cannot_be_compiled_is_told_with_its_line(pattern: str, problem: str) -> None:
    ((line, told),) = list_problems(scenario("When tool a is called", f'Then its x matches "{pattern}"'))
    assert (line, problem in told) == (4, True)
