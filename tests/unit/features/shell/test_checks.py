"""Doctor findings of the tools that run programs. Each is planted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bubbot.features.shell import sandbox as sandboxes
from bubbot.features.shell.checks import check_shell
from bubbot.features.shell.settings import ShellSettings
from bubbot.ports.checks import Finding, HomeReader
from tests.planting import found, plants

UNUSED: Any = None


async def check(**values: Any) -> dict[str, Finding]:
    settings = ShellSettings.model_validate({"enabled": True, **values})
    return found(await check_shell(HomeReader(Path("h"), Path("h/config.toml"), settings, UNUSED, UNUSED, UNUSED)))


async def works(_: Any) -> None:
    """Stand for a sandbox that works."""


async def test_nothing_is_said_of_what_is_off() -> None:
    assert await check(enabled=False) == {}


@plants("shell.unusable")
async def test_a_sandbox_that_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "find_bubblewrap", lambda: None)
    finding = (await check(sandbox="bwrap"))["shell.unusable"]
    assert finding.level == "problem"
    assert "bubblewrap is not installed" in finding.cause
    monkeypatch.setattr(shutil, "which", lambda name: name if name == "apt-get" else None)
    assert (await check(sandbox="bwrap"))["shell.unusable"].fix == "sudo apt-get install --yes bubblewrap"
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "config.toml" in (await check(sandbox="bwrap"))["shell.unusable"].fix
    monkeypatch.setattr(sandboxes, "has_landlock_package", lambda: False)
    assert "--require-hashes" in (await check(sandbox="landlock"))["shell.unusable"].fix


@plants("shell.ok", "shell.root", "shell.no_sandbox")
async def test_a_sandbox_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "find_bubblewrap", lambda: "/usr/bin/bwrap")
    monkeypatch.setattr(sandboxes, "probe", works)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert {name: one.level for name, one in (await check()).items()} == {"shell.ok": "ok"}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert {name: one.level for name, one in (await check()).items()} == {"shell.ok": "ok", "shell.root": "warning"}
    assert {name: one.level for name, one in (await check(sandbox="none")).items()} == {"shell.no_sandbox": "warning"}
