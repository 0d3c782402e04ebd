"""Which tests judge a mutant."""

from __future__ import annotations

import pytest

from benchmarks.mutants.__main__ import Map
from benchmarks.mutants.sites import Mutant

FILE = "bubbot/features/budget/rates.py"
KNOWN = Map(
    {"wide": 1.0, "narrow": 1.0, "other": 1.0},
    {
        FILE: {1: set(), 5: {"wide", "narrow"}, 6: {"wide", "failed"}},
        "bubbot/features/budget/budget.py": {1: {"wide", "other"}},
        "bubbot/imported.py": {1: set()},
    },
)


@pytest.mark.parametrize(
    ("path", "line", "tests"),
    [
        (FILE, 5, ["narrow", "wide"]),
        (FILE, 6, ["wide"]),  # the other one fails without the mutant, too
        (FILE, 7, []),  # nothing runs it
        (FILE, 1, ["narrow", "wide"]),  # it runs while the file is imported
        ("bubbot/imported.py", 1, []),
        ("bubbot/unknown.py", 1, []),
    ],
)
def test_a_mutant_is_judged_by_the_tests_of_its_line_or_of_its_file_if_only_the_import_runs_it(
    path: str, line: int, tests: list[str]
) -> None:
    assert KNOWN.tests(Mutant(path, line, 0, 1, "<", "<=")) == tests


def test_what_its_line_does_not_notice_is_left_to_the_tests_of_its_file_and_its_folder() -> None:
    known = Map(
        {
            "one": 1.0,
            "two": 1.0,
            "tests/unit/features/shell/test_run.py::test_a": 1.0,
            "tests/unit/test_b.py::test_b": 1.0,
        },
        {"bubbot/features/shell/confine.py": {5: {"one"}, 6: {"two", "failed"}}},
    )
    mutant = Mutant("bubbot/features/shell/confine.py", 5, 0, 1, "<", "<=")
    assert known.tests(mutant) == ["one"]
    assert known.further_tests(mutant) == ["tests/unit/features/shell/test_run.py::test_a", "two"]
    assert known.further_tests(Mutant("bubbot/unknown.py", 1, 0, 1, "<", "<=")) == []
