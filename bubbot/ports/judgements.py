"""Judgements: scores and labels that people, models or code give to what stands on a tape, as facts beside it.

They are derived facts: nothing that they judge changes, and no model is shown them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from types import MappingProxyType
from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct

from bubbot.tape.events import MessageReaction
from bubbot.tape.fact import Fact, PersonalFields
from bubbot.tape.references import PersonId, Spans

AnnotatorKind: TypeAlias = Literal["human", "model", "code"]
TargetKind: TypeAlias = Literal["entry", "turn", "slice", "branch"]


REACTION = "reaction"
"""The identifier of judgements that are reactions: they do not take the place of what their person wrote."""


class JudgedTarget(Struct, frozen=True):
    """What is judged, on the tape of the judgement.

    Attributes:
        entries: its entries as id ranges, the first and the last one included.
        name: the id of the turn, the fork of the branch, or the anchors between which the slice lies; empty for an entry.
    """

    kind: TargetKind
    entries: Spans
    name: str = ""


class Annotator(Struct, frozen=True):
    """Who judges.

    Attributes:
        id: of a person the numeric id; of a model its name; of code the name of the judge.
        channel: of a person; empty for others.
    """

    kind: AnnotatorKind
    id: PersonId
    channel: str = ""


class Judgement(Fact):
    """Somebody judged something. A later one of the same annotator, name and target takes the place of an earlier one; both stay.

    Attributes:
        name: what of it is judged, such as `quality`.
        score: a number, as the name defines it; None without one.
        label: a word, such as `good`; empty without one.
        rationale: why, in the annotator's words; empty for nothing.
        identifier: what tells it from others of the same annotator, such as the id of an evaluation; empty for none.
    """

    EVENTS = ("judge/labelled",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"annotator.id": ("name", "score", "label", "rationale")})
    target: JudgedTarget
    name: str
    score: float | None
    label: str
    rationale: str
    annotator: Annotator
    identifier: str = ""

    @property
    def subject(self) -> tuple[object, ...]:
        """The target, what is judged of it, and who judges."""
        entries = tuple(tuple(span) for span in self.target.entries)
        return self.target.kind, entries, self.name, self.annotator, self.identifier


class Label(Struct, frozen=True):
    """A judgement with its place on the tape.

    Attributes:
        entry: the entry of the fact.
        date: when it was stored, ISO 8601 in UTC.
        judgement: the fact; that of a reaction follows from the reaction.
        superseded_by: the entry that took its place, or took it back; 0: it is in force.
    """

    entry: int
    date: str
    judgement: Judgement
    superseded_by: int = 0

    @property
    def is_in_force(self) -> bool:
        """True if no later one took its place."""
        return not self.superseded_by


LABEL_EVENTS = (*Judgement.EVENTS, *MessageReaction.EVENTS)
"""The facts after which the labels of their tape may be others."""
ReadLabels: TypeAlias = Callable[[str], Awaitable[Sequence[Label]]]
"""Return the labels of a tape by its name, newest first: judgements, and reactions that count as some."""


async def read_no_labels(_tape: str) -> Sequence[Label]:
    """Return none: nothing judges here."""
    return ()
