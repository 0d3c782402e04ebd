"""The fact of an explanation."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NotRequired, TypedDict

from bubbot.tape.references import TapeEntryId, TapeSpans

EXPLAINED = "explain/ended"


class CitedStatement(TypedDict):
    """A statement, and the entries that it cites; since 2026-11-28 one, with the sentences that are quoted from it."""

    text: str
    quote: NotRequired[str]
    cites: Sequence[TapeEntryId]


class ExplanationEnded(TypedDict):
    """`explain/ended`"""

    question: str
    tape: str
    fork: str
    status: str
    statements: Sequence[CitedStatement]
    conclusion: NotRequired[str]
    read: TapeSpans
    problems: Sequence[str]
    steps: int
    tokens: int


EXPLAIN_EVENTS: Mapping[str, type] = MappingProxyType({EXPLAINED: ExplanationEnded})
"""The payload models of the facts of this feature."""
