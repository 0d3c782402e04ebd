"""The facts on the tape of the export."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from bubbot.tape.fact import Fact

OTEL_TAPE = "bubbot/otel"


class ExportBegan(Fact, frozen=True):
    """The export was switched on: spans of turns that end later are sent.

    Attributes:
        position: the newest position over all tapes then.
        key: makes the pseudonyms; the first one counts.
    """

    EVENTS = ("otel/began",)
    position: int
    key: str


class TurnsExported(Fact, frozen=True):
    """The receiver has taken the spans of all turns up to a position.

    Attributes:
        position: over all tapes.
        turns: how many it was sent.
        spans: how many these have.
        rejected: spans that it will never take.
    """

    EVENTS = ("otel/exported",)
    position: int
    turns: int
    spans: int
    rejected: int | UnsetType = UNSET

    @property
    def is_refused(self) -> bool:
        """True if it took none of the spans."""
        return not isinstance(self.rejected, UnsetType) and self.rejected >= self.spans


class TurnRefused(Fact, frozen=True):
    """The receiver does not take the spans of a turn, however often they are sent.

    Attributes:
        turn: its id.
        status: of the answer.
    """

    EVENTS = ("otel/refused",)
    turn: str
    status: int


class LabelsSent(Fact, frozen=True):
    """Phoenix has taken the judgements up to a position.

    Attributes:
        position: over all tapes.
        labels: how many it has taken.
        rejected: how many it will never take, or that are about what has no span there.
    """

    EVENTS = ("otel/annotated",)
    position: int
    labels: int
    rejected: int | UnsetType = UNSET


class ExportEnded(Fact, frozen=True):
    """The export was switched off."""

    EVENTS = ("otel/ended",)


FACTS: tuple[type[Fact], ...] = (ExportBegan, TurnsExported, TurnRefused, LabelsSent, ExportEnded)
"""The facts of this feature."""
