"""The fact of an explanation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType

from bubbot.tape.fact import Fact
from bubbot.tape.references import TapeEntryId, TapeSpans

ExplainStatus: TypeAlias = Literal["founded", "unknown", "unfounded", "failed"]
"""`founded`: each statement holds. `unknown`: the model found nothing. `unfounded`: no answer held. `failed`: no model answered."""


class CitedStatement(Struct, frozen=True, kw_only=True):
    """A statement of an explanation.

    Attributes:
        text: who said what and when.
        quote: the sentences of the entry; absent before 2026-11-28.
        cites: the entries that it rests on; since then one.
    """

    text: str
    quote: str | UnsetType = UNSET
    cites: tuple[TapeEntryId, ...]


class ExplanationEnded(Fact, frozen=True, kw_only=True):
    """How an explanation ended.

    Attributes:
        question: what was asked.
        tape: the name of the tape that it was about; empty for the one that has this fact.
        fork: where it worked; empty if nothing of that is kept.
        status: see `ExplainStatus`.
        statements: the answer; empty unless it is founded.
        conclusion: what the model concludes, in its own words; empty if it does not, absent before 2026-11-28.
        read: the entries that the model was shown.
        problems: why its answers were refused, in order.
        steps: model calls.
        tokens: tokens read and written.
    """

    EVENTS = ("explain/ended",)
    question: str
    tape: str
    fork: str
    status: ExplainStatus
    statements: tuple[CitedStatement, ...]
    conclusion: str | UnsetType = UNSET
    read: TapeSpans
    problems: tuple[str, ...]
    steps: int
    tokens: int

    def quoted_texts(self) -> Iterator[tuple[TapeEntryId, str]]:
        """Yield the quotation of each statement that rests on one entry."""
        for statement in self.statements:
            if statement.quote is not UNSET and len(statement.cites) == 1:
                yield statement.cites[0], statement.quote


EXPLAINED = ExplanationEnded.EVENTS[0]
FACTS = (ExplanationEnded,)
"""The facts of this feature."""
COPIES = ExplanationEnded.EVENTS
"""Facts with words of the entries that they cite."""
