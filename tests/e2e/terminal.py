"""`bubbot chat`, or another command, on a terminal of its own: keys go in, what the terminal would be sent comes out."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import termios
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.e2e import forked
from tests.e2e.bot import environment

WAIT = 60.0
"""Seconds any wait of these tests may take."""
CTRL_C, CTRL_D, UP, TAB, ENTER = "\x03", "\x04", "\x1b[A", "\t", "\r"
_FORWARD = re.compile(r"\x1b\[(\d*)C")
_CONTROL = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>78]|\r|\x08"
)


class Terminal:
    """A running chat, or another command, of which `first` is shown when it takes keys. `sent` is everything the
    terminal was sent so far, escape sequences included."""

    def __init__(
        self,
        home: Path,
        *command: str,
        first: str = "> ",
        script: Path | None = None,
        target: str = forked.BOT,
        **env: str,
    ) -> None:
        self._first = first
        self._main, inner = os.openpty()
        self.resize(int(env.pop("COLUMNS", "80")), 24, tell=False)  # the width of the window, not a variable
        self.before = termios.tcgetattr(inner)
        given = {"TERM": "xterm-256color", "LANG": "C.UTF-8", **env}
        if script:
            given["BUBBOT_MODEL__SCRIPT"] = str(script)
        self.process = forked.start(
            target,
            command or ("chat",),
            env=environment(home, **given),
            cwd=home.parent,
            streams=(inner, inner, inner),
            terminal=True,
        )
        self._inner = inner
        self.sent = ""
        self._seen = 0

    def __enter__(self) -> Terminal:
        self.expect(self._first)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.close()
        for fd in (self._main, self._inner):
            with suppress(OSError):
                os.close(fd)

    def type(self, keys: str) -> None:
        """Presses keys."""
        os.write(self._main, keys.encode())

    def say(self, text: str) -> None:
        """Types a line."""
        self.type(text + ENTER)

    def expect(self, text: str) -> str:
        """Waits until the text was shown, after what was expected before; gives what was shown up to there."""
        deadline = time.monotonic() + WAIT
        while True:
            shown = _shown(self.sent)
            place = shown.find(text, self._seen)
            if place >= 0:
                begun, self._seen = self._seen, place + len(text)
                return shown[begun : self._seen]
            if time.monotonic() > deadline or not self._read(deadline - time.monotonic()):
                raise AssertionError(f"{text!r} was not shown after:\n{shown[self._seen :]}")

    def settle(self) -> None:
        """Waits until nothing is drawn any more, not even the sign of life."""
        while self._read(0.6):
            pass
        self._seen = len(_shown(self.sent))

    def resize(self, columns: int, rows: int, *, tell: bool = True) -> None:
        """Makes the window wider or narrower."""
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if tell:
            self.process.send_signal(signal.SIGWINCH)

    def hang_up(self) -> None:
        """Closes the window."""
        os.close(self._inner)
        os.close(self._main)

    def ended(self) -> int:
        """Waits for the end of the chat; gives its exit code."""
        deadline = time.monotonic() + WAIT
        while self.process.returncode is None and time.monotonic() < deadline:
            with suppress(OSError, ValueError):
                self._read(0.1)
        return self.process.wait(timeout=1)

    def left_as_found(self) -> bool:
        """Whether the terminal echoes and edits lines as before the chat."""
        return termios.tcgetattr(self._inner) == self.before

    def _read(self, wait: float) -> bool:
        if not select.select([self._main], [], [], max(0.0, wait))[0]:
            return False
        try:
            data = os.read(self._main, 1 << 16)
        except OSError:
            return False
        self.sent += data.decode(errors="replace")
        return bool(data)


def _shown(sent: str) -> str:
    """The text alone; a cursor that skips cells leaves spaces there."""
    return _CONTROL.sub("", _FORWARD.sub(lambda found: " " * int(found[1] or 1), sent))
