"""Comparing two setups over the same cases: how much better or worse the second is, and whether that is more than chance.

Three numbers of the same data. The *mean difference* counts each case once, however often it was repeated. Its *interval* comes
from a paired bootstrap that draws whole cases: the repeats of one case are not independent of each other. *McNemar's test* looks
only at the cases that pass in one setup and fail in the other.

A difference counts once its interval is on one side of zero and at least `MIN_DIFFERING_CASES` cases differ. The resampled
distribution of a few differences is too narrow: with 4 cases that got worse out of 200 it lies below zero, though 1 of 8 pairs
of equal setups with 4 differences looks like that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil, comb, cos, erfc, fsum, isfinite, pi, sin, sqrt
from random import Random
from typing import Literal, TypeAlias

from msgspec import Struct

Verdict: TypeAlias = Literal["regression", "improvement", "no difference"]
Scores: TypeAlias = Mapping[str, Sequence[float]]
"""The scores of one setup by case, one for each repeat. A repeat whose judge failed has none."""

RESAMPLES = 4_000
MIN_RESAMPLES = 2_000
"""With fewer, the ends of a 95 % interval depend on the seed."""
CONFIDENCE = 0.95
MIN_DIFFERING_CASES = 6
"""With 5, all of them in one direction still happens to 1 of 16 pairs of equal setups."""
MAX_EXACT_CASES = 1_000
"""Flipped cases above which McNemar's test is approximated: the exact sum gets slow, and differs in the fourth digit."""


class FlippedCase(Struct, frozen=True):
    """A case that passes in one setup only.

    Attributes:
        before: the share of its repeats that pass in the first setup, from 0 to 1.
        after: the share in the second.
    """

    case: str
    before: float
    after: float


class PassFlips(Struct, frozen=True):
    """The cases that passed in one setup and failed in the other, with McNemar's test of them.

    A case passes if more than half of its repeats do.

    Attributes:
        gained: pass in the second setup only, by name.
        lost: pass in the first setup only, by name.
        p_value: the probability of flips at least as one-sided if the setups are equal; two-sided.
    """

    gained: tuple[FlippedCase, ...]
    lost: tuple[FlippedCase, ...]
    p_value: float


class SetupComparison(Struct, frozen=True):
    """Two setups over the cases that have scores in both.

    Attributes:
        cases: how many count.
        left_out: cases without a score in one setup, by name. If judges failed more often in one, look here first.
        difference: the mean over cases of the second setup's mean over repeats, less that of the first.
        interval: the 95 % interval of the difference; None for fewer than two cases.
    """

    verdict: Verdict
    cases: int
    left_out: tuple[str, ...]
    difference: float
    interval: tuple[float, float] | None


def compare_setups(
    before: Scores,
    after: Scores,
    *,
    seed: int,
    resamples: int = RESAMPLES,
) -> SetupComparison:
    """Compare two setups. The same scores and seed give the same result, whatever the order of the cases.

    Args:
        before: scores of the first setup. A case may have other numbers of repeats in the two.
        after: scores of the second setup.
        resamples: at least `MIN_RESAMPLES`.

    Raises:
        ValueError: a score is not finite, or there are too few resamples.
    """
    if resamples < MIN_RESAMPLES:
        raise ValueError(f"resamples is {resamples}, and must be at least {MIN_RESAMPLES}")
    for scores in (before, after):
        for case, values in scores.items():
            if not all(map(isfinite, values)):
                raise ValueError(f"case {case!r} has a score that is not a number: a judge that fails has no score")
    cases = _list_common(before, after)
    means_before, means_after = _list_means(before, cases), _list_means(after, cases)
    # 0.4 less 0.6 is not quite what 0.2 less 0.4 is: what only rounding tells apart is equal.
    grain = 1e-9 * max(map(abs, (*means_before, *means_after)), default=0.0)
    differences = [_drop_below(grain, second - first) for first, second in zip(means_before, means_after, strict=True)]
    interval = resample_interval(differences, seed=seed, resamples=resamples) if len(cases) > 1 else None
    interval = (_drop_below(grain, interval[0]), _drop_below(grain, interval[1])) if interval else None
    differing = sum(map(bool, differences))
    return SetupComparison(
        verdict=_decide(interval, differing),
        cases=len(cases),
        left_out=tuple(sorted((before.keys() | after.keys()) - set(cases))),
        difference=_mean(differences),
        interval=interval,
    )


