"""The anchors of a tape, as a list for people and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bubbot.tape.entry import Kind, TapeEntry, encode
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import Found

STATE_LENGTH = 200
READ_AT_MOST = 5000
"""Anchors read to fill a list without the memory zone's markers: two are written whenever memory changes."""


@dataclass(frozen=True, slots=True)
class AnchorSummary:
    """One anchor. `state` is JSON, cut to 200 characters; `parents` are the ids its state names."""

    id: int
    name: str
    date: str
    state: str
    opens_window: bool
    parents: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AnchorsView:
    """The newest `limit` anchors, newest first. The memory zone's markers are left out unless `zones`."""

    limit: int = 50
    zones: bool = False

    @property
    def heavy(self) -> bool:
        """Anchors are few."""
        return False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """The newest anchors, through their index."""
        read = self.limit if self.zones else max(self.limit, READ_AT_MOST)
        return (TapeQuery(tape, kinds=(Kind.ANCHOR,), newest=True, limit=read),)

    def fold(self, found: Found) -> tuple[AnchorSummary, ...]:
        """A line for each anchor."""
        shown = [entry for entry in found[0] if self.zones or not is_zone_marker(entry)]
        return tuple(_line(entry) for entry in shown[: max(self.limit, 0)])


def is_zone_marker(entry: TapeEntry) -> bool:
    """Whether an anchor only marks a memory zone."""
    return (entry.name or "").startswith("memory/")


def _line(entry: TapeEntry) -> AnchorSummary:
    found = entry.payload.get("state")
    state = found if isinstance(found, Mapping) else {}
    parents = state.get("parents")
    text = encode(state)
    return AnchorSummary(
        entry.id,
        entry.name or "",
        entry.date,
        text if len(text) <= STATE_LENGTH else f"{text[: STATE_LENGTH - 1]}…",
        entry.opens_window,
        tuple(place for place in parents if type(place) is int) if isinstance(parents, tuple) else (),
    )
