"""The texts that a task is made of: how they are read, and what is wrong with them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.json_schema import MAX_DEPTH, is_too_deep, refuse_constant

MAX_SHOWN_PROBLEMS = 20
"""Problems that an error spells out."""
_TOML_PLACE = re.compile(r"\s*\(at (?:line (?P<line>\d+), column \d+|end of document)\)$")


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
            lines.append(f"There are {rest} more problems.")
        super().__init__("\n".join(lines))
        self.problems = tuple(problems)


def list_words(words: Iterable[str], most: int = 12) -> str:
    """Return words with commas between them, and how many there are more."""
    shown = list(words)
    rest = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + rest if shown else "none"


def read_toml(text: str, path: str) -> dict[str, Any]:
    """Read a TOML file of a task; `path` is shown in problems. Raise `DefinitionInvalid`."""
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
