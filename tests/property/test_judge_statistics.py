"""The verdict about two setups is right as often as it says: equal ones are seldom told apart, a planted loss nearly always.

A random model passes each case with a probability of its own, which both setups share unless a loss is planted. Verdicts of
several comparisons are independent, so that the bounds hold for the seeds here and for nearly all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.features.judge.statistics import MIN_RESAMPLES, Verdict, compare_setups, find_flips

Draw = Callable[[Random, float], float]

OPPOSITE: dict[Verdict, Verdict] = {
    "regression": "improvement",
    "improvement": "regression",
    "no difference": "no difference",
}


def passes(rng: Random, ability: float) -> float:
    return float(rng.random() < ability)


def grade(rng: Random, ability: float) -> float:
    return min(1.0, max(0.0, rng.gauss(ability, 0.2)))


def count_verdicts(
    tries: int, cases: int, repeats: int, *, draw: Draw = passes, loss: float = 0.0, seed: int = 1
) -> Counter[Verdict]:
    """Compare a setup with itself, or with one that passes less often, again and again."""
    rng = Random(seed)
    verdicts = Counter[Verdict]()
    for each in range(tries):
        # From hard to easy, most of them rather easy; none so hard that the loss has no room.
        abilities = {str(case): 0.1 + 0.9 * rng.betavariate(2, 1) for case in range(cases)}
        before = {case: [draw(rng, ability) for _ in range(repeats)] for case, ability in abilities.items()}
        after = {case: [draw(rng, ability - loss) for _ in range(repeats)] for case, ability in abilities.items()}
        comparison = compare_setups(before, after, seed=each, resamples=MIN_RESAMPLES)
        verdicts[comparison.verdict] += 1
    return verdicts


def assert_seldom_flagged(verdicts: Counter[Verdict]) -> None:
    tries = verdicts.total()
    flagged = tries - verdicts["no difference"]
    assert 0.02 * tries <= flagged <= 0.08 * tries, verdicts


def test_equal_setups_are_seldom_told_apart() -> None:
    assert_seldom_flagged(count_verdicts(200, cases=40, repeats=3))


@pytest.mark.proof
@pytest.mark.parametrize("draw", [passes, grade])
@pytest.mark.parametrize(("cases", "repeats"), [(40, 3), (200, 1), (200, 5)])
def test_equal_setups_are_seldom_told_apart_in_a_thousand_tries(cases: int, repeats: int, draw: Draw) -> None:
    assert_seldom_flagged(count_verdicts(1_000, cases, repeats, draw=draw))


def assert_nearly_always_found(verdicts: Counter[Verdict]) -> None:
    assert verdicts["regression"] >= 0.9 * verdicts.total(), verdicts
    assert verdicts["improvement"] == 0


def test_a_loss_of_ten_points_in_two_hundred_cases_is_nearly_always_found() -> None:
    assert_nearly_always_found(count_verdicts(15, cases=200, repeats=3, loss=0.1))


@pytest.mark.proof
@pytest.mark.parametrize("draw", [passes, grade])
def test_a_loss_of_ten_points_is_found_in_nine_of_ten_of_two_hundred_tries(draw: Draw) -> None:
    assert_nearly_always_found(count_verdicts(200, cases=200, repeats=3, draw=draw, loss=0.1))


SCORES = st.dictionaries(
    st.text(max_size=3), st.lists(st.floats(-10, 10, allow_subnormal=False), max_size=3), max_size=12
)


@given(before=SCORES, after=SCORES, seed=st.integers(0, 99))
def test_the_difference_lies_in_its_interval_and_turns_with_the_setups(
    before: dict[str, list[float]], after: dict[str, list[float]], seed: int
) -> None:
    there, back = [
        compare_setups(one, other, seed=seed, resamples=MIN_RESAMPLES)
        for one, other in ((before, after), (after, before))
    ]
    assert back.difference == pytest.approx(-there.difference)
    assert (back.cases, back.left_out) == (there.cases, there.left_out)
    assert back.verdict == OPPOSITE[there.verdict]
    flips, turned = find_flips(before, after, pass_at=0.5), find_flips(after, before, pass_at=0.5)
    assert [each.case for each in turned.gained] == [each.case for each in flips.lost]
    assert turned.p_value == flips.p_value
    assert (there.interval is None) is (there.cases < 2)
    if there.interval is not None and back.interval is not None:
        low, high = there.interval
        assert low - 1e-9 <= high
        assert back.interval == pytest.approx((-high, -low))
