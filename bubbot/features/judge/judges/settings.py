"""The settings of judges: tables in TOML, one a judge, of which `kind` says what it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args

from msgspec import Meta, Struct

from bubbot import plugins
from bubbot.errors import ConfigError
from bubbot.expressions import compile_search
from bubbot.formatting import did_you_mean, show_value
from bubbot.json_schema import find_schema_problems
from bubbot.toml_tables import TableReader, join_path

JUDGE_GROUP = "bubbot.judges"
"""A package offers a function under a name: it gets a `JudgedRun` and returns a `JudgeResult`, at once or as a coroutine."""
MAX_REPEATS = 15

Words: TypeAlias = Annotated[str, Meta(min_length=1, max_length=64_000, extra={"form": "a text that is not empty"})]
Name: TypeAlias = Annotated[
    str, Meta(max_length=200, pattern=r"^\S+\Z", extra={"form": "a name of at most 200 characters without spaces"})
]
ToolPattern: TypeAlias = Annotated[
    str,
    Meta(max_length=200, pattern=r"^[\w.*?-]+\Z", extra={"form": "the name of a tool, or a pattern such as web.*"}),
]
Calls: TypeAlias = Annotated[int, Meta(ge=0, le=10_000)]
Amount: TypeAlias = Annotated[float, Meta(ge=0, le=1e12)]
Score: TypeAlias = Annotated[float, Meta(ge=-1e9, le=1e9)]
Shown: TypeAlias = Literal["question", "expected", "answer", "calls"]


class _Settings(Struct, frozen=True, kw_only=True):
    """Base of the settings of judges."""

    def find_problems(self) -> Iterable[tuple[str, str]]:
        """Yield what is wrong with the values together: the field, and what is wrong with it."""
        return ()

    def find_expectation_problem(self, expected: object) -> str:  # noqa: ARG002 - most need none
        """Say why the expectation of a case, or its absence, does not do; empty if it does."""
        return ""


class ExactSettings(_Settings, frozen=True, kw_only=True):
    """`kind = "exact"`: the answer is this text."""

    KIND: ClassVar[str] = "exact"
    text: Annotated[str | None, Meta(description="The text; default: the expectation of the case.")] = None
    ignore_case: Annotated[bool, Meta(description="`Yes` and `yes` are the same.")] = False
    ignore_space: Annotated[
        bool, Meta(description="Spaces and line feeds at the ends do not count, and several count as one.")
    ] = False

    def find_expectation_problem(self, expected: object) -> str:
        return "" if self.text is not None else _find_text_problem(expected, "text")


class RegexSettings(_Settings, frozen=True, kw_only=True):
    """`kind = "regex"`: a regular expression is found in the answer."""

    KIND: ClassVar[str] = "regex"
    pattern: Annotated[
        str | None, Meta(description="The expression, as Python reads it; default: the expectation of the case.")
    ] = None
    whole: Annotated[bool, Meta(description="It has to match the whole answer.")] = False
    absent: Annotated[bool, Meta(description="It must not be found.")] = False
    ignore_case: Annotated[bool, Meta(description="Capital and small letters are the same.")] = False

    def find_problems(self) -> Iterable[tuple[str, str]]:
        if self.pattern is not None and (problem := find_expression_problem(self.pattern)):
            yield "pattern", problem

    def find_expectation_problem(self, expected: object) -> str:
        if self.pattern is not None:
            return ""
        return _find_text_problem(expected, "pattern") or find_expression_problem(str(expected))


class JsonSchemaSettings(_Settings, frozen=True, kw_only=True):
    """`kind = "json_schema"`: the answer is JSON that fits a JSON Schema (Draft 2020-12)."""

    KIND: ClassVar[str] = "json_schema"
    schema: Annotated[
        dict[str, Any] | None, Meta(description="The JSON Schema as a table; default: the expectation of the case.")
    ] = None
    fenced: Annotated[bool, Meta(description="The JSON may stand in the only Markdown fence of the answer.")] = True

    def find_problems(self) -> Iterable[tuple[str, str]]:
        if self.schema is not None:
            yield from (("schema", problem) for problem in find_schema_problems(self.schema))

    def find_expectation_problem(self, expected: object) -> str:
        problems = [] if self.schema is not None else find_schema_problems(read_schema(expected))
        return f"the expectation of the case is no JSON Schema: {'; '.join(problems)}" if problems else ""


class PythonSettings(_Settings, frozen=True, kw_only=True):
    """`kind = "python"`: a function of an installed package decides."""

    KIND: ClassVar[str] = "python"
    function: Annotated[Name, Meta(description="Its name in the entry-point group `bubbot.judges`.")]
    low: Annotated[Score, Meta(description="The lowest score that it gives.")] = 0.0
    high: Annotated[Score, Meta(description="The highest score that it gives.")] = 1.0
    pass_at: Annotated[
        Score | None, Meta(description="The score from which a run passes, or up to which, if lower is better.")
    ] = None
    lower_is_better: Annotated[bool, Meta(description="A lower score is a better one.")] = False

    def find_problems(self) -> Iterable[tuple[str, str]]:
        try:
            plugins.load(JUDGE_GROUP, self.function)
        except ConfigError as error:
            yield "function", str(error).rstrip(".")
        if self.low >= self.high:
            yield "high", f"it is {self.high:g}, and must be more than low, which is {self.low:g}"
        elif self.pass_at is not None and not self.low <= self.pass_at <= self.high:
            yield "pass_at", f"it is {self.pass_at:g}, and must be from {self.low:g} to {self.high:g}"


class CitedSettings(_Settings, frozen=True, kw_only=True):
    """`kind = "cited"`: the entries that the answer names, as `#12` or `[12]`, are on the tape."""

    KIND: ClassVar[str] = "cited"
    least: Annotated[int, Meta(ge=0, le=1_000, description="How many different entries it has to name at least.")] = 1


class UsedToolsSettings(_Settings, frozen=True, kw_only=True):
    """`kind = "used_tools"`: which tools were called, in which order, and how often. Names may be patterns such as `web.*`."""

    KIND: ClassVar[str] = "used_tools"
    calls: Annotated[
        tuple[ToolPattern, ...], Meta(max_length=200, description="The tools that have to be called.")
    ] = ()
    order: Annotated[
        Literal["any", "sequence", "exactly"],
        Meta(
            description="`any`: in any order. `sequence`: in the order of `calls`, others may come between. `exactly`: these calls and no others."
        ),
    ] = "any"
    least: Annotated[dict[ToolPattern, Calls], Meta(description="The fewest calls of a tool, by name.")] = {}
    most: Annotated[dict[ToolPattern, Calls], Meta(description="The most calls of a tool, by name; 0 forbids it.")] = {}
    failed_count: Annotated[
        bool, Meta(description="Failed calls count for `calls` and `least`, too; for `most` they always do.")
    ] = False

    def find_problems(self) -> Iterable[tuple[str, str]]:
        if not (self.calls or self.least or self.most or self.order == "exactly"):
            yield "calls", 'it is empty, as least and most are: name a tool, or write order = "exactly" for no calls'
        for tool, least in self.least.items():
            if least > self.most.get(tool, least):
                yield join_path("least", tool), f"it is {least}, and must be at most {self.most[tool]}, as in most"


class CostSettings(_Settings, frozen=True, kw_only=True):
    """`kind = "cost"`: what all steps cost. The score is the amount."""

    KIND: ClassVar[str] = "cost"
    unit: Annotated[Literal["usd", "tokens"], Meta(description="US dollars, or tokens read and written.")] = "usd"
    most: Annotated[Amount | None, Meta(description="The amount up to which a run passes; default: none fails.")] = None


class TimeSettings(_Settings, frozen=True, kw_only=True):
    """`kind = "time"`: the seconds from the first step to the answer. The score is the seconds."""

    KIND: ClassVar[str] = "time"
    most: Annotated[Amount | None, Meta(description="The seconds up to which a run passes; default: none fails.")] = (
        None
    )


class ScaleAnchor(Struct, frozen=True, kw_only=True):
    """A point of a scale, in words."""

    score: Annotated[Score, Meta(description="The number.")]
    label: Annotated[str, Meta(min_length=1, max_length=60, extra={"form": "a word"}, description="A word for it.")]
    meaning: Annotated[Words, Meta(description="What an answer is like that gets it.")]


class RubricSettings(_Settings, frozen=True, kw_only=True):
    """`kind = "model"`: a model decides by a rubric."""

    KIND: ClassVar[str] = "model"
    model: Annotated[Name, Meta(description="The model that judges, by name; best not the one that is judged.")]
    rubric: Annotated[Words, Meta(description="What makes an answer good, in words for the model.")]
    anchors: Annotated[
        tuple[ScaleAnchor, ...],
        Meta(max_length=20, description="Points of the scale in words; the lowest and the highest are its ends."),
    ] = ()
    pairwise: Annotated[
        bool,
        Meta(
            description="Compares two answers, in both orders, instead of scoring one: 1 if the second is better, -1 if the first is."
        ),
    ] = False
    pass_at: Annotated[Score | None, Meta(description="The score from which a run passes.")] = None
    repeats: Annotated[
        int, Meta(ge=1, le=MAX_REPEATS, description="How often the model is asked; the mean of its scores counts.")
    ] = 1
    shown: Annotated[
        tuple[Shown, ...], Meta(max_length=4, description="What the model is shown of a run; the answer always.")
    ] = ("question", "expected", "answer")

    def find_problems(self) -> Iterable[tuple[str, str]]:
        if self.pairwise:
            for name, is_set in (("anchors", self.anchors), ("pass_at", self.pass_at is not None)):
                if is_set:
                    yield name, "it has no meaning for a comparison of two answers: remove it, or pairwise"
            return
        scores = sorted(anchor.score for anchor in self.anchors)
        if len(set(scores)) < 2:
            yield "anchors", "a scale needs at least two [[anchors]] with different scores: write one for each end"
        elif len(set(scores)) < len(scores):
            twice = next(low for low, high in pairwise(scores) if low == high)
            yield "anchors", f"two of them have the score {twice:g}: give each its own"
        elif self.pass_at is not None and not scores[0] <= self.pass_at <= scores[-1]:
            yield "pass_at", f"it is {self.pass_at:g}, and must be from {scores[0]:g} to {scores[-1]:g}"


JudgeSettings: TypeAlias = (
    ExactSettings
    | RegexSettings
    | JsonSchemaSettings
    | PythonSettings
    | CitedSettings
    | UsedToolsSettings
    | CostSettings
    | TimeSettings
    | RubricSettings
)
KINDS: Mapping[str, type[JudgeSettings]] = {kind.KIND: kind for kind in get_args(JudgeSettings)}
"""The settings of each kind of judge, by the word in `kind`."""


def read_judge(
    table: Mapping[str, Any], path: str, reader: TableReader, also: Sequence[str] = ()
) -> JudgeSettings | None:
    """Read the table of one judge; None if something is wrong with it.

    Args:
        also: keys of the table that are read elsewhere.
    """
    kind, form, before = table.get("kind"), f"one of {', '.join(KINDS)}", len(reader.problems)
    if kind is None:
        reader.report(f"{path}.kind", f"it is missing: write {form}")
        return None
    if not isinstance(kind, str) or kind not in KINDS:
        hint = did_you_mean(kind, KINDS, before="; ") if isinstance(kind, str) else ""
        reader.report(f"{path}.kind", f"it is {show_value(kind)}, and must be {form}{hint}")
        return None
    values = reader.read(KINDS[kind], table, path, elsewhere=("kind", *also))
    if len(reader.problems) > before:
        return None
    settings: JudgeSettings = KINDS[kind](**values)
    for field, message in settings.find_problems():
        reader.report(f"{path}.{field}", message)
    return settings if len(reader.problems) == before else None


def read_schema(expected: object) -> Any:
    """Return the JSON Schema that a case expects, which may be a text of JSON; what is none as it is."""
    try:
        return json.loads(expected) if isinstance(expected, str) else expected
    except (ValueError, RecursionError):
        return expected


def _find_text_problem(expected: object, field: str) -> str:
    if isinstance(expected, str) and expected:
        return ""
    return f"the case expects {show_value(expected)}: write a text there, or set {field}"


def find_expression_problem(expression: str) -> str:
    """Say why a text is not a regular expression that can be searched; empty if it is one."""
    try:
        compile_search(expression)
    except ValueError as error:
        return str(error)
    return ""
