"""Feature files: Gherkin texts in, rules out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.features.tasks.harness.formula import And, Constant, Formerly, Formula, Implies, TracePredicate
from bubbot.features.tasks.harness.steps import (
    KEYWORDS,
    NEED_WHEN,
    OWN_STEPS,
    Duty,
    Keyword,
    Meaning,
    Move,
    Step,
    StepScope,
    answered,
    list_variants,
)

if TYPE_CHECKING:
    from gherkin.errors import ParserError
    from gherkin.parser_types import GherkinDocument
    from gherkin.pickles.compiler import Pickle, PickleStep

_KEYWORDS: dict[str, Keyword] = {"Context": "Given", "Action": "When", "Outcome": "Then"}
_LINES = {
    "#FeatureLine": "Feature:",
    "#RuleLine": "Rule:",
    "#BackgroundLine": "Background:",
    "#ScenarioLine": "Scenario:",
    "#ExamplesLine": "Examples:",
    "#StepLine": "a step",
    "#TagLine": "a tag",
    "#TableRow": "a row of a table",
    "#DocStringSeparator": 'the """ of a text',
    "#EOF": "the end of the file",
    "#Language": "# language:",
}
"""What Gherkin calls a line, and what people write. Comments and empty lines are left out: they may stand anywhere."""
MAX_LINES = 10_000
"""Lines of all files."""
MAX_CHARS = 500_000
"""Characters of all files."""
MAX_STEPS = 2_000
"""Steps of all files, those of an outline or a background once for each scenario that they make."""
MAX_CONDITIONS = 50
"""Steps of a scenario with Given or When, those of its backgrounds included: each of its rules has them all."""
MAX_STEP_CHARS = 10_000
"""The longest step, or name of a scenario, with the values of its example."""
NEAREST_STEPS = 3
NEAREST_SCORE = 45.0
"""How much of 100 a step must be like a text to be named as near."""


