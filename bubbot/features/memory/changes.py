"""Changes of the memory of a person or of the workspace: facts that several chats write at once, and their fold.

The memory of a chat stores each version whole, since one turn at a time writes to its tape. Here turns of several chats
write at once, so each stores what it changes. A turn stages its changes, the merge appends them to whatever is there by
then, and the fold applies them in that order: no change of another chat is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from functools import singledispatchmethod
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from bubbot.features.memory.facts import (
    ZONE_FACTS,
    MemoryCleared,
    MemoryForgot,
    MemoryNoted,
    MemoryRestored,
    MemorySaved,
    ZoneChange,
)
from bubbot.features.memory.scopes import ZONE_TAPES
from bubbot.features.memory.views import DailyNote, MemorySnapshot, remove_lines, sort_by_day
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.fact import Cited, FactState
from bubbot.tape.projection import Projection
from bubbot.tape.provenance import PROVENANCE, Source, most_foreign, source_of
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers
from bubbot.tape.words import fold_text

ZONE_EVENTS: Mapping[str, type[ZoneChange]] = MappingProxyType({fact.EVENTS[0]: fact for fact in ZONE_FACTS})
"""The changes by the names of their events."""


class LineOrigin(Struct, frozen=True):
    """Where the change was made that brought a line, by whom, and how foreign its words are; empty for the shell."""

    session: str = ""
    channel: str = ""
    by: str = ""
    source: Source = Source.OWN


LineOrigins: TypeAlias = dict[tuple[str, str], tuple[LineOrigin, ...]]
"""The origins of each line of a memory, by the day of its note (empty for the long-term text) and the line, stripped."""


class ZoneState(FactState):
    """The memory after the changes so far. The version of the memory is the id of its newest change."""

    FACTS: ClassVar = ZONE_FACTS
    memory: MemorySnapshot = MemorySnapshot()

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the memory by one fact."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, fact: MemorySaved, cited: Cited[Any], /) -> None:
        self._change(cited, **_save(self.memory, fact, cited.source), long_term_updated_at=cited.date)

    @fold.register
    def _(self, fact: MemoryNoted, cited: Cited[Any], /) -> None:
        notes = {note.date: note for note in self.memory.dailies}
        content, source = fact.content, cited.source
        if (note := notes.get(fact.date)) is not None:
            content, source = f"{note.content}\n{content}", most_foreign(source, note.provenance)
        notes[fact.date] = DailyNote(fact.date, content, cited.date, source)
        self._change(cited, dailies=sort_by_day(notes.values()))

    @fold.register
    def _(self, fact: MemoryForgot, cited: Cited[Any], /) -> None:
        self.memory = forget_lines(self.memory, fold_text(fact.text).strip(), cited.date)[0]
        self._change(cited)

    @fold.register
    def _(self, fact: MemoryRestored, cited: Cited[Any], /) -> None:
        notes = sort_by_day(DailyNote(note.date, note.content, cited.date, cited.source) for note in fact.notes)
        self._change(
            cited,
            long_term=fact.long_term,
            long_term_updated_at=cited.date,
            dailies=notes,
            provenance=cited.source,
        )

    @fold.register
    def _(self, _fact: MemoryCleared, cited: Cited[Any], /) -> None:
        self.memory = MemorySnapshot()
        self._change(cited)

    def _change(self, cited: Cited[Any], **changes: Any) -> None:
        self.memory = replace(self.memory, version=cited.id, seal_id=cited.id, **changes)


def _save(memory: MemorySnapshot, fact: MemorySaved, source: Source) -> dict[str, Any]:
    """Replace the long-term text; if others changed it meanwhile, only take over what the writer changed.

    The version alone does not tell: after an erasure the numbers begin again.
    """
    content, lines, new = fact.content, fact.content.splitlines(), set(fact.new_lines)
    known = [*fact.lost, *(line for number, line in enumerate(lines) if number not in new)]
    is_known = stripped_lines("\n".join(known)) == stripped_lines(memory.long_term)
    if not is_known or fact.base != memory.version:
        source = most_foreign(source, memory.provenance)
        if not is_known or fact.base:  # with 0 it says again what stays after an erasure
            content = merge_lines(memory.long_term, [lines[number] for number in fact.new_lines], fact.lost)
    return {"long_term": content, "provenance": source}


def trace_lines(entries: Sequence[TapeEntry]) -> tuple[MemorySnapshot, LineOrigins]:
    """Return the memory after these changes, and where each of its lines came from, the first origin first.

    A line that was brought back by an older version is from where that version had it.
    """
    state, lines = ZoneState(), LineOrigins()
    versions: dict[int, LineOrigins] = {}
    for entry in entries:
        fact = ZONE_EVENTS[entry.name or ""].of(entry)
        state.apply([entry])
        origin = LineOrigin(fact.session, fact.channel, fact.by, source_of(entry))
        before = versions.get(fact.version, lines) if isinstance(fact, MemoryRestored) else lines
        noted = set[tuple[str, str]]()
        if isinstance(fact, MemoryNoted):
            noted = {(fact.date, line.strip()) for line in fact.content.splitlines()}
        lines = LineOrigins()
        for day, text in _texts(state.memory):
            for line in filter(None, map(str.strip, text.splitlines())):
                known = before.get((day, line), ())
                is_new = not known or ((day, line) in noted and origin not in known)
                lines[day, line] = (*known, origin) if is_new else known
        versions[entry.id] = lines
    return state.memory, lines


def restate_without(entries: Sequence[TapeEntry], is_left_out: Callable[[LineOrigin], bool]) -> list[TapeEntry]:
    """Build changes that make the memory of these without the lines that came from some origins alone.

    What these removed stays removed. Each change names where its words came from, so that those of the other origins can
    be erased later.
    """
    memory, lines = trace_lines(entries)
    long_term = _lines_without(memory.long_term, "", lines, is_left_out)
    changes = _restate_long_term(long_term) or [_restate(MemoryCleared(), LineOrigin())]
    for note in memory.dailies:
        parts: list[tuple[LineOrigin, list[str]]] = []
        for origins, line in _lines_without(note.content, note.date, lines, is_left_out):
            if parts and (not origins or parts[-1][0] in origins):
                parts[-1][1].append(line)
            else:
                parts.append((origins[0], [line]))
        changes += [_restate(MemoryNoted(note.date, "\n".join(part)), origin) for origin, part in parts]
    return changes


def _restate_long_term(lines: Sequence[tuple[Sequence[LineOrigin], str]]) -> list[TapeEntry]:
    """Build a change for each origin, which adds its lines where they stand among those before."""
    changes: list[TapeEntry] = []
    shown = set[LineOrigin]()
    for added in dict.fromkeys(origins[0] for origins, _ in lines if origins):
        shown.add(added)
        part = [(origins, line) for origins, line in lines if not origins or origins[0] in shown]
        while not part[-1][0]:
            part.pop()
        text = "\n".join(line for _, line in part)
        new = tuple(number for number, (origins, _) in enumerate(part) if origins and origins[0] == added)
        fact = MemorySaved(text, 0, new, ()) if changes else MemoryRestored(0, long_term=text)
        changes.append(_restate(fact, added))
    return changes


def _lines_without(
    text: str, day: str, lines: LineOrigins, is_left_out: Callable[[LineOrigin], bool]
) -> list[tuple[Sequence[LineOrigin], str]]:
    """Return the lines of a text that did not come from the left out origins alone, with their other origins.

    Blank ones have none. There are none at both ends, and no further one where lines were left out.
    """
    kept: list[tuple[Sequence[LineOrigin], str]] = []
    is_gap = True
    for line in text.splitlines():
        origins = [each for each in lines.get((day, line.strip()), ()) if not is_left_out(each)]
        if origins:
            kept.append((origins, line))
            is_gap = False
        elif line.strip():
            is_gap = True
        elif kept and (kept[-1][0] or not is_gap):
            kept.append((origins, line))
    while kept and not kept[-1][0]:
        kept.pop()
    return kept


def _restate(fact: ZoneChange, origin: LineOrigin) -> TapeEntry:
    made = replace(fact, session=origin.session, channel=origin.channel, by=origin.by)
    return made.to_entry(**{PROVENANCE: str(origin.source)})


def _texts(memory: MemorySnapshot) -> list[tuple[str, str]]:
    """Return the long-term text (no day), and the notes with their days."""
    return [("", memory.long_term), *((note.date, note.content) for note in memory.dailies)]


def without_old_notes(memory: MemorySnapshot, today: date, retention_days: int) -> MemorySnapshot:
    """Return the memory without notes of days that are too long ago or too far ahead."""
    if not memory.dailies:
        return memory
    first, last = ((today + timedelta(days=days)).isoformat() for days in (-retention_days, retention_days))
    notes = tuple(note for note in memory.dailies if first <= note.date <= last)
    return memory if len(notes) == len(memory.dailies) else replace(memory, dailies=notes)


def merge_lines(text: str, added: Sequence[str], lost: Sequence[str]) -> str:
    """Remove and add lines; a line that is there already is not added again."""
    gone = {line.strip() for line in lost}
    lines = [line for line in text.splitlines() if not line.strip() or line.strip() not in gone]
    present = {line.strip() for line in lines}
    for line in added:
        if line.strip() and line.strip() not in present:
            lines.append(line)
            present.add(line.strip())
    return "\n".join(lines).strip("\n")


def stripped_lines(text: str) -> set[str]:
    """Return the lines of a text that are not blank, stripped."""
    return set(filter(None, map(str.strip, text.splitlines())))


def list_lines(memory: MemorySnapshot) -> list[str]:
    """List the lines of a memory that are not blank, as they are written."""
    return [line for _, text in _texts(memory) for line in text.splitlines() if line.strip()]


def find_lost_lines(before: str, after: str) -> list[str]:
    """List the lines of a text that a later one no longer has, as they are written."""
    kept = stripped_lines(after)
    return [line for line in before.splitlines() if line.strip() and line.strip() not in kept]


def forget_lines(memory: MemorySnapshot, needle: str, moment: str) -> tuple[MemorySnapshot, list[str]]:
    """Remove every line with the needle; return the memory and these lines."""
    long_term, removed = remove_lines(memory.long_term, needle)
    notes = []
    for note in memory.dailies:
        content, lost = remove_lines(note.content, needle)
        removed += lost
        notes.append(replace(note, content=content, updated_at=moment) if lost else note)
    changed = replace(memory, long_term=long_term, dailies=sort_by_day(notes))
    if long_term != memory.long_term:
        changed = replace(changed, long_term_updated_at=moment)
    return changed, removed


class ZoneChangesView(Struct, frozen=True):
    """All changes of a memory, in the order of the tape."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the changes, through the index of names; erased ones have no name any more."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=tuple(ZONE_EVENTS)),)

    def fold(self, answers: QueryAnswers) -> tuple[TapeEntry, ...]:
        """Return the entries."""
        return tuple(answers[0])


def _refuse_checkpoint(*_: Any) -> Any:
    raise ValueError("memory has no checkpoints: they would hold words of people")


ZONE_PROJECTION = Projection[ZoneState](
    name="memory",
    version=1,
    tapes=ZONE_TAPES,
    events=tuple(ZONE_EVENTS),
    initial=ZoneState,
    apply=lambda before, entries: before.apply(entries),
    encode=_refuse_checkpoint,
    decode=_refuse_checkpoint,
    interval=1 << 62,
)
"""The memory of a person or of the workspace; no checkpoint is ever due."""
