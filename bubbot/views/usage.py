"""How large a tape is and what its newest model call used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bubbot.ports.model import Usage
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.query import IdRanges, OpeningAnchor, TapeQuery
from bubbot.tape.view import Found


@dataclass(frozen=True, slots=True)
class TapeInfo:
    """A tape in figures. `entries` is the newest id; `last_anchor` (name, id) is the one that opens the window.

    `entries_since_anchor` counts every entry where there is no anchor. `last_usage` is that of the newest model
    call, None where there was none or it reported nothing. Dates are those of the first and the newest entry.
    """

    entries: int = 0
    last_anchor: tuple[str, int] | None = None
    entries_since_anchor: int = 0
    last_usage: Usage | None = None
    first_date: str | None = None
    last_date: str | None = None


@dataclass(frozen=True, slots=True)
class InfoView:
    """Four entries, each found through an index: the cost does not grow with the tape."""

    @property
    def heavy(self) -> bool:
        """Four entries."""
        return False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """The first entry, the newest one, the anchor that opens the window, the newest model call."""
        return (
            TapeQuery(tape, IdRanges(((1, 1),))),
            TapeQuery(tape, newest=True, limit=1),
            TapeQuery(tape, OpeningAnchor(), missing="empty"),
            TapeQuery(tape, kinds=(Kind.EVENT,), names=("loop.step",), newest=True, limit=1),
        )

    def fold(self, found: Found) -> TapeInfo:
        """The figures; all empty for an empty tape."""
        first, newest, opening, step = (part[0] if part else None for part in found)
        if first is None or newest is None:
            return TapeInfo()
        return TapeInfo(
            entries=newest.id,
            last_anchor=(opening.name or "", opening.id) if opening else None,
            entries_since_anchor=newest.id - (opening.id if opening else 0),
            last_usage=step_usage(step) if step else None,
            first_date=first.date or None,
            last_date=newest.date or None,
        )


def step_usage(step: TapeEntry) -> Usage | None:
    """What a `loop.step` event says its model call used, or None where it says nothing."""
    data = step.payload.get("data")
    usage = data.get("usage") if isinstance(data, Mapping) else None
    if not isinstance(usage, Mapping):
        return None
    cost = usage.get("cost")
    return Usage(
        _count(usage, "input_tokens"),
        _count(usage, "output_tokens"),
        _count(usage, "cached_tokens"),
        float(cost) if isinstance(cost, (int, float)) else None,
    )


def _count(usage: Mapping[str, Any], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) else 0
