"""The texts that a task is made of: how they are read, and what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from bubbot.json_schema import is_too_deep, refuse_constant
from bubbot.toml_tables import TOO_DEEP, Problem, TablesInvalid, parse_toml


class DefinitionInvalid(TablesInvalid):
    """A task, or what a run changes of it, cannot be used; its problems are in the order of the sources.

    They stand at a path within `task.toml`, at `config.` and a key, or in a file of the task's folder.
    """

    kind = "definition_invalid"


def list_words(words: Iterable[str], most: int = 12) -> str:
    """Return words with commas between them, and how many there are more."""
    shown = list(words)
    rest = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + rest if shown else "none"


def read_toml(text: str, path: str) -> dict[str, Any]:
    """Read a TOML file of a task; `path` is shown in problems. Raise `DefinitionInvalid`."""
    try:
        return parse_toml(text, path)
    except TablesInvalid as error:
        raise DefinitionInvalid(error.problems) from error


def read_json(text: str, path: str) -> Any:
    """Read a JSON file of a task; `path` is shown in problems. Raise `DefinitionInvalid`."""
    try:
        value = json.loads(text, parse_constant=refuse_constant)
    except json.JSONDecodeError as error:
        raise DefinitionInvalid([Problem(f"{path}:{error.lineno}", f"the file is not JSON: {error.msg}")]) from error
    except ValueError as error:
        raise DefinitionInvalid([Problem(path, f"the file is not JSON: {error}")]) from error
    except RecursionError:
        raise DefinitionInvalid([Problem(path, TOO_DEEP)]) from None
    if is_too_deep(value):
        raise DefinitionInvalid([Problem(path, TOO_DEEP)])
    return value
