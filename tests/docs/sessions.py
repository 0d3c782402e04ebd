"""The recorded sessions of docs/concepts/a-long-chat.md: three topics over four lives of a process that is killed.

`python -m tests.docs.sessions` holds them again and writes them into the pages: once with the scripted model and once with
the demonstration model of this machine, which answers badly. Each life is a real `bubbot chat`; the first three end by
SIGKILL, in the middle of a turn. `test_sessions.py` holds the scripted one and compares.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.docs.pages import ROOT

PAGES = (ROOT / "docs/concepts/a-long-chat.md", ROOT / "docs/zh/concepts/a-long-chat.md")
BLOCK = re.compile(r"(<!-- session: (\S+) -->\n```text\n).*?(\n```\n)", re.DOTALL)
WAIT_SECONDS = 120.0
LINE_CHARS = 116
LIVES: Sequence[Sequence[str]] = (
    (",topic Trip to Rome", "We leave on the 3rd of May.", ",topic Cake", "The cake needs 250 grams of sugar."),
    (",topic trip to rome", "The hotel is called Aurora.", ",topic Garden", "The fence gets larch boards."),
    (",topic cake", "And two eggs.", ",topic garden", "The screws are of stainless steel."),
    (
        ",topic Trip to Rome",
        "When do we leave, and what is our hotel called?",
        ",topic cake",
        "What do we need for it?",
    ),
)
"""What is typed in each life; the last line of all lives but the last is not answered before the process is killed."""
LAST = (",topics", ",why", ",graph")
SCRIPT = {
    "rules": [
        {"when": "When do we leave", "steps": [{"text": "On the 3rd of May; the hotel is the Aurora."}]},
        {"when": "What do we need", "steps": [{"text": "250 grams of sugar and two eggs."}]},
    ],
    # Slow, so that the kill meets them in the middle of a turn.
    "default": [{"text": "Noted.", "delay": 1.5}],
}
_VARYING = (
    (re.compile(r"\b[0-9a-f]{32}\b"), "…"),
    (re.compile(r"\brequest [0-9a-f]{12}\b"), "request …"),
    (re.compile(r"\b20\d\d-\d\d-\d\d \d\d:\d\d\b"), "2026-11-24 09:00"),
    (re.compile(r"\b\d+ ms\b"), "20 ms"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "1 s"),
    (re.compile(r"\b\d+ tokens in\b"), "… tokens in"),
)


class ChatProcess:
    """A `bubbot chat` whose standard input and output are pipes."""

    def __init__(self, home: Path, model: str) -> None:
        self._database = home / "bubbot.db"
        self._pause = 0.7 if model == "scripted" else 3.0
        script = home.parent / "script.json"
        script.write_text(json.dumps(SCRIPT), encoding="utf-8")
        environment = {
            **{name: os.environ[name] for name in ("PATH",) if name in os.environ},
            "BUBBOT_HOME": str(home),
            "BUBBOT_MODEL__NAME": model,
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            **({"BUBBOT_MODEL__SCRIPT": str(script)} if model == "scripted" else {}),
        }
        self._process = subprocess.Popen(
            [Path(sys.executable).with_name("bubbot"), "chat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=home.parent,
        )

    def type(self, line: str) -> None:
        """Type a line."""
        assert self._process.stdin
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def answer(self) -> list[str]:
        """Return the lines of the next answer: until nothing more comes for a moment."""
        assert self._process.stdout
        output, deadline = b"", time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            if not select.select([self._process.stdout], [], [], self._pause if output.endswith(b"\n") else 0.2)[0]:
                if output.endswith(b"\n"):
                    break
                continue
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                break
            output += data
        return output.decode().strip("\n").split("\n")

    def wait_until_stored(self, text: str) -> None:
        """Wait until a message is on the tapes."""
        query = "SELECT count(*) FROM entries WHERE instr(payload, ?)"
        with closing(sqlite3.connect(f"{self._database.as_uri()}?mode=ro", uri=True)) as database:
            deadline = time.monotonic() + WAIT_SECONDS
            while not database.execute(query, (text,)).fetchone()[0]:
                assert time.monotonic() < deadline, f"{text!r} was not stored"
                time.sleep(0.01)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def close(self) -> None:
        """Close its standard input, which ends it."""
        self._process.communicate(timeout=WAIT_SECONDS)


def hold(model: str) -> str:
    """Hold the session with a model; return its transcript."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        for number, life in enumerate(LIVES, 1):
            is_last = number == len(LIVES)
            chat = ChatProcess(home, model)
            if number > 1:
                lines += ["", f"$ bubbot chat    (process {number})", *chat.answer()]  # what the kill had left open
            else:
                lines.append("$ bubbot chat    (process 1)")
            for line in life if is_last else life[:-1]:
                lines += _exchange(chat, line)
            if is_last:
                for line in LAST:
                    lines += _exchange(chat, line)
                chat.close()
                break
            chat.type(life[-1])
            chat.wait_until_stored(life[-1])
            chat.kill()
            lines += [f"> {life[-1]}", "(killed by SIGKILL before the answer)"]
    return "\n".join(_shorten(line) for line in lines)


def _exchange(chat: ChatProcess, line: str) -> list[str]:
    chat.type(line)
    return [f"> {line}", *chat.answer()]


def _shorten(line: str) -> str:
    for pattern, sample in _VARYING:
        line = pattern.sub(sample, line)
    return line if len(line) <= LINE_CHARS else f"{line[: LINE_CHARS - 1]}…"


def replace_sessions(text: str, sessions: dict[str, str]) -> str:
    """Put sessions into the text of a page; those that are not given stay."""
    return BLOCK.sub(lambda found: found[1] + sessions[found[2]] + found[3] if found[2] in sessions else found[0], text)


def main() -> None:
    """Write the pages again."""
    sessions = {model: hold(model) for model in sys.argv[1:] or ("scripted", "local")}
    for page in PAGES:
        page.write_text(replace_sessions(page.read_text(encoding="utf-8"), sessions), encoding="utf-8")


if __name__ == "__main__":
    main()
