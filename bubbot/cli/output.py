"""Standard output: every command prints through this module, so that printed text cannot control the terminal."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from shlex import quote
from shutil import get_terminal_size
from typing import Any

from bubbot.errors import OutputFailed
from bubbot.formatting import escape_json, format_table, replace_controls, wrap_text
from bubbot.settings.environment import terminal_style

PIPE_CHARACTERS = 4096
"""The characters written to a pipe at once, so that a missing reader is noticed."""


def show(
    text: str,
    *,
    end: str = "\n",
    flush: bool = False,
    paint: Callable[[str], str] | None = None,
    wraps: bool = True,
) -> None:
    """Print text for people; replace control characters with U+FFFD.

    Args:
        text: may have several lines.
        end: is printed after the text.
        flush: return only after the system has the text.
        paint: adds our colours after control characters are replaced.
        wraps: break long lines between words; false for text that is copied or read by a program.

    Raises:
        OutputFailed: standard output is closed, full, or nobody reads it.
    """
    with _translate_errors():
        if sys.stdout is None:
            raise OSError(errno.EBADF, "standard output is closed")
        safe = _escape_unencodable(replace_controls(text + end), sys.stdout.encoding)
        if wraps:
            safe = wrap_text(safe, terminal_columns())
        sys.stdout.write(paint(safe) if paint is not None else safe)
        if flush:
            sys.stdout.flush()


def show_line(text: str) -> None:
    """Print text for people on one line; replace line breaks."""
    show(" ".join(text.splitlines()))


def show_json(data: Any, *, flush: bool = False) -> None:
    """Print data as one line of JSON."""
    show(format_json(data), flush=flush, wraps=False)


def format_json(data: Any) -> str:
    """Return data as one line of JSON with control characters escaped."""
    return escape_json(json.dumps(data, ensure_ascii=not is_unicode()))


def show_record(record: object) -> None:
    """Print the result of a command, a dataclass, as one line of JSON."""
    # Imported here: completion prints names within a tenth of a second.
    from bubbot.shell_command import json_data

    show_json(json_data(record))


def show_table(rows: Sequence[Sequence[str]], *, right: Collection[int] = (), header: Sequence[str] = ()) -> None:
    """Print rows as a table that fits the terminal; see `format_table` for the arguments."""
    cells = [[" ".join(cell.splitlines()) for cell in row] for row in rows]
    for line in format_table(cells, columns=terminal_columns(), right=right, header=header):
        show_line(line)


def terminal_columns() -> int:
    """Return the width of the terminal on standard output; 0 for a pipe, whose lines may have any length."""
    return get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else 0


def show_either(text: str, record: object, *, as_json: bool) -> None:
    """Print the result of a command: as text, or as JSON."""
    if as_json:
        show_record(record)
    else:
        show(text)


class AnswerPrinter:
    """Prints answers until one fails.

    Attributes:
        error: the failure of the first unprinted answer; every later call raises it, so that no later answer replaces
            the lost one.
    """

    def __init__(self) -> None:
        self.error: OutputFailed | None = None
        self._is_read = False

    def __call__(self, text: str, *, wraps: bool = True) -> None:
        """Print an answer; return after the system has it. `wraps`: see `show`. Raise `OutputFailed`."""
        if self.error is None:
            try:
                lines = wrap_text(text, terminal_columns() if wraps else 0) + "\n"
                for start in range(0, len(lines), PIPE_CHARACTERS):
                    show(lines[start : start + PIPE_CHARACTERS], end="", flush=True, wraps=False)
                    self._is_read = True
            except OutputFailed as error:
                self.error = error
        if self.error is not None:
            raise self.error

    def check(self, session: str) -> None:
        """Raise `OutputFailed` if an answer was lost, naming the command that shows it: asking again costs money.

        A reader that stops early, such as `head`, has lost nothing that it wanted.
        """
        if self.error is not None and self.error.reader_left and self._is_read:
            raise self.error
        if self.error is not None:
            command = f"bubbot tape show {quote(session)} --last 5"
            raise OutputFailed(f"{self.error.reason}; what was answered is on the tape, `{command}` shows it")


def show_on_stderr(text: str, *, end: str = "\n", wraps: bool = True) -> None:
    """Print a notice on standard error, if it is open, so that the output of a command stays clean.

    `wraps`: see `show`.
    """
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            safe = _escape_unencodable(replace_controls(text), sys.stderr.encoding)
            if wraps and sys.stderr.isatty():
                safe = wrap_text(safe, get_terminal_size().columns)
            print(safe, end=end, file=sys.stderr, flush=True)


@contextmanager
def raw_output(escape: Callable[[str], str]) -> Iterator[Callable[[bytes], object]]:
    """Yield a function that writes UTF-8 to standard output: byte for byte, unless it is a terminal.

    Args:
        escape: makes text safe for a terminal.

    Raises:
        OutputFailed: standard output is closed, full, or nobody reads it.
    """
    if sys.stdout is None or sys.stdout.isatty():
        yield lambda data: show(escape(data.decode(errors="replace")), end="", wraps=False)
        return
    buffer = sys.stdout.buffer

    def write(data: bytes) -> None:
        with _translate_errors():
            buffer.write(data)

    yield write
    with _translate_errors():
        buffer.flush()


def flush_output() -> None:
    """Flush standard output while a failure can still be reported. Raise `OutputFailed`."""
    with _translate_errors():
        if sys.stdout is not None:
            sys.stdout.flush()


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: the file was closed
        reader_left = isinstance(error, BrokenPipeError)
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        _discard_output()
        raise OutputFailed(reason, reader_left=reader_left) from error


def _discard_output() -> None:
    """Discard further output, so that Python's last flush does not fail again."""
    with suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def _escape_unencodable(text: str, encoding: str | None) -> str:
    """Escape the characters that the stream cannot encode."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def drawing_width() -> int:
    """Return the width of a terminal that can draw bars; 0 for anything else, such as a terminal for lines only."""
    return terminal_columns() if is_unicode() and terminal_style() != "dumb" else 0


def is_coloured() -> bool:
    """Return true if standard output is a terminal with colours enabled."""
    return sys.stdout is not None and sys.stdout.isatty() and terminal_style() == "colour"


def is_unicode() -> bool:
    """Return true if standard output accepts all characters."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
