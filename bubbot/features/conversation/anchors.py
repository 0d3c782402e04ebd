"""The anchors of a tape, as a list for people and models."""

from __future__ import annotations

from collections.abc import Mapping

from bubbot.records import dataclass
from bubbot.tape.entry import Kind, TapeEntry, encode
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers

MAX_STATE_CHARS = 200
MAX_ANCHORS_READ = 5000
"""Anchors read to fill a list without the memory zone's markers: two are written whenever memory changes."""


@dataclass(frozen=True, slots=True)
class AnchorSummary:
    """One anchor. `state` is JSON, cut to 200 characters; `parents` are the ids in its state."""

    id: int
    name: str
    date: str
    state: str
    opens_window: bool
    parents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AnchorsView:
    """The newest `limit` anchors, newest first; the memory zone's markers only with `zones`."""

    limit: int = 50
    zones: bool = False

    @property
    def heavy(self) -> bool:
        """False: anchors are few."""
        return False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest anchors, through their index."""
        limit = self.limit if self.zones else max(self.limit, MAX_ANCHORS_READ)
        return (TapeQuery(tape, kinds=(Kind.ANCHOR,), newest=True, limit=limit),)

    def fold(self, answers: QueryAnswers) -> tuple[AnchorSummary, ...]:
        """Build a summary of each anchor."""
        anchors = [entry for entry in answers[0] if self.zones or not is_zone_marker(entry)]
        return tuple(_summary(entry) for entry in anchors[: max(self.limit, 0)])


def is_zone_marker(entry: TapeEntry) -> bool:
    """Return true if an anchor only marks a memory zone."""
    return (entry.name or "").startswith("memory/")


def _summary(entry: TapeEntry) -> AnchorSummary:
    value = entry.payload.get("state")
    state = value if isinstance(value, Mapping) else {}
    parents = state.get("parents")
    text = encode(state)
    return AnchorSummary(
        entry.id,
        entry.name or "",
        entry.date,
        text if len(text) <= MAX_STATE_CHARS else f"{text[: MAX_STATE_CHARS - 1]}…",
        entry.opens_window,
        tuple(place for place in parents if type(place) is int) if isinstance(parents, tuple) else (),
    )
