"""The port for the progress of long work: the worker reports counts without knowing the display."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias, TypeVar

OnProgress: TypeAlias = Callable[[int, int], None]
"""Receives the done and the total count; the total is 0 if unknown. It is called from any thread and must return at once."""
REPORT_EVERY = 500
"""Items between two reports."""
T = TypeVar("T")


def ignore_progress(_done: int, _total: int) -> None:
    """Do nothing."""


def report_each(items: Iterable[T], on_progress: OnProgress, total: int, *, start: int = 0) -> Iterator[T]:
    """Yield the items and report their count.

    Args:
        total: the count over all iterables.
        start: the count before these items.
    """
    done = start
    for done, item in enumerate(items, start + 1):
        if done % REPORT_EVERY == 0:
            on_progress(done, total)
        yield item
    on_progress(done, total)
