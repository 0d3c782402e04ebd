"""Bookkeeping anchors of inbox and outbox tapes: where start-up recovery begins to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bubbot.tape.anchor import anchor
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.query import Span, TapeQuery
from bubbot.tape.view import Found


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a bookkeeping anchor says: everything up to `after` is settled but the items of `open`, by their id."""

    after: int = 0
    open: tuple[JsonObject, ...] = ()

    def spans(self) -> tuple[Span, ...]:
        """The ids worth reading: the open ones and everything newer."""
        return (*((item["id"], item["id"]) for item in self.open), (self.after + 1, None))

    def passed(self, head: int) -> int:
        """About how many messages came since: each leaves its own fact, and the one that settles it."""
        return (head - self.after) // 2


def mark_anchor(name: str, after: int, still_open: Sequence[JsonObject]) -> TapeEntry:
    """A bookkeeping anchor; it never moves a window."""
    return anchor(name, {"after": after, "open": list(still_open)}, window=False)


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """The newest bookkeeping anchor of this name."""

    name: str
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """One indexed look-up."""
        return (TapeQuery(tape, kinds=(Kind.ANCHOR,), names=(self.name,), newest=True, limit=1),)

    def fold(self, found: Found) -> Checkpoint:
        """The mark; on a tape without one everything is worth reading."""
        if not found[0]:
            return Checkpoint()
        state = found[0][0].payload["state"]
        return Checkpoint(state["after"], state["open"])