class HarnessProblem(Struct, frozen=True):
    """Something wrong with a feature file. Its text is one sentence."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.message}"


class HarnessInvalid(ConfigError):
    """Feature files that cannot be understood; the text has a line for each of the `problems`."""

    kind = "harness_invalid"
    problems: tuple[HarnessProblem, ...] = ()

    def __init__(self, problems: Sequence[HarnessProblem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class HarnessRule(Struct, frozen=True):
    """One Then of a scenario.

    Attributes:
        id: stem of the file, scenario and number; the same as long as no rule is added before it in its scenario.
        line: of the step; that of an outline is the same for all its examples.
        text: the step as written, with the values of its example.
        at: of a move the events that it is about; of a duty None.
        holds: what must hold at those events, or at the end.
    """

    id: str
    path: str
    line: int
    text: str
    scenario: str
    at: Formula | None
    holds: Formula


class Harness(Struct, frozen=True):
    """The rules of a task, in the order of files and lines."""

    rules: tuple[HarnessRule, ...] = ()


def parse_harness(files: Mapping[str, str], steps: Sequence[Step] = OWN_STEPS) -> Harness:
    """Read feature files.

    Args:
        files: texts by path; rules come in the order of paths.
        steps: the vocabulary.

    Raises:
        HarnessInvalid: with the problems of all files.
    """
    reader = _HarnessReader(steps)
    for path in sorted(files):
        reader.read(path, files[path])
    if reader.problems:
        raise HarnessInvalid(sorted(dict.fromkeys(reader.problems), key=lambda each: (each.path, each.line)))
    return Harness(tuple(reader.rules))


class _HarnessReader:
    """Reads one file after the other and collects rules and problems."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.rules: list[HarnessRule] = []
        self.problems: list[HarnessProblem] = []
        self._steps = steps
        self._numbers = Counter[str]()
        self._lines = self._chars = self._steps_made = 0

    def read(self, path: str, text: str) -> None:
        """Read one file."""
        from gherkin import Compiler, Parser
        from gherkin.errors import CompositeParserException, ParserError

        self._lines += len(text.splitlines())
        self._chars += len(text)
        if self._lines > MAX_LINES or self._chars > MAX_CHARS:
            most = f"more than {MAX_LINES} lines or {MAX_CHARS} characters"
            self.report(path, 1, f"With this file the scripts have {most}; shorten them.")
            return
        try:
            document = Parser().parse(text)
        except CompositeParserException as error:
            self.problems.extend(_read_syntax_error(path, each) for each in error.errors)
            return
        except ParserError as error:
            self.problems.append(_read_syntax_error(path, error))
            return
        if oversize := self._find_oversize(document):
            self.report(path, *oversize)
            return
        pickles = Compiler().compile({**document, "uri": path})
        lines = dict(_list_lines(document))
        self._find_empty(path, document, pickles)
        for pickle in pickles:
            _ScenarioReader(self, path, pickle, lines).read()

    def report(self, path: str, line: int, message: str) -> None:
        """Note a problem."""
        self.problems.append(HarnessProblem(path, line, message))

    def find_step(self, text: str) -> tuple[Step, tuple[Any, ...]]:
        """Find the step of a text, with its parameters. Raise `ValueError`, a sentence, unless there is exactly one."""
        try:
            found = [(step, values) for step in self._steps if (values := step.match(text)) is not None]
        except ValueError as error:
            raise ValueError(f"The step {text!r} cannot be read: {error}.") from error
        if len(found) == 1:
            return found[0]
        if found:
            patterns = ", ".join(repr(step.pattern) for step, _ in found)
            raise ValueError(f"The step {text!r} has more than one meaning: {patterns}; change a pattern.")
        near = find_nearest_patterns(text, [step.pattern for step in self._steps])
        advice = f"the nearest steps are {', '.join(map(repr, near))}" if near else "see the list of steps"
        raise ValueError(f"The step {text!r} is unknown; {advice}.")

    def number_rule(self, path: str, scenario: str) -> str:
        """Return the id of the next rule of a scenario."""
        slug = re.sub(r"\W+", "-", scenario.lower()).strip("-") or "scenario"
        name = f"{PurePosixPath(path).stem}/{slug}"
        self._numbers[name] += 1
        return f"{name}/{self._numbers[name]}"

    def _find_oversize(self, document: GherkinDocument) -> tuple[int, str] | None:
        """Count the steps before they are made; return the line of the scenario with which there are too many, and a sentence."""
        for scenario, background in _list_scenarios(document):
            line, name = scenario["location"]["line"], scenario["name"]
            rows = [row for each in scenario["examples"] for row in each["tableBody"]]
            steps = [*background, *scenario["steps"]]
            self._steps_made += len(steps) * (len(rows) if scenario["examples"] else 1)
            if self._steps_made > MAX_STEPS:
                most = f"the scripts have more than {MAX_STEPS} steps, counted once for each example and background"
                return line, f"With the scenario {name[:40]!r} {most}; write fewer."
            longest = max((len(cell["value"]) for row in rows for cell in row["cells"]), default=0)
            for text in (name, *(words for step in steps for words in _list_words(step))):
                if (size := len(text) + text.count("<") * longest) > MAX_STEP_CHARS:
                    most = f"may have {size} characters with its examples, and may not have more than {MAX_STEP_CHARS}"
                    return line, f"The step {text[:40]!r} {most}; shorten it."
        return None

    def _find_empty(self, path: str, document: GherkinDocument, pickles: Sequence[Pickle]) -> None:
        compiled = {pickle["astNodeIds"][0] for pickle in pickles if pickle["steps"]}
        scenarios = [scenario for scenario, _ in _list_scenarios(document)]
        for scenario in scenarios:
            if scenario["id"] not in compiled:
                lacks = "examples" if scenario["steps"] else "steps"
                self.report(path, scenario["location"]["line"], f"The scenario {scenario['name']!r} has no {lacks}.")
        if not scenarios:
            self.report(path, 1, "The file has no scenario; write Feature: and Scenario:, or remove the file.")


class _UsedStep(Struct, frozen=True):
    """A step as it stands in a scenario."""

    step: Step
    values: tuple[Any, ...]
    text: str
    line: int


