"""Notes in a source: told when a place is reached, and nothing else changes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchmarks.mutants.annotate import annotate
from benchmarks.mutants.reached import NOTE
from benchmarks.mutants.sites import draw

ROOT = Path(__file__).parents[4]
WHOLE = 99
SOURCE = '''"""A module."""
from __future__ import annotations

def branch(n):
    """Has words."""
    return n > 2 and n + 1 < 9

def loop(n):
    while True:
        if n > 5:
            break
        n += 1
    return n

def name(n):
    match n:
        case 7:
            return "seven"
    return "other"

def text(n):
    return f"{'a' if n > 3 else f'<{n * 2}>'} {n - 1!r:>3}"

def last(*items):
    return sum(item ** 1 for item in items if (half := item // 2) and half)

def store(n):
    found = [0, 0]
    found[n // 1] = 500
    @staticmethod
    def inner(): return found
    return inner()
'''


def run(source: bytes, function: str, *arguments: int) -> tuple[object, list[int]]:
    """Return the result of a function, and what it has noted."""
    notes: list[int] = []
    names: dict[str, object] = {NOTE: notes.append}
    exec(compile(source, "noted.py", "exec"), names)
    called = names[function]
    assert callable(called)
    return called(*arguments), notes


def place(text: str) -> tuple[int, int]:
    start = SOURCE.index(text)
    return start, start + len(text)


@pytest.mark.parametrize(
    ("text", "function", "reaching", "missing"),
    [
        ("n + 1", "branch", 3, 2),
        ("break", "loop", 9, None),
        ("n += 1", "loop", 1, 9),
        ("7", "name", 7, None),  # in a pattern nothing can be noted: all calls of the function are
        ("n * 2", "text", 1, 5),
        ("n - 1", "text", 5, None),
        ("item // 2", "last", 4, None),
        ("n // 1", "store", 1, None),
        ("500", "store", 1, None),
    ],
)
def test_a_place_is_noted_when_it_is_reached(text: str, function: str, reaching: int, missing: int | None) -> None:
    noted = annotate("noted.py", SOURCE.encode(), {17: place(text)}, WHOLE)
    result, notes = run(noted, function, reaching)
    assert result == run(SOURCE.encode(), function, reaching)[0]
    assert set(notes) == {17, WHOLE}
    if missing is not None:
        assert set(run(noted, function, missing)[1]) == {WHOLE}


def test_places_within_each_other_are_noted_one_by_one() -> None:
    places = {1: place("n > 2 and n + 1 < 9"), 2: place("n + 1 < 9"), 3: place("n + 1"), 4: place("n > 2")}
    noted = annotate("noted.py", SOURCE.encode(), places, WHOLE)
    assert run(noted, "branch", 3) == (True, [WHOLE, 1, 4, 2, 3])
    assert run(noted, "branch", 1) == (False, [WHOLE, 1, 4])
    assert ast.get_docstring(ast.parse(noted).body[2]) == "Has words."  # type: ignore[arg-type]


def test_notes_can_be_put_into_the_sources_of_bubbot() -> None:
    drawn = draw(ROOT, ("bubbot/tape",), seed=1, count=15)
    for path in {one.path for one in drawn}:
        places = {number: (one.start, one.end) for number, one in enumerate(drawn) if one.path == path}
        text = annotate(path, (ROOT / path).read_bytes(), places, WHOLE).decode()
        assert [number for number in places if f"{NOTE}({number})" not in text] == []
