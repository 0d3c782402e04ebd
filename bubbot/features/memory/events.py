"""The payloads of the memory's facts."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NotRequired, TypedDict

from bubbot.tape.references import EntryId, PersonId, SessionId


class LongTermMemory(TypedDict):
    """`memory.long_term`"""

    content: str
    updated_at: str


class DailyMemory(TypedDict):
    """`memory.daily`"""

    date: str
    content: str
    updated_at: str


class ZoneChange(TypedDict):
    """Where a change of the memory of a person or of the workspace was made, and by whom; empty for the shell."""

    session: SessionId
    channel: str
    by: PersonId


class MemorySaved(ZoneChange):
    """`memory/saved`"""

    content: str
    base: EntryId
    new_lines: Sequence[int]
    lost: Sequence[str]


class MemoryNoted(ZoneChange):
    """`memory/noted`"""

    date: str
    content: str


class MemoryForgot(ZoneChange):
    """`memory/forgot`"""

    text: str


class RestoredNote(TypedDict):
    """A note of a restored version."""

    date: str
    content: str


class MemoryRestored(ZoneChange):
    """`memory/restored`; `sources` are the sessions that its words came from."""

    version: EntryId
    sources: NotRequired[Sequence[SessionId]]
    long_term: str
    notes: Sequence[RestoredNote]


class MemoryCleared(ZoneChange):
    """`memory/cleared`"""


ZONE_EVENTS: Mapping[str, type] = MappingProxyType(
    {
        "memory/saved": MemorySaved,
        "memory/noted": MemoryNoted,
        "memory/forgot": MemoryForgot,
        "memory/restored": MemoryRestored,
        "memory/cleared": MemoryCleared,
    }
)
"""The changes of the memory of people and of the workspace, each on a tape of its own under `bubbot/memory/`."""

MEMORY_EVENTS: Mapping[str, type] = MappingProxyType(
    {"memory.long_term": LongTermMemory, "memory.daily": DailyMemory, **ZONE_EVENTS}
)
