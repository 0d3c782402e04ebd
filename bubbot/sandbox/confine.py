"""The program in front of every program: it starts bubblewrap, or limits the program itself, and ends all that is left of it.

`bubbot.sandbox.sandbox` starts it as `python -I -S confine.py OPTIONS PROGRAM ARGUMENT…`. It imports nothing of bubbot, and
as little as it can of anything else: each program waits for it. OPTIONS is JSON: `limits` (those of `resource.setrlimit`, by
name), `processes`, `landlock`: null, or `library` (the folder of the package landlockpy), `network` (whether programs may use it) and
the paths that programs may use for `reading`, `writing` and `device`; `filter`: null, or what `filter.py` built, in
hexadecimal, and `keyctl`: the number of this call. The exit status is that of the program, 128 and the signal that ended it, or
125 if the sandbox could not be made, with the reason on standard error.
If OPTIONS has only the last two, PROGRAM is bubblewrap, which applies the filter to what it starts.

This process adopts the orphans of the program (`PR_SET_CHILD_SUBREAPER`), even those in sessions of their own, and kills them once
the program has ended. If the bot ends, this process gets SIGTERM and kills them all; if this process is killed, the program is, too.
`BUBBOT_STARTER` is the pid of the process that started this one, which may have ended while Python began. The program does not get it.
"""

# ruff: noqa: PTH112, PTH123, PTH208
# pathlib alone would take a fifth of the time

from __future__ import annotations

import ctypes
import errno
import json
import os
import resource
import signal
import sys
import time
import warnings  # noqa: F401 - `os.execvp` imports it, and may not read it then

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
SECCOMP_MODE_FILTER = 2
KEYCTL_JOIN_SESSION_KEYRING = 1
CAPABILITY_VERSION = 0x20080522
MIN_LANDLOCK_ABI = 6
"""Landlock before this version (Linux 6.12) does not keep a program from sending signals to the bot."""
STARTER_VARIABLE = "BUBBOT_STARTER"
FILTER_STEP_BYTES = 8
SANDBOX_FAILED, NOT_FOUND, NOT_RUNNABLE = 125, 127, 126
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long


class FilterProgram(ctypes.Structure):
    """`struct sock_fprog`"""

    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def main() -> None:
    """Start the program, wait for it, and end what it has left."""
    options = json.loads(sys.argv[1])
    starter = int(os.environ.pop(STARTER_VARIABLE))  # noqa: TID251 - it imports nothing of bubbot
    waited = {signal.SIGCHLD, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, waited)  # so that none is missed between two looks
    adopt_orphans()
    end_with(starter, signal.SIGTERM)
    if options.get("landlock") is not None:
        try:
            _load_landlock(options["landlock"]["library"])
        except Exception as error:  # noqa: BLE001 - nothing may run without these rules
            _fail(error)
    supervisor = os.getpid()
    program = os.fork()
    if program == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waited)
        end_with(supervisor, signal.SIGKILL)
        if "limits" in options:
            _become(options, sys.argv[2:])
        _become_bubblewrap(options, sys.argv[2:])
    os.closerange(0, 3)  # they are the program's: whoever reads them sees when it closes them
    code = None
    while code is None:
        code = 128 + signal.SIGTERM if signal.sigwait(waited) == signal.SIGTERM else _find_end(program)
    _end_children()
    os._exit(code)


def end_with(starter: int, number: int) -> None:
    """Have the kernel send this signal to this process when its parent ends; exit at once if `starter` has ended."""
    LIBC.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != starter:
        os._exit(SANDBOX_FAILED)


