"""What is around programs: a trial of a sandbox leaves no process, and a workspace is a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bubbot.sandbox.sandbox import ProgramLimits, Sandbox, SandboxUnusable, make_workspace, probe


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
