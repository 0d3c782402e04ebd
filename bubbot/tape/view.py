"""The view port: queries plus a pure fold over the entries they find."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol, TypeVar

from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

QueryAnswers = Sequence[Sequence[TapeEntry]]
"""The entries that each query of a view found, in the order of the queries."""


class View(Protocol[T_co]):
    """A value computed from a tape. A view never writes, has no clock and does no I/O.

    It names the queries it needs, so that a store can answer them through an index in one read transaction, and folds
    the entries into a value.
    """

    @property
    def heavy(self) -> bool:
        """True if the fold may take longer than a few milliseconds, and runs off the event loop."""
        ...

    def queries(self, tape: str) -> tuple[TapeQuery, ...]: ...

    def fold(self, answers: QueryAnswers) -> T_co:
        """Compute the value. Equal entries give an equal value."""
        ...


class StepwiseView(Protocol[T_co]):
    """A view whose later queries depend on what earlier ones found."""

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, T_co]:
        """Yield queries, receive their answers and return the value. It runs off the event loop."""
        ...


def read_together(
    views: Sequence[Generator[tuple[TapeQuery, ...], QueryAnswers, T]],
) -> Generator[tuple[TapeQuery, ...], QueryAnswers, list[T]]:
    """Run the steps of several stepwise views together and return their values, in order.

    It reads a query that several views yield in one step only once.
    """
    values: dict[int, T] = {}
    asked: dict[int, tuple[TapeQuery, ...]] = {}

    def advance(place: int, answers: QueryAnswers | None) -> None:
        try:
            asked[place] = next(views[place]) if answers is None else views[place].send(answers)
        except StopIteration as end:
            values[place] = end.value

    for place in range(len(views)):
        advance(place, None)
    while asked:
        queries = tuple(dict.fromkeys(query for own in asked.values() for query in own))
        found = dict(zip(queries, (yield queries), strict=True))
        steps, asked = asked, {}
        for place, own in steps.items():
            advance(place, [found[query] for query in own])
    return [values[place] for place in range(len(views))]
