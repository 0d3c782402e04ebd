"""Sandboxes: how a program is started so that it can change its workspace and nothing else.

A sandbox that does not work is never replaced by a weaker one: `choose_sandbox` raises `SandboxUnusable` with the reason.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from bubbot.formatting import clean, replace_controls
from bubbot.packages import requirements_command
from bubbot.sandbox.confine import STARTER_VARIABLE
from bubbot.sandbox.filter import MACHINES, build_filter, find_number

PROBE_TIMEOUT_SECONDS = 10.0
MAX_FILE_BYTES = 1_000_000_000
"""Bytes of one file that a program may write."""
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC_FILES = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies", "fonts", "group", "host.conf",
    "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "magic", "mime.types", "networks",
    "nsswitch.conf", "passwd", "pki/ca-trust", "pki/tls/certs", "profile", "protocols", "python3", "python3.11", "services", "shells",
    "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone",
)  # fmt: skip
"""What programs need of /etc. The rest may hold keys that the bot's user can read."""
NETWORK_FILES = ("/etc/resolv.conf", "/etc/gai.conf")
KERNEL_FOLDERS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
PROC_FILES = ("/proc/cpuinfo", "/proc/meminfo", "/proc/filesystems", "/proc/sys/kernel/random")
CONFINE_FILE = Path(__file__).with_name("confine.py")
"""The program of the process in front of each program."""
END_SECONDS = 3.0
"""Time for `confine.py` to end what a program has started."""
REAP_SECONDS = 2.0
"""Time for the kernel to end a killed process."""
LANDLOCK_PACKAGE = "landlockpy"
_BLOCK_BYTES = 512
# Shells disagree on the letter for processes. Nothing runs if a limit cannot be set.
_LIMITS_SCRIPT = (
    'if [ -n "${BASH_VERSION-}" ]; then ulimit -u "$1"; else ulimit -p "$1"; fi && ulimit -v "$2" && ulimit -f "$3" '
    '&& ulimit -t "$4" && ulimit -c 0 || exit 125; shift 4; exec "$@"'
)


SandboxKind: TypeAlias = Literal["auto", "bwrap", "landlock", "none"]
"""What programs run in. `auto`: `bwrap` (the program bubblewrap) if it works, else `landlock`, else nothing runs."""


class SandboxRules(Protocol):
    """What programs may do, as settings say it.

    Attributes:
        sandbox: what they run in.
        network: they may use the network.
        readable: further folders that they may read and run programs from, as whole paths.
    """

    @property
    def sandbox(self) -> SandboxKind: ...
    @property
    def network(self) -> bool: ...
    @property
    def readable(self) -> Sequence[str]: ...


class SandboxUnusable(Exception):
    """No program can run; the text says why."""


class ProgramLimits(Struct, frozen=True):
    """The limits of a program.

    Attributes:
        seconds: of processor time, for each process.
        memory_bytes: that each process may address.
        processes: at a time.
    """

    seconds: int
    memory_bytes: int
    processes: int


PROBE_LIMITS = ProgramLimits(seconds=10, memory_bytes=2**30, processes=16)


class Sandbox(ABC):
    """A way to start programs.

    Attributes:
        name: that of the setting.
        has_network: programs may use the network.
    """

    name: str
    has_network: bool

    @abstractmethod
    def build_command(
        self, argv: Sequence[str], workspace: Path, limits: ProgramLimits, readable: Sequence[str] = ()
    ) -> list[str]:
        """Build the command that runs a program with its folder as the working directory, and further folders that it may read.

        The process leads a session of its own and has the variables of `program_environment`; `end_program` ends it.
        """


