"""Reading of memory: the newest sealed zone, its versions, and the texts that match a query."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from bubbot.features.memory.facts import DayText, LongTermText
from bubbot.tape.anchor import MEMORY_OPEN, MEMORY_SEAL
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.provenance import Source, most_foreign, source_of
from bubbot.tape.query import IdRanges, Span, TapeQuery, ZoneSlice
from bubbot.tape.ranking import list_terms, order_scores, score_texts
from bubbot.tape.spelling import find_misspelt
from bubbot.tape.view import QueryAnswers
from bubbot.tape.words import fold_text

LONG_TERM, DAILY = LongTermText.EVENTS[0], DayText.EVENTS[0]

MAX_RANKED_LINES = 10
"""Lines of a memory that bear on a query, if none has all its words."""
_KINDS = (Kind.ANCHOR, Kind.EVENT)
_NAMES = (MEMORY_OPEN, LONG_TERM, DAILY, MEMORY_SEAL)
_HEADING = re.compile(r"^\\*(?:#\s+Memory|##\s+(?:Notes|Long-term memory)|###\s+\d{4}-\d\d-\d\d)\s*$", re.MULTILINE)


class DailyNote(Struct, frozen=True, eq=False):
    """The note of one day.

    Attributes:
        date: YYYY-MM-DD.
        content: its text.
        updated_at: ISO 8601, or empty if unknown.
        provenance: how foreign its words are.
    """

    date: str
    content: str
    updated_at: str = ""
    provenance: Source = Source.OWN

    def __eq__(self, other: object) -> bool:
        """Compare all but how foreign the words are."""
        if not isinstance(other, DailyNote):
            return NotImplemented
        return (self.date, self.content, self.updated_at) == (other.date, other.content, other.updated_at)

    __hash__ = None  # type: ignore[assignment]


class MemorySnapshot(Struct, frozen=True, eq=False):
    """One version of memory.

    Attributes:
        version: its number; 0 if the tape has no memory zone, or an imported zone has no number.
        long_term: the long-term text.
        long_term_updated_at: ISO 8601, or empty if unknown.
        dailies: ascending, one for each day.
        seal_id: the entry that sealed the version, or the newest change of a memory made of changes; 0 if the tape has no
            memory.
        open_id: the first entry of the version; 0 if the tape has none.
        provenance: how foreign the words of the long-term text are.
    """

    version: int = 0
    long_term: str = ""
    long_term_updated_at: str = ""
    dailies: tuple[DailyNote, ...] = ()
    seal_id: int = 0
    open_id: int = 0
    provenance: Source = Source.OWN

    def __eq__(self, other: object) -> bool:
        """Compare all but how foreign the words are, and where the version begins."""
        return astuple(self)[:5] == astuple(other)[:5] if isinstance(other, MemorySnapshot) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @property
    def most_foreign(self) -> Source:
        """How foreign the most foreign of its texts is."""
        texts = [self.provenance] if self.long_term else []
        return most_foreign(*texts, *(note.provenance for note in self.dailies))

    @property
    def is_empty(self) -> bool:
        """True if nothing is remembered."""
        return not (self.long_term or self.dailies)

    def has_same_content(self, other: MemorySnapshot) -> bool:
        """Return true if both remember the same; version and times do not count."""
        return self.long_term == other.long_term and _contents(self.dailies) == _contents(other.dailies)


class MemoryVersion(Struct, frozen=True):
    """A sealed version: its number, the entry id of the seal, and its date."""

    version: int
    seal_id: int
    date: str


@dataclass(frozen=True, slots=True)
class MemoryView:
    """The newest sealed version; an empty snapshot without one.

    Unreadable parts are left out (imports: a content that is not text, an invalid date, an event of another name).
    Several notes of one day are joined; of several long-term texts the last one counts.
    """

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest zone, through the index of anchor names."""
        return (TapeQuery(tape, ZoneSlice(MEMORY_OPEN, MEMORY_SEAL), _KINDS, _NAMES, missing="empty"),)

    def fold(self, answers: QueryAnswers) -> MemorySnapshot:
        """Return the newest zone as a snapshot; what its seal closes never changes."""
        if not answers[0]:
            return MemorySnapshot()
        cache = answers[0][-1].cache
        if "memory" not in cache:
            zones = list(list_zones(answers[0]))
            cache["memory"] = zones[-1] if zones else MemorySnapshot()
        snapshot: MemorySnapshot = cache["memory"]
        return snapshot


