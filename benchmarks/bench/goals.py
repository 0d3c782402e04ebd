"""What bubbot should reach, beside what was measured: most figures are ratios within the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.bench.measure import Figures, ratio
from benchmarks.bench.plan import Plan

FLAT = ("context", "memory", "info", "fork and merge")
"""What may not grow with the tape."""


@dataclass(frozen=True, slots=True)
class Goal:
    """`measured` has to be at most (or at least) `wanted`; None: it could not be measured, and `why` says why. Elsewhere
    it is a word more: where other programs run, processor time tells more than time."""

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
    return [
        *_single(plan, figures),
        *_crowds(plan, figures["crowds"]),
        *_fresh(plan, figures["fresh"]),
        *_searching(plan, figures["search"]["sizes"]),
        *_index(plan, figures),
        *(_found(figures["found"]["rows"]) if "found" in figures else []),
    ]


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
        grown = ratio(single[long][name], single[short][name])
        processor = single[long][name]["cpu"] / single[short][name]["cpu"]
        named = f"{name} at {int(long):,} entries to that at {int(short):,}"
        yield Goal(named, 1.3, grown, why=f"{processor:.2f} times the processor time")


def _crowds(plan: Plan, crowds: Figures) -> Iterator[Goal]:
    most = str(max(plan.sessions))
    fast = crowds["fast"][most]
    raw = "raw sqlite3, one transaction a turn"
    yield Goal(f"merges of {most} sessions to {raw}", 2.0, ratio(fast["merges"], fast["raw sqlite3"]), least=True)
    if "slow" in crowds:
        slow = ratio(crowds["slow"][most]["whole turns"], crowds["slow"][most]["raw sqlite3"])
        yield Goal(f"whole turns of {most} sessions, slow fsync, to {raw}", 1.5, slow, least=True)
    else:
        yield Goal(
            f"whole turns of {most} sessions, slow fsync, to {raw}", 1.5, None, least=True, why=crowds["skipped"]
        )
    yield Goal(
        f"whole turns of {most} sessions to JSON lines, {plan.history:,} entries of history",
        10.0,
        ratio(fast["whole turns"], fast["JSON lines"]),
        least=True,
    )


def _searching(plan: Plan, sizes: Figures) -> Iterator[Goal]:
    longest = max(plan.sizes)
    for sort, wanted in (("a frequent word", 5.0), ("a part of a word", 20.0), ("two misspelt words", 25.0)):
        row = sizes[str(longest)].get(sort)
        yield Goal(f"{sort} in {longest:,} entries, processor time", wanted, row["cpu"] if row else None, "ms")


def _found(rows: Sequence[Figures]) -> Iterator[Goal]:
    found = [(100 * row["found"], row["name"]) for row in rows if row["found"] is not None]
    if found:
        part, name = min(found)
        yield Goal("found of a class of searches, the worst", 97.0, part, "%", least=True, why=name)
    wrong = [(100 * row["wrong"], row["name"]) for row in rows if row["wrong"] is not None]
    if wrong:
        part, name = max(wrong)
        yield Goal("made-up words that find something, the worst", 1.0, part, "%", why=name)
    waits = max((row["cpu"] for row in rows if row["waiting"]), default=None)
    yield Goal("a search while the index is 100,000 entries behind, processor time", 300.0, waits, "ms")


def _index(plan: Plan, figures: Figures) -> Iterator[Goal]:
    index = figures["search"]["indexes"][str(max(plan.sizes))]
    yield Goal(
        f"bytes of the index to those of the texts, {max(plan.sizes):,} entries", 1.2, index["bytes"] / index["texts"]
    )
    burst = figures["indexing"]
    processor = burst["with"]["cpu"] / burst["without"]["cpu"]
    yield Goal(
        "appends in a burst without filling the index to those with it",
        1.1,
        burst["slowdown"],
        why=f"{burst['beside']:.2f} by the turns between its batches; {processor:.2f} times the processor time, its own included",
    )


def _fresh(plan: Plan, fresh: Figures) -> Iterator[Goal]:
    short, long = fresh[str(min(plan.sizes))], fresh[str(max(plan.sizes))]
    yield Goal(f"cold open of {max(plan.sizes):,} entries, with the first context", 50.0, long["store"], "ms")
    if short["memory"]:
        yield Goal("memory at the longest tape to that at the shortest", 1.1, long["memory"] / short["memory"])
