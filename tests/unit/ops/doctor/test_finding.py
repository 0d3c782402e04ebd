"""Commands that findings print."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bubbot.ops.doctor.finding import sudo_bubbot


def test_sudo_is_given_the_path_of_a_bubbot_in_a_virtual_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "my bot" / "bin" / "bubbot"
    script.parent.mkdir(parents=True)
    script.touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(script.with_name("python")))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my bot"))
    monkeypatch.setattr(sys, "base_prefix", "/usr")
    assert sudo_bubbot("doctor") == f"sudo '{script}' doctor"
    assert sudo_bubbot("doctor", uid=5) == f"sudo -u '#5' '{script}' doctor"
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert sudo_bubbot("doctor", uid=0) == "sudo -u '#0' bubbot doctor"
