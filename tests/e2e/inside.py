"""The command `bubbot` in this process: the same arguments, output and exit codes as `bot.run`, in a tenth of the time.

A test file uses it for most of its cases, and the real process for one or two.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

from bubbot.cli.main import main
from tests.e2e.bot import environment


def run(
    home: Path, *arguments: str, lines: bytes | str = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """`bubbot ARGUMENTS` with these bytes on standard input."""
    given = io.BytesIO(lines.encode() if isinstance(lines, str) else lines)
    out, err = io.BytesIO(), io.BytesIO()
    variables = {**environment(home, **(env or {})), "PATH": os.environ["PATH"]}
    with (
        patch.dict(os.environ, variables, clear=True),
        patch.object(sys, "stdin", io.TextIOWrapper(given)),
        patch.object(sys, "stdout", io.TextIOWrapper(out, encoding="utf-8", write_through=True)),
        patch.object(sys, "stderr", io.TextIOWrapper(err, encoding="utf-8", write_through=True)),
        contextlib.chdir(home.parent),
        logging_as_it_was(),
    ):
        code = main(list(arguments))
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def logging_as_it_was() -> Iterator[None]:
    """The command sets up the log of its process, which here is that of the tests."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for name in ("bubbot", "channels"):
            logging.getLogger(name).setLevel(logging.NOTSET)


def said(home: Path, *lines: str, session: str = "default", env: Mapping[str, str] | None = None) -> Sequence[str]:
    """What `bubbot ask` prints for each of these lines; fails where one does not end well."""
    printed: list[str] = []
    for line in lines:
        done = run(home, "ask", "--session", session, line, env=env)
        assert done.returncode == 0, done.stderr.decode()
        printed += done.stdout.decode().splitlines()
    return printed