class _ScenarioReader:
    """Reads the steps of one scenario, or of one example of an outline."""

    def __init__(self, harness: _HarnessReader, path: str, pickle: Pickle, lines: Mapping[str, int]) -> None:
        self._harness = harness
        self._path = path
        self._pickle = pickle
        self._lines = lines
        self._used: dict[Keyword, list[_UsedStep]] = {"Given": [], "When": [], "Then": []}
        self._is_clear = True

    def read(self) -> None:
        """Add the rules of the scenario to the harness, or its problems."""
        number = len(self._harness.problems)
        for pickled in self._pickle["steps"]:
            line = self._lines.get(pickled["astNodeIds"][0], self._pickle["location"]["line"])
            try:
                self._read_step(pickled, line)
            except ValueError as error:
                self._is_clear = False  # what follows from a step that is not understood would mislead
                self._harness.report(self._path, line, str(error))
        if self._pickle["steps"] and self._is_clear and not self._used["Then"]:
            message = f"The scenario {self._pickle['name']!r} has no Then, so it has no rule."
            self._harness.report(self._path, self._pickle["location"]["line"], message)
        if len(self._harness.problems) > number:
            return
        scope = StepScope(next((each.values[0] for each in self._used["Given"] if each.step.kind == "scope"), ""))
        conditions = [
            _make_formula(self._build(each, scope)) for each in self._used["Given"] if each.step.kind != "scope"
        ]
        events = [_make_formula(self._build(each, scope)) for each in self._used["When"]]
        if events:
            scope = StepScope(scope.node, _join([*events, *conditions]))
        for each in self._used["Then"]:
            self._add_rule(each, _interpret(each.step, self._build(each, scope), scope.trigger, conditions))

    def _read_step(self, pickled: PickleStep, line: int) -> None:
        """Note a step. Raise `ValueError`, a sentence, if it cannot stand here."""
        text = pickled["text"]
        keyword = _KEYWORDS.get(pickled["type"])
        if keyword is None:
            raise ValueError(f"The step {text!r} needs Given, When or Then before it, not * or And.")
        if "argument" in pickled:
            raise ValueError(f"The step {text!r} takes no table and no text below it; remove it.")
        step, values = self._harness.find_step(text)
        allowed = KEYWORDS[step.kind]
        if keyword not in allowed:
            raise ValueError(f"The step {text!r} cannot follow {keyword}; it can follow {' or '.join(allowed)}.")
        if self._is_clear and (problem := self._find_misplacement(keyword, step)):
            self._harness.report(self._path, line, f"The step {text!r} {problem}.")
        self._used[keyword].append(_UsedStep(step, values, text, line))

    def _find_misplacement(self, keyword: Keyword, step: Step) -> str:
        """Return what is wrong with the place of a step, or an empty text."""
        given, when, then = self._used.values()
        if keyword != "Then" and len(given) + len(when) == MAX_CONDITIONS:
            return f"is one too many before Then: a scenario may have {MAX_CONDITIONS} steps with Given or When"
        if keyword != "Then" and then:
            return "comes after Then; begin a new scenario for it"
        if keyword == "Given" and when:
            return "comes after When; put Given first"
        if step.kind == "scope" and any(each.step.kind == "scope" for each in given):
            return "names a second node; begin a new scenario for it"
        if keyword != "Given" and step.kind in NEED_WHEN and not when:
            return "needs an event before it, such as: When tool {tool} is called"
        if keyword == "When" and when and step.kind != "property":
            return "is a second event; begin a new scenario for it"
        return ""

    def _build(self, used: _UsedStep, scope: StepScope) -> Meaning:
        try:
            return used.step.build(scope, *used.values)
        except ValueError as error:
            self._harness.report(self._path, used.line, f"The step {used.text!r} cannot be read: {error}.")
            return Constant(is_true=True)

    def _add_rule(self, used: _UsedStep, meaning: Move | Duty) -> None:
        scenario = self._pickle["name"]
        self._harness.rules.append(
            HarnessRule(
                id=self._harness.number_rule(self._path, scenario),
                path=self._path,
                line=used.line,
                text=used.text,
                scenario=scenario,
                at=meaning.at if isinstance(meaning, Move) else None,
                holds=meaning.holds,
            )
        )


