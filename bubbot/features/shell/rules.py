"""Work out what `confine.py` applies to a program: the rights of Landlock on this kernel, and a filter of calls of the system.

`bubbot.features.shell.sandbox` runs it once as `python -I -S rules.py OPTIONS` and keeps what it prints, because these libraries
take longer to load than all the rest of a program's start. OPTIONS is JSON: `libraries` (folders of the packages) and `network`. It
prints JSON: `handled` (the rights that are refused unless a path has them: files, network, scopes), `reading`, `writing` and
`device` (the rights of a path), `file` (those that a file can have) and `filter` (a program for seccomp, in hexadecimal). The exit
status is 125 if Landlock cannot do it here, with the reason on standard error.
"""

from __future__ import annotations

import contextlib
import errno
import json
import sys
from tempfile import TemporaryFile
from typing import Any

SANDBOX_FAILED = 125
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


def main() -> int:
    """Print the rules."""
    options = json.loads(sys.argv[1])
    sys.path += options["libraries"]
    try:
        rules = build_access_rules(has_network=options["network"])
        rules["filter"] = compile_filter(has_network=options["network"]).hex()
    except Exception as error:  # noqa: BLE001 - nothing may run without these rules
        sys.stderr.write(f"the sandbox cannot be made: {error}\n")
        return SANDBOX_FAILED
    json.dump(rules, sys.stdout)
    return 0


def build_access_rules(*, has_network: bool) -> dict[str, Any]:
    """Return the rights as numbers, of which the kernel knows all."""
    from landlockpy import AccessFS, AccessNet, Ruleset, Scope, abi_version

    if (version := abi_version()) < MIN_ABI:
        raise OSError(f"Landlock has version {version} here, and {MIN_ABI} is needed")
    reading = AccessFS.READ_FILE | AccessFS.READ_DIR | AccessFS.EXECUTE
    writing = ~AccessFS.NONE & ~(AccessFS.MAKE_CHAR | AccessFS.MAKE_BLOCK)
    file = AccessFS.READ_FILE | AccessFS.EXECUTE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE | AccessFS.IOCTL_DEV
    network = AccessNet.NONE if has_network else None  # None: every right there is
    with Ruleset(handled_net=network, scoped=Scope.SIGNAL | Scope.ABSTRACT_UNIX_SOCKET) as ruleset:
        files = ruleset.handled_fs
        return {
            "handled": [int(files), int(ruleset.handled_net), int(ruleset.scoped)],
            "reading": int(reading & files),
            "writing": int(writing & files),
            "device": int((AccessFS.READ_FILE | AccessFS.WRITE_FILE) & files),
            "file": int(file & files),
        }


def compile_filter(*, has_network: bool) -> bytes:
    """Return the filter of calls, as the kernel takes it."""
    from pyseccomp import ALLOW, EQ, ERRNO, MASKED_EQ, NE, Arg, SyscallFilter  # type: ignore[import-untyped]

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
    with TemporaryFile() as file:
        calls.export_bpf(file)
        file.seek(0)
        return file.read()


if __name__ == "__main__":
    sys.exit(main())