def adopt_orphans() -> None:
    """Become the parent of what outlives the processes below this one."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def list_children() -> list[int]:
    """List the pids of the children of this process, zombies included."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            text = file.read()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def _find_end(program: int) -> int | None:
    """Return the exit status of the program; None if it runs."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)  # it is a child until it is found here
        if pid == program:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if pid == 0:
            return None


def _become(options: dict[str, Any], argv: list[str]) -> None:
    """Limit this process and become the program; never return."""
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        _set_limits(options)
        if (files := options["landlock"]) is not None:
            steps = bytes.fromhex(options["filter"])
            _leave_keys(options["keyctl"])
            _check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
            # Of root, too, which does not get them back without new privileges.
            _check(LIBC.capset((ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()))
            _restrict_files(files)
            _restrict_calls(steps)
    except BaseException as error:  # noqa: BLE001 - nothing may run without its limits
        _fail(error)
    _execute(argv)


def _become_bubblewrap(options: dict[str, Any], argv: list[str]) -> None:
    """Hand the filter to bubblewrap and become it; never return."""
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        _leave_keys(options["keyctl"])
        steps = os.memfd_create("filter", 0)
        os.write(steps, bytes.fromhex(options["filter"]))
        os.lseek(steps, 0, os.SEEK_SET)
    except BaseException as error:  # noqa: BLE001 - nothing may run without its limits
        _fail(error)
    _execute([argv[0], "--seccomp", str(steps), *argv[1:]])


def _fail(error: BaseException) -> None:
    os.write(2, f"the sandbox cannot be made: {error}\n".encode())
    os._exit(SANDBOX_FAILED)


def _execute(argv: list[str]) -> None:
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - the arguments are those that were asked for
    except FileNotFoundError:
        os.write(2, f"{argv[0]}: no such program\n".encode())
        os._exit(NOT_FOUND)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(NOT_RUNNABLE)


def _leave_keys(keyctl: int) -> None:
    """Leave the keys of the bot's session: this process gets a session of keys of its own, without any."""
    try:
        _check(LIBC.syscall(keyctl, KEYCTL_JOIN_SESSION_KEYRING, None))
    except OSError as error:
        if error.errno not in {errno.ENOSYS, errno.EPERM}:  # no keys in this kernel, or for anybody in this container
            raise


def _set_limits(options: dict[str, Any]) -> None:
    for name, limit in options["limits"].items():
        _set_limit(getattr(resource, name), limit)
    # The limit counts all threads of the user, so those that are there come on top. Root has no such limit.
    _set_limit(resource.RLIMIT_NPROC, _count_own_threads() + options["processes"])


def _count_own_threads() -> int:
    count = 0
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                count += len(os.listdir(f"{entry.path}/task"))
        except OSError:  # it ends meanwhile
            continue
    return count


def _set_limit(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    lower = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (lower, lower))


def _load_landlock(library: str) -> None:
    """Load the package, which starts `ldconfig`, while this process has no limits. Raise `OSError` if the kernel is too old."""
    sys.path.append(library)
    from landlockpy import abi_version

    if (version := abi_version()) < MIN_LANDLOCK_ABI:
        raise OSError(f"Landlock has version {version} here, and {MIN_LANDLOCK_ABI} is needed")


def _restrict_files(options: dict[str, Any]) -> None:
    """Refuse all rights that this kernel knows, but those that paths have."""
    from landlockpy import AccessFS, AccessNet, Ruleset, Scope

    of_files = AccessFS.READ_FILE | AccessFS.EXECUTE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE | AccessFS.IOCTL_DEV
    rights = {
        "reading": AccessFS.READ_FILE | AccessFS.READ_DIR | AccessFS.EXECUTE,
        "writing": ~(AccessFS.MAKE_CHAR | AccessFS.MAKE_BLOCK),
        "device": AccessFS.READ_FILE | AccessFS.WRITE_FILE,
    }
    network = AccessNet.NONE if options["network"] else None  # None: every right there is
    with Ruleset(handled_net=network, scoped=Scope.SIGNAL | Scope.ABSTRACT_UNIX_SOCKET) as ruleset:
        for kind, access in rights.items():
            for path in filter(os.path.exists, options[kind]):
                ruleset.allow_path(path, access if os.path.isdir(path) else access & of_files)
        ruleset.restrict()


def _restrict_calls(program: bytes) -> None:
    """Let the kernel look at each call of the system first."""
    steps = ctypes.create_string_buffer(program, len(program))
    filter_program = FilterProgram(len(program) // FILTER_STEP_BYTES, ctypes.addressof(steps))
    _check(LIBC.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter_program), 0, 0))


def _check(result: int) -> int:
    """Return what a call of the system returned; raise `OSError` if it failed."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _end_children() -> None:
    """Kill all children until none is left; those of a killed one become ours."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        for child in list_children():
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


if __name__ == "__main__":
    main()
