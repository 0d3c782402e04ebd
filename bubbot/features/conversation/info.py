"""The size of a tape and the usage of its newest model call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bubbot.ports.model import Usage
from bubbot.records import dataclass
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.query import IdRanges, OpeningAnchor, TapeQuery
from bubbot.tape.view import QueryAnswers


@dataclass(frozen=True, slots=True)
class TapeInfo:
    """A tape in numbers.

    Attributes:
        entries: the newest id.
        last_anchor: name and id of the anchor that opens the window.
        entries_since_anchor: all entries if there is no anchor.
        last_usage: of the newest model call; None if there was none or it reported nothing.
        first_date: of the first entry.
        last_date: of the newest entry.
    """

    entries: int = 0
    last_anchor: tuple[str, int] | None = None
    entries_since_anchor: int = 0
    last_usage: Usage | None = None
    first_date: str | None = None
    last_date: str | None = None


@dataclass(frozen=True, slots=True)
class InfoView:
    """The numbers of a tape, from four entries, each found through an index: the cost does not grow with the tape."""

    @property
    def heavy(self) -> bool:
        """False: it reads four entries."""
        return False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the first entry, the newest one, the anchor that opens the window, the newest model call."""
        return (
            TapeQuery(tape, IdRanges(((1, 1),))),
            TapeQuery(tape, newest=True, limit=1),
            TapeQuery(tape, OpeningAnchor(), missing="empty"),
            TapeQuery(tape, kinds=(Kind.EVENT,), names=(STEP_EVENT,), newest=True, limit=1),
        )

    def fold(self, answers: QueryAnswers) -> TapeInfo:
        """Return the numbers; all empty for an empty tape."""
        first, newest, opening, step = (part[0] if part else None for part in answers)
        if first is None or newest is None:
            return TapeInfo()
        return TapeInfo(
            entries=newest.id,
            last_anchor=(opening.name or "", opening.id) if opening else None,
            entries_since_anchor=newest.id - (opening.id if opening else 0),
            last_usage=parse_step_usage(step) if step else None,
            first_date=first.date or None,
            last_date=newest.date or None,
        )


def parse_step_usage(step: TapeEntry) -> Usage | None:
    """Return the usage in a `loop.step` event; None if it has none."""
    usage = step.data.get("usage")
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
