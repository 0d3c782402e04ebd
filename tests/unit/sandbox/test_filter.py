"""The filter of calls of the system: read step by step as the kernel does for both machines, and in programs here."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bubbot.features.shell.settings import ShellSettings
from bubbot.sandbox import filter as calls
from bubbot.sandbox import sandbox as sandboxes
from bubbot.sandbox.filter import MACHINES, build_filter
from bubbot.sandbox.sandbox import choose_sandbox, make_workspace
from tests.sandboxes import require
from tests.unit.features.shell.test_escapes import PYTHON, plant_key

ALLOWED, REFUSED, UNKNOWN, KILLED = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x80000000
FORMS = [(network, namespaces) for network in (True, False) for namespaces in (True, False)]
ALL_CALLS = (
    calls.REFUSED_CALLS
    | calls.REFUSED_WITHOUT_NAMESPACES
    | calls.REFUSED_FOR_OTHERS_WITHOUT_NAMESPACES
    | calls.CALLS_WITH_MODE
    | calls.CALLS_THAT_OPEN
    | {"clone": calls.CLONE, "clone3": calls.CLONE3, "ioctl": calls.IOCTL, "socket": calls.SOCKET}
    | {"openat2": calls.OPENAT2}
)
SET_ID = 0o4755
LIKE_NUMBERS = [number for numbers in ALL_CALLS.values() for number in numbers[:2] if number]
"""Arguments that look like the number of a call: the filter must not take them for one."""
OTHER_HALF = 1 << 32


def ask(machine: str, call: str | int, *arguments: int, network: bool = False, namespaces: bool = False) -> int:
    """Return what the kernel would do, as its interpreter of filters does."""
    number = call if isinstance(call, int) else ALL_CALLS[call][[*MACHINES].index(machine)]
    words = struct.pack("<IIQ6Q", number, MACHINES[machine], 0, *arguments, *[0] * (6 - len(arguments)))
    return interpret(read_steps(machine, network, namespaces), words)


@cache
def read_steps(machine: str, network: bool, namespaces: bool) -> list[tuple[int, ...]]:
    program = build_filter(machine, has_network=network, has_namespaces=namespaces)
    return [*struct.iter_unpack("=HBBI", program)]


def interpret(steps: list[tuple[int, ...]], words: bytes) -> int:
    position, value = 0, 0
    while True:
        code, jump, jump_else, number = steps[position]
        position += 1
        if code == 0x06:
            return int(number)
        if code == 0x20:
            value = struct.unpack_from("<I", words, number)[0]
            continue
        position += jump if {0x15: value == number, 0x25: value > number, 0x45: value & number}[code] else jump_else


def test_what_reaches_other_processes_keys_and_the_kernel_stands_in_the_table() -> None:
    wanted = "ptrace process_vm_readv pidfd_getfd mount unshare setns bpf keyctl add_key request_key perf_event_open userfaultfd"
    assert {
        *wanted.split(),
        "kexec_load",
        "init_module",
        "open_by_handle_at",
        "io_uring_setup",
    } <= calls.REFUSED_CALLS.keys()


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("network", "namespaces"), FORMS)
def test_no_program_may_make_these_calls(machine: str, network: bool, namespaces: bool) -> None:
    for call in calls.REFUSED_CALLS:
        if calls.find_number(call, machine) is not None:
            assert ask(machine, call, 1, 2, 3, network=network, namespaces=namespaces) == REFUSED, call


@pytest.mark.parametrize("machine", MACHINES)
def test_what_namespaces_separate_is_refused_without_them(machine: str) -> None:
    for call, numbers in calls.REFUSED_WITHOUT_NAMESPACES.items():
        if numbers[[*MACHINES].index(machine)] is not None:
            assert (ask(machine, call), ask(machine, call, namespaces=True)) == (REFUSED, ALLOWED), call
    for call, (*_, index) in calls.REFUSED_FOR_OTHERS_WITHOUT_NAMESPACES.items():
        for value, expected in ((0, ALLOWED), (7, REFUSED), (7 * OTHER_HALF, REFUSED)):
            arguments = [9] * index + [value]
            assert ask(machine, call, *arguments) == expected, (call, value)
            assert ask(machine, call, *arguments, namespaces=True) == ALLOWED


@pytest.mark.parametrize("machine", MACHINES)
def test_no_program_makes_a_file_that_acts_as_the_bots_user(machine: str) -> None:
    for call, (*numbers, index) in calls.CALLS_WITH_MODE.items():
        if numbers[[*MACHINES].index(machine)] is not None:
            for bits, expected in ((0o755, ALLOWED), (0o4755, REFUSED), (0o2700, REFUSED), (0o1777, ALLOWED)):
                assert ask(machine, call, *[0] * index, bits, namespaces=True) == expected, (call, bits)
            for bits in LIKE_NUMBERS:
                assert ask(machine, call, *[0] * index, bits, namespaces=True) == ALLOWED
    for call, (*numbers, index) in calls.CALLS_THAT_OPEN.items():
        if numbers[[*MACHINES].index(machine)] is not None:
            for flags, expected in ((os.O_CREAT, REFUSED), (0, ALLOWED), (os.O_TMPFILE & ~os.O_DIRECTORY, REFUSED)):
                assert ask(machine, call, *[0] * index, flags, SET_ID, namespaces=True) == expected, (call, flags)
                assert ask(machine, call, *[0] * index, flags, 0o755, namespaces=True) == ALLOWED
            for value in LIKE_NUMBERS:
                assert ask(machine, call, *[0] * index, os.O_CREAT, value, namespaces=True) == ALLOWED
                if not value & os.O_CREAT:
                    assert ask(machine, call, *[0] * index, value, SET_ID, namespaces=True) == ALLOWED
    assert ask(machine, "openat2", namespaces=True) == UNKNOWN


@pytest.mark.parametrize("machine", MACHINES)
def test_which_sockets_a_program_may_open(machine: str) -> None:
    unix, inet, inet6, netlink, packet, kernel, host = 1, 2, 10, 16, 17, 38, 40
    every = (unix, inet, inet6, netlink, packet, kernel, host)
    for network, namespaces, allowed in (
        (False, False, ()),
        (False, True, (unix, inet, inet6)),
        (True, False, (inet, inet6)),
        (True, True, (inet, inet6)),
    ):
        for upper in (0, OTHER_HALF):  # the kernel looks at the lower half
            found = [
                kind
                for kind in every
                if ask(machine, "socket", kind | upper, network=network, namespaces=namespaces) == ALLOWED
            ]
            assert found == [*allowed]


@pytest.mark.parametrize("machine", MACHINES)
def test_namespaces_terminals_other_machines_and_newer_calls(machine: str) -> None:
    for flag in (0x20000, *(1 << bit for bit in range(25, 31))):
        assert ask(machine, "clone", flag | 17, namespaces=True) == REFUSED
    assert ask(machine, "clone", 0x3D0F00, namespaces=True) == ALLOWED, "a thread"
    assert ask(machine, "clone", 17, namespaces=True) == ALLOWED, "a fork"
    assert ask(machine, "clone3", namespaces=True) == UNKNOWN
    for request in (0x5412, 0x541C, 0x5412 | OTHER_HALF):
        assert ask(machine, "ioctl", 0, request, namespaces=True) == REFUSED
    assert ask(machine, "ioctl", 0, 0x5401, namespaces=True) == ALLOWED
    for number in (calls.NEWEST_CALL + 1, 0x40000000 + 101, 2**32 - 1):
        assert ask(machine, number, namespaces=True) == UNKNOWN
    words = struct.pack("<IIQ6Q", 0, 0x40000003, 0, *[0] * 6)
    assert interpret(read_steps(machine, True, True), words) == KILLED


def test_the_numbers_are_those_of_libseccomp() -> None:
    """That of this machine may be older than a call, which it then does not know."""
    try:
        from pyseccomp import Arch, resolve_syscall  # type: ignore[import-untyped]
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(f"no libseccomp here: {error}")
    compared = 0
    for column, machine in enumerate((Arch.X86_64, Arch.AARCH64)):
        for name, numbers in ALL_CALLS.items():
            number = resolve_syscall(machine, name)
            if number == -1:
                continue
            assert numbers[column] == (number if number >= 0 else None), name
            compared += 1
    assert compared > 150


def test_a_machine_without_a_filter_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    there = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((*there[:4], "mips64")))
    with pytest.raises(sandboxes.SandboxUnusable, match="no filter of calls of the system for the machine mips64"):
        sandboxes.BubblewrapSandbox(has_network=False)


async def build(name: str, folder: Path, *argv: str) -> list[str]:
    """The command of a program in a sandbox."""
    settings = ShellSettings.model_validate({"enabled": True, "sandbox": name, "readable": [sys.base_prefix]})
    made = await choose_sandbox(settings)
    make_workspace(folder)
    return made.build_command(argv, folder, sandboxes.ProgramLimits(20, 2**31, 64))


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=sandboxes.program_environment(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def with_options(command: list[str], **changed: Any) -> list[str]:
    """The command with other options of `confine.py`."""
    return [*command[:4], json.dumps(json.loads(command[4]) | changed), *command[5:]]


@pytest.mark.parametrize("name", ["bwrap", "landlock"])
async def test_a_program_has_no_key_of_the_bots_session(
    tmp_path: Path, name: str, request: pytest.FixtureRequest
) -> None:
    """Even where nothing refuses the call: the filter of this test allows everything."""
    require(name, request)
    key = plant_key("session of the bot", b"secret")
    if key == -1:
        pytest.skip("this kernel, or a container, has no keys")
    number = calls.find_number("keyctl", os.uname().machine)
    code = f"import ctypes; print(ctypes.CDLL(None).syscall({number}, 11, {key}, ctypes.create_string_buffer(9), 9))"
    command = with_options(
        await build(name, tmp_path / "work", PYTHON, "-I", "-c", code),
        filter=struct.pack("=HBBI", 6, 0, 0, ALLOWED).hex(),
    )
    assert run([PYTHON, "-I", "-c", code], tmp_path).stdout == "6\n", "the control: it can be read"
    assert run(command, tmp_path / "work").stdout == "-1\n"


@pytest.mark.parametrize("name", ["bwrap", "landlock"])
@pytest.mark.parametrize("steps", ["ff" * 8, *(pytest.param(one, marks=pytest.mark.proof) for one in ("", "06", "no"))])
async def test_nothing_runs_without_the_filter(
    tmp_path: Path, name: str, steps: str, request: pytest.FixtureRequest
) -> None:
    require(name, request)
    done = run(with_options(await build(name, tmp_path / "work", "echo", "ran"), filter=steps), tmp_path / "work")
    assert done.returncode
    assert (done.stdout, bool(done.stderr)) == ("", True)


WORK = {
    "sh": "echo one > a; ls -l a | wc -l; (sleep 0 & wait); printf 'b\\na\\n' | sort | head -1; mkdir -p d/e && mv a d/e && cp -r d f && rm -r d",
    "python": f"{PYTHON} -I -c 'import threading, subprocess, tempfile, socket, asyncio, sqlite3\n"
    "asyncio.run(asyncio.sleep(0)); socket.socketpair(); tempfile.TemporaryFile()\n"
    'threading.Thread(target=lambda: subprocess.run(["true"], check=True)).start()\n'
    'sqlite3.connect("x.db").execute("create table t (a)")\'',
    "make": "printf 'all: one two\\none two:\\n\\ttouch $@\\n' > Makefile; make -j2; test -f one -a -f two",
    "git": "export GIT_CONFIG_NOSYSTEM=1; cd repository; git log; echo 2 > f; git status -s; git add f; git commit -qm two; git diff HEAD~",
}
"""Ordinary work of programs, which the filter must not hinder."""
WORK_IN_NAMESPACES = {
    "git repository": "git init -q . && git config user.email a@b && git config user.name a && echo 1 > f && git add f && "
    "git commit -qm one && git checkout -qb two && git log --oneline | wc -l && git gc -q && git clone -q . copy",
    "modes": "echo 'echo ran' > run.sh && chmod +x run.sh && ./run.sh && install -m 755 run.sh other && touch -d yesterday other "
    "&& tar cf a.tar run.sh && tar xpf a.tar && setsid true && chmod u+w,go-w other",
    "server on this machine": f"{PYTHON} -I -c 'import socket\n"
    's = socket.create_server(("127.0.0.1", 0)); socket.create_connection(s.getsockname())\'',
}


ALWAYS_TRIED = {("python", "landlock"), ("python", "bwrap"), ("git repository", "bwrap"), ("modes", "bwrap")}
TRIED = [
    *((work, name) for work in WORK for name in ("bwrap", "landlock")),
    *((work, "bwrap") for work in WORK_IN_NAMESPACES),
]


@pytest.mark.parametrize(
    ("work", "name"), [pytest.param(*one, marks=() if one in ALWAYS_TRIED else pytest.mark.proof) for one in TRIED]
)
async def test_ordinary_programs_run(tmp_path: Path, name: str, work: str, request: pytest.FixtureRequest) -> None:
    require(name, request)
    program = work.partition(" ")[0]
    if program in {"git", "make"} and not shutil.which(program, path=sandboxes.SEARCH_PATH):
        pytest.skip(f"{program} is not installed")
    if work == "git":
        commands = "git init -q repository; cd repository; git config user.email a@b; git config user.name a; echo 1 > f; git add f; git commit -qm one"
        (tmp_path / "work").mkdir()
        assert run(["sh", "-c", commands], tmp_path / "work").returncode == 0
    script = "set -e; " + (WORK | WORK_IN_NAMESPACES)[work]
    done = run(await build(name, tmp_path / "work", "/bin/sh", "-c", script), tmp_path / "work")
    assert (done.returncode, done.stderr) == (0, "")
