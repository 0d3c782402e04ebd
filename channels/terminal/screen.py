"""What the line editor stands on: the window's size, a cursor that survives its resizing, lines that others print."""

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

LAST = 10**9
"""Drawn after everything else, completions included."""


def window_size() -> Size:
    """The size of the terminal on standard output, else that of an ordinary one."""
    try:
        size = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1)
    except (OSError, ValueError):
        return Size(rows=24, columns=80)
    return Size(rows=size.lines or 24, columns=size.columns or 80)


class ScreenOutput(Vt100_Output):
    """The terminal on standard output. It is asked nothing: its answers would be taken for typing."""

    def __init__(self) -> None:
        super().__init__(sys.stdout, window_size, enable_cpr=False)

    def erase_down(self) -> None:
        """Erases from the cursor, in the first column, to the end of the screen.

        The row first and the rest from its second cell on: what tmux is told to erase from the first cell of the
        screen it moves into the history instead, where it would stand for good.
        """
        self.write_raw("\x1b[K\x1b[C\x1b[J\x1b[D")


class ParkedCursor(Container):
    """A layout whose cursor waits at its first cell while `when` says so; the place to type is drawn.

    A terminal made narrower may fold rows, and no two do it alike. But it keeps the cursor at its cell, so that
    erasing from there downwards removes all that was drawn, whatever became of it.
    """

    def __init__(self, layout: Layout, when: Callable[[], bool]) -> None:
        self._inner = layout.container
        self._layout = layout
        self._when = when

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
            screen.draw_with_z_index(LAST, lambda: self._park(screen))

    def _park(self, screen: Screen) -> None:
        window = self._layout.current_window
        place = screen.get_cursor_position(window)
        row = screen.data_buffer[place.y]
        row[place.x] = Char(row[place.x].char, f"{row[place.x].style} reverse")
        screen.set_cursor_position(window, Point(0, 0))
        screen.show_cursor = False


class PrintAbove(io.TextIOBase):
    """Takes what others print, from any thread, and hands it on in whole lines on the loop it was made on."""

    def __init__(self, stream: TextIO, put: Callable[[str], None]) -> None:
        self._stream = stream
        self._put = put
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._begun = ""
        self._over = False

    def write(self, text: str) -> int:
        """Hands on the lines that are whole now; once it is over, everything goes where it went before."""
        with self._lock:
            if self._over:
                return self._stream.write(text)
            lines, newline, self._begun = (self._begun + text).rpartition("\n")
            if newline:
                self._hand_on(lines)
        return len(text)

    def end(self) -> None:
        """Hands on what is left. Threads may still hold this object and write."""
        with self._lock:
            self._over = True
            if self._begun:
                self._hand_on(self._begun)

    def _hand_on(self, lines: str) -> None:
        if threading.get_ident() == self._thread:
            self._put(lines)
        else:
            self._loop.call_soon_threadsafe(self._put, lines)

    def isatty(self) -> bool:
        """Whether the lines reach a terminal: they do."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """The terminal itself."""
        return self._stream.fileno()


@contextmanager
def printed_above(put: Callable[[str], None]) -> Iterator[None]:
    """Hands to `put` what is printed inside the block, and what goes to standard error if that is the same terminal."""
    with ExitStack() as stack:
        same = _same_file(sys.stdout, sys.stderr)
        for stream, redirect in ((sys.stdout, redirect_stdout), (sys.stderr, redirect_stderr)):
            if stream is sys.stdout or same:
                above = PrintAbove(stream, put)
                stack.callback(above.end)
                stack.enter_context(redirect(cast("TextIO", above)))
        yield


def _same_file(one: TextIO, other: TextIO) -> bool:
    try:
        return os.path.sameopenfile(one.fileno(), other.fileno())
    except (OSError, ValueError):
        return False
