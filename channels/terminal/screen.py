"""The screen below the line editor: the window's size, a cursor that survives resizing, output of other code."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO, cast

from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.key_binding import KeyBindingsBase
from prompt_toolkit.layout import Container, Dimension, Layout
from prompt_toolkit.layout.mouse_handlers import MouseHandlers
from prompt_toolkit.layout.screen import Char, Screen, WritePosition
from prompt_toolkit.output.vt100 import Vt100_Output

TOP_Z_INDEX = 10**9
"""The z-index that is drawn after everything else, completions included."""


def get_window_size() -> Size:
    """Return the size of the terminal on standard output, else 24 rows of 80 columns."""
    try:
        size = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1)
    except (OSError, ValueError):
        return Size(rows=24, columns=80)
    return Size(rows=size.lines or 24, columns=size.columns or 80)


class ScreenOutput(Vt100_Output):
    """The terminal on standard output. It sends no queries: their answers would count as typing."""

    def __init__(self) -> None:
        super().__init__(sys.stdout, get_window_size, enable_cpr=False)

    def erase_down(self) -> None:
        """Erase from the cursor, in the first column, to the end of the screen.

        The row first, then the rest from the row's second cell on: if told to erase from the first cell of the screen,
        tmux moves the text into its history instead, where it would stay.
        """
        self.write_raw("\x1b[K\x1b[C\x1b[J\x1b[D")


class ParkedCursor(Container):
    """A layout whose cursor waits at its first cell while `is_parked` is true; the input position is drawn.

    A narrower terminal may fold rows, and no two terminals do it alike. But each keeps the cursor at its cell, so that
    erasing from there downwards removes everything that was drawn.
    """

    def __init__(self, layout: Layout, is_parked: Callable[[], bool]) -> None:
        self._inner = layout.container
        self._layout = layout
        self._when = is_parked

    def reset(self) -> None:
        """See `Container`."""
        self._inner.reset()

    def preferred_width(self, max_available_width: int) -> Dimension:
        """See `Container`."""
        return self._inner.preferred_width(max_available_width)

    def preferred_height(self, width: int, max_available_height: int) -> Dimension:
        """See `Container`."""
        return self._inner.preferred_height(width, max_available_height)

    def is_modal(self) -> bool:
        """See `Container`."""
        return self._inner.is_modal()

    def get_key_bindings(self) -> KeyBindingsBase | None:
        """See `Container`."""
        return self._inner.get_key_bindings()

    def get_children(self) -> list[Container]:
        """See `Container`."""
        return [self._inner]

    def write_to_screen(  # noqa: PLR0917 - the port's signature
        self,
        screen: Screen,
        mouse_handlers: MouseHandlers,
        write_position: WritePosition,
        parent_style: str,
        erase_bg: bool,  # noqa: FBT001
        z_index: int | None,
    ) -> None:
        """See `Container`."""
        self._inner.write_to_screen(screen, mouse_handlers, write_position, parent_style, erase_bg, z_index)
        if self._when():
            screen.draw_with_z_index(TOP_Z_INDEX, lambda: self._park(screen))

    def _park(self, screen: Screen) -> None:
        window = self._layout.current_window
        position = screen.get_cursor_position(window)
        row = screen.data_buffer[position.y]
        row[position.x] = Char(row[position.x].char, f"{row[position.x].style} reverse")
        screen.set_cursor_position(window, Point(0, 0))
        screen.show_cursor = False


class PrintAbove(io.TextIOBase):
    """A stream that takes output from any thread and passes complete lines to `on_print` on the loop that created it."""

    def __init__(self, stream: TextIO, on_print: Callable[[str], None]) -> None:
        self._stream = stream
        self._put = on_print
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._partial_line = ""
        self._is_ended = False

    def write(self, text: str) -> int:
        """Pass on the lines that are complete; after `end`, write to the original stream."""
        with self._lock:
            if self._is_ended:
                return self._stream.write(text)
            lines, newline, self._partial_line = (self._partial_line + text).rpartition("\n")
            if newline:
                self._pass_on(lines)
        return len(text)

    def end(self) -> None:
        """Pass on the rest. Threads may still hold this object and write."""
        with self._lock:
            self._is_ended = True
            if self._partial_line:
                self._pass_on(self._partial_line)

    def _pass_on(self, lines: str) -> None:
        if threading.get_ident() == self._thread:
            self._put(lines)
        else:
            self._loop.call_soon_threadsafe(self._put, lines)

    def isatty(self) -> bool:
        """Return true if the original stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor of the original stream."""
        return self._stream.fileno()


@contextmanager
def print_above(on_print: Callable[[str], None]) -> Iterator[None]:
    """Pass output inside the block to `on_print`; standard error too if it is the same terminal."""
    with ExitStack() as stack:
        is_same = _is_same_file(sys.stdout, sys.stderr)
        for stream, redirect in ((sys.stdout, redirect_stdout), (sys.stderr, redirect_stderr)):
            if stream is sys.stdout or is_same:
                above = PrintAbove(stream, on_print)
                stack.callback(above.end)
                stack.enter_context(redirect(cast("TextIO", above)))
        yield


def _is_same_file(first: TextIO, second: TextIO) -> bool:
    try:
        return os.path.sameopenfile(first.fileno(), second.fileno())
    except (OSError, ValueError):
        return False
