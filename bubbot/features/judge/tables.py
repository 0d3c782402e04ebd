"""Reads tables of TOML into classes, and collects everything that is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, inspect

from bubbot.formatting import did_you_mean, show_value
from bubbot.json_schema import MAX_NUMBER_DIGITS


class TableReader:
    """Reads tables field by field, since msgspec stops at the first error.

    Attributes:
        problems: each a path and what is wrong there with the fix, without the full stop.
    """

    def __init__(self) -> None:
        self.problems: list[str] = []

    def report(self, path: str, message: str) -> None:
        """Add a problem."""
        self.problems.append(f"{path}: {message}")

    def read(
        self,
        kind: type[Struct],
        table: Mapping[str, Any],
        path: str = "",
        *,
        elsewhere: Iterable[str] = (),
        hidden: Iterable[str] = (),
    ) -> dict[str, Any]:
        """Return the values of a table that are right, by field; those that are missing have a problem or a default.

        Args:
            path: of the table; empty for the whole file.
            elsewhere: keys that are read elsewhere.
            hidden: fields that are no keys.
        """
        fields = {each.encode_name: each for each in msgspec.structs.fields(kind) if each.name not in hidden}
        keys, values = dict.fromkeys([*elsewhere, *fields]), dict[str, Any]()
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
            self.report(path, f"it is {show_value(value)}, and must be {_describe(annotation, value)}")
            return None


def find_large_numbers(value: object, path: str = "") -> Iterator[str]:
    """Yield the paths of whole numbers with so many digits that Python does not write them. The value is not too deep."""
    if isinstance(value, int) and abs(value) >= 10**MAX_NUMBER_DIGITS:
        yield path
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from find_large_numbers(each, join_path(path, key))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from find_large_numbers(each, f"{path}[{place}]")


def join_path(path: str, key: str) -> str:
    """Return the path of a key within a table."""
    return f"{path}." * bool(path) + (key if re.fullmatch(r"[\w-]{1,64}", key) else show_value(key))


def _describe(annotation: Any, value: Any = None) -> str:
    """Say what a field takes, by its declaration."""
    info, form = inspect.type_info(annotation), ""
    while isinstance(info, inspect.Metadata | inspect.UnionType):
        if isinstance(info, inspect.Metadata):
            form, info = form or str((info.extra or {}).get("form", "")), info.type
        elif len(rest := [each for each in info.types if not isinstance(each, inspect.NoneType)]) == 1:
            info = rest[0]  # TOML has no null
        else:
            return "a text in quotes, or a list of texts"
    if isinstance(info, inspect.StrType) and isinstance(value, str) and len(value) > (info.max_length or len(value)):
        return f"at most {info.max_length} characters long: it has {len(value)}"
    if isinstance(info, inspect.LiteralType):
        choices = [str(each) for each in get_args(_strip(annotation))]
        hint = did_you_mean(value, choices, before="; ") if isinstance(value, str) else ""
        return f"one of {', '.join(choices)}{hint}"
    if isinstance(info, inspect.IntType | inspect.FloatType):
        return form or _describe_range(info)
    return form or _FORMS.get(type(info), "a text in quotes")


_FORMS: Mapping[type[inspect.Type], str] = {
    inspect.BoolType: "true or false",
    inspect.DictType: "a table",
    inspect.VarTupleType: "a list, in brackets",
}


def _describe_range(info: inspect.IntType | inspect.FloatType) -> str:
    if isinstance(info, inspect.IntType):
        return f"a whole number from {info.ge} to {info.le}"
    return f"a number {f'more than {info.gt:g} and at most' if info.ge is None else f'from {info.ge:g} to'} {info.le:g}"


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
