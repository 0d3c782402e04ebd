"""History of the lines typed in a session's terminal: a file that is deleted when the session is erased."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import FileHistory

HISTORY_FILE_NAME = "terminal_history"


class LineHistory(FileHistory):
    """The lines typed so far. Nothing is held in memory: lines erased on disk are gone at the next look.

    A full disk or an unreadable file loses the lines but does not end the chat.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder / HISTORY_FILE_NAME))
        self._path = folder / HISTORY_FILE_NAME
        self._has_lines = self._erased = False

    async def load(self) -> AsyncGenerator[str, None]:
        """Load the lines, newest first."""
        with suppress(OSError):
            lines = list(self.load_history_strings())
            self._has_lines = self._has_lines or bool(lines)
            for line in lines:
                yield line

    def append_string(self, string: str) -> None:
        """See `History`."""
        self.store_string(string)

    def store_string(self, string: str) -> None:
        """See `History`."""
        self._check_file()
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            self._path.chmod(0o600)
            super().store_string(string)
            self._has_lines = True

    def was_erased(self) -> bool:
        """Return true once after the lines were erased."""
        self._check_file()
        erased, self._erased = self._erased, False
        return erased

    def _check_file(self) -> None:
        if self._has_lines and not self._path.exists():
            self._has_lines, self._erased = False, True
