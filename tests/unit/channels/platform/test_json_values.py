"""Values of a platform's JSON: what is taken, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from channels.platform.json_values import find_object, require_number, require_object, require_objects, require_text


def find(value: object) -> object:
    return find_object({"x": value}, "x")


@pytest.mark.parametrize(
    ("read", "value", "found"),
    [
        (require_text, "a", "a"),
        (require_text, None, ""),
        (require_number, 0, 0),
        (require_number, -(2**70), -(2**70)),
        (require_object, {"a": 1}, {"a": 1}),
        (find, {}, {}),
        (find, None, None),
        (require_objects, None, ()),
        (require_objects, [], []),
        (require_objects, [{}, {"a": 1}], [{}, {"a": 1}]),
    ],
)
def test_what_is_sent_as_agreed_is_taken(read: Callable[[object], object], value: object, found: object) -> None:
    assert read(value) == found


@pytest.mark.parametrize(
    ("read", "value", "error"),
    [
        (require_text, 7, "a int was sent instead of a text"),
        (require_text, False, "a bool was sent instead of a text"),
        (require_number, True, "a bool was sent instead of a number"),
        (require_number, 1.0, "a float was sent instead of a number"),
        (require_number, None, "a NoneType was sent instead of a number"),
        (require_object, [], "a list was sent instead of an object"),
        (require_object, None, "a NoneType was sent instead of an object"),
        (find, 0, "a int was sent instead of an object"),
        (require_objects, {}, "a dict was sent instead of a list of objects"),
        (require_objects, [{}, None], "a list was sent instead of a list of objects"),
    ],
)
def test_anything_else_is_refused(read: Callable[[object], object], value: object, error: str) -> None:
    with pytest.raises(TypeError, match=f"^{error}$"):
        read(value)


def test_a_missing_object_is_none() -> None:
    assert find_object({}, "x") is None
