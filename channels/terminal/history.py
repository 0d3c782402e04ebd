"""What was typed in a session's terminal, for the arrow keys: a file that goes when the session is erased."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

from prompt_toolkit.history import FileHistory

HISTORY = "terminal_history"


class LineHistory(FileHistory):
    """The lines typed so far. Nothing is held in memory: what is erased on disk is gone at the next look.

    A disk that is full, or a file that cannot be read, costs the lines and not the chat.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder / HISTORY))
        self._path = folder / HISTORY
        self._seen = self._erased = False

    async def load(self) -> AsyncGenerator[str, None]:
        """The lines, newest first."""
        with suppress(OSError):
            found = list(self.load_history_strings())
            self._seen = self._seen or bool(found)
            for line in found:
                yield line

    def append_string(self, string: str) -> None:
        """See `History`."""
        self.store_string(string)

    def store_string(self, string: str) -> None:
        """See `History`."""
        self._look()
        with suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            self._path.chmod(0o600)
            super().store_string(string)
            self._seen = True

    def was_erased(self) -> bool:
        """Whether lines that were here are gone; says so once."""
        self._look()
        erased, self._erased = self._erased, False
        return erased

    def _look(self) -> None:
        if self._seen and not self._path.exists():
            self._seen, self._erased = False, True
