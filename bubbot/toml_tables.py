"""Reads TOML that people write into classes, and collects everything that is wrong with it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, inspect

from bubbot.errors import ConfigError
from bubbot.formatting import did_you_mean, show_value
from bubbot.json_schema import MAX_DEPTH, MAX_NUMBER_DIGITS, is_too_deep

MAX_SHOWN_PROBLEMS = 20
"""Problems that an error spells out."""
TOO_DEEP = f"its tables and lists are nested deeper than {MAX_DEPTH}: make it flatter"
_PLACE = re.compile(r"\s*\(at (?:line (?P<line>\d+), column \d+|end of document)\)$")
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?)"""
_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+"{0,5}+|'
    r"'{3}(?:[^']|'(?!''))*+'{0,5}+|"
    r"#[^\n]*+|"
    rf"(?P<key>{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+)",
    re.DOTALL,
)
"""Texts of several lines, comments, and what may be a key or a value; it never searches anything twice."""
_LONG_NUMBER = re.compile(r"-?(?:0[xob][0-9A-Fa-f_]+|[0-9_]+)")


class Problem(Struct, frozen=True):
    """What is wrong with what people wrote; `str()` is one sentence.

    Attributes:
        where: the path of a key such as `nodes.summary.after`, or the name of a file, with a colon and the line if it is known;
            empty if the message says it.
        message: what is wrong, and the fix, without the place and the full stop.
        is_warning: it can be used in spite of it.
    """

    where: str
    message: str
    is_warning: bool = False

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return place + self.message + ("" if self.message.endswith(("?", ".")) else ".")


class TablesInvalid(ConfigError):
    """What people wrote cannot be used.

    Attributes:
        problems: everything that is wrong, in the order of what they wrote.
    """

    problems: tuple[Problem, ...] = ()

    def __init__(self, problems: Sequence[Problem]) -> None:
        lines = [str(problem) for problem in problems[:MAX_SHOWN_PROBLEMS]]
        if rest := len(problems) - len(lines):
            lines.append(f"Further problems: {rest}.")
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Read the text of a TOML file; `name` is shown in problems.

    Raises:
        TablesInvalid: it is not TOML, or takes long to read: a key of many parts, a number of many digits, deep tables.
    """
    if oversize := find_oversize(text):
        line, message = oversize
        raise TablesInvalid([Problem(f"{name}:{line}", message)])
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        number = place["line"] if place and place["line"] else text.count("\n") + 1  # else it is the end of the file
        message = f"the file is not TOML: {_PLACE.sub('', str(error))}"
        raise TablesInvalid([Problem(f"{name}:{number}", message)]) from error
    except RecursionError:
        table = None
    if table is None or is_too_deep(table):
        raise TablesInvalid([Problem(name, TOO_DEEP)])
    return table


def find_oversize(text: str) -> tuple[int, str] | None:
    """Find a key or a number in TOML, whole or in part, that takes long to read; return its line and what is wrong with it."""
    for token in _TOKEN.finditer(text):
        key = token["key"] or ""
        if len(key) <= MAX_DEPTH:
            continue
        line = text.count("\n", 0, token.start()) + 1
        if (parts := len(re.findall(_PART, key))) > MAX_DEPTH:
            return line, f"the key has {parts} parts, and may have {MAX_DEPTH}: make it flatter"
        if len(key) > MAX_NUMBER_DIGITS and _LONG_NUMBER.fullmatch(key):
            return line, f"the number has more than {MAX_NUMBER_DIGITS} digits: write it as a text in quotes"
    return None


class TableReader:
    """Reads tables field by field, since msgspec stops at the first error.

    The declaration of a field may carry, in the `extra` of its `Meta`: `form`, what it takes in words, and `read`, which makes
    its value of a text that people may write instead, and returns any other text as it is.

    Attributes:
        problems: all that is wrong so far.
    """

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def report(self, path: str, message: str) -> None:
        """Add a problem; see `Problem`."""
        self.problems.append(Problem(path, message))

    def read(
        self,
        kind: type[Struct],
        table: Mapping[str, Any],
        path: str = "",
        *,
        elsewhere: Sequence[str] = (),
        hidden: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Return the values of a table that are right, by field; those that are missing have a problem or a default.

        Args:
            path: of the table; empty for the whole file.
            elsewhere: keys that are read elsewhere.
            hidden: fields that are no keys.
        """
        fields = {key: each for key, each in _fields_of(kind).items() if each.name not in hidden}
        keys, values = [*(key for key in elsewhere if key not in fields), *fields], dict[str, Any]()
        for key, value in table.items():
            if key not in keys:
                there = f"; there are: {', '.join(keys)}"
                hint = did_you_mean(key, keys, otherwise=there, before="; ")
                self.report(join_path(path, key), f"unknown key{hint}")
            elif key not in elsewhere:
                values[fields[key].name] = self._read_value(fields[key].type, value, join_path(path, key))
        for key, each in fields.items():
            if each.required and key not in table and key not in elsewhere:
                self.report(join_path(path, key), f"it is missing: write {_describe(each.type)}")
        return values

    def make(self, kind: type[Struct], table: object, path: str) -> Any:
        """Make an object of a table; None if something is wrong with it."""
        if not isinstance(table, Mapping):
            self.report(path, f"it is {show_value(table)}, and must be a table")
            return None
        before = len(self.problems)
        values = self.read(kind, table, path)
        return kind(**values) if len(self.problems) == before else None

    def _read_value(self, annotation: Any, value: Any, path: str) -> Any:
        kind = _strip(annotation)
        if get_origin(kind) is tuple:
            if not isinstance(value, list):
                self.report(path, f"it is {show_value(value)}, and must be a list, in brackets")
                return ()
            items = [self._read_value(get_args(kind)[0], each, f"{path}[{place}]") for place, each in enumerate(value)]
            if (most := _find_most(annotation)) is not None and len(items) > most:
                self.report(path, f"it has {len(items)} items, and may have {most}: remove some")
            return tuple(items)
        if isinstance(kind, type) and issubclass(kind, Struct):
            return self.make(kind, value, path)
        if get_origin(kind) is dict and isinstance(value, Mapping) and (parts := get_args(kind))[1] is not Any:
            named = {key: self._read_value(parts[1], each, join_path(path, key)) for key, each in value.items()}
            for key in named:
                self._read_value(parts[0], key, join_path(path, key))
            return named
        try:
            return msgspec.convert(value, annotation)
        except msgspec.ValidationError:
            return self._read_text(annotation, value, path)

    def _read_text(self, annotation: Any, value: Any, path: str) -> Any:
        """Return the value that a text stands for; report what is wrong if there is none."""
        if isinstance(value, str) and (read := _find_marks(annotation)[1].get("read")) is not None:
            try:
                return msgspec.convert(read(value), annotation)
            except msgspec.ValidationError:
                pass
        self.report(path, _explain(annotation, value))
        return None


