"""Notes which test reaches which place, in every process that a test starts.

All processes share a file in memory: the number of the test that each worker runs, and a table with a byte for each place
and test. So a note costs no call of the system, and stays if the process is killed. A process knows its worker by an
entry of PATH, which tests hand on to what they start; one that does not know it notes for all tests that run.

The interpreter of a sandbox calls `start` before anything else: this file imports little.
"""

from __future__ import annotations

import builtins
import os
import sys

NOTE = "_note_reached"
"""The name under which annotated sources find it."""
FILE = os.path.join(sys.prefix, "reached")  # noqa: PTH118 - pathlib takes longer to import than all of this
WORKERS = 256
TESTS = 1 << 15
"""How many tests there may be; the numbers begin with 1, and 0 is no test: a module that is imported, say."""
HEAD = 4 * WORKERS
UNKNOWN = -1
ALL = -2


class Reached:
    """The shared file.

    Args:
        file: its path. The worker number N has a folder `file.N`, which its PATH names.
    """

    def __init__(self, file: str) -> None:
        import mmap

        with open(file, "r+b") as opened:  # noqa: PTH123
            self._memory = mmap.mmap(opened.fileno(), 0)
        self._running = memoryview(self._memory)[:HEAD].cast("I")
        self._prefix = f"{file}."
        self._worker = UNKNOWN
        os.register_at_fork(after_in_child=self._forget_worker)

    def note(self, place: int) -> None:
        """Note that this process has reached a place."""
        if self._worker == UNKNOWN:
            self._worker = self._find_worker()
        row = HEAD + place * TESTS
        if self._worker == ALL:
            for test in {0, *self._running}:
                self._memory[row + test] = 1
        else:
            self._memory[row + self._running[self._worker]] = 1

    def run(self, test: int) -> None:
        """Begin a test in this process, which becomes a worker; 0 ends it."""
        if test >= TESTS:
            raise ValueError(f"more than {TESTS} tests")
        if self._worker < 0:
            self._worker = self._become_worker()
        self._running[self._worker] = test

    def tests(self, place: int) -> list[int]:
        """Return the numbers of the tests that have reached a place."""
        row = HEAD + place * TESTS
        return [number for number, noted in enumerate(self._memory[row : row + TESTS]) if noted]

    def _forget_worker(self) -> None:
        self._worker = UNKNOWN

    def _find_worker(self) -> int:
        for entry in os.environ.get("PATH", "").split(os.pathsep):
            if entry.startswith(self._prefix):
                return int(entry.removeprefix(self._prefix))
        return ALL

    def _become_worker(self) -> int:
        for number in range(WORKERS):
            folder = f"{self._prefix}{number}"
            try:
                os.mkdir(folder)  # noqa: PTH102
            except FileExistsError:
                continue
            others = [one for one in os.environ["PATH"].split(os.pathsep) if not one.startswith(self._prefix)]
            os.environ["PATH"] = os.pathsep.join([folder, *others])
            return number
        raise RuntimeError(f"more than {WORKERS} workers")


def create(file: str, places: int) -> None:
    """Make an empty file for so many places."""
    with open(file, "wb") as opened:  # noqa: PTH123
        opened.truncate(HEAD + places * TESTS)


def start() -> Reached | None:
    """Offer `NOTE` to all modules of this process; it does nothing if nobody records, or in a process that may not."""
    try:
        reached = Reached(FILE)
    except OSError:
        setattr(builtins, NOTE, lambda place: None)
        return None
    setattr(builtins, NOTE, reached.note)
    return reached
