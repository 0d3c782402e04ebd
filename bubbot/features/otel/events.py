"""The payloads of the facts on the tape of the export."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NotRequired, TypedDict

OTEL_TAPE = "bubbot/otel"
BEGAN = "otel/began"
EXPORTED = "otel/exported"
REFUSED = "otel/refused"
ENDED = "otel/ended"


class ExportBegan(TypedDict):
    """`otel/began`: spans of turns that end after this position are sent; the key makes the pseudonyms."""

    position: int
    key: str


class TurnsExported(TypedDict):
    """`otel/exported`: the receiver has taken the spans of all turns up to this position."""

    position: int
    turns: int
    spans: int
    rejected: NotRequired[int]


class TurnRefused(TypedDict):
    """`otel/refused`: the receiver does not take the spans of this turn, however often they are sent."""

    turn: str
    status: int


class ExportEnded(TypedDict):
    """`otel/ended`: the export was switched off."""


OTEL_EVENTS: Mapping[str, type] = MappingProxyType(
    {BEGAN: ExportBegan, EXPORTED: TurnsExported, REFUSED: TurnRefused, ENDED: ExportEnded}
)
