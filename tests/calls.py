"""Count function calls: the part of a cost that no other program on the machine changes."""

from __future__ import annotations

import sys


class CallCounter:
    """Counts the function calls of the thread that starts it, those of C included.

    Not with `cProfile`, which since Python 3.12 counts those of every thread.
    """

    def __init__(self) -> None:
        self._calls = 0

    def start(self) -> None:
        """Begin at 0."""
        self._calls = 0
        sys.setprofile(self._on_event)

    def stop(self) -> int:
        """End and return how many calls there were."""
        sys.setprofile(None)
        return self._calls

    def _on_event(self, _frame: object, event: str, _called: object) -> None:
        if event in ("call", "c_call"):
            self._calls += 1
