"""Corrections of a tape: what they hide, and what they supersede."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from bubbot.tape.entry import TapeEntry, int_field


class Corrections(Struct, frozen=True):
    """The effect of a tape's corrections.

    Attributes:
        hidden: the ids of hidden entries and of their corrections.
        superseded: the id of the newest correction, by the id of the entry; without hidden ones.
    """

    hidden: frozenset[int]
    superseded: Mapping[int, int]

    @classmethod
    def of(cls, events: Sequence[TapeEntry]) -> Corrections:
        """Build from correction events in ascending order."""
        targets = [(event, target) for event in events if (target := int_field(event.data, "corrects"))]
        hidden = {target for event, target in targets if hides(event)}
        for event, target in targets:
            if target in hidden:
                hidden.add(event.id)
        superseded = {target: event.id for event, target in targets if event.id not in hidden}
        return cls(frozenset(hidden), superseded)


def hides(correction: TapeEntry) -> bool:
    return correction.data.get("hide") is True
