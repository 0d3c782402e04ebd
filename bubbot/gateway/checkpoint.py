"""Bookkeeping anchors of inbox and outbox tapes: the starting points of recovery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bubbot.tape.anchor import anchor
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.query import Span, TapeQuery
from bubbot.tape.view import QueryAnswers


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a bookkeeping anchor: everything up to `after` is settled except the items of `open`, by id."""

    after: int = 0
    open: tuple[JsonObject, ...] = ()

    def spans(self) -> tuple[Span, ...]:
        """Return the id ranges worth reading: the open items and everything newer."""
        return (*((item["id"], item["id"]) for item in self.open), (self.after + 1, None))

    def estimate_messages(self, head: int) -> int:
        """Estimate how many messages came since: each leaves its own fact, and the one that settles it."""
        return (head - self.after) // 2


def checkpoint_anchor(name: str, after: int, still_open: Sequence[JsonObject]) -> TapeEntry:
    """Make a bookkeeping anchor; it never moves a window."""
    return anchor(name, {"after": after, "open": list(still_open)}, window=False)


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """The newest bookkeeping anchor of this name."""

    name: str
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the anchor, by one indexed look-up."""
        return (TapeQuery(tape, kinds=(Kind.ANCHOR,), names=(self.name,), newest=True, limit=1),)

    def fold(self, answers: QueryAnswers) -> Checkpoint:
        """Return the checkpoint; on a tape without one everything is worth reading."""
        if not answers[0]:
            return Checkpoint()
        state = answers[0][0].payload["state"]
        return Checkpoint(state["after"], state["open"])
