"""What bubbot should reach, beside what was measured: every figure but two is a ratio within the run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.bench.measure import Figures
from benchmarks.bench.plan import Plan

FLAT = ("context", "memory", "info", "fork and merge")
"""What may not grow with the tape."""


@dataclass(frozen=True, slots=True)
class Goal:
    """`measured` has to be at most (or at least) `wanted`; None: it could not be measured, and `why` says why."""

    name: str
    wanted: float
    measured: float | None
    unit: str = "times"
    least: bool = False
    why: str = ""

    @property
    def reached(self) -> bool | None:
        """None where it was not measured."""
        if self.measured is None:
            return None
        return self.measured >= self.wanted if self.least else self.measured <= self.wanted

    def as_json(self) -> Figures:
        """For the file of figures."""
        kept = {name: getattr(self, name) for name in ("name", "wanted", "measured", "unit", "least", "reached")}
        return kept | ({"why": self.why} if self.why else {})


def goals(plan: Plan, figures: Figures) -> list[Goal]:
    """All of them, as far as the figures go."""
    return [*_single(plan, figures), *_crowds(plan, figures["crowds"]), *_fresh(plan, figures["fresh"])]


def _single(plan: Plan, figures: Figures) -> Iterator[Goal]:
    single = figures["single"]
    short, long = str(min(plan.sizes)), str(max(plan.sizes))
    worst = max(plan.sizes, key=lambda size: single[str(size)]["turn"]["cpu"])
    yield Goal(
        f"a whole turn at every size, processor time (worst at {worst:,} entries)",
        2.0,
        single[str(worst)]["turn"]["cpu"],
        "ms",
    )
    for name in FLAT:
        ratio = single[long][name]["p50"] / single[short][name]["p50"]
        yield Goal(f"{name} at {int(long):,} entries to that at {int(short):,}", 1.3, ratio)


def _crowds(plan: Plan, crowds: Figures) -> Iterator[Goal]:
    most = str(max(plan.sessions))
    fast = crowds["fast"][most]
    raw = "raw sqlite3, one transaction a turn"
    yield Goal(f"merges of {most} sessions to {raw}", 2.0, _ratio(fast, "merges", "raw sqlite3"), least=True)
    if "slow" in crowds:
        slow = _ratio(crowds["slow"][most], "whole turns", "raw sqlite3")
        yield Goal(f"whole turns of {most} sessions, slow fsync, to {raw}", 1.5, slow, least=True)
    else:
        yield Goal(
            f"whole turns of {most} sessions, slow fsync, to {raw}", 1.5, None, least=True, why=crowds["skipped"]
        )
    yield Goal(
        f"whole turns of {most} sessions to JSON lines, {plan.history:,} entries of history",
        10.0,
        _ratio(fast, "whole turns", "JSON lines"),
        least=True,
    )


def _fresh(plan: Plan, fresh: Figures) -> Iterator[Goal]:
    short, long = fresh[str(min(plan.sizes))], fresh[str(max(plan.sizes))]
    yield Goal(f"cold open of {max(plan.sizes):,} entries, with the first context", 50.0, long["store"], "ms")
    if short["memory"]:
        yield Goal("memory at the longest tape to that at the shortest", 1.1, long["memory"] / short["memory"])


def _ratio(rows: Figures, one: str, other: str) -> float:
    return float(rows[one]["rate"] / rows[other]["rate"])
