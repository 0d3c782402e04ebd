"""The versions of a file, as the changes on the tape tell them."""

from __future__ import annotations

from collections.abc import Sequence

from bubbot.features.files.events import CHANGED, FAILED
from bubbot.records import dataclass
from bubbot.tape.entry import Kind
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers

MAX_CHANGES_READ = 2_000
"""The newest facts about files among which those of one file are looked for."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A change of a file: its entry, and the digests of what the file held before and after, empty for no file."""

    entry: int
    before: str
    after: str
    date: str


@dataclass(frozen=True, slots=True)
class FileHistoryView:
    """The changes of one file that happened, newest first."""

    path: str
    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest facts about files, through the name index."""
        return (TapeQuery(tape, kinds=(Kind.EVENT,), names=(CHANGED, FAILED), newest=True, limit=MAX_CHANGES_READ),)

    def fold(self, answers: QueryAnswers) -> Sequence[FileChange]:
        """Leave out the changes that failed, and those of other files."""
        failed: set[int] = set()
        changes = []
        for entry in answers[0]:
            if entry.erased:
                continue
            data = entry.data
            if entry.name == FAILED:
                failed.add(data["change"])
            elif data["path"] == self.path and entry.id not in failed:
                changes.append(FileChange(entry.id, data["before"], data["after"], entry.date))
        return changes


def find_undone(changes: Sequence[FileChange], current: str) -> FileChange | None:
    """Return the newest change that left what the file holds now; None if something else has changed it since."""
    return next((change for change in changes if change.after == current), None)
