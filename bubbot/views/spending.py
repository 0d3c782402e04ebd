"""Where the money and the tokens went: settled calls, added up by chat, person, job, model and day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.view import Found
from bubbot.views.budget import BUDGET_CHECKPOINT, SETTLED, hold_from

BY = ("chat", "user", "job", "model", "day")
"""What spending is divided by."""


@dataclass(frozen=True, slots=True)
class UsageSum:
    """Calls added up. `nano` are billionths of a US dollar, of the calls that have a price; `unpriced` those that have
    none, `estimated` those that were cut off; `reservations` the entries they began with."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    nano: int = 0
    unpriced: int = 0
    estimated: int = 0
    reservations: tuple[int, ...] = ()

    def plus(self, data: JsonObject, cited: int) -> UsageSum:
        """With one settled call more. `cited`: the entry that says so."""
        nano = data["nano"]
        return UsageSum(
            self.calls + 1,
            self.input_tokens + data["input_tokens"],
            self.output_tokens + data["output_tokens"],
            self.cached_tokens + data["cached_tokens"],
            self.nano + (nano or 0),
            self.unpriced + (nano is None),
            self.estimated + bool(data.get("estimated")),
            (*self.reservations, data.get("reserved", cited)),
        )

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        kept = ("calls", "input_tokens", "output_tokens", "cached_tokens", "unpriced", "estimated", "reservations")
        return {"dollars": self.nano / 10**9} | {name: getattr(self, name) for name in kept}


@dataclass(frozen=True, slots=True)
class SpendingReport:
    """All of it, and its parts by the words of `BY`, the dearest first and days in their order."""

    total: UsageSum = UsageSum()
    by: Mapping[str, Mapping[str, UsageSum]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PeriodStartView:
    """The id after which everything of a period stands: where the newest anchor before its first moment was read."""

    first: datetime
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """The newest anchor before that moment."""
        return (
            TapeQuery(tape, kinds=(Kind.ANCHOR,), names=(BUDGET_CHECKPOINT,), until=self.first, newest=True, limit=1),
        )

    def fold(self, found: Found) -> int:
        """The id; 0 where the tape has no such anchor."""
        marks = [entry for entry in found[0] if not entry.erased]
        return int(marks[0].payload["state"]["after"]) if marks else 0


@dataclass(frozen=True, slots=True)
class SpendingView:
    """What was spent from the day `since` on (empty: ever), by everybody or in one chat. Nothing of it stands at or
    before the id `after`."""

    since: str = ""
    chat: str = ""
    after: int = 0
    heavy: bool = True

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """The settled calls."""
        return (TapeQuery(tape, IdRanges(((self.after + 1, None),)), kinds=(Kind.EVENT,), names=(SETTLED,)),)

    def fold(self, found: Found) -> SpendingReport:
        """The sums."""
        total = UsageAccumulator()
        parts: dict[str, dict[str, UsageAccumulator]] = {by: {} for by in BY}
        for entry in found[0]:
            names = _names(entry)
            if names is None or names["day"] < self.since or self.chat not in ("", names["chat"]):
                continue
            total.add(entry)
            for by, name in names.items():
                if name:
                    parts[by].setdefault(name, UsageAccumulator()).add(entry)
        return SpendingReport(total.done(), {by: _ordered(by, sums) for by, sums in parts.items()})


@dataclass
class UsageAccumulator:
    """A sum in the making: a million calls are added in one pass."""

    sum: UsageSum = UsageSum()
    cites: list[int] = field(default_factory=list)

    def add(self, entry: TapeEntry) -> None:
        """One settled call."""
        added = self.sum.plus(entry.payload["data"], entry.id)
        self.cites += added.reservations
        self.sum = replace(added, reservations=())

    def done(self) -> UsageSum:
        """The sum, with what it cites."""
        return replace(self.sum, reservations=tuple(self.cites))


def _names(entry: TapeEntry) -> dict[str, str] | None:
    if entry.erased:
        return None
    hold = hold_from(entry.payload["data"], entry.id)
    payer = hold.payer
    return {"chat": payer.chat, "user": payer.user, "job": payer.job, "model": hold.model, "day": hold.day}


def _ordered(by: str, sums: Mapping[str, UsageAccumulator]) -> dict[str, UsageSum]:
    done = {name: one.done() for name, one in sums.items()}
    if by == "day":
        return dict(sorted(done.items()))
    return dict(sorted(done.items(), key=lambda item: (-item[1].nano, -item[1].input_tokens, item[0])))
