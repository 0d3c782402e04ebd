"""What outlives the servers that this process has started: it is adopted, and ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bubbot.sandbox.confine import adopt_orphans, list_children


class OwnProcesses:
    """Knows the children that this process has started, and kills all others.

    `confine.py` in front of a server ends the server's processes. If it is killed itself, for example for lack of memory, they become
    our children.
    """

    def __init__(self) -> None:
        self._own = set[int]()
        self._starting = 0
        self._ends_others = False

    def end_others(self) -> None:
        """Adopt what is orphaned below this process, and end it, from now on; the running loop gives its `SIGCHLD` to that."""
        self._ends_others = True
        adopt_orphans()
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._end_others)

    @contextmanager
    def starting(self) -> Iterator[set[int]]:
        """Yield the set of own children, to which the block adds the one that it starts; `has_ended` removes it.

        No child is killed within the block: the new one may not be in the set yet.
        """
        self._starting += 1
        try:
            yield self._own
        finally:
            self._starting -= 1
            self._end_others()

    def has_ended(self, pid: int) -> None:
        """Take a child out of the set."""
        self._own.discard(pid)

    def _end_others(self) -> None:
        if self._starting or not self._ends_others:
            return
        for child in list_children():
            if child not in self._own:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(child, os.WNOHANG)  # if it has not ended yet, its end leads here again


OWN_PROCESSES = OwnProcesses()
