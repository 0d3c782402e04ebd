"""Where `bubbot init` offers a service, and where it does not."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from bubbot.cli.init_service import RequestedService, choose_home
from bubbot.ops.onboarding.console import Console


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name which answers; it is the only one there is."""
    made = tmp_path / "bin" / "systemctl"
    made.parent.mkdir()
    made.write_text("#!/bin/sh\necho Version=255\n")
    made.chmod(0o755)
    monkeypatch.setenv("PATH", str(made.parent))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return made


def chosen(home: Path, typed: str) -> tuple[str, str]:
    """What is chosen by what is typed, and what was shown."""
    shown = io.StringIO()
    service = RequestedService(None, home, None)
    return service.choose_kind(Console(io.StringIO(typed), shown)), shown.getvalue()


def test_somebody_is_asked_where_systemd_answers_and_enter_means_no(systemctl: Path, tmp_path: Path) -> None:
    kind, shown = chosen(tmp_path / "home", "\n")
    assert kind == "none"
    assert "Run it as a service?" in shown
    assert chosen(tmp_path / "home", "2\n")[0] == "user"


def test_nobody_is_asked_where_it_does_not_answer_or_could_not_run_the_bot(
    systemctl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    assert RequestedService(None, home, None).is_offered()
    assert not RequestedService("none", home, None).is_offered()  # an option says it
    assert not RequestedService(None, tmp_path / "a\\b", None).is_offered()  # systemd takes no such path
    systemctl.write_text("#!/bin/sh\necho 'no bus' >&2\nexit 1\n")
    assert not RequestedService(None, home, None).is_offered()


def test_the_home_is_that_of_the_service_that_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUBBOT_HOME", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert choose_home("system", None) == Path("/var/lib/bubbot")
    assert choose_home("user", None) == choose_home(None, None) == tmp_path / "bubbot"
    assert choose_home("system", tmp_path) == tmp_path
