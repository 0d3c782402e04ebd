"""A process that has loaded bubbot once and forks from there: what it starts is a process like any other, only sooner.

Run as `python -m tests.e2e.forking SOCKET`; ends when its standard input closes. A connection is one process: it brings
a line of JSON with three descriptors, is told the process id, and later how the process ended, as `returncode` of
`subprocess` says it. A wish may ask for an interpreter of its own; then the fork becomes one. Nothing runs here when it forks, no thread
and no event loop, so there is nothing a fork can break.
"""

from __future__ import annotations

import fcntl
import gc
import io
import json
import logging
import os
import selectors
import signal
import socket
import sys
import tempfile
import termios
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from bubbot.app.command_table import COMMANDS
from bubbot.texts import Texts
from tests.e2e import inside

LOADED = (
    *(command.module for command in COMMANDS.values()),
    "bubbot.cli.chat.local", "bubbot.models.scripted", "bubbot.app.daemon", "bubbot.features.schedule.timer", "bubbot.server.listener",
    "bubbot.server.routes", "bubbot.server.webhooks", "channels.discord.channel", "channels.terminal.channel",
    "channels.terminal.screen", "channels.terminal.stdin", "channels.telegram.channel", "tests.e2e.kill_child", "tests.e2e.kill_daemon",
    # Libraries, and parts of them, that are imported where they are used.
    "aiohttp.web", "anyio._backends._asyncio", "apscheduler.executors.asyncio", "encodings.utf_16_be", "encodings.utf_8_sig",
    "h2.connection", "httpcore", "importlib.readers", "polib", "rich.markdown", "socksio", "tomlkit", "tzlocal",
)  # fmt: skip
"""What is imported before the first fork. Never litellm: its threads would not survive one."""
LONGEST = 1 << 20
"""Bytes of a wish: arguments and environment."""


class Forking:
    """The socket, and who waits for the end of which process."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._waiting: dict[int, socket.socket] = {}
        self._woken, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> Callable[[], int] | None:
        """Starts processes until nobody is there any more: None. In a started process: what it is to do."""
        with selectors.DefaultSelector() as ready:
            for waited in (sys.stdin.fileno(), self._listener, self._woken):
                ready.register(waited, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    if key.fileobj is self._listener:
                        if work := self._start():
                            return work
                    elif key.fileobj == self._woken:
                        os.read(self._woken, 512)
                        self._tell_of_ends()
                    else:
                        return None

    def _start(self) -> Callable[[], int] | None:
        link, _ = self._listener.accept()
        data, descriptors, _, _ = socket.recv_fds(link, LONGEST, 3)
        while not data.endswith(b"\n"):
            data += link.recv(LONGEST)
        wish = json.loads(data)
        child = os.fork()
        if child == 0:
            return lambda: _become(wish, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self._waiting[child] = link
        _tell(link, child)
        return None

    def _tell_of_ends(self) -> None:
        while self._waiting:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            with self._waiting.pop(child) as link:
                _tell(link, os.waitstatus_to_exitcode(status))


def _tell(link: socket.socket, number: int) -> None:
    try:
        link.sendall(f"{number}\n".encode())
    except BrokenPipeError:
        return  # a test that failed waits for nothing


def _become(wish: dict[str, Any], descriptors: list[int]) -> int:
    """Turns a fork into the process that was wished for; runs it."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    closed = {0, 1, 2}.difference(wish["streams"])
    for number, descriptor in zip(wish["streams"], descriptors, strict=True):
        os.dup2(descriptor, number)
    for number in closed:
        os.close(number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if wish["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(wish["cwd"])
    module, _, function = wish["target"].partition(":")
    if wish["anew"]:
        code = f"import sys; from {module} import {function} as run; sys.exit(run(sys.argv[1:]))"
        os.execve(sys.executable, [sys.executable, "-c", code, *wish["arguments"]], wish["env"])
    os.environ.clear()
    os.environ.update(wish["env"])
    sys.path[:0] = filter(None, wish["env"].get("PYTHONPATH", "").split(os.pathsep))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        _open(number, name, closed=number in closed)
    ended: int = getattr(import_module(module), function)(wish["arguments"])
    return ended


def _end(code: int) -> None:
    """End a fork at once: an interpreter that takes everything apart first would copy each page it shares.

    Return if threads still run, or if output cannot be written: the interpreter then ends it, and reports that.
    """
    if threading.active_count() > 1:
        return
    logging.shutdown()
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except OSError:
        return
    os._exit(code)


def _open(number: int, name: str, *, closed: bool) -> None:
    """Makes a standard stream as the interpreter makes it: None if its descriptor is closed."""
    if closed:
        setattr(sys, name, None)
        setattr(sys, f"__{name}__", None)
        return
    old = getattr(sys, f"__{name}__")
    file = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115 - open as long as it lives
    lines = number == 2 or file.isatty()
    stream = io.TextIOWrapper(file, encoding=old.encoding, errors=old.errors, line_buffering=lines)
    setattr(sys, name, stream)
    setattr(sys, f"__{name}__", stream)


def run_program(arguments: list[str]) -> int:
    """Run the text of a program, as `python -c` does: the first of the arguments."""
    sys.argv = ["-c", *arguments[1:]]
    try:
        exec(compile(arguments[0], "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        if isinstance(end.code, str):
            raise
        return end.code or 0
    return 0


class _EndWhenRunning(logging.Handler):
    """Ends a daemon in this process once it says that it runs."""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "action", "") == "run.started":
            os.kill(os.getpid(), signal.SIGTERM)


def _live_once() -> None:
    """Answer one question, and run a daemon: what is made at the first use, such as validators, no fork then makes again."""
    for language in ("en", "zh"):
        Texts(language).read_all()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        inside.run(home, "ask", "hello")
        # A whole life of a daemon, with a platform that nobody serves.
        (home / "config.toml").write_text(
            '[channels.telegram]\ntoken = "1:unserved"\nbase_url = "http://127.0.0.1:9"\n'
        )
        ends = _EndWhenRunning()
        logging.getLogger("bubbot").addHandler(ends)
        inside.run(home, "run")
        logging.getLogger("bubbot").removeHandler(ends)
    assert threading.active_count() == 1, "a thread would not survive a fork"


def main(path: Path) -> int:
    """Loads, listens, and forks."""
    for name in LOADED:
        import_module(name)
    _live_once()
    gc.collect()
    gc.freeze()  # so that the collector of a fork leaves the shared pages alone
    with socket.socket(socket.AF_UNIX) as listener:
        begun = path.with_name("begun")
        listener.bind(str(begun))
        listener.listen(64)
        begun.rename(path)  # whoever sees it can connect
        work = Forking(listener).serve()
        if work is not None:
            listener.detach()  # its descriptor is closed with all the others
    if work is None:
        return 0
    code = work()
    _end(code)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
