"""The parts of what a sub-task was shown, such as a node of a task: each is an entry of its own, which says so in its meta."""

from __future__ import annotations

from msgspec import Struct

from bubbot.runtime.turns import StepRecord, TurnRecord
from bubbot.tape.entry import int_field, text_field


class ShownPart(Struct, frozen=True):
    """A part of what a step was shown.

    Attributes:
        entry: its entry.
        name: what it is, such as `config` or `artifact of search`.
        run: the run of a task for which it was written.
        full_chars: its characters before it was cut; 0 if it is whole.
    """

    entry: int
    name: str
    run: str
    full_chars: int = 0


def find_parts(turn: TurnRecord, step: StepRecord) -> tuple[ShownPart, ...]:
    """Return the parts that a step was shown, in order; none for a step that was shown a conversation."""
    if not step.fork:
        return ()
    return tuple(
        [
            ShownPart(entry.id, name, text_field(entry.meta, "task"), int_field(entry.meta, "cut"))
            for entry in turn.entries
            if (name := text_field(entry.meta, "part"))
            if any(low <= entry.id <= high for low, high in step.shown)
        ]
    )
