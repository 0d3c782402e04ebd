"""The port for the progress of long work: whoever does it reports counts, and need not know who looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

OnProgress: TypeAlias = Callable[[int, int], None]
"""Gets how much is done and how much there is; 0 if that is unknown. It is called from any thread, and returns at once."""
REPORT_EVERY = 500
"""Items between two reports."""
T = TypeVar("T")


def ignore_progress(_done: int, _total: int) -> None:
    """Do nothing, if nobody looks."""


def report_each(items: Iterable[T], on_progress: OnProgress, total: int, *, start: int = 0) -> Iterator[T]:
    """Yield the items, and report how many there were so far.

    Args:
        items: what is worked on.
        on_progress: gets the counts.
        total: how many there are of all iterables together.
        start: how many were done before.
    """
    done = start
    for done, item in enumerate(items, start + 1):
        if done % REPORT_EVERY == 0:
            on_progress(done, total)
        yield item
    on_progress(done, total)
