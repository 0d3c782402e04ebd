"""The size of a tape and the usage of its newest model call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from bubbot.command import Caller
from bubbot.ports.model import Usage
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.query import IdRanges, OpeningAnchor, TapeQuery, format_date
from bubbot.tape.view import QueryAnswers


class TapeInfo(Struct, frozen=True):
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

    def describe(self, caller: Caller) -> str:
        """Write a line each for the entries, the anchor and the call."""
        texts, zone = caller.result_texts, caller.required_turn.zone
        if not self.entries:
            return texts.say("info_empty")
        undated = texts.say("undated")
        first, last = (format_date(date, zone, undated=undated) for date in (self.first_date, self.last_date))
        lines = [texts.say("info_entries", number=self.entries, first=first, last=last)]
        if self.last_anchor:
            name, entry_id = self.last_anchor
            lines.append(texts.say("info_anchor", name=name, entry=entry_id, number=self.entries_since_anchor))
        else:
            lines.append(texts.say("info_no_anchor"))
        if usage := self.last_usage:
            dollars = "" if usage.cost is None else f"${usage.cost:.6f}".rstrip("0").rstrip(".")
            cost = texts.say("info_cost", cost=dollars) if dollars else ""
            cached = texts.say("info_cached", number=usage.cached_tokens) if usage.cached_tokens else ""
            lines.append(
                texts.say("info_call", input=usage.input_tokens, cached=cached, output=usage.output_tokens, cost=cost)
            )
        return "\n".join(lines)


class InfoView(Struct, frozen=True):
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
