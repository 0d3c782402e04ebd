"""Questions and answers, one on a line: on any terminal, over a pipe, and with answers given by options."""

from __future__ import annotations

import termios
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TextIO, TypeVar

from bubbot.errors import ConfigError
from bubbot.formatting import wrap_text
from bubbot.log import printable
from bubbot.texts import Texts

Answer = TypeVar("Answer")


class InputEnded(Exception):
    """The input ended before the last answer."""


class Console:
    """Asks questions on two streams.

    Attributes:
        is_unattended: take the default of every question, and raise the errors of wrong answers.
    """

    def __init__(
        self,
        answers: TextIO,
        output: TextIO,
        *,
        texts: Texts | None = None,
        is_unattended: bool = False,
        on_secret: Callable[[str], None] = lambda _text: None,
        find_columns: Callable[[], int] = lambda: 0,
    ) -> None:
        """Set the streams.

        Args:
            texts: the language of the questions; None for English.
            is_unattended: take the default of every question, and raise the errors of wrong answers.
            on_secret: called with each answer that the terminal does not show.
            find_columns: returns the width of the output now; 0 for lines of any length.
        """
        self._answers = answers
        self._output = output
        self._on_secret = on_secret
        self._find_columns = find_columns
        self._step = self._steps = 0
        self.is_unattended = is_unattended
        self.texts = texts or Texts()

    @property
    def is_terminal(self) -> bool:
        """True if a person types the answers and sees the results."""
        return self._answers.isatty() and not self.is_unattended

    def speak(self, language: str) -> None:
        """Set the language of the next questions."""
        self.texts = Texts(language)

    def say(self, name: str, /, **values: object) -> str:
        """Return a sentence in the language of the questions."""
        return self.texts.say(name, **values)

    def expect_steps(self, count: int) -> None:
        """Set the number of steps, for their headings."""
        self._steps = count

    def begin_step(self, title: str) -> None:
        """Print the heading of the next step, such as `3 of 8  Time zone`."""
        self._step += 1
        if not self.is_unattended:
            heading = self.say("init_step", step=self._step, steps=self._steps, title=title)
            self.tell(f"\n{heading}")

    def tell(self, text: str = "") -> None:
        """Print lines, with control characters replaced: text from platforms and files may contain any."""
        lines = "\n".join(printable(line) for line in text.split("\n"))
        self._write(wrap_text(lines, self._find_columns()) + "\n")

    def ask(self, question: str, default: str, check: Callable[[str], Answer], *, preset: str | None = None) -> Answer:
        """Ask until the answer passes the check.

        Args:
            question: the question, without a colon.
            default: the answer for an empty line.
            check: returns the checked answer or raises `ConfigError`.
            preset: an answer from an option, to check instead of asking.
        """
        if preset is not None or self.is_unattended:
            return check(default if preset is None else preset)
        prompt = f"{question} [{default}]: " if default else f"{question}: "
        while True:
            try:
                return check(self.read_line(prompt).strip() or default)
            except ConfigError as error:
                self.tell(f"  {error}")

    def ask_secret(self, question: str) -> str:
        """Ask for a text that the terminal does not show; empty if nothing is asked."""
        return "" if self.is_unattended else self.ask_hidden(question)

    def ask_hidden(self, question: str) -> str:
        """Ask for a text that the terminal does not show, even if nothing else is asked. Raises `InputEnded`."""
        with _no_echo(self._answers) as is_hidden:
            prompt = self.say("init_hidden", question=question) if is_hidden else question
            text = self.read_line(f"{prompt}: ", is_echoed=not is_hidden)
        if secret := text.strip():
            self._on_secret(secret)
        return secret

    def choose(self, question: str, options: Mapping[str, str], *, default: str = "") -> str:
        """Ask for one of the options, by its number from 1, its key or its text; return its key.

        The default is the first one, unless `default` names another. An empty question prints the options alone.
        """
        keys: Sequence[str] = list(options)
        if self.is_unattended or len(keys) == 1:
            return default or keys[0]
        names = {name.casefold(): key for key, text in options.items() for name in (text, key)}
        if question:
            self.tell(question)
        for number, text in enumerate(options.values(), start=1):
            self.tell(f"  {number}  {text}")

        def parse_choice(text: str) -> str:
            if text.isascii() and text.isdigit() and 1 <= int(text[:4]) <= len(keys):
                return keys[int(text[:4]) - 1]
            if key := names.get(text.strip().casefold()):
                return key
            raise ConfigError(self.say("init_not_one", text=text, last=len(keys)))

        return self.ask(self.say("init_number"), str(keys.index(default) + 1 if default else 1), parse_choice)

    def read_line(self, prompt: str, *, is_echoed: bool = True) -> str:
        """Read one line of the input. Raises `InputEnded`."""
        words = printable(prompt).rstrip()
        self._write(wrap_text(words, max(0, self._find_columns() - 1)) + prompt[len(words) :])
        try:
            text = self._answers.readline()
        except UnicodeDecodeError:
            text = "\ufffd\n"
        if not (is_echoed and self._answers.isatty()):
            self._write("\n")
        if not text:
            raise InputEnded
        return self._decode(text.rstrip("\r\n"))

    def _decode(self, text: str) -> str:
        """Decode the text as UTF-8, even if the locale declares another encoding for the input."""
        try:
            return text if text.isprintable() else text.encode(self._answers.encoding, "surrogateescape").decode()
        except (UnicodeError, TypeError):
            return text

    def _write(self, text: str) -> None:
        encoding = self._output.encoding or "utf-8"
        self._output.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._output.flush()


@contextmanager
def _no_echo(stream: TextIO) -> Iterator[bool]:
    """Turn off the echo of a terminal; yield false if the stream is not one."""
    try:
        descriptor = stream.fileno()
        attributes = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):
        yield False
        return
    silent = [*attributes[:3], attributes[3] & ~termios.ECHO, *attributes[4:]]
    # Without TCSAFLUSH: text typed ahead is an answer, too.
    termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
    try:
        yield True
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, attributes)
