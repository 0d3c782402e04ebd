"""A real systemd in a container: Debian's own, made by debootstrap and booted by systemd-nspawn, on this host's network."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.forked import ROOT

PROGRAMS = ("debootstrap", "systemd-nspawn", "nsenter", "apt-get")
LIBRARIES = (
    "libsqlite3-0", "libssl3", "libffi8", "libbz2-1.0", "liblzma5", "libreadline8", "libncursesw6", "zlib1g",
    "libstdc++6", "libseccomp2",
)  # fmt: skip
"""What an interpreter that was not built for the container may need there."""
BOOT_SECONDS = 90.0
STOP_SECONDS = 60.0
SOURCES = ("bubbot", "channels", "systemd", "docs", "pyproject.toml", "README.md", "LICENSE")


def lacking() -> str:
    """Name what is missing to boot a systemd here; empty if nothing is."""
    found = [f"the program {name}" for name in PROGRAMS if shutil.which(name) is None]
    found += [] if os.geteuid() == 0 else ["root"]
    found += [] if platform.freedesktop_os_release().get("ID") == "debian" else ["Debian"]
    return ", ".join(found)


def debootstrap(tree: Path) -> None:
    """Make the smallest Debian of this machine's own release that boots, from the mirror that apt is set up with."""
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    told = _output("apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)")
    mirror = next(
        site for site, name in (line.split() for line in told.splitlines() if line.strip()) if name == release
    )
    names = ",".join(("systemd", "systemd-sysv", "dbus", *LIBRARIES))
    _output("debootstrap", "--variant=minbase", f"--include={names}", release, str(tree), mirror, seconds=900)


def equip(tree: Path) -> None:
    """Put the sources of bubbot into the tree, and the places for this interpreter and its packages."""
    for name in ("opt/python", "opt/packages", "opt/source"):
        (tree / name).mkdir(parents=True)
    (tree / "etc" / "ld.so.conf.d" / "python.conf").write_text("/opt/python/lib\n")  # an interpreter that was moved
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tree / "opt" / "source" / name)


def _output(*words: str, seconds: float = 60) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    return done.stdout


@dataclass
class Container:
    """A booted tree. `leader`: its process 1, as this machine counts."""

    tree: Path
    leader: int

    async def run(self, *words: str, data: str = "", seconds: float = 180, check: bool = True) -> str:
        """Run a command as root inside and return what it prints."""
        inside = ("nsenter", "--target", str(self.leader), "--mount", "--pid", "--uts", "--ipc")
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        process = await asyncio.create_subprocess_exec(
            *inside, "env", "-i", path, "LANG=C.UTF-8", *words,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            async with asyncio.timeout(seconds):
                told, _ = await process.communicate(data.encode())
        finally:
            if process.returncode is None:
                process.kill()
        text = told.decode(errors="replace")
        assert process.returncode == 0 or not check, f"{words}: {text[-3000:]}"
        return text

    async def property(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return (await self.run("systemctl", "show", unit, f"--property={name}", "--value")).strip()

    async def journal(self, unit: str) -> str:
        """What a unit has logged."""
        return await self.run("journalctl", "--unit", unit, "--output=cat", "--no-pager")

    async def until(self, words: Sequence[str], wanted: str, seconds: float) -> str:
        """Repeat a command until what it prints has these words in it."""
        told = ""
        try:
            async with asyncio.timeout(seconds):
                while wanted not in (told := await self.run(*words, check=False)):  # noqa: ASYNC110
                    await asyncio.sleep(0.5)
        except TimeoutError:
            raise AssertionError(
                f"{words} did not print {wanted!r} within {seconds:g} s, but: {told[-3000:]}"
            ) from None
        return told


@asynccontextmanager
async def booted(tree: Path) -> AsyncIterator[Container]:
    """Boot the tree for the time of a block, and power it off."""
    log = tree.with_name("console")
    with log.open("wb") as console:
        process = await asyncio.create_subprocess_exec(
            "systemd-nspawn", "--quiet", "--directory", str(tree), "--console=pipe", "--register=no", "--keep-unit",
            "--machine", f"bubbot-{os.getpid()}", "--kill-signal=SIGRTMIN+4",
            f"--bind-ro={sys.base_prefix}:/opt/python", f"--bind-ro={sysconfig.get_path('purelib')}:/opt/packages",
            "--boot", stdin=subprocess.DEVNULL, stdout=console, stderr=console,
        )  # fmt: skip
    try:
        container = Container(tree, await _leader(process, log))
        await container.until(("systemctl", "is-system-running"), "running", BOOT_SECONDS)
        yield container
    finally:
        await _power_off(process)


async def _leader(process: asyncio.subprocess.Process, log: Path) -> int:
    """Process 1 of the container: the child of systemd-nspawn that is called so."""
    async with asyncio.timeout(BOOT_SECONDS):
        while process.returncode is None:
            for child in _children(process.pid):
                if _name(child).startswith("systemd") and not _name(child).startswith("systemd-nspawn"):
                    return child
            await asyncio.sleep(0.1)
    raise AssertionError(f"systemd-nspawn ended: {log.read_text(errors='replace')[-3000:]}")  # noqa: ASYNC240


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


async def _power_off(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)  # systemd-nspawn passes on the signal that powers off
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
