"""The settings of judges: tables in TOML, one a judge, of which `kind` says what it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Meta, Struct

from bubbot.errors import ConfigError
from bubbot.formatting import did_you_mean, show_value

JUDGE_NAME = r"[a-z][a-z0-9_-]{0,31}"
JUDGE_NAME_FORM = "1 to 32 small letters, digits, _ and -, a letter first"
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


class JudgeProblem(Struct, frozen=True):
    """What is wrong with the settings of a judge; `str()` is one sentence.

    Attributes:
        where: the path of the field, such as `judges.tone.repeats`.
        message: the value and the fix, without the full stop.
    """

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" + ("" if self.message.endswith(("?", ".")) else ".")


class JudgeInvalid(ConfigError):
    """Settings of judges that cannot be used.

    Attributes:
        problems: everything that is wrong, in the order of the tables.
    """

    kind = "judge_invalid"
    problems: tuple[JudgeProblem, ...] = ()

    def __init__(self, problems: Sequence[JudgeProblem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class _Settings(Struct, frozen=True, kw_only=True):
    """Base of the settings of judges."""

    def find_problems(self) -> Iterable[tuple[str, str]]:
        """Yield what is wrong with the values together: the field, and what is wrong with it."""
        return ()


class ExactSettings(_Settings, frozen=True, kw_only=True):
    """`kind = "exact"`: the answer is this text."""

    KIND: ClassVar[str] = "exact"
    text: Annotated[str | None, Meta(description="The text; default: the expectation of the case.")] = None
    ignore_case: Annotated[bool, Meta(description="`Yes` and `yes` are the same.")] = False
    ignore_space: Annotated[
        bool, Meta(description="Spaces and line feeds at the ends do not count, and several count as one.")
    ] = False


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
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                yield "pattern", f"it is {show_value(self.pattern)}, which is not a regular expression: {error}"


class JsonSchemaSettings(_Settings, frozen=True, kw_only=True):
    """`kind = "json_schema"`: the answer is JSON that fits a JSON Schema (Draft 2020-12)."""

    KIND: ClassVar[str] = "json_schema"
    schema: Annotated[
        dict[str, Any] | None, Meta(description="The JSON Schema as a table; default: the expectation of the case.")
    ] = None
    fenced: Annotated[bool, Meta(description="The JSON may stand in the only Markdown fence of the answer.")] = True

    def find_problems(self) -> Iterable[tuple[str, str]]:
        if self.schema is not None and (problem := find_schema_problem(self.schema)):
            yield "schema", problem


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
                yield f"least.{_quote_key(tool)}", f"it is {least}, and must be at most {self.most[tool]}, as in most"


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


def read_judges(tables: object, where: str = "judges") -> dict[str, JudgeSettings]:
    """Read the tables of judges by name, such as `[judges.tone]`; `where` is the path of the table around them.

    Raises:
        JudgeInvalid: with everything that is wrong: unknown keys, wrong values, values that do not go together.
    """
    if not isinstance(tables, Mapping):
        raise JudgeInvalid([JudgeProblem(where, f"it is {show_value(tables)}, and must be tables [{where}.NAME]")])
    problems = list[JudgeProblem]()
    judges = dict[str, JudgeSettings]()
    for name, table in tables.items():
        path = f"{where}.{_quote_key(name)}"
        if not re.fullmatch(JUDGE_NAME, name):
            problems.append(JudgeProblem(path, f"{name!r} is not the name of a judge: write {JUDGE_NAME_FORM}"))
        try:
            judges[name] = read_judge(table, path)
        except JudgeInvalid as error:
            problems += error.problems
    if problems:
        raise JudgeInvalid(problems)
    return judges


def read_judge(table: object, where: str) -> JudgeSettings:
    """Read the table of one judge; `where` is its path. Raise `JudgeInvalid` as `read_judges` does."""
    if not isinstance(table, Mapping):
        raise JudgeInvalid([JudgeProblem(where, f"it is {show_value(table)}, and must be a table [{where}]")])
    kind = table.get("kind")
    path, form = f"{where}.kind", f"one of {', '.join(KINDS)}"
    if kind is None:
        raise JudgeInvalid([JudgeProblem(path, f"it is missing: write {form}")])
    if not isinstance(kind, str) or kind not in KINDS:
        hint = did_you_mean(kind, KINDS, before="; ") if isinstance(kind, str) else ""
        raise JudgeInvalid([JudgeProblem(path, f"it is {show_value(kind)}, and must be {form}{hint}")])
    rest = {key: value for key, value in table.items() if key != "kind"}
    problems = list[JudgeProblem]()
    values = _read_fields(KINDS[kind], rest, where, problems)
    if not problems:
        settings: JudgeSettings = KINDS[kind](**values)
        problems = [JudgeProblem(f"{where}.{field}", message) for field, message in settings.find_problems()]
        if not problems:
            return settings
    raise JudgeInvalid(problems)


def _read_fields(
    kind: type[Struct], table: Mapping[str, Any], where: str, problems: list[JudgeProblem]
) -> dict[str, Any]:
    """Read the fields of a class one by one, since msgspec stops at the first error; add what is wrong."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    values = dict[str, Any]()
    for key, value in table.items():
        path = f"{where}.{_quote_key(key)}"
        if key not in fields:
            hint = did_you_mean(key, fields, otherwise=f"; there are: {', '.join(fields)}", before="; ")
            problems.append(JudgeProblem(path, f"unknown key{hint}"))
        else:
            values[key] = _read_value(fields[key].type, value, path, problems)
    problems += [
        JudgeProblem(f"{where}.{name}", "it is missing: write a value for it")
        for name, field in fields.items()
        if name not in table and field.default is NODEFAULT and field.default_factory is NODEFAULT
    ]
    return values


