"""Starts processes of bubbot for tests: sooner than a new interpreter would, or, with `--proof`, in one of their own.

Where a test asks how the command starts, what it imports, or for another locale, it starts an interpreter itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

ROOT = Path(__file__).parents[2]
ANEW = "TESTS_START_ANEW"
"""The variable that makes every process one of its own interpreter; conftest.py sets it for `--proof`."""
BOT = "bubbot.cli.main:main"
PROGRAM = "tests.e2e.forking:run_program"
"""What runs a text, the first of its arguments, as `python -c` would."""
WAIT = 60.0
"""Seconds a started process may take to end."""
LOADING = 100.0
"""Seconds the first process may take to be ready to fork; a busy machine needs more than half of them."""


class Child:
    """A started process. What it was given as descriptors belongs to the caller, who may close them at once."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self._link = link
        self._code: int | None = None

    @property
    def returncode(self) -> int | None:
        """How it ended, negative for a signal; None while it runs."""
        return self._code if self._code is not None else self._ended(0.0)

    def wait(self, timeout: float) -> int:
        """Waits for the end. Raises `TimeoutError`."""
        code = self._code if self._code is not None else self._ended(timeout)
        if code is None:
            raise TimeoutError(f"process {self.pid} still runs after {timeout} seconds")
        return code

    async def ended(self) -> int:
        """Waits for the end beside other tasks; as long as it takes."""
        loop, come = asyncio.get_running_loop(), asyncio.Event()
        if self._code is None:
            loop.add_reader(self._link, come.set)
            try:
                await come.wait()
            finally:
                loop.remove_reader(self._link)
        return self.wait(WAIT)

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless it has ended."""
        if self.returncode is None:
            with suppress(ProcessLookupError):  # it has ended, and the word of it is still on its way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kills what still runs."""
        self.kill()
        self.wait(WAIT)

    def _ended(self, timeout: float) -> int | None:
        if not select.select([self._link], [], [], timeout)[0]:
            return None
        self._code = int(_line(self._link))
        self._link.close()
        return self._code


@cache
def begin() -> tuple[subprocess.Popen[bytes], Path]:
    """Start the process that forks, and return where it will listen; it ends with this one, be it a worker."""
    # Not in pytest's folder: the path of a socket may have 107 bytes.
    # And no `TemporaryDirectory`: a fork that drops the object would remove the folder.
    folder = Path(tempfile.mkdtemp())
    address = folder / "socket"
    command = [sys.executable, "-m", "tests.e2e.forking", str(address)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT, env=_plain())

    def end() -> None:
        server.communicate()
        shutil.rmtree(folder)

    # Unlike `atexit`, this also runs at the end of a worker that began it, and never in one that did not.
    Finalize(None, end, exitpriority=0)
    return server, address


@cache
def find_address() -> Path:
    """Return where it listens, once it does."""
    server, address = begin()
    deadline = time.monotonic() + LOADING
    while not address.exists():
        assert server.poll() is None, "the process that forks has ended"
        assert time.monotonic() < deadline, "the process that forks does not listen"
        time.sleep(0.01)
    return address


def _plain() -> dict[str, str]:
    """The environment every process of a test begins with."""
    return {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}


def _speaks_otherwise(env: Mapping[str, str]) -> bool:
    """Whether these variables tell an interpreter something that a fork of another one cannot follow."""
    told = {name for name in (*env, "LANG") if name.startswith(("LANG", "LC_", "PYTHON"))} - {"PYTHONPATH"}
    return any(env.get(name) != _plain().get(name) for name in told)


def start(
    target: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    streams: tuple[int | None, int | None, int | None],
    terminal: bool = False,
) -> Child:
    """A process that calls `module:function` with these arguments and ends with what it returns.

    A stream that is None is closed. With `terminal` the process leads a session whose terminal its input is.
    """
    anew = ANEW in os.environ or _speaks_otherwise(env)
    wish = {"target": target, "arguments": [*arguments], "env": dict(env), "cwd": str(cwd), "anew": anew}
    wish |= {"streams": [number for number, stream in enumerate(streams) if stream is not None], "terminal": terminal}
    if anew:
        wish["env"] = {**env, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [env.get("PYTHONPATH")])])}
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(WAIT)
        link.connect(str(find_address()))
        data = json.dumps(wish).encode() + b"\n"
        sent = socket.send_fds(link, [data], [stream for stream in streams if stream is not None])
        link.sendall(data[sent:])
        return Child(int(_line(link)), link)
    except BaseException:
        link.close()
        raise


def put_command(folder: Path) -> None:
    """Put a `bubbot` for shells into the folder: forks do what it is told. Not for `--proof`, nor another locale."""
    script = Path(__file__).with_name("forked_command.py")
    words = [sys.executable, "-IS", str(script), str(find_address())]
    command = folder / "bubbot"
    command.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    command.chmod(0o755)


def _line(link: socket.socket) -> bytes:
    """A line, read without taking more than that."""
    line = b""
    while not line.endswith(b"\n"):
        more = link.recv(1)
        assert more, "the process that forks has ended"
        line += more
    return line


def run(
    target: str,
    arguments: Sequence[str],
    data: bytes,
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdout: int | None = subprocess.PIPE,
    timeout: float = 60,
) -> subprocess.CompletedProcess[bytes]:
    """Runs a process to its end over pipes, as `subprocess.run` does; or its output is a descriptor, or closed."""
    given, out, err = os.pipe(), os.pipe(), os.pipe()
    try:
        output = out[1] if stdout == subprocess.PIPE else stdout
        child = start(target, arguments, env=env, cwd=cwd, streams=(given[0], output, err[1]))
    except BaseException:
        for end in (given[1], out[0], err[0]):
            os.close(end)
        raise
    finally:
        for end in (given[0], out[1], err[1]):
            os.close(end)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(_write, given[1], data)
        shown, told = threads.submit(_read, out[0]), threads.submit(_read, err[0])
        try:
            code = child.wait(timeout)
        finally:
            child.close()
    return subprocess.CompletedProcess([target, *arguments], code, shown.result(), told.result())


def _write(end: int, data: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(end, "wb") as pipe:
        pipe.write(data)


def _read(end: int) -> bytes:
    with os.fdopen(end, "rb") as pipe:
        return pipe.read()
