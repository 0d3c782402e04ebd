"""Questions and answers, a line each: works on a terminal of any kind, over a pipe, and with answers given before."""

from __future__ import annotations

import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO, TypeVar

from bubbot.errors import ConfigError
from bubbot.log import printable

Answer = TypeVar("Answer")


class InputEnded(Exception):
    """Nobody answers any more."""


class Console:
    """Asks on two streams. `unasked`: everything not asked takes its default, and what is wrong is raised."""

    def __init__(self, answers: TextIO, shown: TextIO, *, unasked: bool = False) -> None:
        self._answers = answers
        self._shown = shown
        self.unasked = unasked

    def tell(self, text: str = "") -> None:
        """Shows lines; what platforms and files say may hold anything and moves no cursor."""
        self._write("\n".join(printable(line) for line in text.split("\n")) + "\n")

    def ask(self, question: str, default: str, check: Callable[[str], Answer], *, given: str | None = None) -> Answer:
        """The checked answer, or that of what was `given` before; asks again after a wrong one."""
        if given is not None or self.unasked:
            return check(default if given is None else given)
        prompt = f"{question} [{default}]: " if default else f"{question}: "
        while True:
            try:
                return check(self.line(prompt).strip() or default)
            except ConfigError as error:
                self.tell(f"  {error}")

    def secret(self, question: str) -> str:
        """An answer that the terminal does not show, as it was typed; empty where nothing is asked."""
        return "" if self.unasked else self.hidden(question)

    def hidden(self, question: str) -> str:
        """The same, asked in any case. Raises `InputEnded`."""
        with _no_echo(self._answers) as hidden:
            text = self.line(f"{question} (it is not shown): " if hidden else f"{question}: ", echoed=not hidden)
        return text.strip()

    def choose(self, question: str, options: Mapping[str, str]) -> str:
        """The key of one of the options; the first is the default. They are numbered from 1."""
        keys: Sequence[str] = list(options)
        if self.unasked or len(keys) == 1:
            return keys[0]
        self.tell(question)
        for number, text in enumerate(options.values(), start=1):
            self.tell(f"  {number}  {text}")

        def chosen(text: str) -> str:
            if text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= len(keys):
                return keys[int(text[:4]) - 1]
            raise ConfigError(f"{text!r} is none of them: type a number from 1 to {len(keys)}.")

        return self.ask("Number", "1", chosen)

    def line(self, prompt: str, *, echoed: bool = True) -> str:
        """One line of the input. Raises `InputEnded`."""
        self._write(printable(prompt))
        try:
            text = self._answers.readline()
        except UnicodeDecodeError:
            text = "\ufffd\n"
        if not (echoed and self._answers.isatty()):
            self._write("\n")
        if not text:
            raise InputEnded
        return self._decoded(text.rstrip("\r\n"))

    def _decoded(self, text: str) -> str:
        """The text as UTF-8, also where the locale calls the input something else."""
        try:
            return text if text.isprintable() else text.encode(self._answers.encoding, "surrogateescape").decode()
        except (UnicodeError, TypeError):
            return text

    def _write(self, text: str) -> None:
        encoding = self._shown.encoding or "utf-8"
        self._shown.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._shown.flush()


@contextmanager
def _no_echo(stream: TextIO) -> Iterator[bool]:
    """The terminal without its echo, where the stream is one; gives whether it is."""
    try:
        number = stream.fileno()
        before = termios.tcgetattr(number)
    except (OSError, ValueError, termios.error):
        yield False
        return
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    # Without TCSAFLUSH: what was typed ahead is an answer, too.
    termios.tcsetattr(number, termios.TCSADRAIN, silent)
    try:
        yield True
    finally:
        with suppress(termios.error):
            termios.tcsetattr(number, termios.TCSADRAIN, before)
