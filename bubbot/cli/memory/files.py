"""Memory that comes from files: our own Markdown export, any Markdown file, and the memory folder of nanobot."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bubbot.errors import ConfigError
from bubbot.settings.sources import read_text
from bubbot.views.memory import DailyNote, MemorySnapshot, iso_day, plain_headings

FILE_LIMIT = 4_000_000
"""The largest file, in bytes."""
LONG_TERM_FILE = "MEMORY.md"

_TITLE = re.compile(r"# Memory(, version \d+)?")
_LONG_TERM, _NOTES = "## Long-term memory", "## Notes"
_DAY = re.compile(r"### (\d{4}-\d\d-\d\d)")


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """What was found: the memory, and the names of files that were left out."""

    memory: MemorySnapshot
    left_out: tuple[str, ...] = ()


def read_memory(path: Path) -> MemoryFiles:
    """The memory in a Markdown file, or in the folder of a nanobot. Raises `ConfigError`."""
    if path.is_dir():
        inner = path / "memory"
        return _folder(inner if inner.is_dir() and not (path / LONG_TERM_FILE).exists() else path)
    return MemoryFiles(parsed(read_text(path, FILE_LIMIT, "The memory")))


def parsed(text: str) -> MemorySnapshot:
    """The memory of a Markdown page: one of our own exports by its parts, any other page as long-term memory."""
    lines = text.split("\n")
    if not _TITLE.fullmatch(lines[0].strip()):
        return MemorySnapshot(long_term=_tidy(text))
    notes = _start_of_notes(lines)
    body = lines[1:notes]
    while body and not body[0].strip():
        body.pop(0)
    if body[:1] == [_LONG_TERM]:
        long_term = plain_headings(_tidy("\n".join(body[1:])))
    elif _tidy("\n".join(body)) in ("", "Nothing is remembered."):
        long_term = ""
    else:  # somebody's own page that happens to begin like ours
        return MemorySnapshot(long_term=_tidy(text))
    return MemorySnapshot(long_term=long_term, dailies=_days(lines[notes:]))


def _start_of_notes(lines: list[str]) -> int:
    """Where the section of notes begins: its heading is followed by that of a day. The end, where there is none."""
    for place, line in enumerate(lines):
        if line == _NOTES and (following := [one for one in lines[place + 1 :] if one.strip()]):
            found = _DAY.fullmatch(following[0])
            if found and iso_day(found[1]):
                return place
    return len(lines)


def _days(lines: list[str]) -> tuple[DailyNote, ...]:
    """The notes under their headings. They are in descending order; a heading out of it belongs to a note's text."""
    notes: dict[str, list[str]] = {}
    day = ""
    for line in lines[1:]:
        found = _DAY.fullmatch(line)
        if found and iso_day(found[1]) and (not day or found[1] < day):
            day = found[1]
            notes[day] = []
        elif day:
            notes[day].append(line)
    kept = {name: plain_headings(_tidy("\n".join(text))) for name, text in notes.items()}
    return tuple(DailyNote(name, kept[name]) for name in sorted(kept) if kept[name])


def _folder(folder: Path) -> MemoryFiles:
    """`MEMORY.md` is the long-term memory, `YYYY-MM-DD.md` the note of a day."""
    long_term, notes, left_out = "", [], []
    for file in sorted(folder.iterdir()):
        day = iso_day(file.stem) if file.suffix == ".md" and len(file.stem) == 10 else None
        if not file.is_file() or not (day or file.name == LONG_TERM_FILE):
            left_out.append(file.name)
            continue
        text = _tidy(read_text(file, FILE_LIMIT, "The memory"))
        if file.name == LONG_TERM_FILE:
            long_term = text
        elif text and day:
            notes.append(DailyNote(day, text))
    if not long_term and not notes:
        raise ConfigError(f"{folder} holds no memory: there is no {LONG_TERM_FILE} and no note such as 2026-11-21.md")
    return MemoryFiles(MemorySnapshot(long_term=long_term, dailies=tuple(notes)), tuple(left_out))


def _tidy(text: str) -> str:
    return text.strip("\r\n") if text.strip() else ""
