"""Progress of long work on standard error: drawn on a terminal after a second, else a line from time to time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bubbot.cli.output import show_on_stderr
from bubbot.formatting import replace_controls
from bubbot.ports.progress import OnProgress, ignore_progress

START_DELAY_SECONDS = 1.0
"""Shorter work shows nothing."""
REDRAW_SECONDS = 0.2
LINE_SECONDS = 10.0
"""The time between two lines, if nothing may be drawn a second time; and before the first one outside a terminal."""


@contextmanager
def show_progress(
    label: str, unit: str = "", *, plain: bool = False, start_delay: float = START_DELAY_SECONDS
) -> Iterator[OnProgress]:
    """Yield a function that gets counts; show them until the block ends, and then remove what was drawn.

    A standard error that is no terminal gets lines.

    Args:
        label: what is being done, such as `Checking the tapes`.
        unit: what is counted, such as `entries`; empty if nothing is.
        plain: print lines; draw nothing a second time.
        start_delay: seconds for which nothing is shown.
    """
    if sys.stderr is None:
        yield ignore_progress
        return
    if not sys.stderr.isatty():
        plain, start_delay = True, LINE_SECONDS
    display = _Display(label, unit, plain=plain, start_delay=start_delay)
    thread = threading.Thread(target=display.run, name="progress", daemon=True)
    thread.start()
    try:
        yield display.report
    finally:
        display.ended.set()
        thread.join()


class _Display:
    """The display, in a thread of its own: what it shows comes late rather than delaying the work.

    Attributes:
        ended: set when the work is done.
    """

    def __init__(self, label: str, unit: str, *, plain: bool, start_delay: float) -> None:
        self.ended = threading.Event()
        self._label = replace_controls(label)  # it may have the name of a file, and Rich lets escapes pass
        self._unit = unit
        self._plain = plain
        self._start_delay = start_delay
        self._began = time.monotonic()
        self._counts = (0, 0)

    def report(self, done: int, total: int) -> None:
        """Take new counts. See `OnProgress`."""
        self._counts = (done, total)

    def run(self) -> None:
        """Show the counts until the work is done."""
        if self.ended.wait(self._start_delay):
            return
        if self._plain:
            self._print_lines()
        else:
            self._draw()

    def _print_lines(self) -> None:
        while True:
            counts = self._format()
            show_on_stderr(f"{self._label}: {counts}." if counts else f"{self._label} …", wraps=False)
            if self.ended.wait(LINE_SECONDS):
                return

    def _draw(self) -> None:
        # Imported here: few commands take so long.
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(file=sys.stderr, highlight=False)
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(24, complete_style="green", pulse_style="green"),
            TextColumn("{task.fields[counts]}"),
        )
        # What commands print goes through `cli/output`; Rich leaves the streams alone.
        display = Progress(
            *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False, auto_refresh=False
        )
        with display:
            task = display.add_task(self._label, total=None, counts="")
            while True:
                done, total = self._counts
                display.update(task, completed=done, total=total or None, counts=self._format(), refresh=True)
                if self.ended.wait(REDRAW_SECONDS):
                    return

    def _format(self) -> str:
        """Return counts, rate and remaining time in words; without counts, the time so far."""
        done, total = self._counts
        seconds = time.monotonic() - self._began
        if not done:
            return format_seconds(seconds) if seconds >= 1 else ""
        return format_counts(done, total, self._unit, seconds)


def format_counts(done: int, total: int, unit: str, seconds: float) -> str:
    """Format counts, the rate and the remaining time.

    Args:
        done: how much is done, at least 1.
        total: how much there is; 0 if that is unknown.
        unit: what is counted.
        seconds: the time that it took so far.
    """
    if total and done >= total:
        return f"{done:,} of {total:,} {unit}, finishing"
    rate = done / max(seconds, 0.001)
    if not total:
        return f"{done:,} {unit}, {rate:,.0f} a second"
    return f"{done:,} of {total:,} {unit}, {rate:,.0f} a second, {format_seconds((total - done) / rate)} left"


def format_seconds(seconds: float) -> str:
    """Format a length of time."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
