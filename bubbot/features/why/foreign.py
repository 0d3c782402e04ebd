"""The foreign words of a turn: which entries made it go out without link previews, and its calls ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from bubbot.runtime.context.selectors import format_sender
from bubbot.runtime.turns import TurnRecord
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.handle import TapeHandle
from bubbot.tape.provenance import Source
from bubbot.tape.query import IdRanges, TapeQuery


class ForeignSource(Struct, frozen=True):
    """An entry with foreign words that a turn was shown.

    Attributes:
        entry: its id; of a memory that is kept on another tape, that of its newest change.
        source: whose words these are: `people` or `world`.
        tape: its tape; empty for that of the chat.
        kind: its kind, or the name of the event or anchor; empty if it cannot be read here.
        author: who wrote it, if a person did.
    """

    entry: int
    source: str
    tape: str = ""
    kind: str = ""
    author: str = ""


async def read_foreign(tape: TapeHandle, turn: TurnRecord) -> tuple[ForeignSource, ...]:
    """Return the entries that made the words of a turn foreign, the most foreign first; empty if none did."""
    named = {
        (str(name), int(entry)): source
        for source in (Source.PEOPLE, Source.WORLD)
        for step in turn.steps
        for name, entry in _pairs(step.data, source)
    }
    own = [entry for name, entry in named if name == tape.name]
    query = TapeQuery(tape.name, IdRanges(tuple((entry, entry) for entry in sorted(own))))
    entries = {entry.id: entry for entry in (await tape.fetch([query]))[0]} if own else {}
    found = [_describe(tape.name, name, entry, source, entries) for (name, entry), source in named.items()]
    return tuple(sorted(found, key=lambda each: (each.source != Source.WORLD, each.tape, each.entry)))


def _pairs(step: JsonObject, source: Source) -> Iterator[Sequence[Any]]:
    foreign = step.get("foreign")
    named = foreign.get(str(source)) if isinstance(foreign, Mapping) else None
    for pair in named if isinstance(named, tuple) else ():
        if isinstance(pair, tuple) and len(pair) == 2 and type(pair[1]) is int:
            yield pair


def _describe(own: str, name: str, entry: int, source: Source, entries: Mapping[int, TapeEntry]) -> ForeignSource:
    if name != own:
        return ForeignSource(entry, str(source), name)
    found = entries.get(entry)
    if found is None or found.erased:
        return ForeignSource(entry, str(source))
    sender = found.meta.get("sender")
    author = format_sender(sender) if found.kind != Kind.TOOL_CALL and isinstance(sender, Mapping) else ""
    return ForeignSource(entry, str(source), kind=found.name or str(found.kind), author=author)
