"""A command in a terminal of a fixed size: keys go in, and what stands on the screen comes out as rows of Rich text."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from fcntl import ioctl
from itertools import groupby
from pathlib import Path
from struct import pack
from termios import TIOCSWINSZ

import pyte
from rich.style import Style
from rich.text import Text

from tests.docs.pages import ROOT
from tests.docs.pictures.samples import replace_varying

WAIT_SECONDS = 60.0
COLUMNS = 100
_PROMPT = "\x1b[32m$\x1b[0m "


class Recording:
    """A screen on which commands run one after another, as in a shell."""

    def __init__(self, home: Path, *, rows: int, environment: Mapping[str, str] | None = None) -> None:
        self._home = home
        self._rows = rows
        self._environment = dict(environment or {})
        self._output = ""
        self._main = -1
        self._process: subprocess.Popen[bytes] | None = None
        self.frames: list[tuple[float, tuple[Text, ...]]] = []

    def run(self, command: str, *, shown: str | None = None) -> None:
        """Run a command to its end; the screen shows it after a prompt."""
        self.start(command, shown=shown)
        self.wait()

    def start(self, command: str, *, shown: str | None = None) -> None:
        """Start a command; the screen shows it after a prompt."""
        self._output += f"{_PROMPT}{shown or command}\r\n"
        self._main, inner = os.openpty()
        ioctl(inner, TIOCSWINSZ, pack("HHHH", self._rows, COLUMNS, 0, 0))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._home.parent),
            "BUBBOT_HOME": str(self._home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TZ": "UTC",
            **self._environment,
        }
        self._process = subprocess.Popen(
            command.split(), stdin=inner, stdout=inner, stderr=inner, env=environment, cwd=ROOT, start_new_session=True
        )
        os.close(inner)

    def wait(self) -> None:
        """Wait for the end of the command."""
        assert self._process
        deadline = time.monotonic() + WAIT_SECONDS
        while self._read(0.1) or self._process.poll() is None:
            assert time.monotonic() < deadline, f"it still runs:\n{self._output}"
        os.close(self._main)
        assert self._process.returncode in (0, 1), self._output  # doctor ends with 1 if it found a problem

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._main, keys.encode())

    def expect(self, pattern: str) -> None:
        """Wait until the text of the screen, from its last prompt on, matches."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not re.search(pattern, "\n".join(row.plain for row in self.screen())):
            assert time.monotonic() < deadline, f"{pattern!r} was not shown:\n{self._output}"
            self._read(0.2)

    def stop(self) -> None:
        """Kill the command if it still runs."""
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def keep(self, seconds: float) -> None:
        """Keep what is on the screen as a frame that is shown this long."""
        self.frames.append((seconds, self.screen()))

    def show_prompt(self, typed: str) -> None:
        """Keep a frame in which a command is typed."""
        before, self._output = self._output, f"{self._output}{_PROMPT}{typed}"
        self.keep(0.25)
        self._output = before

    def screen(self) -> tuple[Text, ...]:
        """Return what stands on the screen now, without the empty rows at its end."""
        screen = pyte.Screen(COLUMNS, self._rows)
        pyte.Stream(screen).feed(replace_varying(self._output, self._home))
        rows = [_row(screen.buffer[number]) for number in range(self._rows)]
        while rows and not rows[-1].plain:
            rows.pop()
        return tuple(rows)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._main], [], [], seconds)[0]:
            return False
        with suppress(OSError):  # the other end is closed
            data = os.read(self._main, 1 << 16)
            self._output += data.decode(errors="replace")
            if "\x1b[6n" in data.decode(errors="replace"):  # asked where the cursor is
                os.write(self._main, b"\x1b[1;1R")
            return bool(data)
        return False


def _row(cells: Mapping[int, pyte.screens.Char]) -> Text:
    text = Text()
    for style, group in groupby((cells[column] for column in range(COLUMNS)), key=_style):
        text.append("".join(cell.data for cell in group), style)
    text.rstrip()
    return text


def _style(cell: pyte.screens.Char) -> Style:
    return Style(
        color=_color(cell.fg), bgcolor=_color(cell.bg), bold=cell.bold, italic=cell.italics, reverse=cell.reverse
    )


def _color(name: str) -> str | None:
    """Return Rich's name of a color of pyte; None for the default."""
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    name = re.sub(r"^bright(?=[a-z])", "bright_", name).replace("brown", "yellow")
    return None if name == "default" else name
