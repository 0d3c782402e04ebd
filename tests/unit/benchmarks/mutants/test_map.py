"""Which tests judge a mutant, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.mutants import map as maps
from benchmarks.mutants.map import Map
from benchmarks.mutants.sites import Mutant

RATES, BUDGET = "bubbot/features/budget/rates.py", "bubbot/features/budget/budget.py"
FIRST, SECOND, IMPORTED = (Mutant(RATES, line, line, line + 1, "<", "<=") for line in (5, 6, 7))
OTHER = Mutant(BUDGET, 1, 0, 1, "<", "<=")
MIRRORED = "tests/unit/features/budget/test_rates.py::test_a"
KNOWN = Map(
    {"wide": 1.0, "narrow": 1.0, "slow": 9.0, "other": 1.0, MIRRORED: 1.0, "tests/unit/test_b.py::test_b": 1.0},
    {FIRST: {"wide", "narrow", "slow"}, SECOND: {"wide", "failed"}, IMPORTED: set(), OTHER: {"wide", "other"}},
    {RATES: {"wide", "narrow", "slow", "failed"}, BUDGET: {"wide", "other"}},
)


def test_tests_that_are_quick_and_reach_little_else_come_first() -> None:
    assert KNOWN.tests(FIRST) == ["narrow", "wide", "slow"]


def test_a_test_that_fails_without_the_mutant_does_not_judge() -> None:
    assert KNOWN.tests(SECOND) == ["wide"]


def test_what_the_tests_of_its_place_do_not_notice_is_left_to_those_of_its_file_and_its_folder() -> None:
    assert KNOWN.further_tests(FIRST) == [MIRRORED]
    assert KNOWN.further_tests(SECOND) == [MIRRORED, "narrow", "slow"]


def test_a_place_that_runs_only_while_the_file_is_imported_has_the_tests_of_its_file() -> None:
    assert KNOWN.tests(IMPORTED) == []
    assert KNOWN.further_tests(IMPORTED) == [MIRRORED, "narrow", "wide", "slow"]


def test_tests_that_take_too_long_together_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert KNOWN.count_left_out(FIRST) == 0
    monkeypatch.setattr(maps, "TESTS_SECONDS", 5.0)
    assert KNOWN.tests(FIRST) == ["narrow", "wide"]
    assert KNOWN.count_left_out(FIRST) == 1


def test_a_kept_map_serves_the_draw_it_was_made_for_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "map.json"
    KNOWN.save(file, ["commit abc", "seed 7"])
    assert Map.load(file, ["commit abc", "seed 7"]) == KNOWN
    with pytest.raises(ValueError, match="belongs to commit abc seed 7"):
        Map.load(file, ["commit abc", "seed 8"])
    file.write_text(file.read_text()[:-1])
    with pytest.raises(ValueError, match=r"map\.json is no map"):
        Map.load(file, ["commit abc", "seed 7"])
