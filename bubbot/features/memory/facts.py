"""The facts of memory: the texts of a version on the tape of a chat, and the changes of the memory that chats share."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, ClassVar

from msgspec import UNSET, Struct, UnsetType

from bubbot.tape.fact import Fact, PersonalFields
from bubbot.tape.references import EntryId, PersonId, SessionId


class LongTermText(Fact):
    """The long-term text of a version of a chat's memory; it stands between the two anchors of the version.

    Attributes:
        content: the text.
        updated_at: when it last changed, ISO 8601; empty if unknown.
    """

    EVENTS = ("memory.long_term",)
    content: str
    updated_at: str


class DayText(Fact):
    """The note of a day in a version of a chat's memory.

    Attributes:
        date: YYYY-MM-DD.
        content: the text.
        updated_at: when it last changed, ISO 8601; empty if unknown.
    """

    EVENTS = ("memory.daily",)
    date: str
    content: str
    updated_at: str


class ViewChosen(Fact):
    """A chat has chosen its memory view.

    Attributes:
        view: its name; empty for the configured one.
    """

    EVENTS = ("memory/view",)
    view: str


class ZoneChange(Fact, kw_only=True):
    """A change of the memory of a person or of the workspace. Where and by whom is empty for the shell.

    Attributes:
        session: the session of the turn; it stands after the fields of the subclass, as those below.
        channel: the name of its channel.
        by: the id of its person there.
    """

    session: SessionId = ""
    channel: str = ""
    by: PersonId = ""


class MemorySaved(ZoneChange):
    """The long-term text was replaced.

    Attributes:
        content: the new text.
        base: the change that it was written over; 0 for none, and for what is written again after an erasure.
        new_lines: the places of the lines that were not there, from 0.
        lost: the lines that went.
    """

    EVENTS = ("memory/saved",)
    content: str
    base: EntryId
    new_lines: tuple[int, ...]
    lost: tuple[str, ...]

    def personal_data(self, path: str) -> dict[str, Any]:
        """Return the lines that were new: the others of the text may be of other people."""
        lines = self.content.splitlines()
        new = [lines[number] for number in self.new_lines if number < len(lines)]
        return {"content": "\n".join(new)} if path == "by" else {}


class MemoryNoted(ZoneChange):
    """Lines were added to the note of a day.

    Attributes:
        date: YYYY-MM-DD.
        content: the lines.
    """

    EVENTS = ("memory/noted",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ("date", "content")})
    date: str
    content: str


class MemoryForgot(ZoneChange):
    """Every line that contains a text went.

    Attributes:
        text: the text.
    """

    EVENTS = ("memory/forgot",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ("text",)})
    text: str


class RestoredNote(Struct, frozen=True):
    """The note of a day in a restored memory.

    Attributes:
        date: YYYY-MM-DD.
        content: the text.
    """

    date: str
    content: str


class MemoryRestored(ZoneChange):
    """Everything was replaced: by an older version, by a file, or, at an erasure, by the first part of what stays.

    Attributes:
        version: the change that made the older version; 0 for anything else.
        sources: the sessions that the words of the older version came from.
        long_term: the long-term text.
        notes: the notes, in the order of their days.
    """

    EVENTS = ("memory/restored",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ("version",)})
    version: EntryId
    sources: tuple[SessionId, ...] | UnsetType = UNSET
    long_term: str = ""
    notes: tuple[RestoredNote, ...] = ()


class MemoryCleared(ZoneChange):
    """Everything went."""

    EVENTS = ("memory/cleared",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ()})


ZONE_FACTS: tuple[type[ZoneChange], ...] = (MemorySaved, MemoryNoted, MemoryForgot, MemoryRestored, MemoryCleared)
"""The changes of the memory of people and of the workspace, each on a tape of its own under `bubbot/memory/`."""

FACTS: tuple[type[Fact], ...] = (LongTermText, DayText, ViewChosen, *ZONE_FACTS)
SESSION_EVENTS = tuple(fact.EVENTS[0] for fact in ZONE_FACTS)
"""Facts about what was said in one chat, which an erasure of that chat reaches."""
