"""Provenance: whose words an entry is made of.

`meta.provenance` names it, or it follows from the entry itself. A turn marks what it writes with the provenance of the
most foreign words that it has seen or read by then (`ForkedTape.raise_source`). So a copy keeps its provenance after
its source was erased, and readers need not look for sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from bubbot.tape.entry import JsonObject, Kind, TapeEntry, is_said_by_person

PROVENANCE = "provenance"
"""The key in the meta."""
VOUCHED = "provenance/vouched"
"""The event by which an owner vouches for one entry, in its field `entry`."""


class Source(StrEnum):
    """Whose words something is made of, from the least foreign on.

    `own`: owners and the bot's own sentences. `people`: others who may speak. `world`: anything else, such as pages,
    files, tapes from outside, strangers and forwarded messages.
    """

    OWN = "own"
    PEOPLE = "people"
    WORLD = "world"


_BY_NAME: Mapping[Any, Source] = MappingProxyType({str(source): source for source in Source})
_OWNER, _STRANGER = "owner", "stranger"
LEAST_ROLE = "member"
"""The role of people without a stored one: the least of those who may speak."""
TERMINAL_SENDER = "0"
"""The id of the operating system's user, who is an owner; no platform uses it."""
_CACHED = "provenance"
_CACHED_ROLE = "least_role"


def most_foreign(*sources: Source) -> Source:
    """Return the most foreign of these; `own` for none."""
    return Source.WORLD if Source.WORLD in sources else Source.PEOPLE if Source.PEOPLE in sources else Source.OWN


def source_of_role(role: str) -> Source:
    """Return the provenance of words of a person with this role."""
    return Source.OWN if role == _OWNER else Source.WORLD if role == _STRANGER else Source.PEOPLE


def parse_source(value: object) -> Source:
    """Parse a stored provenance; `world` if it is unknown."""
    return _BY_NAME.get(value, Source.WORLD) if isinstance(value, str) else Source.WORLD


def stamp_of(source: Source) -> JsonObject:
    """Return the meta with this provenance; empty for `own`, the default of what the bot writes."""
    return {} if source is Source.OWN else {PROVENANCE: str(source)}


def source_of(entry: TapeEntry) -> Source:
    """Return the provenance of an entry; cached on the entry."""
    source: Source | None = entry.cache.get(_CACHED)
    if source is None:
        source = entry.cache[_CACHED] = _judge(entry)
    return source


def find_most_foreign(entries: Iterable[TapeEntry]) -> Source:
    return most_foreign(*{source_of(entry) for entry in entries})


def find_foreign(entries: Iterable[TapeEntry]) -> list[TapeEntry]:
    """Return the entries whose provenance is not `own`."""
    # No call for an entry that was judged before: most of a window was, and each step asks for all of it.
    own = Source.OWN
    return [
        entry for entry in entries if (entry.cache[_CACHED] if _CACHED in entry.cache else source_of(entry)) is not own
    ]


def pick_source(entries: Iterable[TapeEntry], source: Source) -> list[TapeEntry]:
    """Return the entries with exactly this provenance; the entries must come from `find_foreign`."""
    return [entry for entry in entries if entry.cache[_CACHED] is source]


def least_role_of(entry: TapeEntry) -> str:
    """Return the least role among the people whose words an entry is; `LEAST_ROLE` if unknown. Cached on the entry."""
    if _CACHED_ROLE not in entry.cache:
        is_told = "sender" in entry.meta or "quote" in entry.meta  # usually not: the bot wrote the entry
        entry.cache[_CACHED_ROLE] = _judge_roles(entry) if is_told else LEAST_ROLE
    role: str = entry.cache[_CACHED_ROLE]
    return role


def _judge_roles(entry: TapeEntry) -> str:
    people = [entry.meta.get("sender")]
    quote = entry.meta.get("quote")
    if isinstance(quote, Mapping) and not quote.get("own"):
        people.append(quote.get("sender"))
    others = {person.get("role") if isinstance(person, Mapping) else None for person in people} - {_OWNER}
    role = others.pop() if len(others) == 1 else None
    return role if isinstance(role, str) else LEAST_ROLE


def find_vouched(events: Iterable[TapeEntry]) -> frozenset[int]:
    """Return the entries that owners vouched for. An event that is not `own`, such as an imported one, is void."""
    found: set[int] = set()
    for event in events:
        entry = event.data.get("entry")
        if event.name == VOUCHED and type(entry) is int and source_of(event) is Source.OWN:
            found.add(entry)
    return frozenset(found)


def _judge(entry: TapeEntry) -> Source:
    if entry.erased:
        return Source.OWN  # it has no words any more; copies carry their own provenance
    if PROVENANCE in entry.meta:
        return parse_source(entry.meta[PROVENANCE])
    # Entries of earlier versions, and those that need no mark.
    sender = entry.meta.get("sender")
    if entry.kind == Kind.TOOL_RESULT:
        return Source.WORLD  # the entry does not name the tool
    if is_said_by_person(entry.kind, entry.payload):
        return _judge_message(entry, sender)
    return _judge_sender(sender) if sender is not None else Source.OWN


def _judge_message(entry: TapeEntry, sender: object) -> Source:
    origin = entry.meta.get("origin")
    if origin not in (None, "human"):
        return Source.OWN  # written by the bot, or a job that was stored before jobs had a provenance
    if sender is None or _has_files(entry.payload.get("content")):
        return Source.WORLD
    quote = entry.meta.get("quote")
    if not isinstance(quote, Mapping):
        return _judge_sender(sender)
    quoted = Source.OWN if quote.get("own") else _judge_sender(quote.get("sender"))
    return most_foreign(_judge_sender(sender), quoted)


def _judge_sender(sender: object) -> Source:
    if not isinstance(sender, Mapping):
        return Source.WORLD
    role = sender.get("role")
    if isinstance(role, str):
        return source_of_role(role)
    return Source.OWN if sender.get("id") == TERMINAL_SENDER else Source.PEOPLE


def _has_files(content: object) -> bool:
    parts = content if isinstance(content, Sequence) and not isinstance(content, str) else ()
    return any(isinstance(part, Mapping) and isinstance(part.get("digest"), str) for part in parts)


ON_READ: ContextVar[Callable[[Source], None] | None] = ContextVar("on_read", default=None)
"""Called with the provenance of entries that are read; usually None. See `track_reads`."""


@contextmanager
def track_reads(on_read: Callable[[Source], None]) -> Iterator[None]:
    """Report the provenance of entries read from tapes within the block, as soon as they are read."""
    token = ON_READ.set(on_read)
    try:
        yield
    finally:
        ON_READ.reset(token)


def note_reads(answers: Iterable[Sequence[TapeEntry]]) -> None:
    """Report the provenance of a tape's answers to `track_reads`, if active."""
    if (on_read := ON_READ.get()) is not None:
        for entries in answers:
            if entries:
                on_read(find_most_foreign(entries))


def note_source(source: Source) -> None:
    """Report words that were read from elsewhere than a tape, such as a projection."""
    if (on_read := ON_READ.get()) is not None:
        on_read(source)