class BubblewrapSandbox(Sandbox):
    """Namespaces of its own: no network, no other processes, no file but the system and the workspace."""

    name = "bwrap"

    def __init__(self, *, has_network: bool, readable: Sequence[str] = (), program: str = "bwrap") -> None:
        """Set what programs see. Raise `SandboxUnusable`.

        Args:
            has_network: programs may use the network.
            readable: further folders that they may read.
            program: that of bubblewrap.
        """
        self.has_network = has_network
        self._calls = _filter_options(has_network=has_network, has_namespaces=True)
        self._readable = readable
        self._program = program

    def build_command(
        self, argv: Sequence[str], workspace: Path, limits: ProgramLimits, readable: Sequence[str] = ()
    ) -> list[str]:
        """See `Sandbox.build_command`."""
        options = [
            "--unshare-all",
            "--unshare-user",
            "--die-with-parent",
            "--new-session",
            "--cap-drop",
            "ALL",
            "--hostname",
            "sandbox",
        ]
        if self.has_network:
            options.append("--share-net")
        options += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run"]  # noqa: S108 - its own
        for folder in KERNEL_FOLDERS:  # writable for the user root, even one without any power
            options += ["--ro-bind-try", folder, folder]
        options += ["--ro-bind-try", "/dev/null", "/proc/keys"]  # those of the user, in any session
        for folder in SYSTEM_FOLDERS:
            path = Path(folder)
            if path.is_symlink():
                options += ["--symlink", str(path.readlink()), folder]
            else:
                options += ["--ro-bind-try", folder, folder]
        for file in _list_readable_files([*self._readable, *readable], has_network=self.has_network):
            options += ["--ro-bind-try", file, file]
        options += ["--bind", str(workspace), str(workspace), "--remount-ro", "/", "--chdir", str(workspace)]
        numbers = (limits.processes, limits.memory_bytes // 1024, MAX_FILE_BYTES // _BLOCK_BYTES, limits.seconds)
        limited = ["/bin/sh", "-c", _LIMITS_SCRIPT, "sh", *map(str, numbers), *argv]
        return [*_front_command(self._calls), self._program, *options, "--", *limited]


class ConfinedSandbox(Sandbox):
    """A process that limits the program that it starts; with Landlock and seccomp, or without anything.

    Landlock has no namespaces: other processes are there, and refused. See `confine.py`.
    """

    def __init__(self, *, has_network: bool, readable: Sequence[str] = (), has_rules: bool = True) -> None:
        """Set what programs may do.

        Args:
            has_network: programs may use the network.
            readable: further folders that they may read.
            has_rules: false for a program that may do whatever the bot may.
        """
        self.name = "landlock" if has_rules else "none"
        self.has_network = has_network or not has_rules
        self._calls = _filter_options(has_network=has_network, has_namespaces=False) if has_rules else {}
        self._readable = readable
        self._has_rules = has_rules

    def build_command(
        self, argv: Sequence[str], workspace: Path, limits: ProgramLimits, readable: Sequence[str] = ()
    ) -> list[str]:
        """See `Sandbox.build_command`."""
        further = _list_readable_files([*self._readable, *readable], has_network=self.has_network)
        files = {
            "library": _find_library_folder(),
            "network": self.has_network,
            "reading": [*SYSTEM_FOLDERS, *PROC_FILES, *further],
            "writing": [str(workspace)],
            "device": DEVICES,
        }
        numbers = {
            "RLIMIT_CPU": limits.seconds,
            "RLIMIT_AS": limits.memory_bytes,
            "RLIMIT_FSIZE": MAX_FILE_BYTES,
            "RLIMIT_CORE": 0,
        }
        options = {
            "limits": numbers,
            "processes": limits.processes,
            "landlock": files if self._has_rules else None,
            **self._calls,
        }
        return [*_front_command(options), *argv]


def _front_command(options: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-I", "-S", str(CONFINE_FILE), json.dumps(options)]


def _filter_options(*, has_network: bool, has_namespaces: bool) -> Mapping[str, Any]:
    machine = os.uname().machine
    if machine not in MACHINES:
        raise SandboxUnusable(f"there is no filter of calls of the system for the machine {machine}")
    steps = build_filter(machine, has_network=has_network, has_namespaces=has_namespaces)
    return {"filter": steps.hex(), "keyctl": find_number("keyctl", machine)}


def _list_readable_files(further: Sequence[str], *, has_network: bool) -> list[str]:
    return [*(f"/etc/{name}" for name in ETC_FILES), *(NETWORK_FILES if has_network else ()), *further]


def _find_library_folder() -> str:
    """Return the folder of the package of the extra `sandbox`, so that the child need not look through all packages."""
    spec = find_spec(LANDLOCK_PACKAGE)
    return str(Path(spec.origin).parents[1]) if spec is not None and spec.origin else ""


def program_environment(workspace: Path) -> dict[str, str]:
    """Return the whole environment of a program that this process starts: nothing of the bot's own, but for `confine.py`."""
    return {
        STARTER_VARIABLE: str(os.getpid()),
        "PATH": SEARCH_PATH,
        "HOME": str(workspace),
        "TMPDIR": str(workspace / ".tmp"),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PAGER": "cat",
    }


async def end_program(process: asyncio.subprocess.Process, seconds: float = END_SECONDS) -> None:
    """End a program that was started in a sandbox, and all that it has started; kill what has not ended after so many seconds.

    It takes at most `REAP_SECONDS` more.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)  # to `confine.py`, which ends the others first
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await process.wait()
    # What is left of its group goes in any case, also if the program itself has ended.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(REAP_SECONDS):
            await process.wait()


def make_workspace(folder: Path) -> None:
    """Make the folder of a chat, for the bot's user alone. Raise `SandboxUnusable` if something else is there."""
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink():
            raise SandboxUnusable(f"{folder} is a link")
        temporary = folder / ".tmp"
        if not temporary.is_symlink():  # a program may have put one there; it leads nowhere that it could not write to
            temporary.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise SandboxUnusable(f"{folder} cannot be made: {error.strerror}") from None


def has_landlock_package() -> bool:
    """Return true if the package of the extra `sandbox` is installed; do not import it."""
    return find_spec(LANDLOCK_PACKAGE) is not None


def format_install_command() -> str:
    """Format the command that installs the extra `sandbox` into the environment of this bot, in the locked versions."""
    return requirements_command(__file__)


def format_bubblewrap_command() -> str:
    """Format the command that installs the program bubblewrap; empty if this system is not known. Not the package of PyPI."""
    for tool, command in (
        ("apt-get", "sudo apt-get install --yes bubblewrap"),
        ("dnf", "sudo dnf install --assumeyes bubblewrap"),
        ("pacman", "sudo pacman -S --noconfirm bubblewrap"),
        ("zypper", "sudo zypper --non-interactive install bubblewrap"),
        ("apk", "sudo apk add bubblewrap"),
    ):
        if shutil.which(tool):
            return command
    return ""


def find_bubblewrap() -> str | None:
    """Find the program bubblewrap; None if it is not installed."""
    return shutil.which("bwrap", path=SEARCH_PATH)


async def choose_sandbox(rules: SandboxRules) -> Sandbox:
    """Return the sandbox of these rules once it has run a program. Raise `SandboxUnusable`."""
    match rules.sandbox:
        case "none":
            sandbox: Sandbox = ConfinedSandbox(has_network=True, has_rules=False)
            await probe(sandbox)
            return sandbox
        case "bwrap":
            return await _usable_bubblewrap(rules)
        case "landlock":
            return await _usable_landlock(rules)
    try:
        return await _usable_bubblewrap(rules)
    except SandboxUnusable as no_bubblewrap:
        try:
            return await _usable_landlock(rules)
        except SandboxUnusable as no_landlock:
            raise SandboxUnusable(f"{no_bubblewrap}; {no_landlock}") from None


async def _usable_bubblewrap(rules: SandboxRules) -> Sandbox:
    program = find_bubblewrap()
    if program is None:
        raise SandboxUnusable("bubblewrap is not installed")
    sandbox = BubblewrapSandbox(has_network=rules.network, readable=rules.readable, program=program)
    await probe(sandbox)
    return sandbox


async def _usable_landlock(rules: SandboxRules) -> Sandbox:
    if not has_landlock_package():
        raise SandboxUnusable(f"landlock needs the package {LANDLOCK_PACKAGE}")
    sandbox = ConfinedSandbox(has_network=rules.network, readable=rules.readable)
    await probe(sandbox)
    return sandbox


async def probe(sandbox: Sandbox, timeout: float = PROBE_TIMEOUT_SECONDS) -> None:
    """Run `true` in a sandbox. Raise `SandboxUnusable` if that fails: many systems have a sandbox and forbid its use."""
    name = sandbox.name
    with TemporaryDirectory(prefix="bubbot-sandbox-") as temporary:
        folder = Path(temporary)
        try:
            process = await asyncio.create_subprocess_exec(
                *sandbox.build_command(["true"], folder, PROBE_LIMITS),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                cwd=folder,
                env=program_environment(folder),
                start_new_session=True,
            )
            async with asyncio.timeout(timeout):
                _, errors = await process.communicate()
        except TimeoutError:
            await end_program(process)
            raise SandboxUnusable(f"{name} did not answer within {timeout:g} seconds") from None
        except OSError as error:
            raise SandboxUnusable(f"{name} cannot be started: {error.strerror}") from None
    if process.returncode:
        lines = replace_controls(clean(errors.decode(errors="replace"))).strip().splitlines()
        reason = lines[-1][:300] if lines else f"exit status {process.returncode}"
        raise SandboxUnusable(f"{name} does not work here: {reason}")