def _interpret(step: Step, meaning: Meaning, trigger: Formula | None, conditions: Sequence[Formula]) -> Move | Duty:
    """Make a rule of what a step after Then stands for. The trigger of a When includes the conditions of Given."""
    if isinstance(meaning, Move):
        return meaning if trigger is not None else Move(_join([meaning.at, *conditions]), meaning.holds)
    if isinstance(meaning, Duty):
        if step.kind == "deadline":
            return meaning  # it is about each event of the When, with its conditions
        holds = meaning.holds
    elif trigger is None:
        formula = _make_formula(meaning)
        holds = Formerly(formula) if step.kind == "event" else formula
    elif step.kind == "event":
        return Duty(answered(trigger, _make_formula(meaning)))
    else:
        return Move(trigger, _make_formula(meaning))
    needs = [Formerly(trigger)] if trigger is not None else conditions
    return Duty(Implies(_join(needs), holds) if needs else holds)


def find_nearest_patterns(text: str, patterns: Collection[str]) -> list[str]:
    """Return the patterns that are most like a text, the nearest first, with the words that they let people choose."""
    from rapidfuzz import fuzz, process

    bare = re.sub(r"\"[^\"]*\"|'[^']*'", "{}", text)
    shapes = {each: re.sub(r"\{\w+\}", "{}", each) for pattern in patterns for each in list_variants(pattern)}
    close = process.extract(bare, shapes, scorer=fuzz.ratio, score_cutoff=NEAREST_SCORE, limit=NEAREST_STEPS)
    return [pattern for _, _, pattern in close]


def _make_formula(meaning: Meaning) -> Formula:
    if isinstance(meaning, Move | Duty):
        raise TypeError("Only a step of the kind limit, total or deadline may return a Move or a Duty.")
    return meaning if isinstance(meaning, Formula) else TracePredicate(meaning)


def _join(formulas: Sequence[Formula]) -> Formula:
    return formulas[0] if len(formulas) == 1 else And(tuple(formulas))


def _list_scenarios(document: GherkinDocument) -> Iterator[tuple[Any, list[Any]]]:
    """Yield each scenario, those of rules included, with the steps of its backgrounds."""
    groups: list[tuple[list[Any], Any]] = [([], document.get("feature", {}).get("children", ()))]
    for background, children in groups:
        for child in children:
            if "background" in child:
                background.extend(child["background"]["steps"])
            elif "rule" in child:
                groups.append(([*background], child["rule"]["children"]))
            else:
                yield child["scenario"], background


def _list_lines(document: GherkinDocument) -> Iterator[tuple[str, int]]:
    for scenario, background in _list_scenarios(document):
        for step in (*background, *scenario["steps"]):
            yield step["id"], step["location"]["line"]


def _list_words(step: Any) -> Iterator[str]:
    """Yield the texts of a step, into which the values of an example are put."""
    yield step["text"]
    yield step.get("docString", {}).get("content", "")
    yield from (cell["value"] for row in step.get("dataTable", {}).get("rows", ()) for cell in row["cells"])


def _read_syntax_error(path: str, error: ParserError) -> HarnessProblem:
    """Put an error of the parser into words. Its text is `(line:column): expected: #A, #B, got 'line'`, or free."""
    location = getattr(error, "location", {"line": 1})
    message = re.sub(r"^\(\d+:\d+\): ", "", str(error))
    found = re.fullmatch(r"(?:expected|unexpected end of file, expected): (.*?)(?:, got '(.*)')?", message, re.DOTALL)
    if language := re.fullmatch(r"Language not supported: (.*)", message):
        message = f"Gherkin has no language {language[1]!r}; remove the line"
    elif found is None:
        message = message[:1].upper() + message[1:]
    else:
        expected = ", ".join(word for token, word in _LINES.items() if token in found[1].split(", "))
        problem = "The file ends too early" if found[2] is None else f"{found[2]!r} cannot stand here"
        message = f"{problem}; Gherkin expects {expected}"
    return HarnessProblem(path, location["line"], f"{message.rstrip('.')}.")
