"""Ways out of the sandboxes (`tests/data/escapes.py`), tried in each of them, and as a control in none.

A sandbox that this machine lacks is a skip with its reason, and a failure under --proof.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import pty
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from bubbot.features.shell.service import ShellService
from bubbot.features.shell.settings import ShellSettings
from tests.sandboxes import require

SCRIPT = Path(__file__).parents[3] / "data" / "escapes.py"
NAMES = tuple(
    line.removeprefix("def ").partition("(")[0]
    for line in SCRIPT.read_text(encoding="utf-8").splitlines()
    if line.startswith("def ") and not line.startswith(("def main", "def check"))
)
PYTHON = str(Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}").resolve())
MEMORY_MB, PROCESSES = 512, 20
AS_ROOT = os.geteuid() == 0
NEEDS_USER = {"fork_without_end"}
"""Root has no limit on processes; see `shell.root` in the doctor."""
CLOSED_ANYWAY = {
    "connect_to_metadata": "there may be no way to it from here",
    "trace_parent": "the bot is traced once already",
    "write_huge_file": "every program has this limit",
    "take_memory": "every program has this limit",
    "find_secrets_in_environment": "no program gets them",
    "use_inherited_descriptor": "no program gets them",
    "leave_child": "a program of no sandbox is ended with all it started, too",
    "leave_session": "a program of no sandbox is ended with all it started, too",
    "open_controlling_terminal": "no program has one",
    "fork_without_end": "root has no limit",
    "gain_privileges": "nothing to compare with",
}
"""What is closed, or may be, without a sandbox."""
CLOSED_BY_MACHINES = {
    "add_key", "clone_into_namespace", "find_key_of_bot", "list_keys", "make_uring", "make_user_namespace", "open_kernel_log", "open_socket_of_kernel", "open_system_request",
    "read_key_of_bot", "read_ssh_keys", "request_key_of_bot", "set_attribute_outside", "type_into_terminal", "watch_outside",
}  # fmt: skip
"""What some machines close, or lack."""
ONLY_ROOT = {
    "change_kernel_setting", "change_root", "give_file_away", "leave_file_with_capabilities", "make_device", "mount_file_system", "read_shadow", "send_raw_packets", "set_host_name",
    "write_system_folder",
}  # fmt: skip


LIBC = ctypes.CDLL(None, use_errno=True)


def plant_key(name: str, text: bytes) -> int:
    """Put a key into the session of this process, or other text into the one of this name; return its number, -1 without keys."""
    add_key, session = {"x86_64": 248, "aarch64": 217}[os.uname().machine], -3
    return int(LIBC.syscall(add_key, b"user", name.encode(), text, len(text), session))


class Outside:
    """What is outside of a sandbox: a home, another chat, a process, sockets and a terminal."""

    def __init__(self, stack: ExitStack) -> None:
        self.root = Path(mkdtemp(prefix="bubbot-escapes-", dir="/var/tmp"))
        stack.callback(shutil.rmtree, self.root, ignore_errors=True)
        self.home, self.outside = self.root / "home", self.root / "outside"
        for folder in (self.home, self.outside):
            folder.mkdir()
        (self.home / "bubbot.db").write_text("secret")
        for name in ("keep", "delete"):
            (self.outside / name).write_text("kept")
        self.mark = f"{os.getpid()}{secrets.randbelow(10**6):06}"
        self.bot = subprocess.Popen(
            ["sh", "-c", f"trap '' USR1; exec sleep 9{self.mark}"], cwd=self.home, env={"SECRET": "key"}
        )
        stack.callback(self.bot.wait)
        stack.callback(self.bot.kill)
        self.master, slave = pty.openpty()
        stack.callback(os.close, self.master)
        stack.callback(os.close, slave)
        self.terminal = os.ttyname(slave)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        file = stack.enter_context(socket.socket(socket.AF_UNIX))
        file.bind(str(self.root / "socket"))
        file.listen()
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind("\0bubbot-" + self.mark)
        abstract.listen()
        key = plant_key(self.mark, b"key of the bot")
        stack.callback(plant_key, self.mark, b"gone")
        descriptor = os.open(self.home / "bubbot.db", os.O_RDONLY)
        os.set_inheritable(descriptor, True)
        stack.callback(os.close, descriptor)
        self.facts: dict[str, Any] = {
            "home": str(self.home), "secret": str(self.home / "bubbot.db"), "outside": str(self.outside),
            "bot": self.bot.pid, "mark": self.mark, "tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1],
            "socket": str(self.root / "socket"), "abstract": "bubbot-" + self.mark, "terminal": self.terminal,
            "descriptor": descriptor, "memory": MEMORY_MB * 2**20, "processes": PROCESSES, "sleep": f"7{self.mark}",
            "key": key, "key_name": self.mark,
        }  # fmt: skip

    async def run(self, sandbox: str) -> dict[str, str]:
        """Try every way out in a sandbox."""
        settings = ShellSettings.model_validate(
            {
                "enabled": True,
                "sandbox": sandbox,
                "readable": [sys.base_prefix, str(SCRIPT)],
                "memory": MEMORY_MB,
                "max_processes": PROCESSES,
            }
        )
        service = ShellService(settings, self.home, lambda: 0.0)
        other = service.find_workspace("test:other")
        other.mkdir(parents=True, exist_ok=True)
        (other / "note").write_text("theirs")
        facts = self.facts | {"other": str(other), "sandbox": sandbox}
        result = await service.run("test:home", [PYTHON, "-I", str(SCRIPT), json.dumps(facts)])
        assert result.end.status == 0, result.output
        found: dict[str, str] = json.loads(result.output.strip().splitlines()[-1])
        return found

    def find_left_processes(self) -> list[str]:
        """The command lines of what a program has left running, once what was killed has had time to go."""
        deadline = time.monotonic() + 10
        while (left := self._list_left_processes()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return left

    def _list_left_processes(self) -> list[str]:
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if self.facts["sleep"].encode() in line and b"escapes.py" not in line:
                found.append(line.decode(errors="replace"))
        return found


@pytest.fixture(scope="module", params=["bwrap", "landlock"])
def tried(request: pytest.FixtureRequest) -> Iterator[tuple[Outside, dict[str, str]]]:
    """What came of the ways out in a sandbox, and what is outside of it afterwards."""
    require(request.param, request)
    with ExitStack() as stack:
        outside = Outside(stack)
        yield outside, asyncio.run(outside.run(request.param))


def test_there_are_enough_ways_out() -> None:
    assert len(NAMES) >= 45


@pytest.mark.parametrize("way", NAMES)
def test_a_way_out_is_closed(tried: tuple[Outside, dict[str, str]], way: str) -> None:
    if way in NEEDS_USER and AS_ROOT:
        pytest.skip("root has no limit on processes")
    assert tried[1][way] != "open"


def test_nothing_outside_has_changed(tried: tuple[Outside, dict[str, str]]) -> None:
    outside, _ = tried
    kept = {path.name: (path.read_text(), path.stat().st_mode & 0o777) for path in outside.outside.iterdir()}
    assert kept == dict.fromkeys(("keep", "delete"), ("kept", 0o644))
    assert outside.bot.poll() is None
    assert outside.find_left_processes() == []
    assert [path.name for path in outside.home.glob("sessions/test_other*/workspace/*")] == ["note"]


def test_every_way_out_is_open_without_a_sandbox() -> None:
    """The control: a way that is closed here as well would prove nothing above."""
    with ExitStack() as stack:
        outside = Outside(stack)
        results = asyncio.run(outside.run("none"))
        left = outside.find_left_processes()
    closed = {way for way, result in results.items() if result != "open"} - CLOSED_ANYWAY.keys() - CLOSED_BY_MACHINES
    assert closed - (set() if AS_ROOT else ONLY_ROOT) == set()
    assert left == []
