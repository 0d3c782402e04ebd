"""What is around programs: a trial of a sandbox leaves no process, and a workspace is a folder of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from bubbot.sandbox.sandbox import (
    PROBE_LIMITS,
    BubblewrapSandbox,
    ConfinedSandbox,
    ProgramLimits,
    Sandbox,
    SandboxUnusable,
    make_workspace,
    probe,
    program_environment,
)
from tests.sandboxes import require


class Hanging(Sandbox):
    """A sandbox whose program never ends; it writes its process id into a file."""

    name = "hanging"

    def __init__(self, file: Path) -> None:
        self.file = file

    def build_command(
        self, argv: Sequence[str], workspace: Path, limits: ProgramLimits, readable: Sequence[str] = ()
    ) -> list[str]:
        """See `Sandbox.build_command`."""
        return ["/bin/sh", "-c", f"echo $$ > {self.file}; exec sleep 600"]

    def is_running(self) -> bool:
        """Return true while its process is there."""
        return Path(f"/proc/{self.file.read_text().strip()}").exists()


async def test_a_trial_that_hangs_is_ended_and_says_so(tmp_path: Path) -> None:
    sandbox = Hanging(tmp_path / "pid")
    with pytest.raises(SandboxUnusable, match="hanging did not answer within 1 seconds"):
        await probe(sandbox, 1.0)
    assert not sandbox.is_running()


def test_a_workspace_is_no_link(tmp_path: Path) -> None:
    make_workspace(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    (tmp_path / "a" / "link").symlink_to(tmp_path)
    with pytest.raises(SandboxUnusable, match="link is a link"):
        make_workspace(tmp_path / "a" / "link")
    (tmp_path / "a" / "file").touch()
    with pytest.raises(SandboxUnusable, match="file cannot be made: File exists"):
        make_workspace(tmp_path / "a" / "file")


STARTER = """
import asyncio, os, sys
from pathlib import Path
from bubbot.sandbox import sandbox

async def start(kind):
    rules = sandbox.ConfinedSandbox(has_network=False) if kind == "landlock" else sandbox.BubblewrapSandbox(has_network=False)
    folder = Path(sys.argv[2])
    command = rules.build_command(["/bin/sleep", "1000"], folder, sandbox.PROBE_LIMITS)
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=sandbox.program_environment(folder), stdout=-3, start_new_session=True
    )
    print(process.pid, flush=True)
    os.kill(os.getpid(), 9)

asyncio.run(start(sys.argv[1]))
"""


@pytest.mark.parametrize("kind", ["bwrap", "landlock"])
def test_a_program_whose_starter_dies_while_the_sandbox_begins_does_not_run(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    require(kind, request)
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", STARTER, kind, str(tmp_path)], check=False, stdout=subprocess.PIPE, text=True
        )
        assert done.returncode == -signal.SIGKILL
        left = ["not looked yet"]
        for _ in range(100):
            if not (left := list_left(tmp_path)):
                break
            time.sleep(0.05)
        assert left == []


def list_left(folder: Path) -> list[str]:
    """List the processes whose working directory is a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and (entry / "cwd").readlink() == folder:
                found.append(f"{entry.name} {(entry / 'cmdline').read_bytes()[:80]!r}")
    return found


@pytest.mark.parametrize("kind", ["bwrap", "landlock"])
async def test_a_program_ends_with_the_process_in_front_of_it(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    require(kind, request)
    rules = BubblewrapSandbox(has_network=False) if kind == "bwrap" else ConfinedSandbox(has_network=False)
    make_workspace(tmp_path / "work")
    for number in (signal.SIGTERM, signal.SIGKILL):
        began = tmp_path / "work" / f"began-{number}"
        process = await asyncio.create_subprocess_exec(
            *rules.build_command(["/bin/sh", "-c", f"touch {began}; sleep 1000"], tmp_path / "work", PROBE_LIMITS),
            cwd=tmp_path / "work",
            env=program_environment(tmp_path / "work"),
            start_new_session=True,
        )
        while not began.exists():  # noqa: ASYNC110 - the kernel sends no event
            await asyncio.sleep(0.01)
        os.kill(process.pid, number)
        await process.wait()
        for _ in range(100):
            if not (left := [each for each in list_left(tmp_path / "work") if "sh" in each]):
                break
            await asyncio.sleep(0.05)
        assert left == []
        # After a SIGKILL, Landlock leaves the children of a program to the parent.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
