"""Runs the real `bubbot` command in a home of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tests.e2e import forked

BUBBOT = (sys.executable, "-m", "bubbot")


def environment(home: Path, **more: str) -> dict[str, str]:
    """A bot with the scripted model and nothing of the environment the tests run in; an empty value leaves one out."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    variables = {**kept, "BUBBOT_HOME": str(home), "BUBBOT_MODEL__NAME": "scripted", **more}
    return {name: value for name, value in variables.items() if value}


def run(
    home: Path,
    *arguments: str | bytes,
    lines: bytes | str | Sequence[str] = b"",
    env: Mapping[str, str] | None = None,
    before: Sequence[str] = (),
) -> subprocess.CompletedProcess[bytes]:
    """`bubbot ARGUMENTS` with these lines on standard input; `before` is a command put in front."""
    if not isinstance(lines, (bytes, str)):
        lines = "".join(f"{line}\n" for line in lines)
    data, given = lines.encode() if isinstance(lines, str) else lines, environment(home, **(env or {}))
    if not before:
        return forked.run(forked.BOT, [*map(os.fsdecode, arguments)], data, env=given, cwd=home.parent)
    return subprocess.run(
        [*before, *BUBBOT, *arguments],
        input=data,
        capture_output=True,
        timeout=60,
        env=given,
        check=False,
        cwd=home.parent,
    )


class Opened(NamedTuple):
    """A running command, and our ends of its standard streams."""

    process: forked.Child
    stdin: BinaryIO
    stdout: BinaryIO
    stderr: BinaryIO

    def type(self, line: str) -> None:
        """Gives it a line."""
        self.stdin.write(f"{line}\n".encode())
        self.stdin.flush()


@contextmanager
def opened(home: Path, *arguments: str, **env: str) -> Iterator[Opened]:
    """`bubbot ARGUMENTS` over pipes that stay open; killed at the end of the block if it still runs."""
    given, out, err = os.pipe(), os.pipe(), os.pipe()
    with os.fdopen(given[1], "wb") as stdin, os.fdopen(out[0], "rb") as stdout, os.fdopen(err[0], "rb") as stderr:
        try:
            streams = (given[0], out[1], err[1])
            child = forked.start(forked.BOT, arguments, env=environment(home, **env), cwd=home.parent, streams=streams)
        finally:
            for end in (given[0], out[1], err[1]):
                os.close(end)
        try:
            yield Opened(child, stdin, stdout, stderr)
        finally:
            child.close()


def said(home: Path, *lines: str, env: Mapping[str, str] | None = None) -> list[str]:
    """What `bubbot chat` prints for these lines; fails where it does not end well."""
    done = run(home, "chat", lines=lines, env=env)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def entries(home: Path, tape: str = "stdin:default", *options: str) -> list[dict[str, object]]:
    """The entries of a tape, as `bubbot tape show --json` prints them."""
    done = run(home, "tape", "show", tape, "--json", *options)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def sentence(done: subprocess.CompletedProcess[bytes]) -> str:
    """The one sentence an error is; fails on a traceback."""
    text = done.stderr.decode().strip()
    assert "Traceback" not in text, text
    assert text.startswith("bubbot: "), text
    return text
