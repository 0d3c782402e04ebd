"""The events of a run, and the checks of their fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from bubbot.expressions import compile_search
from bubbot.features.tasks.facts import EventKind

Comparison: TypeAlias = Literal["equals", "contains", "matches", "is one of", "is at least", "is at most"]
Scalar: TypeAlias = str | int | float | bool | None

ABSENT = object()
"""Stands for the value of a field that is not there; equal to nothing that JSON can say."""
MAX_PLACE_DIGITS = 9
"""Digits of a place in a list; no list has a place with more."""


class RunEvent(Struct, frozen=True):
    """Something that happens in a run.

    Attributes:
        number: 1, 2, … in its run.
        time: seconds since the epoch.
        name: of a call or result the tool; of an artifact, a start or an end the node; of a confirmation or denial the
            node of the gate; of an anchor its name; empty if the run finished.
        node: the node in which it happened; empty for the run itself.
        values: of a call its arguments; of a result `ok`; of an artifact its fields, or `value` if it is no object; of
            an end and of a finish `state`.
    """

    number: int
    time: float
    kind: EventKind
    name: str
    node: str = ""
    values: Mapping[str, Any] = {}


class FieldCheck(Struct, frozen=True):
    """A condition on one field of an event's values.

    A field that is not there passes only a negated check.

    Attributes:
        path: names joined by dots; a number is the place in a list, from 0.
        operand: of `is one of` a tuple; of `matches` a regular expression, which may match anywhere in the text.
        is_negated: the comparison must fail.
    """

    path: str
    comparison: Comparison
    operand: Scalar | tuple[Scalar, ...]
    is_negated: bool = False

    def compile(self) -> Callable[[Mapping[str, Any]], bool]:
        """Build the test of an event's values. Raise `ValueError`, a sentence, if the operand does not fit.

        The test raises `TimeoutError` if a search of `matches` takes too long: then neither the check nor its negation passed.
        """
        keys = self.path.split(".")
        compare = self._compile_comparison()

        def test(values: Mapping[str, Any]) -> bool:
            value = read_field(values, keys)
            return (value is not ABSENT and compare(value)) is not self.is_negated

        return test

    def _compile_comparison(self) -> Callable[[Any], bool]:
        operand = self.operand
        match self.comparison:
            case "equals":
                return partial(is_same, operand)
            case "contains":
                return partial(_contains, operand)
            case "is one of":
                choices = operand if isinstance(operand, tuple) else (operand,)
                return lambda value: any(is_same(choice, value) for choice in choices)
            case "matches":
                return _compile_search(operand)
            case "is at least" | "is at most":
                if not _is_number(operand):
                    raise ValueError(f"{self.comparison} needs a number, not {json.dumps(operand)}")
                limit: Any = operand
                if self.comparison == "is at least":
                    return lambda value: _is_number(value) and value >= limit
                return lambda value: _is_number(value) and value <= limit


def read_field(values: Any, keys: list[str]) -> Any:
    """Return the value at the end of a path, or `ABSENT`."""
    for key in keys:
        if isinstance(values, Mapping):
            if key not in values:
                return ABSENT
            values = values[key]
        elif (
            isinstance(values, list | tuple)
            and key.isdecimal()
            and len(key) <= MAX_PLACE_DIGITS
            and int(key) < len(values)
        ):
            values = values[int(key)]
        else:
            return ABSENT
    return values


def is_same(left: Any, right: Any) -> bool:
    """Return true if two JSON values are equal; unlike in Python, true is not 1."""
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def _compile_search(operand: object) -> Callable[[Any], bool]:
    if not isinstance(operand, str):
        raise ValueError(f"matches needs a regular expression in quotes, not {json.dumps(operand)}")  # noqa: TRY004
    search = compile_search(operand)
    return lambda value: isinstance(value, str) and search(value) is not None


def _contains(operand: Any, value: Any) -> bool:
    if isinstance(value, str):
        return isinstance(operand, str) and operand in value
    if isinstance(value, Mapping):
        return isinstance(operand, str) and operand in value
    return isinstance(value, list | tuple) and any(is_same(operand, item) for item in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
