"""What no model reads: judgements, and what people type and are told about them.

The rule is `is_for_people`. Search leaves such entries out for everybody, since its answers stand on the tape, too. Whatever
else is read on the way to a model is read within `reading_for_model`, and comes without their content, as if it were erased.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from bubbot.tape.entry import FOR_PEOPLE, Kind, TapeEntry, is_for_people
from bubbot.tape.query import TapeQuery


class ReadsEntries(Protocol):
    """A tape that reads itself and others."""

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeHandle.fetch`."""
        ...


FOR_PEOPLE_STAMP: Mapping[str, Any] = MappingProxyType({FOR_PEOPLE: True})
"""The meta of an entry that people alone read."""
_FOR_MODEL: ContextVar[bool] = ContextVar("for_model", default=False)


@contextmanager
def reading_for_model() -> Iterator[None]:
    """Read tapes for a model within the block: without the content of what people alone read."""
    token = _FOR_MODEL.set(True)
    try:
        yield
    finally:
        _FOR_MODEL.reset(token)


async def fetch_for_model(tape: ReadsEntries, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
    """Return the entries of each query, as `TapeHandle.fetch` does within `reading_for_model`."""
    with reading_for_model():
        return await tape.fetch(queries)


def withhold_for_people(
    queries: Sequence[TapeQuery], answers: Sequence[tuple[TapeEntry, ...]]
) -> list[tuple[TapeEntry, ...]]:
    """Return the answers to queries as whoever reads may have them; unchanged outside of `reading_for_model`."""
    if not _FOR_MODEL.get():
        return [*answers]
    return [
        _withhold(query, entries) if entries and Kind.EVENT in (query.kinds or (Kind.EVENT,)) else entries
        for query, entries in zip(queries, answers, strict=True)
    ]


def _withhold(query: TapeQuery, entries: tuple[TapeEntry, ...]) -> tuple[TapeEntry, ...]:
    withheld = {entry.id for entry in entries if entry.kind == Kind.EVENT and is_for_people(entry.name, entry.meta)}
    if not withheld:
        return entries
    if query.reads_texts:  # that it was found would tell what it says
        return tuple([entry for entry in entries if entry.id not in withheld])
    return tuple([_without_content(entry) if entry.id in withheld else entry for entry in entries])


def _without_content(entry: TapeEntry) -> TapeEntry:
    return replace(entry, payload={}, meta={}, erased=True)
