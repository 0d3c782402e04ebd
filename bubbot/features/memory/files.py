"""Memory from files: our own Markdown export, any Markdown file, and the memory folder of nanobot."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.features.memory.views import DailyNote, MemorySnapshot, parse_day, unescape_headings
from bubbot.shell_command import ShellInput

FILE_LIMIT = 4_000_000
"""The size of the largest accepted file, in bytes."""
LONG_TERM_FILE = "MEMORY.md"

_TITLE = re.compile(r"# Memory(, version \d+)?")
_LONG_TERM, _NOTES = "## Long-term memory", "## Notes"
_DAY = re.compile(r"### (\d{4}-\d\d-\d\d)")


class MemoryFiles(Struct, frozen=True):
    """The memory that the files hold, and the names of files that were left out."""

    memory: MemorySnapshot
    left_out: tuple[str, ...] = ()


def read_memory(path: Path, files: ShellInput) -> MemoryFiles:
    """Read the memory from a Markdown file, or from the folder of a nanobot. Raises `ConfigError`."""
    if path.is_dir():
        inner = path / "memory"
        return _read_folder(inner if inner.is_dir() and not (path / LONG_TERM_FILE).exists() else path, files)
    return MemoryFiles(parse_memory(files.read_text(path, FILE_LIMIT, "The memory")))


def parse_memory(text: str) -> MemorySnapshot:
    """Parse a Markdown page: our own export by its parts, any other page as long-term memory."""
    lines = text.split("\n")
    if not _TITLE.fullmatch(lines[0].strip()):
        return MemorySnapshot(long_term=_tidy(text))
    notes = _find_notes(lines)
    body = lines[1:notes]
    while body and not body[0].strip():
        body.pop(0)
    if body[:1] == [_LONG_TERM]:
        long_term = unescape_headings(_tidy("\n".join(body[1:])))
    elif _tidy("\n".join(body)) in ("", "Nothing is remembered."):
        long_term = ""
    else:  # another page that happens to begin like our export
        return MemorySnapshot(long_term=_tidy(text))
    return MemorySnapshot(long_term=long_term, dailies=_parse_notes(lines[notes:]))


def _find_notes(lines: list[str]) -> int:
    """Find the heading of the notes, which that of a day follows; the end of the page if there is none."""
    for index, line in enumerate(lines):
        if line == _NOTES and (following := [text for text in lines[index + 1 :] if text.strip()]):
            match = _DAY.fullmatch(following[0])
            if match and parse_day(match[1]):
                return index
    return len(lines)


def _parse_notes(lines: list[str]) -> tuple[DailyNote, ...]:
    """Parse the notes under their headings, newest first; a heading out of order belongs to the text of a note."""
    notes: dict[str, list[str]] = {}
    day = ""
    for line in lines[1:]:
        match = _DAY.fullmatch(line)
        if match and parse_day(match[1]) and (not day or match[1] < day):
            day = match[1]
            notes[day] = []
        elif day:
            notes[day].append(line)
    texts = {name: unescape_headings(_tidy("\n".join(text))) for name, text in notes.items()}
    return tuple(DailyNote(name, texts[name]) for name in sorted(texts) if texts[name])


def _read_folder(folder: Path, files: ShellInput) -> MemoryFiles:
    """Read `MEMORY.md` as the long-term memory and `YYYY-MM-DD.md` as the note of a day."""
    long_term, notes, left_out = "", [], []
    for file in sorted(folder.iterdir()):
        day = parse_day(file.stem) if file.suffix == ".md" and len(file.stem) == 10 else None
        if not file.is_file() or not (day or file.name == LONG_TERM_FILE):
            left_out.append(file.name)
            continue
        text = _tidy(files.read_text(file, FILE_LIMIT, "The memory"))
        if file.name == LONG_TERM_FILE:
            long_term = text
        elif text and day:
            notes.append(DailyNote(day, text))
    if not long_term and not notes:
        raise ConfigError(f"{folder} holds no memory: there is no {LONG_TERM_FILE} and no note such as 2026-11-21.md")
    return MemoryFiles(MemorySnapshot(long_term=long_term, dailies=tuple(notes)), tuple(left_out))


def _tidy(text: str) -> str:
    return text.strip("\r\n") if text.strip() else ""