def _read_value(annotation: Any, value: Any, path: str, problems: list[JudgeProblem]) -> Any:
    kind = _strip(annotation)
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            problems.append(JudgeProblem(path, f"it is {show_value(value)}, and must be a list, in brackets"))
            return ()
        item = get_args(kind)[0]
        items = [_read_value(item, each, f"{path}[{index}]", problems) for index, each in enumerate(value)]
        if (most := _find_most(annotation)) is not None and len(items) > most:
            problems.append(JudgeProblem(path, f"it has {len(items)} items, and may have {most}: remove some"))
        return tuple(items)
    if isinstance(kind, type) and issubclass(kind, Struct):
        if not isinstance(value, Mapping):
            problems.append(JudgeProblem(path, f"it is {show_value(value)}, and must be a table"))
            return None
        before = len(problems)
        values = _read_fields(kind, value, path, problems)
        return kind(**values) if len(problems) == before else None
    if get_origin(kind) is dict and isinstance(value, Mapping) and (parts := get_args(kind))[1] is not Any:
        named = {key: _read_value(parts[1], each, f"{path}.{_quote_key(key)}", problems) for key, each in value.items()}
        for key in named:
            _read_value(parts[0], key, f"{path}.{_quote_key(key)}", problems)
        return named
    try:
        return msgspec.convert(value, annotation)
    except msgspec.ValidationError:
        problems.append(JudgeProblem(path, f"it is {show_value(value)}, and must be {_describe(annotation, value)}"))
        return None


def _describe(annotation: Any, value: Any) -> str:
    """Say what a field takes, by its declaration."""
    kind, form = msgspec.inspect.type_info(annotation), ""
    while isinstance(kind, msgspec.inspect.Metadata | msgspec.inspect.UnionType):
        if isinstance(kind, msgspec.inspect.UnionType):  # TOML has no null
            kind = next(each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType))
        else:
            form, kind = form or str((kind.extra or {}).get("form", "")), kind.type
    match kind:
        case _ if form:
            return form
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.IntType():
            return f"a whole number from {kind.ge} to {kind.le}"
        case msgspec.inspect.FloatType():
            return f"a number from {kind.ge:g} to {kind.le:g}"
        case msgspec.inspect.LiteralType():
            choices = [str(each) for each in get_args(_strip(annotation))]
            hint = did_you_mean(value, choices, before="; ") if isinstance(value, str) else ""
            return f"one of {', '.join(choices)}{hint}"
        case msgspec.inspect.DictType():
            return "a table"
        case _:
            return "a text in quotes"


def _strip(annotation: Any) -> Any:
    """Return a type without its marks and without `| None`."""
    while True:
        if hasattr(annotation, "__metadata__"):
            annotation = get_args(annotation)[0]
        elif type(None) in get_args(annotation):
            annotation = next(each for each in get_args(annotation) if each is not type(None))
        else:
            return annotation


def _find_most(annotation: Any) -> int | None:
    marks = getattr(annotation, "__metadata__", ())
    return next((mark.max_length for mark in marks if isinstance(mark, Meta) and mark.max_length is not None), None)


def find_schema_problem(schema: object) -> str:
    """Say why a value is not a JSON Schema; empty if it is one. References stay within it: nothing is fetched."""
    if not isinstance(schema, dict):
        return f"it is {show_value(schema)}, and must be a JSON Schema, which is a table"
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import best_match

    # A regular expression that is none would fail only when an answer meets it.
    meta = Draft202012Validator(Draft202012Validator.META_SCHEMA, format_checker=FormatChecker(["regex"]))
    try:
        worst = best_match(meta.iter_errors(schema))
    except RecursionError:
        return "the JSON Schema is nested too deep: make it flatter"
    return f"at {worst.json_path} of the JSON Schema: {worst.message}" if worst else ""


def _quote_key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]{1,64}", key) else show_value(key)