@cache
def _fields_of(kind: type[Struct]) -> Mapping[str, msgspec.structs.FieldInfo]:
    """Return the fields by key. To find them takes longer than to read a table, so it is done once."""
    return {each.encode_name: each for each in msgspec.structs.fields(kind)}


def join_path(path: str, key: str) -> str:
    """Return the path of a key within a table; a key that is long or has other characters is quoted."""
    return f"{path}." * bool(path) + (key if re.fullmatch(r"[\w-]{1,64}", key) else show_value(key))


def _explain(annotation: Any, value: Any) -> str:
    info, _ = _find_marks(annotation)
    if isinstance(info, inspect.StrType) and isinstance(value, str) and len(value) > (info.max_length or len(value)):
        return f"it has {len(value)} characters, and may have {info.max_length}: shorten it"
    return f"it is {show_value(value)}, and must be {_describe(annotation, value)}"


def _describe(annotation: Any, value: Any = None) -> str:
    """Say what a field takes, by its declaration."""
    info, marks = _find_marks(annotation)
    if isinstance(info, inspect.UnionType):
        return "a text in quotes, or a list of texts"
    if isinstance(info, inspect.LiteralType):
        choices = [str(each) for each in get_args(_strip(annotation))]
        hint = did_you_mean(value, choices, before="; ") if isinstance(value, str) else ""
        return f"one of {', '.join(choices)}{hint}"
    if form := marks.get("form"):
        return str(form)
    if isinstance(info, inspect.IntType | inspect.FloatType):
        return _describe_range(info)
    return _FORMS.get(type(info), "a text in quotes")


_FORMS: Mapping[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.DictType: "a table",
    inspect.VarTupleType: "a list, in brackets",
}


def _describe_range(info: inspect.IntType | inspect.FloatType) -> str:
    if isinstance(info, inspect.IntType):
        return f"a whole number from {info.ge} to {info.le}"
    return f"a number {f'more than {info.gt:g} and at most' if info.ge is None else f'from {info.ge:g} to'} {info.le:g}"


def _find_marks(annotation: Any) -> tuple[inspect.Type, Mapping[str, Any]]:
    """Return a type without its marks and without `| None`, and the `extra` of its marks, the outer ones first."""
    info, marks = inspect.type_info(annotation), dict[str, Any]()
    while isinstance(info, inspect.Metadata | inspect.UnionType):
        if isinstance(info, inspect.Metadata):
            marks, info = {**(info.extra or {}), **marks}, info.type
        elif len(rest := [each for each in info.types if not isinstance(each, inspect.NoneType)]) == 1:
            info = rest[0]  # TOML has no null
        else:
            break
    return info, marks


def _strip(annotation: Any) -> Any:
    """Return a type without its marks and without `| None`."""
    while True:
        if hasattr(annotation, "__metadata__"):
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in (Union, UnionType) and type(None) in get_args(annotation):
            annotation = next(each for each in get_args(annotation) if each is not type(None))
        else:
            return annotation


def _find_most(annotation: Any) -> int | None:
    marks = getattr(annotation, "__metadata__", ())
    return next((mark.max_length for mark in marks if isinstance(mark, Meta) and mark.max_length is not None), None)
