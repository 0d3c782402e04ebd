"""Comparing two setups: the mean difference, its interval, the cases that flipped, and what counts as more than chance."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import comb, inf, nan, sqrt
from typing import Any

import pytest

from bubbot.features.judge.statistics import (
    MAX_EXACT_CASES,
    MIN_RESAMPLES,
    FlippedCase,
    PassFlips,
    Scores,
    SetupComparison,
    compare_setups,
    compute_mcnemar,
    find_flips,
    resample_interval,
    student_quantile,
)


def compare(before: Scores, after: Scores, **options: Any) -> SetupComparison:
    return compare_setups(before, after, **({"seed": 1, "resamples": MIN_RESAMPLES} | options))


def cases(*scores: float) -> dict[str, list[float]]:
    return {f"case {number}": [score] for number, score in enumerate(scores)}


class TestComparison:
    def test_each_case_counts_once_however_often_it_was_repeated(self) -> None:
        comparison = compare({"a": [0.0] * 9, "b": [1.0]}, {"a": [1.0], "b": [1.0, 0.0]})
        assert (comparison.cases, comparison.difference) == (2, 0.25)

    def test_cases_without_a_score_on_one_side_are_left_out_and_named(self) -> None:
        comparison = compare({"b": [1.0], "a": [0.0], "c": []}, {"b": [1.0], "c": [1.0], "d": [1.0]})
        assert comparison.left_out == ("a", "c", "d")
        assert (comparison.cases, comparison.difference) == (1, 0.0)

    def test_without_common_cases_nothing_differs(self) -> None:
        assert compare({"a": [1.0]}, {"b": [1.0]}) == SetupComparison("no difference", 0, ("a", "b"), 0.0, None)

    def test_one_case_has_no_interval_and_no_verdict(self) -> None:
        comparison = compare({"a": [1.0] * 50}, {"a": [0.0] * 50})
        assert (comparison.interval, comparison.verdict, comparison.difference) == (None, "no difference", -1.0)

    def test_a_clear_loss_is_a_regression_and_the_other_way_round_an_improvement(self) -> None:
        good, bad = cases(*[1.0] * 20), cases(*[0.0, 1.0] * 10)
        loss = compare(good, bad)
        assert loss.verdict == "regression"
        assert loss.interval is not None
        assert loss.interval[0] < loss.difference == -0.5 < loss.interval[1] < 0
        assert compare(bad, good).verdict == "improvement"

    def test_five_cases_are_too_few_to_tell_a_difference_from_chance(self) -> None:
        rest = [1.0] * 50
        assert compare(cases(*rest, *[1.0] * 5), cases(*rest, *[0.0] * 5)).verdict == "no difference"
        assert compare(cases(*rest, *[1.0] * 6), cases(*rest, *[0.0] * 6)).verdict == "regression"

    def test_what_only_rounding_tells_apart_is_equal(self) -> None:
        thirds = {"a": [0.1 + 0.2], "b": [0.3] * 3}
        comparison = compare(thirds, {"a": [0.3], "b": [0.3]})
        assert (comparison.difference, comparison.interval) == (0.0, (0.0, 0.0))

    def test_an_end_of_the_interval_that_is_zero_but_for_rounding_is_zero(self) -> None:
        # Of 12 cases half are 0.2 better and half 0.2 worse, by numbers whose sums do not cancel exactly.
        before = cases(*[0.4, 0.6, 0.1, 0.3] * 3)
        after = cases(*[0.6, 0.4, 0.3, 0.1] * 3)
        comparison = compare(before, after)
        assert comparison.difference == 0.0
        assert comparison.verdict == "no difference"

    def test_the_order_of_the_cases_does_not_matter_and_the_seed_decides(self) -> None:
        before = {f"{number}": [number % 7 / 7, number % 3 / 3] for number in range(40)}
        after = {f"{number}": [number % 5 / 5] for number in range(40)}
        comparison = compare(before, after)
        assert compare(dict(reversed(before.items())), after) == comparison
        assert compare(before, after, seed=2).interval != comparison.interval

    @pytest.mark.parametrize("score", [nan, inf])
    def test_what_is_no_number_is_refused(self, score: float) -> None:
        with pytest.raises(ValueError, match="case 'a' has a score that is not a number"):
            compare({"a": [score]}, {"a": [1.0]})

    def test_too_few_resamples_are_refused(self) -> None:
        with pytest.raises(ValueError, match="resamples is 1999, and must be at least 2000"):
            compare({}, {}, resamples=1999)


class TestFlips:
    def test_the_cases_that_flipped_are_named_with_their_rates(self) -> None:
        before = {"a": [1.0, 1.0], "b": [0.0, 1.0, 0.0], "c": [1.0], "d": [1.0, 0.0]}
        after = {"a": [0.0, 0.0], "b": [1.0, 1.0], "c": [1.0], "d": [0.0, 1.0]}
        gained, lost = (FlippedCase("b", 1 / 3, 1.0),), (FlippedCase("a", 1.0, 0.0),)
        assert find_flips(before, after, pass_at=1.0) == PassFlips(gained, lost, 1.0)

    def test_a_case_passes_if_more_than_half_of_its_repeats_do(self) -> None:
        flips = find_flips({"a": [1.0, 0.0]}, {"a": [1.0, 1.0, 0.0]}, pass_at=1.0)
        assert [each.case for each in flips.gained] == ["a"]

    def test_the_score_at_the_limit_passes(self) -> None:
        flips = find_flips({"a": [0.5], "b": [1.0]}, {"a": [0.6], "b": []}, pass_at=0.6)
        assert ([each.case for each in flips.gained], flips.lost) == (["a"], ())


class TestMcNemar:
    def test_it_is_the_share_of_all_ways_to_flip_that_are_at_least_as_one_sided(self) -> None:
        for flips in range(1, 13):
            ways = [sum(way) for way in product((0, 1), repeat=flips)]
            for lost in range(flips + 1):
                extreme = sum(abs(2 * way - flips) >= abs(2 * lost - flips) for way in ways)
                expected = float(Fraction(extreme, len(ways)))
                assert compute_mcnemar(flips - lost, lost) == pytest.approx(expected)

    def test_no_flips_say_nothing(self) -> None:
        assert compute_mcnemar(0, 0) == 1.0

    @pytest.mark.parametrize("lost", [0, 400, 470, 500])
    def test_many_flips_are_approximated_as_closely_as_people_read_it(self, lost: int) -> None:
        flips = MAX_EXACT_CASES + 1
        exact = 2 * sum(comb(flips, each) for each in range(lost + 1)) / 2**flips
        approximated = compute_mcnemar(flips - lost, lost)
        assert approximated == pytest.approx(min(1.0, exact), rel=0.01, abs=1e-6)
        assert abs(approximated - exact) > 0 or lost == 500


class TestInterval:
    @pytest.mark.parametrize(
        ("freedom", "value"),
        [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (10, 2.2281), (30, 2.0423), (199, 1.9720)],
    )
    def test_students_quantile_is_that_of_the_tables(self, freedom: int, value: float) -> None:
        assert student_quantile(freedom) == pytest.approx(value, abs=5e-5)

    def test_the_bootstrap_is_that_of_numpy_with_whole_cases_drawn(self) -> None:
        np = pytest.importorskip("numpy")
        rng = np.random.default_rng(5)
        before = rng.normal(0.6, 0.2, (120, 1)) + rng.normal(0, 0.1, (120, 4))
        after = before[:, :3] + rng.normal(-0.05, 0.3, (120, 3))
        # Drawn here: cases with all repeats of both setups, then the means of each.
        drawn = rng.integers(0, 120, (50_000, 120))
        means = after.mean(axis=1)[drawn].mean(axis=1) - before.mean(axis=1)[drawn].mean(axis=1)
        tail = 100 * 0.0242  # of a normal variable above sqrt(120 / 119) times 1.9801, Student's quantile for 119
        low, high = np.percentile(means, [tail, 100 - tail])
        comparison = compare(
            {str(case): [float(each) for each in row] for case, row in enumerate(before)},
            {str(case): [float(each) for each in row] for case, row in enumerate(after)},
            resamples=20_000,
        )
        error = float(means.std())
        assert comparison.interval is not None
        assert comparison.difference == pytest.approx(float(after.mean() - before.mean()))
        assert abs(comparison.interval[0] - low) < 0.05 * error
        assert abs(comparison.interval[1] - high) < 0.05 * error

    def test_with_few_cases_it_is_as_wide_as_students(self) -> None:
        differences = [-0.9, -0.4, -0.1, 0.0, 0.2, 0.3, 0.5, 0.8, 1.1, 1.5]
        mean = sum(differences) / 10
        error = sqrt(sum((each - mean) ** 2 for each in differences) / 9 / 10)
        low, high = resample_interval(differences, seed=1, resamples=20_000)
        assert low == pytest.approx(mean - 2.2622 * error, abs=0.15 * error)
        assert high == pytest.approx(mean + 2.2622 * error, abs=0.15 * error)

    def test_more_repeats_do_not_pass_for_more_cases(self) -> None:
        once = {str(case): [float(case % 2)] for case in range(20)}
        often = {case: scores * 50 for case, scores in once.items()}
        other = {str(case): [float(case % 3 == 0)] for case in range(20)}
        assert compare(often, other).interval == compare(once, other).interval
