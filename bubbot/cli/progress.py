"""Progress of long work on standard error: a drawing on a terminal after a second, else a line from time to time."""

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
"""Seconds between two lines if redrawing is impossible, and before the first line outside a terminal."""


@contextmanager
def show_progress(
    label: str, unit: str = "", *, plain: bool = False, start_delay: float = START_DELAY_SECONDS
) -> Iterator[OnProgress]:
    """Yield a function that receives counts; show them until the block ends, then remove the drawing.

    If standard error is not a terminal, print lines.

    Args:
        label: the work, such as `Checking the tapes`.
        unit: the counted things, such as `entries`; empty for none.
        plain: print lines without redrawing.
        start_delay: seconds before the first output.
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
    """The display in its own thread: it may lag, but must not delay the work.

    Attributes:
        ended: set when the work is done.
    """

    def __init__(self, label: str, unit: str, *, plain: bool, start_delay: float) -> None:
        self.ended = threading.Event()
        self._label = replace_controls(label)  # it may contain a file name, and Rich passes escapes through
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
        # Commands print through `cli/output`, so Rich must not capture the streams.
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
        done: at least 1.
        total: 0 if unknown.
        unit: the counted things.
        seconds: elapsed so far.
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
