"""The anchors of a tape, as a list for people and models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import ClassVar

from msgspec import Struct

from bubbot.command import Caller
from bubbot.tape.entry import Kind, TapeEntry, encode
from bubbot.tape.query import TapeQuery, format_date
from bubbot.tape.view import QueryAnswers
from bubbot.texts import Texts

MAX_STATE_CHARS = 200
MAX_ANCHORS_READ = 5000
"""Anchors read to fill a list without the memory zone's markers: two are written whenever memory changes."""


class AnchorSummary(Struct, frozen=True):
    """One anchor. `state` is JSON, cut to 200 characters; `parents` are the ids in its state."""

    id: int
    name: str
    date: str
    state: str
    opens_window: bool
    parents: tuple[int, ...] = ()

    def write_line(self, zone: tzinfo, texts: Texts) -> str:
        """Write it in a line, with the date in a time zone."""
        marks = "" if self.opens_window else texts.say("anchor_no_window")
        if self.parents:
            marks += texts.say("anchor_parents", entries=", ".join(f"#{parent}" for parent in self.parents))
        date = format_date(self.date, zone, undated=texts.say("undated"))
        return texts.say("anchor_line", entry=self.id, date=date, name=self.name, state=self.state, marks=marks)


class AnchorList(Struct, frozen=True):
    """The anchors of a tape.

    Attributes:
        tape: the name of the tape.
        anchors: newest first.
    """

    is_text: ClassVar = True
    tape: str
    anchors: tuple[AnchorSummary, ...]

    def describe(self, caller: Caller) -> str:
        """Write a line for each."""
        if caller.turn is None:
            lines = [f"#{each.id} {each.date[:19]} {each.name} {each.state}" for each in self.anchors]
            return "\n".join(" ".join(line.splitlines()) for line in lines)
        texts, zone = caller.result_texts, caller.turn.zone
        return "\n".join(each.write_line(zone, texts) for each in self.anchors) or texts.say("anchors_none")


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