def resample_interval(differences: Sequence[float], *, seed: int, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean of differences, one for each case; at least two of them.

    The percentiles are moved outwards as Student's distribution asks for so few cases (Hesterberg 2015, "expanded percentile
    interval"); from 100 cases on that is hardly visible.
    """
    count = len(differences)
    if not any(differences):  # two equal setups: nothing to draw
        return 0.0, 0.0
    rng = Random(seed)  # noqa: S311 - it keeps no secret, and has to be the same each time
    totals = sorted(sum(rng.choices(differences, k=count)) for _ in range(resamples))
    outside = _normal_tail(sqrt(count / (count - 1)) * student_quantile(count - 1))
    place = min(ceil(outside * resamples), resamples // 2) - 1 if outside * resamples > 1 else 0
    return totals[place] / count, totals[-1 - place] / count


def _decide(interval: tuple[float, float] | None, differing: int) -> Verdict:
    if interval is None or differing < MIN_DIFFERING_CASES or interval[0] <= 0 <= interval[1]:
        return "no difference"
    return "improvement" if interval[0] > 0 else "regression"


def find_flips(before: Scores, after: Scores, *, pass_at: float) -> PassFlips:
    """Find the cases that pass in one setup only.

    Args:
        pass_at: the score from which a repeat passes.
    """

    def share(scores: Sequence[float]) -> float:
        return sum(score >= pass_at for score in scores) / len(scores)

    rates = [FlippedCase(case, share(before[case]), share(after[case])) for case in _list_common(before, after)]
    gained = tuple([each for each in rates if each.before <= 0.5 < each.after])
    lost = tuple([each for each in rates if each.after <= 0.5 < each.before])
    return PassFlips(gained, lost, compute_mcnemar(len(gained), len(lost)))


def compute_mcnemar(gained: int, lost: int) -> float:
    """Return the two-sided p-value of McNemar's test.

    Above `MAX_EXACT_CASES` flips it is the normal approximation with a correction for continuity.
    """
    flips = gained + lost
    if flips > MAX_EXACT_CASES:
        return erfc(max(0, abs(gained - lost) - 1) / sqrt(2 * flips))
    # Each of the flips goes either way with the same probability. Integers: nothing is lost.
    tail = sum(comb(flips, each) for each in range(min(gained, lost) + 1))
    return min(1.0, 2 * tail / float(2**flips))


@lru_cache(maxsize=64)
def student_quantile(freedom: int) -> float:
    """Return the value that a variable of Student's distribution stays below, in absolute value, with 95 % probability."""
    low, high = 0.0, pi / 2  # the angle whose tangent is the value over the root of `freedom`
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_share(middle, freedom) < CONFIDENCE else (low, middle)
    return sin(low) / cos(low) * sqrt(freedom)


def _student_share(angle: float, freedom: int) -> float:
    """Return P(|T| <= tan(angle) sqrt(freedom)) by its finite sum, which exists for whole degrees of freedom."""
    square = cos(angle) ** 2
    is_odd = freedom % 2
    term, total = (cos(angle), 0.0) if is_odd else (1.0, 0.0)
    for step in range(freedom // 2):
        total += term
        term *= square * (2 * step + 1 + is_odd) / (2 * step + 2 + is_odd)
    return 2 / pi * (angle + sin(angle) * total) if is_odd else sin(angle) * total


def _normal_tail(value: float) -> float:
    return erfc(value / sqrt(2)) / 2


def _list_common(before: Scores, after: Scores) -> list[str]:
    return sorted(case for case in before.keys() & after.keys() if before[case] and after[case])


def _drop_below(grain: float, value: float) -> float:
    return value if abs(value) > grain else 0.0


def _list_means(scores: Scores, cases: Sequence[str]) -> list[float]:
    return [_mean(scores[case]) for case in cases]


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values) if values else 0.0
