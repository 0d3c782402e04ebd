"""Tab in real shells, on a pseudo-terminal: commands, options, and the names of a home."""

from __future__ import annotations

import fcntl
import os
import re
import select
import shutil
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e import inside
from tests.e2e.bot import environment

WAIT_SECONDS = 60.0
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source {file}"),
    "zsh": (["zsh", "-f", "-i"], "autoload -U compinit; compinit -u -D; source {file}"),
    "fish": (["fish", "--no-config", "-i"], "source {file}"),
}
_CONTROL = re.compile(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-9;?>=]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\x1b[=>78]")
CASES = {
    "a command": ("bubbot sched", "bubbot schedule "),
    "an action": ("bubbot tape ver", "bubbot tape verify "),
    "an option": ("bubbot ask hello --sess", "--session "),
    "a choice": ("bubbot usage --by mo", "--by model "),
    "a choice behind an equals sign": ("bubbot usage --by=mo", "--by=model "),
    "a session of the terminal": ("bubbot ask hello --session wo", "--session work "),
    "a session, whose name has a colon": ("bubbot memory show stdin:wo", "show stdin:work "),
    "a tape, after an option with a value": ("bubbot tape show --last 3 bubbot/inb", "3 bubbot/inbox/stdin "),
    "a job, whose name has a space": ("bubbot schedule show Te", "show Tea\\ time "),
    "a name of the home on the line": ("bubbot --home {home} schedule show Te", "show Tea\\ time "),
    "a file": ("bubbot backup {home}/daemon.l", "/daemon.lock"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("completion") / "home"
    inside.run(home, "ask", "hello", "--session", "work")
    inside.run(home, "schedule", "add", "stdin:work", "every 1h", "--text", "tea", "--name", "Tea time")
    return home


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, home: Path, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """A function that types a text and a tab into a shell, and gives the line that is then there."""
    name = request.param
    if shutil.which(name) is None:
        if request.config.getoption("--proof"):
            pytest.fail(f"there is no {name} here: install it for the proof")
        pytest.skip(f"there is no {name} here")
    script = tmp_path / f"bubbot.{name}"
    script.write_bytes(inside.run(home, "completion", name).stdout)
    with_bubbot = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = environment(home, TERM="dumb", LANG="C.UTF-8", PATH=with_bubbot, HOME=str(tmp_path))
    argv, load = SHELLS[name]
    main, inner = os.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    pid = os.fork()
    if pid == 0:
        os.login_tty(inner)
        os.chdir(tmp_path)
        os.execvpe(argv[0], argv, variables)
    os.close(inner)

    def press(keys: str, wanted: str) -> str:
        os.write(main, keys.encode())
        seen, deadline = "", time.monotonic() + WAIT_SECONDS
        while wanted not in (shown := _CONTROL.sub("", seen)):
            ready, _, _ = select.select([main], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                pytest.fail(f"{name} showed {shown!r}, not {wanted!r}, after {keys!r}")
            seen += os.read(main, 65536).decode(errors="replace")
        return shown

    press(load.format(file=script) + "; echo rea''dy\r", "ready")

    def complete(line: str) -> str:
        press("\x15", "")
        return press(f"{line}\t", CASES_BY_LINE[line])

    CASES_BY_LINE = {typed.format(home=home): completed for typed, completed in CASES.values()}
    yield complete
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(main)


def test_tab_completes(shell: Callable[[str], str], home: Path) -> None:
    for typed, _ in CASES.values():
        shell(typed.format(home=home))
