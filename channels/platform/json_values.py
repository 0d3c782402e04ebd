"""Values of the JSON that a platform sends, checked where they are read: it may hold anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Raw: TypeAlias = Mapping[str, Any]
"""A JSON object as a platform sends it."""


def require_text(value: object) -> str:
    """Return the value if it is a string, an empty one for None. Raise `TypeError` otherwise."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} was sent instead of a text")
    return value


def require_number(value: object) -> int:
    """Return the value if it is a whole number. Raise `TypeError` otherwise."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"a {type(value).__name__} was sent instead of a number")
    return value


def require_object(value: object) -> Raw:
    """Return the value if it is a JSON object. Raise `TypeError` otherwise."""
    if not isinstance(value, dict):
        raise TypeError(f"a {type(value).__name__} was sent instead of an object")
    return value


def find_object(raw: Raw, name: str) -> Raw | None:
    """Return the object in a field, None if there is none. Raise `TypeError` for anything else."""
    value = raw.get(name)
    return None if value is None else require_object(value)


def require_objects(value: object) -> Sequence[Raw]:
    """Return a list of objects, an empty one for None. Raise `TypeError` for anything else."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise TypeError(f"a {type(value).__name__} was sent instead of a list of objects")
    return value
