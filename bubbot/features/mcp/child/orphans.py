"""What outlives the servers that this process has started: it is adopted, and ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bubbot.sandbox.confine import adopt_orphans, list_children


class OwnProcesses:
    """The children that this process has started, and the end of all others.

    The process in front of a server ends what that has started. If it is killed itself, by the kernel for want of memory or by a person,
    its children become ours.
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
        """Yield the set to which the block adds the child that it starts; its end takes it out again.

        Until the end of the block no child is ended: which one is new is not known before.
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
