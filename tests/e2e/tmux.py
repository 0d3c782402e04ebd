"""`bubbot chat` in a window of tmux: what really stands on the screen, also after the window changed its size."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.bot import BUBBOT, environment

WAIT = 60.0
"""Seconds any wait of these tests may take."""
LOOK = 0.02
"""Seconds between two looks at the screen."""


class Window:
    """A window of tmux. `rows` are those of its history and its screen, each without the spaces at its end."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", os.devnull]

    def open(self, command: str, env: dict[str, str], columns: int, lines: int) -> None:
        """Starts the command in a terminal of this size."""
        self._do("new-session", "-d", "-x", str(columns), "-y", str(lines), command, env=env)

    def rows(self) -> list[str]:
        """All that was ever scrolled away and all that stands there now."""
        return [row.rstrip() for row in self._do("capture-pane", "-p", "-S", "-").split("\n")]

    def say(self, text: str) -> None:
        """Types a line."""
        self._do("send-keys", "-l", text)
        self.press("Enter")

    def press(self, *keys: str) -> None:
        """Presses keys, by tmux's names for them."""
        self._do("send-keys", *keys)

    def resize(self, columns: int, lines: int = 24) -> None:
        """Makes the window wider or narrower; its rows are folded anew."""
        self._do("resize-window", "-x", str(columns), "-y", str(lines))

    def cursor(self) -> str:
        """Whether the cursor is shown: 1 or 0."""
        return self._do("display-message", "-p", "#{cursor_flag}").strip()

    def expect(self, text: str) -> list[str]:
        """Waits until the text stands there, wherever rows are folded."""
        return self.until(lambda rows: text.replace(" ", "") in "".join(rows).replace(" ", ""), text)

    def until(self, there: Callable[[list[str]], bool], what: str) -> list[str]:
        """Waits until the rows are as wanted; gives them."""
        deadline = time.monotonic() + WAIT
        while not there(rows := self.rows()):
            if time.monotonic() > deadline:
                raise AssertionError(f"{what!r} did not come to stand in:\n" + "\n".join(rows))
            time.sleep(LOOK)
        return rows

    def close(self) -> None:
        """Ends the server and what runs in it."""
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, timeout=WAIT, check=False)

    def _do(self, *words: str, env: dict[str, str] | None = None) -> str:
        done = subprocess.run([*self._tmux, *words], capture_output=True, timeout=WAIT, check=True, env=env)
        return done.stdout.decode()


@contextmanager
def chat_in_tmux(
    home: Path,
    *,
    script: Path | None = None,
    columns: int = 80,
    lines: int = 24,
    end: str = "",
    env: Mapping[str, str] | None = None,
) -> Iterator[Window]:
    """A running chat with its prompt on the screen; `end` comes after the command, such as a redirection."""
    given = {"LANG": "C.UTF-8", **(env or {})}
    if script:
        given["BUBBOT_MODEL__SCRIPT"] = str(script)
    # Not in pytest's folder: the path of a socket may have 107 bytes.
    with tempfile.TemporaryDirectory() as folder:
        window = Window(Path(folder) / "tmux")
        try:
            window.open(f"{shlex.join(BUBBOT)} chat {end}", environment(home, **given), columns, lines)
            window.until(lambda rows: ">" in rows, "> ")
            yield window
        finally:
            window.close()
