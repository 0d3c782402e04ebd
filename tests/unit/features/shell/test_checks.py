"""Doctor findings of the tools that run programs. Each is planted."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pytest

from bubbot.home import Home
from tests.planting import found, look, plants


def check(home: Home, *lines: str) -> dict[str, Any]:
    """What is found under the settings of the home, if it has these of the shell."""
    home.config.write_text("\n".join(("[tools.shell]", *lines)))
    return found(look("shell", home))


async def works(_: Any) -> None:
    """Stand for a sandbox that works."""


def test_nothing_is_said_of_what_is_off(home: Home) -> None:
    assert check(home) == {}


@plants("shell.unusable")
def test_a_sandbox_that_does_not_work(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.sandbox.sandbox.find_bubblewrap", lambda: None)
    finding = check(home, "enabled = true", 'sandbox = "bwrap"')["shell.unusable"]
    assert finding.level == "problem"
    assert "bubblewrap is not installed" in finding.cause
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "apt-get" else None)
    assert (
        check(home, "enabled = true", 'sandbox = "bwrap"')["shell.unusable"].fix
        == "sudo apt-get install --yes bubblewrap"
    )
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "config.toml" in check(home, "enabled = true", 'sandbox = "bwrap"')["shell.unusable"].fix
    monkeypatch.setattr("bubbot.sandbox.sandbox.has_landlock_package", lambda: False)
    assert "--require-hashes" in check(home, "enabled = true", 'sandbox = "landlock"')["shell.unusable"].fix


@plants("shell.ok", "shell.root", "shell.no_sandbox")
def test_a_sandbox_that_works(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.sandbox.sandbox.find_bubblewrap", lambda: "/usr/bin/bwrap")
    monkeypatch.setattr("bubbot.sandbox.sandbox.probe", works)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert {name: one.level for name, one in check(home, "enabled = true").items()} == {"shell.ok": "ok"}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert {name: one.level for name, one in check(home, "enabled = true").items()} == {
        "shell.ok": "ok",
        "shell.root": "warning",
    }
    assert {name: one.level for name, one in check(home, "enabled = true", 'sandbox = "none"').items()} == {
        "shell.no_sandbox": "warning"
    }
