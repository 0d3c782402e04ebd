"""The texts that a task is made of: how they are read, and what is wrong with them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.json_schema import MAX_DEPTH, MAX_NUMBER_DIGITS, is_too_deep, refuse_constant

MAX_SHOWN_PROBLEMS = 20
"""Problems that an error spells out."""
_TOML_PLACE = re.compile(r"\s*\(at (?:line (?P<line>\d+), column \d+|end of document)\)$")
_PART = r"""(?:[A-Za-z0-9_-]++|"(?:[^"\\\n]|\\.)*+"?|'[^'\n]*+'?)"""
_TOML_TOKEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*+"{0,5}+|'
    r"'{3}(?:[^']|'(?!''))*+'{0,5}+|"
    r"#[^\n]*+|"
    rf"(?P<key>{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+)",
    re.DOTALL,
)
"""Texts of several lines, comments, and what may be a key or a value; it never searches anything twice."""
_LONG_NUMBER = re.compile(r"-?(?:0[xob][0-9A-Fa-f_]+|[0-9_]+)")


class Problem(Struct, frozen=True):
    """What is wrong with a task; `str()` is one sentence.

    Attributes:
        where: a path within `task.toml` such as `nodes.summary.after`, `config.` and a key, or a file of the task's folder,
            with a colon and the line if it is known.
        message: what is wrong, and the fix, without the place and the full stop.
        is_warning: the task can run in spite of it.
    """

    where: str
    message: str
    is_warning: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" + ("" if self.message.endswith(("?", ".")) else ".")


class DefinitionInvalid(ConfigError):
    """A task, or what a run changes of it, cannot be used.

    Attributes:
        problems: everything that is wrong, in the order of the sources.
    """

    kind = "definition_invalid"
    problems: tuple[Problem, ...] = ()

    def __init__(self, problems: Sequence[Problem]) -> None:
        lines = [str(problem) for problem in problems[:MAX_SHOWN_PROBLEMS]]
        if rest := len(problems) - len(lines):
            lines.append(f"Further problems: {rest}.")
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


def list_words(words: Iterable[str], most: int = 12) -> str:
    """Return words with commas between them, and how many there are more."""
    shown = list(words)
    rest = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + rest if shown else "none"


def read_toml(text: str, path: str) -> dict[str, Any]:
    """Read a TOML file of a task; `path` is shown in problems. Raise `DefinitionInvalid`."""
    if oversize := find_oversize(text):
        at, message = oversize
        raise DefinitionInvalid([Problem(f"{path}:{at}", message)])
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.search(str(error))
        line = place["line"] if place and place["line"] else text.count("\n") + 1  # else it is the end of the file
        reason = _TOML_PLACE.sub("", str(error))
        raise DefinitionInvalid([Problem(f"{path}:{line}", f"the file is not TOML: {reason}")]) from error
    except RecursionError:
        table = None
    if table is None or is_too_deep(table):
        raise DefinitionInvalid([_too_deep(path)])
    return table


def find_oversize(text: str) -> tuple[int, str] | None:
    """Find a key or a number in TOML, whole or in part, that takes long to read; return its line and what is wrong with it."""
    for token in _TOML_TOKEN.finditer(text):
        key = token["key"] or ""
        if len(key) <= MAX_DEPTH:
            continue
        line = text.count("\n", 0, token.start()) + 1
        if (parts := len(re.findall(_PART, key))) > MAX_DEPTH:
            return line, f"the key has {parts} parts, and may have {MAX_DEPTH}: make it flatter"
        if len(key) > MAX_NUMBER_DIGITS and _LONG_NUMBER.fullmatch(key):
            return line, f"the number has more than {MAX_NUMBER_DIGITS} digits: write it as a text in quotes"
    return None


def read_json(text: str, path: str) -> Any:
    """Read a JSON file of a task; `path` is shown in problems. Raise `DefinitionInvalid`."""
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        raise DefinitionInvalid([Problem(f"{path}:{error.lineno}", f"the file is not JSON: {error.msg}")]) from error
    except ValueError as error:
        raise DefinitionInvalid([Problem(path, f"the file is not JSON: {error}")]) from error
    except RecursionError:
        raise DefinitionInvalid([_too_deep(path)]) from None
    if is_too_deep(value):
        raise DefinitionInvalid([_too_deep(path)])
    return value


def _too_deep(path: str) -> Problem:
    return Problem(path, f"its tables and lists are nested deeper than {MAX_DEPTH}: make it flatter")
