"""Standard output: every command prints through here, so that nothing it prints controls the terminal."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from shlex import quote
from typing import Any

from bubbot.errors import OutputFailed
from bubbot.ports.channel import replace_controls


def show(text: str, *, end: str = "\n", flush: bool = False) -> None:
    """Print text for people; characters that a terminal would obey become U+FFFD.

    Args:
        text: any text, of several lines too.
        end: what comes after it.
        flush: return only when the system has it.

    Raises:
        OutputFailed: standard output is closed, full, or nobody reads it.
    """
    with _failures():
        if sys.stdout is None:
            raise OSError(errno.EBADF, "standard output is closed")
        sys.stdout.write(_encodable(replace_controls(text + end), sys.stdout.encoding))
        if flush:
            sys.stdout.flush()


def show_line(text: str) -> None:
    """Print text for people on one line, whatever it holds."""
    show(" ".join(text.splitlines()))


def show_json(data: Any, *, flush: bool = False) -> None:
    """Print data as one line of JSON, which says the same after what a terminal would obey was escaped."""
    show(escape_json(json.dumps(data, ensure_ascii=not is_unicode())), flush=flush)


class AnswerPrinter:
    """Prints answers. `lost` is why one was not printed: from then on it takes no more, as later ones would come in the
    place of that one."""

    def __init__(self) -> None:
        self.lost: OutputFailed | None = None

    def __call__(self, text: str) -> None:
        """Print an answer; return when the system has it. Raises `OutputFailed`."""
        if self.lost is None:
            try:
                show(text, flush=True)
            except OutputFailed as error:
                self.lost = error
        if self.lost is not None:
            raise self.lost

    def check(self, session: str) -> None:
        """Raise `OutputFailed` if an answer was lost, naming the command that shows it: to ask again costs money."""
        if self.lost is not None:
            command = f"bubbot tape show {quote(session)} --last 5"
            raise OutputFailed(f"{self.lost.reason}; what was answered is on the tape, `{command}` shows it")


def show_aside(text: str) -> None:
    """Print text for people on standard error, where there is one: notices beside the output of a command."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(_encodable(replace_controls(text), sys.stderr.encoding), file=sys.stderr, flush=True)


def escape_json(text: str) -> str:
    """Escape in JSON what cannot be printed; as data it stays the same. Line feeds between values stay."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)


@contextmanager
def raw_output(shown: Callable[[str], str]) -> Iterator[Callable[[bytes], object]]:
    """Write a file of UTF-8 to standard output: byte for byte, unless it is a terminal.

    Args:
        shown: how a terminal is shown a piece.

    Raises:
        OutputFailed: standard output is closed, full, or nobody reads it.
    """
    if sys.stdout is None or sys.stdout.isatty():
        yield lambda data: show(shown(data.decode(errors="replace")), end="")
        return
    buffer = sys.stdout.buffer

    def write(data: bytes) -> None:
        with _failures():
            buffer.write(data)

    yield write
    with _failures():
        buffer.flush()


def flush_output() -> None:
    """Hand to the system what was printed, while a failure can still be reported. Raises `OutputFailed`."""
    with _failures():
        if sys.stdout is not None:
            sys.stdout.flush()


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: somebody closed the file
        reader_left = isinstance(error, BrokenPipeError)
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        _discard_output()
        raise OutputFailed(reason, reader_left=reader_left) from error


def _discard_output() -> None:
    """Let standard output go nowhere, so that Python's own last flush does not fail once more."""
    with suppress(OSError, ValueError, AttributeError):
        lost = os.open(os.devnull, os.O_WRONLY)
        os.dup2(lost, sys.stdout.fileno())
        os.close(lost)


def _encodable(text: str, encoding: str | None) -> str:
    """The text with escapes for what the stream cannot encode."""
    encoding = encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def is_unicode() -> bool:
    """Return true if standard output takes any character."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
