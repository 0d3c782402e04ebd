"""Ways out of a sandbox, tried inside one. Each function returns if the way out is open, and raises if it is closed.

`python escapes.py FACTS` prints one JSON object, from the name of each way to `open` or the reason why it is closed. FACTS is
JSON about what is outside: see `tests/unit/features/shell/test_escapes.py`, which makes it. Imports nothing but the library.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

FACTS: dict[str, Any] = json.loads(sys.argv[1])
LIBC = ctypes.CDLL(None, use_errno=True)
COLUMN = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
CALLS = {
    "keyctl": (250, 219)[COLUMN], "add_key": (248, 217)[COLUMN], "request_key": (249, 218)[COLUMN], "io_uring_setup": 425,
}  # fmt: skip
ALLOWED_VARIABLES = {"PATH", "HOME", "TMPDIR", "LANG", "TERM", "PAGER", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}


class Closed(Exception):
    """The way out is closed without an error of the system."""


def check(result: int) -> int:
    if result == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


# --- files of the bot and of other chats ---


def read_database() -> None:
    Path(FACTS["secret"]).read_text()


def list_home() -> None:
    if "bubbot.db" not in {path.name for path in Path(FACTS["home"]).iterdir()}:
        raise Closed


def list_other_workspaces() -> None:
    if Path(FACTS["other"]).parent.name not in {path.name for path in Path("../..").iterdir()}:
        raise Closed


def read_other_workspace() -> None:
    (Path(FACTS["other"]) / "note").read_text()


def write_other_workspace() -> None:
    (Path(FACTS["other"]) / "planted").write_text("x")


def read_through_link() -> None:
    Path("link").unlink(missing_ok=True)
    Path("link").symlink_to(FACTS["secret"])
    Path("link").read_text()


def write_through_link() -> None:
    Path("out").unlink(missing_ok=True)
    Path("out").symlink_to(FACTS["outside"])
    (Path("out") / "through-link").write_text("x")


def hard_link() -> None:
    Path("hard").unlink(missing_ok=True)
    os.link(FACTS["secret"], "hard")
    Path("hard").read_text()


def open_beneath_root_descriptor() -> None:
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    os.read(os.open(FACTS["secret"].lstrip("/"), os.O_RDONLY, dir_fd=root), 1)


def write_outside() -> None:
    (Path(FACTS["outside"]) / "written").write_text("x")


def make_folder_outside() -> None:
    (Path(FACTS["outside"]) / "folder").mkdir()


def move_outside() -> None:
    Path("moved").write_text("x")
    Path("moved").rename(Path(FACTS["outside"]) / "moved")


def delete_outside() -> None:
    (Path(FACTS["outside"]) / "delete").unlink()


def truncate_outside() -> None:
    os.truncate(Path(FACTS["outside"]) / "keep", 0)


def change_mode_outside() -> None:
    (Path(FACTS["outside"]) / "keep").chmod(0o777)


def change_owner_outside() -> None:
    os.chown(Path(FACTS["outside"]) / "keep", os.getuid(), os.getgid())


def change_time_outside() -> None:
    os.utime(Path(FACTS["outside"]) / "keep", (1, 1))


def set_attribute_outside() -> None:
    os.setxattr(Path(FACTS["outside"]) / "keep", "user.x", b"1")


def watch_outside() -> None:
    watcher = check(LIBC.inotify_init1(0))
    check(LIBC.inotify_add_watch(watcher, FACTS["outside"].encode(), 0x100))


def write_system_folder() -> None:
    path = Path("/etc/bubbot-escape-test")
    path.write_text("x")
    path.unlink()


def read_shadow() -> None:
    Path("/etc/shadow").read_text()


def read_ssh_keys() -> None:
    list(Path("/etc/ssh").iterdir())


# --- other processes ---


def read_environment_of_bot() -> None:
    if not Path(f"/proc/{FACTS['bot']}/environ").read_bytes():
        raise Closed


def read_command_line_of_bot() -> None:
    if FACTS["mark"].encode() not in Path(f"/proc/{FACTS['bot']}/cmdline").read_bytes():
        raise Closed


def read_memory_of_bot() -> None:
    os.open(f"/proc/{FACTS['bot']}/mem", os.O_RDONLY)


def open_root_of_bot() -> None:
    Path(f"/proc/{FACTS['bot']}/root{FACTS['secret']}").read_text()


def open_folder_of_bot() -> None:
    if not list(Path(f"/proc/{FACTS['bot']}/cwd").iterdir()):
        raise Closed


def list_files_of_bot() -> None:
    list(Path(f"/proc/{FACTS['bot']}/fd").iterdir())


def signal_bot() -> None:
    os.kill(FACTS["bot"], signal.SIGUSR1)


def signal_bot_by_descriptor() -> None:
    signal.pidfd_send_signal(os.pidfd_open(FACTS["bot"]), signal.SIGUSR1)


def trace_bot() -> None:
    attach, detach = 0x4206, 17  # seize, which stops nothing
    check(LIBC.ptrace(attach, FACTS["bot"], 0, 0))
    LIBC.ptrace(detach, FACTS["bot"], 0, 0)


def limit_bot() -> None:
    resource.prlimit(FACTS["bot"], resource.RLIMIT_CORE, (0, 0))


def slow_bot() -> None:
    os.setpriority(os.PRIO_PROCESS, FACTS["bot"], 19)


def trace_parent() -> None:
    if os.getppid() == 0:
        raise Closed
    check(LIBC.ptrace(0x4206, FACTS["bot"], 0, 0))


# --- network and sockets ---


def connect_to_this_machine() -> None:
    socket.create_connection(("127.0.0.1", FACTS["tcp"]), 2)


def send_datagram() -> None:
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.sendto(b"x", ("127.0.0.1", FACTS["udp"]))
    time.sleep(0.05)
    if FACTS["sandbox"] == "bwrap":
        raise Closed("nobody listens in this namespace")


def connect_to_metadata() -> None:
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    client.settimeout(0.2)
    with suppress(TimeoutError):  # it was let out
        client.connect(("169.254.169.254", 80))


def connect_to_socket_file() -> None:
    socket.socket(socket.AF_UNIX).connect(FACTS["socket"])


def connect_to_abstract_socket() -> None:
    socket.socket(socket.AF_UNIX).connect("\0" + FACTS["abstract"])


def send_raw_packets() -> None:
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    raw.sendto(b"\x08\0\xf7\xff\0\0\0\0", ("127.0.0.1", 0))


# --- kernel, devices, terminals ---


def mount_file_system() -> None:
    check(LIBC.mount(b"none", b"/usr/share", b"tmpfs", 0, None))
    LIBC.umount2(b"/usr/share", 2)


def make_user_namespace() -> None:
    child = os.fork()
    if child == 0:
        user, mounts, process = 0x10000000, 0x00020000, 0x20000000
        os._exit(0 if LIBC.unshare(user | mounts | process) == 0 else 1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise Closed


def clone_into_namespace() -> None:
    user, number = 0x10000000, {"x86_64": 56, "aarch64": 220}.get(os.uname().machine)
    if number is None:
        raise Closed
    child = check(LIBC.syscall(number, user | signal.SIGCHLD, 0, 0, 0, 0))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def change_root() -> None:
    os.chroot("/")


def make_device() -> None:
    Path("disk").unlink(missing_ok=True)
    os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(7, 0))
    Path("disk").unlink()


def open_kernel_log() -> None:
    os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)


def open_system_request() -> None:
    os.open("/proc/sysrq-trigger", os.O_WRONLY)


def change_kernel_setting() -> None:
    os.open("/proc/sys/vm/swappiness", os.O_WRONLY)


def list_kernel_devices() -> None:
    if not list(Path("/sys/class").iterdir()):
        raise Closed


def write_to_terminal() -> None:
    os.write(os.open(FACTS["terminal"], os.O_WRONLY | os.O_NOCTTY), b"\x1b]0;owned\x07")


def type_into_terminal() -> None:
    terminal = os.open(FACTS["terminal"], os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(terminal, termios.TIOCSTI, b"x")


def open_controlling_terminal() -> None:
    os.open("/dev/tty", os.O_RDWR)


def gain_privileges() -> None:
    if check(LIBC.prctl(39, 0, 0, 0, 0)) == 1:  # a set-uid program gains nothing
        raise Closed


def set_host_name() -> None:
    name = socket.gethostname()
    socket.sethostname(name)
    if FACTS["sandbox"] == "bwrap":
        raise Closed


def make_uring() -> None:
    check(LIBC.syscall(CALLS["io_uring_setup"], 1, ctypes.create_string_buffer(120)))


def open_netlink() -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)


def open_socket_of_kernel() -> None:
    socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0)


def leave_set_uid_file() -> None:
    Path("set-uid").write_text("x")
    Path("set-uid").chmod(0o4755)


def leave_set_uid_file_by_descriptor() -> None:
    with Path("set-uid").open("w") as file:
        os.fchmod(file.fileno(), 0o6755)


def make_set_uid_file() -> None:
    Path("made").unlink(missing_ok=True)
    os.close(os.open("made", os.O_CREAT | os.O_WRONLY, 0o4700))


def make_set_uid_node() -> None:
    Path("node").unlink(missing_ok=True)
    os.mknod("node", stat.S_IFREG | 0o4700)


def leave_file_with_capabilities() -> None:
    with Path("capable").open("w") as file:
        os.setxattr(file.fileno(), "security.capability", struct.pack("<5I", 0x02000001, 0xFFFFFFFF, 0, 0, 0))


def give_file_away() -> None:
    with Path("given").open("w") as file:
        os.fchown(file.fileno(), 12345, 12345)


# --- keys of the kernel ---


def read_key_of_bot() -> None:
    text = ctypes.create_string_buffer(100)
    check(LIBC.syscall(CALLS["keyctl"], 11, FACTS["key"], text, 100))


def find_key_of_bot() -> None:
    check(LIBC.syscall(CALLS["keyctl"], 10, -3, b"user", FACTS["key_name"].encode(), 0))


def request_key_of_bot() -> None:
    check(LIBC.syscall(CALLS["request_key"], b"user", FACTS["key_name"].encode(), None, -3))


def add_key() -> None:
    check(LIBC.syscall(CALLS["add_key"], b"user", b"planted", b"x", 1, -3))


def list_keys() -> None:
    if FACTS["key_name"] not in Path("/proc/keys").read_text():
        raise Closed


# --- what came along ---


def find_secrets_in_environment() -> None:
    if not set(os.environ) - ALLOWED_VARIABLES:
        raise Closed


def use_inherited_descriptor() -> None:
    for descriptor in range(3, 256):
        try:
            os.fstat(descriptor)
        except OSError:
            continue
        if descriptor == FACTS["descriptor"]:
            os.read(descriptor, 1)
            return
    raise Closed


# --- more than its share ---


def take_memory() -> None:
    bytearray(FACTS["memory"] * 2)


def write_huge_file() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Path("huge").open("wb") as file:
        file.truncate(2_000_000_000)
    Path("huge").unlink()


def fork_without_end() -> None:
    children = []
    try:
        for _ in range(FACTS["processes"] + 20):
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


# --- staying: these return in any case, and the test looks for what is left ---


def leave_child() -> None:
    subprocess.Popen(["sleep", FACTS["sleep"]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    raise Closed


def leave_session() -> None:
    child = os.fork()
    if child == 0:
        with suppress(OSError):
            os.setsid()
        if os.fork() == 0:
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            os.dup2(1, 2)
            os.execvp("sleep", ["sleep", FACTS["sleep"]])
        os._exit(0)
    os.waitpid(child, 0)
    raise Closed


def main() -> None:
    names = [name for name, value in globals().items() if getattr(value, "__module__", "") == "__main__"]
    results = {}
    for name in names:
        if name in {"Closed", "check", "main"}:
            continue
        try:
            globals()[name]()
            results[name] = "open"
        except (OSError, MemoryError, Closed, ValueError) as error:
            results[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(results))


if __name__ == "__main__":
    main()
