"""A change of a file: planned, shown as a difference, and found again on the tape."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from bubbot.features.files.facts import FileChanged, FileFailed
from bubbot.features.files.folder import digest
from bubbot.features.files.roots import FilePath, on_one_line
from bubbot.tape.entry import Kind
from bubbot.tape.fact import Cited
from bubbot.tape.provenance import Source
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers
from bubbot.tool import CallPlan, Effect, EffectKind, GrantKind, GrantTarget, Power

MAX_CHANGES_READ = 2_000
"""The newest facts about files among which those of one file are looked for."""
CONTEXT_LINES = 2
MAX_COMPARED_PAIRS = 250_000
"""Pairs of an old and a new line that are compared for a difference."""
CHANGES_FILES = Effect(EffectKind.INSIDE, Source.WORLD, in_workspace=True)
CHANGES_FOLDERS = Effect(EffectKind.INSIDE, Source.WORLD, power=Power.FOLDERS)
"""The tool changes what it can take back, and answers with words of files."""


class PlannedChange(Struct, frozen=True):
    """A change that can be made: where, from what and to what; None means no file."""

    path: FilePath
    before: bytes | None
    after: bytes | None
    undoes: int | None = None

    def plan(self) -> CallPlan:
        """Describe it: its lines, as a difference, and the version that they rest on."""
        target = GrantTarget(GrantKind.FOLDER, str(self.path.root.path))
        effect = CHANGES_FILES if self.path.root.is_workspace else CHANGES_FOLDERS
        return CallPlan(effect, self.difference(), target, state=digest(self.before))

    def difference(self) -> str:
        """Return the changed lines as a unified difference; bytes that are no text are only counted."""
        name = on_one_line(self.path)
        try:
            old, new = [(version or b"").decode() for version in (self.before, self.after)]
        except UnicodeDecodeError:
            return f"{name}: {len(self.before or b'')} bytes become {len(self.after or b'')}"
        head = name + (" (removed)" if self.after is None else "")
        return "\n".join([head, *_changed_lines(*_split_lines(old, new))])


class FileHistoryView(Struct, frozen=True):
    """The changes of one file that happened, newest first."""

    path: str
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest facts about files, through the name index."""
        names = (*FileChanged.EVENTS, *FileFailed.EVENTS)
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=names, newest=True, limit=MAX_CHANGES_READ),)

    def fold(self, answers: QueryAnswers) -> Sequence[Cited[FileChanged]]:
        """Leave out the changes that failed, those of other files, and what cannot be read as a change."""
        failed: set[int] = set()
        changes = []
        for entry in answers[0]:
            if entry.name in FileFailed.EVENTS:
                if failure := FileFailed.try_of(entry):
                    failed.add(failure.change)
                continue
            is_about_file = entry.data.get("path") == self.path and entry.id not in failed
            if is_about_file and (change := Cited.try_of(FileChanged, entry)):
                changes.append(change)
        return changes


def _split_lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """Split two versions of a text into lines, so that none of their line ends is changed without being seen."""
    if all(re.fullmatch(r"(?:[^\r\n]*\r\n)+", text) for text in (old, new)):
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    parts = [text.replace("\r", "<U+000D>").split("\n") for text in (old, new)]
    if old and new and old.endswith("\n") != new.endswith("\n"):
        parts[old.endswith("\n")][-1] += "<no line end>"
    first, second = [lines if lines[-1] else lines[:-1] for lines in parts]
    return first, second


def _changed_lines(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Return the unified difference of two texts, whose cost follows what lies between the first and the last change.

    If that is much, all of it is shown, old and new: the least difference could take hours to find.
    """
    start = _count_equal(old, new)
    end = _count_equal(old[start:][::-1], new[start:][::-1])
    low, high = max(start - CONTEXT_LINES, 0), max(end - CONTEXT_LINES, 0)
    before, after = old[low : len(old) - high], new[low : len(new) - high]
    removed, added = old[start : len(old) - end], new[start : len(new) - end]
    if len(removed) * len(added) <= MAX_COMPARED_PAIRS:
        # Imported here: few processes compare files.
        from difflib import unified_diff

        lines = unified_diff(before, after, "before", "after", lineterm="", n=CONTEXT_LINES)
        return [_move_lines(line, low) if line.startswith("@@") else line for line in lines]
    return [
        *("--- before", "+++ after", f"@@ -{low + 1},{len(before)} +{low + 1},{len(after)} @@"),
        *(f" {line}" for line in old[low:start]),
        *(f"-{line}" for line in removed),
        *(f"+{line}" for line in added),
        *(f" {line}" for line in old[len(old) - end : len(old) - high]),
    ]


def _count_equal(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the lines with which both begin."""
    differing = (place for place, (line, opposite) in enumerate(zip(one, other, strict=False)) if line != opposite)
    return next(differing, min(len(one), len(other)))


def _move_lines(head: str, low: int) -> str:
    return re.sub(r"(?<= [-+])\d+", lambda number: str(int(number[0]) + low), head)
