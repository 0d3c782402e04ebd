"""The facts of context strategies: what is cut of a window, what is shown beside a message, what a chat has chosen."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import field

from bubbot.tape.entry import JsonObject, text_field
from bubbot.tape.fact import Fact
from bubbot.tape.references import EntryId, Reference

Ranges: TypeAlias = Annotated[tuple[tuple[int, int], ...], Reference.SPANS]
"""Inclusive ranges of ids of the same tape."""


class ContextCut(Fact, kw_only=True):
    """What is cut of a window by now. The first version of `compact` and of `summary` wrote only `from`.

    Attributes:
        start: the oldest entry that is still read, `from` on the tape; None for all.
        results: the entries whose long results are shown as pointers, ascending.
        left_out: the ranges of what is no longer shown; empty if nobody knows them.
        since: the date of the oldest entry that is left out; empty if unknown.
        until: the date of the newest one.
    """

    EVENTS = ("context/cut",)
    start: EntryId | None = field(default=None, name="from")
    results: tuple[EntryId, ...]
    left_out: Ranges = ()
    since: str = ""
    until: str = ""

    @classmethod
    def upgrade(cls, data: JsonObject) -> JsonObject:
        """Leave out what has another shape (imports); of `from` and `results` one has to be there."""
        start, results = data.get("from"), data.get("results")
        if start is None and results is None:
            return {}
        dates = {name: text_field(data, name) for name in ("since", "until")}
        return {
            "from": start,
            "results": sorted({*_ids_in(results)}),
            "left_out": _ranges_in(data.get("left_out")),
            **dates,
        }

    def payload(self) -> dict[str, Any]:
        """Return the data to append; dates stand only with ranges."""
        start = {} if self.start is None else {"from": self.start}
        left_out = {"left_out": self.left_out, "since": self.since, "until": self.until} if self.left_out else {}
        return {**start, "results": self.results, **left_out}


class ContextRecalled(Fact):
    """Entries from before the window are shown beside a message, as evidence.

    Attributes:
        message: the message.
        entries: the ranges of these entries.
    """

    EVENTS = ("context/recalled",)
    message: EntryId
    entries: Ranges

    @classmethod
    def upgrade(cls, data: JsonObject) -> JsonObject:
        """Leave out ranges of another shape (imports)."""
        return {**data, "entries": _ranges_in(data.get("entries"))}


class StrategyChosen(Fact):
    """A chat has chosen its context strategy.

    Attributes:
        selector: the strategy; empty for the configured one.
    """

    EVENTS = ("context/strategy",)
    selector: str

    @classmethod
    def upgrade(cls, data: JsonObject) -> JsonObject:
        """Take what is no name of a strategy (imports) for the configured one."""
        return {"selector": text_field(data, "selector")}


FACTS: tuple[type[Fact], ...] = (ContextCut, ContextRecalled, StrategyChosen)
CUT = ContextCut.EVENTS[0]


def _ids_in(value: object) -> tuple[int, ...]:
    return tuple([item for item in value if type(item) is int]) if isinstance(value, (list, tuple)) else ()


def _ranges_in(value: object) -> tuple[tuple[int, ...], ...]:
    items = value if isinstance(value, (list, tuple)) else ()
    pairs = [_ids_in(item) for item in items if isinstance(item, (list, tuple)) and len(item) == 2]
    return tuple([pair for pair in pairs if len(pair) == 2])
