"""The filter of calls of the system: what the kernel refuses to a program in a sandbox, as a program for seccomp.

Both sandboxes get it. It is built here, without a library, so that `bwrap` needs nothing that is installed with pip.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence

REFUSED_CALLS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "move_mount": (429, 429),
    "open_tree": (428, 428), "open_tree_attr": (467, 467), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "syslog": (103, 116), "quotactl": (179, 60), "quotactl_fd": (443, 443), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "acct": (163, 89), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "sethostname": (170, 161), "setdomainname": (171, 162), "iopl": (172, None), "ioperm": (173, None), "vhangup": (153, 58),
    "fanotify_init": (300, 262), "lookup_dcookie": (212, 18),
    # They do what other calls do, unseen by this filter.
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
"""Calls that no program may make, with their numbers on x86_64 and on aarch64; None if a machine does not have it."""
REFUSED_WITHOUT_NAMESPACES = {
    "setsid": (112, 157), "setpgid": (109, 154),  # all processes of the program stay in its group
    # Landlock lets them through, for any file of the same user; the forms that take an open file stay.
    "chmod": (90, None), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "lchown": (94, None),
    "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6), "setxattrat": (463, 463), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "removexattrat": (466, 466), "file_setattr": (469, 469), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "inotify_init": (253, None), "inotify_init1": (294, 26),
}  # fmt: skip
"""Calls that are refused only to programs without namespaces of their own: within these they reach nothing outside."""
REFUSED_FOR_OTHERS_WITHOUT_NAMESPACES = {
    "prlimit64": (302, 261, 0), "sched_setaffinity": (203, 122, 0), "sched_setattr": (314, 274, 0),
    "sched_setparam": (142, 118, 0), "sched_setscheduler": (144, 119, 0), "setpriority": (141, 140, 1), "ioprio_set": (251, 30, 1),
    "utimensat": (280, 88, 1),
}  # fmt: skip
"""Such calls, refused if the argument whose index is the third number is not 0: it then names another process, or a path."""
CALLS_WITH_MODE = {
    "chmod": (90, None, 1), "fchmod": (91, 52, 1), "fchmodat": (268, 53, 2), "fchmodat2": (452, 452, 2), "creat": (85, None, 1),
    "mknod": (133, None, 1), "mknodat": (259, 33, 2),
}  # fmt: skip
"""Calls whose argument of this index is the mode of a file. A set-uid file in a workspace would act as the bot's user for others."""
CALLS_THAT_OPEN = {"open": (2, None, 1), "openat": (257, 56, 2)}
"""Calls whose argument of this index has the flags, and the next one the mode of a file that is made."""
CLONE, CLONE3, IOCTL, SOCKET, OPENAT2 = (56, 220), (435, 435), (16, 29), (41, 198), (437, 437)
NEWEST_CALL = 469
"""Later calls are answered as unknown, since they may do what an earlier one is refused for; so are the larger numbers of x32 on x86_64."""
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""What the kernel calls the machines, in the order of the numbers above."""
SET_ID_BITS = 0o6000
MAKING_FLAGS = 0o20000100
CLONE_NAMESPACES = 0x7E020080
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
UNIX, INET, INET6 = 1, 2, 10

_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_ABOVE, _JUMP_IF_BITS, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER_OFFSET, _MACHINE_OFFSET, _ARGUMENTS_OFFSET = 0, 4, 16


def find_number(call: str, machine: str) -> int | None:
    """Return the number of a call that is refused, on a machine of `MACHINES`; None if it does not have it."""
    return REFUSED_CALLS[call][[*MACHINES].index(machine)]


def _step(code: int, value: int, jump: int = 0, jump_else: int = 0) -> bytes:
    return struct.pack("=HBBI", code, jump, jump_else, value)


def _load(index: int, *, upper_half: bool = False) -> bytes:
    """Return the step that loads an argument of the call; of most, the kernel looks at the lower half only.

    The order of the halves is that of both machines.
    """
    return _step(_LOAD, _ARGUMENTS_OFFSET + 8 * index + 4 * upper_half)


_ALLOW = _step(_RETURN, 0x7FFF0000)
_REFUSE = _step(_RETURN, 0x00050000 | errno.EPERM)
_SAY_UNKNOWN = _step(_RETURN, 0x00050000 | errno.ENOSYS)
_KILL = _step(_RETURN, 0x80000000)


def build_filter(machine: str, *, has_network: bool, has_namespaces: bool) -> bytes:
    """Build the filter, as the kernel takes it.

    Args:
        machine: one of `MACHINES`.
        has_network: the program shares the network of the bot.
        has_namespaces: it has namespaces of its own, for files and processes too.
    """
    rules: list[tuple[Sequence[int | None], Sequence[bytes]]] = []
    if not has_namespaces:
        rules += [(numbers, (_REFUSE,)) for numbers in REFUSED_WITHOUT_NAMESPACES.values()]
        rules += [
            (numbers, _refuse_others(index)) for *numbers, index in REFUSED_FOR_OTHERS_WITHOUT_NAMESPACES.values()
        ]
    rules += [(numbers, (_REFUSE,)) for numbers in REFUSED_CALLS.values()]
    rules += [(numbers, _refuse_set_id(index)) for *numbers, index in CALLS_WITH_MODE.values()]
    rules += [(numbers, _refuse_making_set_id(index)) for *numbers, index in CALLS_THAT_OPEN.values()]
    rules += [
        (OPENAT2, (_SAY_UNKNOWN,)),  # its mode and its flags cannot be seen; libraries call openat and clone then
        (CLONE3, (_SAY_UNKNOWN,)),
        (CLONE, (_load(0), _step(_JUMP_IF_BITS, CLONE_NAMESPACES, 0, 1), _REFUSE, _ALLOW)),
        (IOCTL, (_load(1), _step(_JUMP_IF_EQUAL, TIOCSTI, 1), _step(_JUMP_IF_EQUAL, TIOCLINUX, 0, 1), _REFUSE, _ALLOW)),
        (SOCKET, _allow_sockets(has_network=has_network, has_namespaces=has_namespaces)),
    ]
    column = [*MACHINES].index(machine)
    steps = [
        _step(_LOAD, _MACHINE_OFFSET),
        _step(_JUMP_IF_EQUAL, MACHINES[machine], 1),
        _KILL,
        _step(_LOAD, _NUMBER_OFFSET),
        _step(_JUMP_IF_ABOVE, NEWEST_CALL, 0, 1),
        _SAY_UNKNOWN,
    ]
    for numbers, body in rules:
        if (number := numbers[column]) is not None:
            steps += [_step(_JUMP_IF_EQUAL, number, 0, len(body)), *body]
    return b"".join([*steps, _ALLOW])


def _refuse_others(index: int) -> tuple[bytes, ...]:
    is_zero = (_step(_JUMP_IF_EQUAL, 0, 0, 2), _step(_JUMP_IF_EQUAL, 0, 1))
    return (_load(index), is_zero[0], _load(index, upper_half=True), is_zero[1], _REFUSE, _ALLOW)


def _refuse_set_id(index: int) -> tuple[bytes, ...]:
    return (_load(index), _step(_JUMP_IF_BITS, SET_ID_BITS, 0, 1), _REFUSE, _ALLOW)


def _refuse_making_set_id(index: int) -> tuple[bytes, ...]:
    return (_load(index), _step(_JUMP_IF_BITS, MAKING_FLAGS, 0, 3), *_refuse_set_id(index + 1))


def _allow_sockets(*, has_network: bool, has_namespaces: bool) -> tuple[bytes, ...]:
    """Allow internet sockets in the bot's network, internet and UNIX sockets in namespaces without it, and otherwise none.

    In the bot's network a UNIX socket could reach the bot, docker or a bus. Other kinds reach the kernel or the machine's host.
    """
    kinds = (INET, INET6) if has_network else (UNIX, INET, INET6) if has_namespaces else ()
    jumps = [_step(_JUMP_IF_EQUAL, kind, len(kinds) - position) for position, kind in enumerate(kinds)]
    return (_load(0), *jumps, _REFUSE, _ALLOW)