class MemoryVersionsView(Struct, frozen=True):
    """All sealed versions, newest first; seals without a version are left out."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the seals."""
        return (TapeQuery(tape, kinds=(Kind.ANCHOR,), names=(MEMORY_SEAL,), newest=True),)

    def fold(self, answers: QueryAnswers) -> tuple[MemoryVersion, ...]:
        """Return the seals as versions."""
        return tuple(MemoryVersion(_version(seal), seal.id, seal.date) for seal in answers[0] if _version(seal))


class MemoryVersionView(Struct, frozen=True):
    """One version by its number (the newest of that number), or None. `span` is the part of the tape to search."""

    version: int
    span: Span = (1, None)
    heavy: bool = True

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the memory entries of the span."""
        return (TapeQuery(tape, IdRanges((self.span,)), _KINDS, _NAMES),)

    def fold(self, answers: QueryAnswers) -> MemorySnapshot | None:
        """Return the zone of that version."""
        return next((zone for zone in reversed(list(list_zones(answers[0]))) if zone.version == self.version), None)


def parse_day(text: object) -> str | None:
    """Return the date of an ISO 8601 text, as YYYY-MM-DD, or None."""
    if not isinstance(text, str):
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return None


def recall(snapshot: MemorySnapshot, *, since: date, query: str = "") -> list[tuple[str, str]]:
    """Find texts and their days: long-term memory (no day), then the notes from `since` on, newest day first.

    With a query, only the lines that match, as in search: exact after NFKC and casefold, also by date; else every word
    of the query, in any order, with spelling mistakes and accents allowed. If the query spans several lines, all lines
    of that text. If no text has every word, the lines that bear on the query, best first, as recall ranks what was said.
    Notes of a day that the query names are searched however old they are.
    """
    first, needle = since.isoformat(), fold_text(query).strip()
    notes = [note for note in reversed(snapshot.dailies) if note.date >= first or note.date in needle]
    places = [("", snapshot.long_term), *((note.date, note.content) for note in notes)]
    places = [place for place in places if place[1]]
    exact = [
        (day, text if needle in day else _matching_lines(text, needle))
        for day, text in places
        if needle in day or needle in fold_text(text)
    ]
    if exact or not needle:
        return exact
    spelled = [(day, lines) for day, text in places if (lines := _spelled_lines(text, day, needle))]
    return spelled or _ranked_lines(places, needle)


def _ranked_lines(places: Sequence[tuple[str, str]], query: str) -> list[tuple[str, str]]:
    lines = [(day, line) for day, text in places for line in text.splitlines()][::-1]  # of equals the last is the first
    scores = score_texts(list_terms(query), dict(enumerate(f"{line} {day}" for day, line in lines)))
    return [lines[number] for number in order_scores(scores)[:MAX_RANKED_LINES]]


def format_memory_page(snapshot: MemorySnapshot) -> str:
    """Build a Markdown page of everything remembered, newest day first.

    A line of a text that reads like one of the page's own headings begins with a backslash, which Markdown does not
    show and `unescape_headings` removes: so an import restores every text.
    """
    if snapshot.is_empty:
        return "# Memory\n\nNothing is remembered.\n"
    parts = [f"# Memory, version {snapshot.version}"]
    if snapshot.long_term:
        parts.append(f"## Long-term memory\n\n{_escaped_headings(snapshot.long_term)}")
    if snapshot.dailies:
        parts.append("## Notes")
    parts += [f"### {note.date}\n\n{_escaped_headings(note.content)}" for note in reversed(snapshot.dailies)]
    return "\n\n".join(parts) + "\n"


def unescape_headings(text: str) -> str:
    """Undo the escapes of `format_memory_page` in lines that read like its headings."""
    return _HEADING.sub(lambda line: line[0].removeprefix("\\"), text)


def sort_by_day(notes: Iterable[DailyNote]) -> tuple[DailyNote, ...]:
    """Sort notes by day, without the empty ones."""
    return tuple(sorted((note for note in notes if note.content), key=lambda note: note.date))


def tidy_text(text: str) -> str:
    """Strip line ends at both ends; return an empty text if there is only white space."""
    return text.strip("\r\n") if text.strip() else ""


def remove_lines(text: str, needle: str) -> tuple[str, list[str]]:
    """Remove the lines that contain the needle; return the rest and these lines."""
    lines = text.splitlines(keepends=True)
    removed = [line for line in lines if needle in fold_text(line)]
    if not removed:
        return text, []
    rest = tidy_text("".join(line for line in lines if needle not in fold_text(line)))
    return rest, [line.splitlines()[0] for line in removed]


def _escaped_headings(text: str) -> str:
    return _HEADING.sub(lambda line: f"\\{line[0]}", text)


def list_zones(entries: Sequence[TapeEntry]) -> Iterator[MemorySnapshot]:
    """Yield the sealed zones of ascending entries; skip an opening without a seal and a seal without an opening."""
    opening: TapeEntry | None = None
    notes: list[TapeEntry] = []
    for entry in entries:
        if entry.kind == Kind.ANCHOR and entry.name == MEMORY_OPEN:
            opening, notes = entry, []
        elif entry.kind == Kind.ANCHOR and entry.name == MEMORY_SEAL and opening is not None:
            yield _snapshot(opening, notes, entry)
            opening = None
        elif entry.kind == Kind.EVENT:
            notes.append(entry)


def _snapshot(opening: TapeEntry, notes: Sequence[TapeEntry], seal: TapeEntry) -> MemorySnapshot:
    long_term = long_term_updated_at = ""
    provenance = Source.OWN
    days: dict[str, DailyNote] = {}
    for entry in notes:
        data = _object(entry, "data")
        content, updated_at, day = _text(data, "content"), _text(data, "updated_at"), parse_day(data.get("date"))
        if entry.name == LONG_TERM and content is not None:
            long_term, long_term_updated_at, provenance = content, updated_at or "", source_of(entry)
        elif entry.name == DAILY and content and day:
            earlier = days.get(day)
            joined = f"{earlier.content}\n{content}" if earlier else content
            moment = updated_at or (earlier.updated_at if earlier else "")
            source = most_foreign(source_of(entry), *([earlier.provenance] if earlier else []))
            days[day] = DailyNote(day, joined, moment, source)
    dailies = tuple([days[day] for day in sorted(days)])
    return MemorySnapshot(
        _version(seal) or _version(opening),
        long_term,
        long_term_updated_at,
        dailies,
        seal_id=seal.id,
        open_id=opening.id,
        provenance=provenance,
    )


def _version(anchor: TapeEntry) -> int:
    """Return the version in a memory anchor; 0 if it has none."""
    number = _object(anchor, "state").get("version")
    return number if type(number) is int and number > 0 else 0


def _object(entry: TapeEntry, field: str) -> Mapping[str, Any]:
    value = entry.payload.get(field)
    return value if isinstance(value, Mapping) else {}


def _text(data: Mapping[str, Any], field: str) -> str | None:
    value = data.get(field)
    return value if isinstance(value, str) else None


def _contents(dailies: Sequence[DailyNote]) -> list[tuple[str, str]]:
    return [(note.date, note.content) for note in dailies]


def _matching_lines(text: str, needle: str) -> str:
    """Return the lines that contain the needle, or the whole text if no single line does."""
    return "\n".join(line for line in text.splitlines() if needle in fold_text(line)) or text


def _spelled_lines(text: str, day: str, needle: str) -> str:
    """Return the lines with every word of the query, or the whole text if they stand in several lines."""
    lines = text.splitlines()
    near = find_misspelt(needle, {number: f"{fold_text(line)} {day}" for number, line in enumerate(lines)})
    if near:
        return "\n".join(line for number, line in enumerate(lines) if number in near)
    return text if find_misspelt(needle, {0: f"{fold_text(text)} {day}"}) else ""
