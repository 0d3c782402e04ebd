"""The program in front of programs that run without bubblewrap: it limits the one it starts, and ends all that it leaves.

`bubbot.features.shell.sandbox` starts it as `python -I -S confine.py OPTIONS PROGRAM ARGUMENT…`; it imports nothing of bubbot.
OPTIONS is JSON: `limits` (those of `resource.setrlimit`, by name), `processes`, and `landlock`: null, or `readable`,
`writable`, `devices` (paths), `libraries` (folders of the packages) and `network`. The exit status is that of the program, 128 and the signal that ended it, or 125
if the sandbox could not be made, with the reason on standard error.

What the program leaves behind is given to this process (`PR_SET_CHILD_SUBREAPER`), which ends it, also if it is in a session
of its own. If the bot ends, this process gets SIGTERM and does the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SANDBOX_FAILED, NOT_FOUND, NOT_RUNNABLE = 125, 127, 126
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
CLONE_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000, 0x00000080)
MIN_ABI = 6
"""Landlock before this version (Linux 6.12) does not keep a program from sending signals to the bot."""
REFUSED_CALLS = (
    "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise", "migrate_pages", "move_pages",
    "mount", "umount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount", "fspick",
    "mount_setattr", "unshare", "setns", "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key",
    "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "swapon", "swapoff", "reboot", "syslog",
    "quotactl", "open_by_handle_at", "name_to_handle_at", "acct", "settimeofday", "clock_settime", "sethostname",
    "setdomainname", "iopl", "ioperm", "vhangup", "fanotify_init", "lookup_dcookie",
    "io_uring_setup", "io_uring_enter", "io_uring_register",  # they do what other calls do, unseen by this filter
    "setsid", "setpgid",  # all processes of the program stay in its group
    # Landlock lets them through, for any file of the same user; the forms that take an open file stay.
    "chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "setxattr", "lsetxattr", "setxattrat", "removexattr",
    "lremovexattr", "removexattrat", "utime", "utimes", "futimesat", "inotify_init", "inotify_init1",
)  # fmt: skip
CALLS_FOR_ITSELF = {
    "prlimit64": 0, "sched_setaffinity": 0, "sched_setattr": 0, "sched_setparam": 0, "sched_setscheduler": 0,
    "setpriority": 1, "ioprio_set": 1, "utimensat": 1,
}  # fmt: skip
"""Calls that may not name another process, or a file, in this argument: 0 there means the caller, or an open file."""


def main() -> None:
    """Start the program, wait for it, and end what it has left."""
    options = json.loads(sys.argv[1])
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, _end)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(SANDBOX_FAILED)  # the bot has ended meanwhile
    program = os.fork()
    if program == 0:
        _become(options, sys.argv[2:])
    status = 0
    while True:
        pid, status = os.wait()
        if pid == program:
            break
    _end_children()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _become(options: dict[str, Any], argv: list[str]) -> None:
    """Limit this process and become the program; never return."""
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        _set_limits(options)
        if options["landlock"] is not None:
            _load_libraries(options["landlock"]["libraries"])
            _restrict_files(options["landlock"])
            _restrict_calls(has_network=options["landlock"]["network"])
    except BaseException as error:  # noqa: BLE001 - nothing may run without its limits
        os.write(2, f"the sandbox cannot be made: {error}\n".encode())
        os._exit(SANDBOX_FAILED)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - the arguments are those that were asked for
    except FileNotFoundError:
        os.write(2, f"{argv[0]}: no such program\n".encode())
        os._exit(NOT_FOUND)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(NOT_RUNNABLE)


def _load_libraries(folders: list[str]) -> None:
    """Load both libraries, from these folders, while this process may still read them."""
    sys.path += folders
    import landlockpy  # noqa: F401
    import pyseccomp  # type: ignore[import-untyped]  # noqa: F401


def _set_limits(options: dict[str, Any]) -> None:
    for name, limit in options["limits"].items():
        _set_limit(getattr(resource, name), limit)
    # The limit counts all threads of the user, so those that are there come on top. Root has no such limit.
    _set_limit(resource.RLIMIT_NPROC, _count_own_threads() + options["processes"])


def _count_own_threads() -> int:
    count = 0
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):  # it ends meanwhile
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                count += len(os.listdir(f"{entry.path}/task"))  # noqa: PTH208 - ten times as fast
    return count


def _set_limit(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    lower = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (lower, lower))


def _restrict_files(options: dict[str, Any]) -> None:
    from landlockpy import AccessFS, Ruleset, Scope, abi_version

    if (version := abi_version()) < MIN_ABI:
        raise OSError(f"Landlock has version {version} here, and {MIN_ABI} is needed")
    reading = AccessFS.READ_FILE | AccessFS.READ_DIR | AccessFS.EXECUTE
    for_files = AccessFS.READ_FILE | AccessFS.EXECUTE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE | AccessFS.IOCTL_DEV
    everything = ~AccessFS.NONE & ~(AccessFS.MAKE_CHAR | AccessFS.MAKE_BLOCK)
    with Ruleset(scoped=Scope.SIGNAL | Scope.ABSTRACT_UNIX_SOCKET, **_network_rule(options)) as ruleset:
        for paths, access in (
            (options["readable"], reading),
            (options["writable"], everything),
            (options["devices"], AccessFS.READ_FILE | AccessFS.WRITE_FILE),
        ):
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    ruleset.allow_path(path, access if Path(path).is_dir() else access & for_files)
        ruleset.restrict()


def _network_rule(options: dict[str, Any]) -> dict[str, Any]:
    from landlockpy import AccessNet

    return {"handled_net": AccessNet.NONE} if options["network"] else {}


def _restrict_calls(*, has_network: bool) -> None:
    from pyseccomp import ALLOW, EQ, ERRNO, MASKED_EQ, NE, Arg, SyscallFilter

    refuse = ERRNO(errno.EPERM)
    calls = SyscallFilter(ALLOW)
    for name in REFUSED_CALLS:
        with contextlib.suppress(OSError, ValueError):  # a machine, or a library, that does not have it
            calls.add_rule(refuse, name)
    for name, number in CALLS_FOR_ITSELF.items():
        calls.add_rule(refuse, name, Arg(number, NE, 0))
    for flag in CLONE_NAMESPACES:
        calls.add_rule(refuse, "clone", Arg(0, MASKED_EQ, flag, flag))
    calls.add_rule(ERRNO(errno.ENOSYS), "clone3")  # its flags cannot be seen; libraries take clone then
    for request in (TIOCSTI, TIOCLINUX):
        calls.add_rule(refuse, "ioctl", Arg(1, MASKED_EQ, 0xFFFFFFFF, request))
    if has_network:
        # A socket with a path may be one of the bot, of docker, of a bus: Landlock sees no connection to it.
        calls.add_rule(refuse, "socket", Arg(0, EQ, 1))
    else:
        calls.add_rule(refuse, "socket")
    calls.load()


def _end(_signal: int, _frame: object) -> None:
    _end_children()
    os._exit(128 + signal.SIGTERM)


def _end_children() -> None:
    """Kill all children until none is left; those of a killed one become ours."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        for child in _list_children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def _list_children() -> list[int]:
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


if __name__ == "__main__":
    main()
