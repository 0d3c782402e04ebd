"""Tries every door out of the sandbox of the pages of auditors; prints as JSON which are open. It runs there, alone."""

# ruff: noqa: PTH101, PTH123, PTH208, PTH211, SIM115, PLC3002, PLW0108
# mypy: disable-error-code="misc, func-returns-value, redundant-expr"
# What the doors do is what a program in the sandbox would call.

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

home, data, other = map(Path, sys.argv[1:4])
bot, neighbour, tcp, udp = map(int, sys.argv[4:8])
LIBC = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH = 16
answers: dict[str, str] = {}


def attempt(door: str, work: Callable[[], Any]) -> None:
    """Note whether a door is open: what it does neither fails nor returns nothing."""
    try:
        answers[door] = "open" if work() is not False else "shut"
    except Exception as error:  # noqa: BLE001 - each failure is an answer
        answers[door] = type(error).__name__


def call(name: str, *values: Any) -> bool:
    return bool(getattr(LIBC, name)(*values) != -1)


def connect(kind: int, address: Any, sort: int = socket.SOCK_STREAM) -> bool:
    with socket.socket(kind, sort) as made:
        made.settimeout(2)
        made.connect(address)
        made.send(b"x")
        return bool(made.recv(1))  # the test answers


def execute(*words: str) -> bool:
    return subprocess.run(words, capture_output=True, timeout=10, check=False).returncode == 0


(database,) = data.glob("*.db")
attempt(
    "read the granted database",
    lambda: (
        sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True).execute("SELECT count(*) FROM entries").fetchone()
    ),
)
attempt("write into the own folder", lambda: Path("own.txt").write_text("x"))
attempt("write to the granted database", lambda: sqlite3.connect(database).execute("CREATE TABLE x (y)"))
attempt("append to the granted database", lambda: database.open("ab").write(b"x"))
attempt("remove the granted database", database.unlink)
attempt("write beside the granted database", lambda: (data / "x").write_text("x"))
names = [
    "bubbot.db",
    "bubbot.db-wal",
    "bubbot.db-shm",
    "search.db",
    "config.toml",
    "trace.key",
    "token.secret",
    "daemon.lock",
]
for name in names:
    attempt(
        f"read {name} of the home",
        lambda name=name: os.listdir(home / name) if (home / name).is_dir() else (home / name).read_bytes(),
    )
    attempt(f"write {name} of the home", lambda name=name: (home / name).open("ab").write(b"x"))
    attempt(f"link {name} of the home", lambda name=name: os.link(home / name, f"linked-{name}"))
    attempt(
        f"follow a link to {name} of the home",
        lambda name=name: (os.symlink(home / name, f"sym-{name}"), open(f"sym-{name}", "rb").read()),
    )
attempt("list the home", lambda: bool(set(os.listdir(home)) - {"audit"}))  # bubblewrap has a folder in its place
attempt("list other auditors", lambda: len(os.listdir(home / "audit")) > 1)
attempt("make a file in the home", lambda: (home / "made").write_text("x"))
attempt(
    "open the bot's database",
    lambda: sqlite3.connect(f"{(home / 'bubbot.db').as_uri()}?mode=ro", uri=True).execute("SELECT 1 FROM entries"),
)
attempt(
    "attach the bot's database",
    lambda: sqlite3.connect(":memory:").execute(f"ATTACH '{home / 'bubbot.db'}' AS x").execute("SELECT * FROM x.tapes"),
)
attempt("read a file of another program", lambda: (other / "other.txt").read_text())
attempt("write a file of another program", lambda: (other / "other.txt").write_text("x"))
attempt("change the mode of a file of another program", lambda: os.chmod(other / "other.txt", 0o777))
attempt("read /etc/shadow", lambda: Path("/etc/shadow").read_text())
attempt(
    "read the folder of root",
    lambda: bool(set(os.listdir("/root")) - set(Path(sys.base_prefix).parts)),
)
attempt(
    "write into the folder for all", lambda: bool((Path("/tmp") / f"door-{bot}").write_text("x")) and False
)  # the test looks
for pid, who in ((bot, "the bot"), (neighbour, "another process")):
    for file in ("environ", "mem", "maps", "cmdline", "fd", "cwd/config.toml", "root/etc/shadow"):
        attempt(
            f"read {file} of {who}",
            lambda pid=pid, file=file: (
                os.listdir(f"/proc/{pid}/{file}") if file == "fd" else Path(f"/proc/{pid}/{file}").read_bytes()
            ),
        )
    for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGKILL):
        attempt(f"send {number.name} to {who}", lambda pid=pid, number=number: os.kill(pid, number))
    attempt(f"trace {who}", lambda pid=pid: call("ptrace", PTRACE_ATTACH, pid, 0, 0))
    attempt(f"read the memory of {who}", lambda pid=pid: call("process_vm_readv", pid, None, 0, None, 0, 0))
    attempt(
        f"take a file of {who}", lambda pid=pid: (lambda handle: call("syscall", 438, handle, 1, 0))(os.pidfd_open(pid))
    )
    attempt(f"limit {who}", lambda pid=pid: __import__("resource").prlimit(pid, 7, (0, 0)))
    attempt(f"slow {who}", lambda pid=pid: os.setpriority(os.PRIO_PROCESS, pid, 19))
attempt("send a signal to all", lambda: os.kill(-1, signal.SIGCONT) or False)
for name, kind, address, sort in (
    ("TCP", socket.AF_INET, ("127.0.0.1", tcp), socket.SOCK_STREAM),
    ("UDP", socket.AF_INET, ("127.0.0.1", udp), socket.SOCK_DGRAM),
    ("IPv6", socket.AF_INET6, ("::1", tcp), socket.SOCK_STREAM),
    ("a Unix socket", socket.AF_UNIX, str(other / "socket"), socket.SOCK_STREAM),
    ("an abstract socket", socket.AF_UNIX, f"\0bubbot-door-{bot}", socket.SOCK_STREAM),
):
    attempt(f"connect by {name}", lambda kind=kind, address=address, sort=sort: connect(kind, address, sort))
attempt("make a raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close())
attempt("make a netlink socket", lambda: socket.socket(16, socket.SOCK_RAW, 0).close())
attempt("make a packet socket", lambda: socket.socket(17, socket.SOCK_RAW, 3).close())
attempt("make a vsock socket", lambda: socket.socket(40, socket.SOCK_STREAM).close())
attempt("mount", lambda: call("mount", b"none", b"/mnt", b"tmpfs", 0, None))
attempt("make namespaces", lambda: call("unshare", 0x10000000 | 0x20000))
attempt("chroot", lambda: os.chroot("/"))
attempt("become another user", lambda: os.setuid(12345) or os.setuid(0))
attempt("load into the kernel", lambda: call("syscall", 321, 0, 0, 0))
attempt("use io_uring", lambda: call("syscall", 425, 1, 0))
attempt("read the keys", lambda: call("syscall", 250, 0, -3, 0) and False)
attempt("run a program of the home", lambda: execute(str(home / "bubbot.db")))
attempt("read the home with another program", lambda: execute("/bin/cat", str(home / "config.toml")))
attempt("set a clock", lambda: __import__("time").clock_settime(0, 0))
attempt("reboot", lambda: call("reboot", 0x01234567))
attempt("make a device", lambda: os.mknod("device", 0o20666, os.makedev(1, 1)))


def make_set_user_id() -> bool:
    made = Path("suid")
    made.write_text("x")
    made.chmod(0o4755)
    return bool(made.stat().st_mode & 0o4000)


attempt("make a file that runs as its owner", make_set_user_id)
json.dump(answers, sys.stdout)
