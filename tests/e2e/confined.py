"""`bubbot` under the system calls that a unit allows, and without memory that is both written and run.

Arguments: a file with the names of the allowed calls, a line each, and then those of `bubbot`. What the unit forbids
by other means (folders, devices, address families) is systemd's own work and not done here.
"""

from __future__ import annotations

import ctypes
import errno
import re
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from bubbot.cli.main import main as bubbot

ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
NO_NEW_PRIVILEGES, NO_WRITE_AND_EXECUTE = 38, 65
ALWAYS = ("arch_prctl", "execve", "exit", "exit_group", "rseq", "rt_sigreturn")
"""What systemd adds to every list of allowed calls, or the C library makes before anything else."""


def allowed(unit: str) -> set[str]:
    """The calls that the lines `SystemCallFilter=` of a unit leave."""
    names: set[str] = set(ALWAYS)
    for line in re.findall(r"^SystemCallFilter=(.*)$", unit, re.MULTILINE):
        found = {name for word in line.removeprefix("~").split() for name in _calls(word)}
        names = names - found if line.startswith("~") else names | found
    return names


def _calls(word: str) -> Iterator[str]:
    """The calls of a group, as this systemd has them."""
    if not word.startswith("@"):
        yield word
        return
    done = subprocess.run(["systemd-analyze", "syscall-filter", word], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines()[1:]:
        if (name := line.strip()) and not name.startswith("#"):
            yield from _calls(name)


def main(arguments: Sequence[str]) -> int:
    """Confines this process for ever and runs the command."""
    libc, seccomp = ctypes.CDLL(None), ctypes.CDLL("libseccomp.so.2")
    seccomp.seccomp_init.restype = ctypes.c_void_p
    filters = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(REFUSE)))
    for name in Path(arguments[0]).read_text().split():
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # not every call is there on every machine
            assert seccomp.seccomp_rule_add_array(filters, ctypes.c_uint32(ALLOW), number, 0, None) == 0
    assert libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    assert libc.prctl(NO_WRITE_AND_EXECUTE, 1, 0, 0, 0) == 0
    assert seccomp.seccomp_load(filters) == 0
    return bubbot(arguments[1:])
