"""Copies: entries of a tape that are made of entries of other tapes, such as what `chat.read` brought or a strategy prepared.

People have seen them, but the model of each later turn is shown them again. So each request asks again whether the chat may
still read all that they rest on, and whether it is still there. If not, a note stands in their place, and the request records
their ids (`view.withheld`), so that it can be rebuilt without the other tapes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct

from bubbot.errors import AccessError
from bubbot.ports.turn import Turn
from bubbot.runtime.context.selectors import EVIDENCE, is_in_context
from bubbot.tape.corrections import Corrections
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import KERNEL_REFERENCES, ContextPrepared
from bubbot.tape.handle import CORRECTION, TapeHandle
from bubbot.tape.query import IdRanges, Span, TapeQuery, is_later, union

MAX_SOURCES = 20_000
"""The most entries of other tapes that one copy may rest on; bubbot writes none with more, an imported one may name any."""
WITHHELD = (
    "[Left out: it rests on entries of another chat that may not be read here any more, or are not there any more]"
)
_NOTE = "withheld"
_COPIES = "copies"
_PREPARED = ContextPrepared.EVENTS


FindHeads: TypeAlias = Callable[[Turn, Mapping[str, str]], Awaitable[Mapping[str, int]]]
"""Return how far a turn may read other tapes now, by tape; 0: not at all. Gets the session of each tape; empty: unknown."""
FindTapeHeads: TypeAlias = Callable[[Mapping[str, str]], Awaitable[Mapping[str, int]]]
"""The same for one turn."""


async def find_no_heads(turn: Turn, sessions: Mapping[str, str]) -> Mapping[str, int]:  # noqa: ARG001 - see `FindHeads`
    """Let a turn read no other tape."""
    return dict.fromkeys(sessions, 0)


class TapeCopy(Struct, frozen=True):
    """An entry, and the entries of other tapes that it is made of, as id ranges by tape."""

    entry: TapeEntry
    sources: Mapping[str, Sequence[tuple[int, int]]]

    @property
    def count(self) -> int:
        """The number of these entries."""
        return sum([high - low + 1 for spans in self.sources.values() for low, high in spans])


def find_copies(tape: str, entries: Sequence[TapeEntry]) -> list[TapeCopy]:
    """Return the entries of a tape, among these, that are made of entries of other tapes and may be shown.

    Every step reads all entries of its window: what was found is cached on the first one, which lives as long as the window.
    """
    if not entries:
        return []
    entries, cache = tuple(entries), entries[0].cache
    known: tuple[str, tuple[TapeEntry, ...], tuple[TapeCopy, ...]] | None = cache.get(_COPIES)
    size, found = 0, tuple[TapeCopy, ...]()
    if known is not None and known[0] == tape and entries[1 : 1 + len(known[1])] == known[1]:
        size, found = 1 + len(known[1]), known[2]
    if size < len(entries):
        found = (*found, *_find_new(tape, entries[size:]))
        cache[_COPIES] = tape, entries[1:], found
    return [*found]


def _find_new(tape: str, entries: Sequence[TapeEntry]) -> list[TapeCopy]:
    marked = [
        entry for entry in entries if "sources" in entry.meta or "source" in entry.meta or entry.name in _PREPARED
    ]
    copies = [TapeCopy(entry, _find_sources(tape, entry)) for entry in marked if is_in_context(entry)]
    return [copy for copy in copies if copy.sources]


def _find_sources(tape: str, entry: TapeEntry) -> Mapping[str, Sequence[tuple[int, int]]]:
    sources: dict[str, list[tuple[int, int]]] = {}
    for name, low, high in KERNEL_REFERENCES.find_sources(tape, entry):
        if name != tape:
            sources.setdefault(name, []).append((low, high))
    if entry.name in _PREPARED and (prepared := ContextPrepared.try_of(entry)):
        for name, spans in prepared.elsewhere:
            sources.setdefault(name, []).extend(spans)
    return sources


async def find_withheld(tape: TapeHandle, copies: Sequence[TapeCopy], heads: Mapping[str, int]) -> tuple[int, ...]:
    """Return the ids of the copies that may not be shown, ascending.

    Args:
        tape: their tape, which reads the others.
        heads: how far each other tape may be read; one that is missing, or 0, may not be read.
    """
    wanted: dict[str, list[Span]] = {}
    for copy in copies:
        if copy.count <= MAX_SOURCES:
            for name, spans in copy.sources.items():
                wanted.setdefault(name, []).extend(spans)
    dates = {name: await read_dates(tape, name, spans, heads.get(name, 0)) for name, spans in wanted.items()}
    return tuple(sorted({copy.entry.id for copy in copies if not _is_whole(copy, dates)}))


async def read_dates(tape: TapeHandle, name: str, spans: Sequence[Span], head: int | None) -> Mapping[int, str]:
    """Return the dates of the entries of another tape that are there, neither deleted nor erased, and may be read.

    Args:
        tape: the tape that reads it.
        head: its newest entry that may be read; 0 for none, None for all.
    """
    if head == 0 or not spans:
        return {}
    part, after = IdRanges(tuple(union(spans))), IdRanges(((min(low for low, _ in spans), None),))
    changes = TapeQuery(name, after, kinds=(Kind.EVENT,), names=(CORRECTION,), as_of=head)
    try:
        found, events = await tape.fetch([TapeQuery(name, part, as_of=head), changes])
    except AccessError:  # whoever rebuilds the request may not read it
        return {}
    hidden = Corrections.of(events).hidden
    return {entry.id: entry.date for entry in found if not entry.erased and entry.id not in hidden}


def _is_whole(copy: TapeCopy, dates: Mapping[str, Mapping[int, str]]) -> bool:
    """Return true if all that a copy rests on is there. A later entry is another one: that tape began again."""
    if copy.count > MAX_SOURCES:
        return False
    return all(
        is_there(dates[name], number, copy.entry.date)
        for name, spans in copy.sources.items()
        for low, high in spans
        for number in range(low, high + 1)
    )


def is_there(dates: Mapping[int, str], number: int, until: str) -> bool:
    """Return true if `dates` has the entry, and it is not later than `until`, the date of the entry that names it."""
    return number in dates and not is_later(dates[number], until)


async def list_withheld(tape: TapeHandle, copies: Sequence[TapeCopy], find_heads: FindTapeHeads) -> tuple[int, ...]:
    """Return the ids of the copies that may not be shown now, ascending."""
    if not copies:
        return ()
    tapes = dict.fromkeys([name for copy in copies for name in copy.sources], "")
    return await find_withheld(tape, copies, await find_heads(tapes))


async def withhold_copies(
    tape: TapeHandle, answers: Sequence[Sequence[TapeEntry]], find_heads: FindTapeHeads
) -> list[Sequence[TapeEntry]]:
    """Return entries of a tape with a note in place of the words that may not be shown now."""
    ids = await list_withheld(tape, [copy for part in answers for copy in find_copies(tape.name, part)], find_heads)
    return [withhold(part, ids) for part in answers] if ids else [*answers]


async def check_copies(turn: Turn, answers: Sequence[Sequence[TapeEntry]], find_heads: FindHeads) -> tuple[int, ...]:
    """Return the ids of the entries in a tool's answers whose words may not be shown to a model now.

    The sources of the other copies among them are added to `turn.copied`, for the result of the tool.
    """
    copies = [copy for part in answers for copy in find_copies(turn.tape.name, part)]
    ids = await list_withheld(turn.tape, copies, partial(find_heads, turn))
    for copy in copies:
        if copy.entry.id not in ids:
            turn.copied.extend(copy.sources.items())
    return ids


def withhold(entries: Sequence[TapeEntry], ids: Sequence[int]) -> Sequence[TapeEntry]:
    """Return the entries with a note in place of the words of these. An event goes; the note stands beside the message before it."""
    withheld = {*ids}
    if withheld.isdisjoint([entry.id for entry in entries]):
        return entries
    shown: list[TapeEntry] = []
    place: int | None = None
    for entry in entries:
        if entry.id not in withheld:
            if entry.kind == Kind.MESSAGE and entry.payload.get("role") == "user":
                place = len(shown)
            shown.append(entry)
        elif entry.kind != Kind.EVENT:
            shown.append(_without_words(entry))
        elif place is not None:
            shown[place] = _with_note(shown[place])
    return tuple(shown)


def _without_words(entry: TapeEntry) -> TapeEntry:
    """Return the entry with the note in place of its words, always the same one: its rendering is cached on it."""
    made: TapeEntry | None = entry.cache.get(_NOTE)
    if made is None:
        payload: dict[str, Any] = {**entry.payload}
        if entry.kind == Kind.TOOL_RESULT:
            results = payload.get("results")
            items = results if isinstance(results, tuple) else ()
            payload["results"] = [
                {**(each if isinstance(each, Mapping) else {}), "content": WITHHELD} for each in items
            ]
            payload.pop("blobs", None)
        elif entry.kind == Kind.ANCHOR:
            payload["state"] = {"summary": WITHHELD}
        else:
            payload["content"] = WITHHELD
        meta = {key: value for key, value in entry.meta.items() if key != "sources"}
        made = entry.cache[_NOTE] = replace(entry, payload=payload, meta=meta)
    return made


def _with_note(message: TapeEntry) -> TapeEntry:
    made: TapeEntry | None = message.cache.get(_NOTE)
    if made is None:
        # The meta makes it unequal to the plain one, which caches compare; only the cache is trusted.
        made = replace(message, meta={**message.meta, EVIDENCE: WITHHELD})
        made.cache[EVIDENCE] = WITHHELD
        made.cache[_NOTE] = made
        message.cache[_NOTE] = made
    return made
