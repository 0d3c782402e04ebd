"""`bubbot service`: whose service is meant."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from bubbot.cli.main import main


@pytest.mark.parametrize(
    ("uid", "options", "of_user"),
    [(0, [], False), (1000, [], True), (1, [], True), (0, ["--user"], True), (1000, ["--system"], False)],
)
def test_it_is_that_of_the_system_for_root_and_that_of_the_user_for_others(
    uid: int, options: list[str], of_user: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def read_properties(_unit: str, _names: Sequence[str], *, user: bool) -> dict[str, str]:
        seen.append(user)
        return {"ActiveState": "active"}

    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr("bubbot.cli.service.read_properties", read_properties)
    assert main(["--home", str(tmp_path), "service", "status", *options]) == 0
    assert seen == [of_user]


def test_a_dry_run_of_the_removal_names_its_steps_only_if_there_is_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    words = ["service", "uninstall", "--user", "--dry-run"]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == ["# there is no service to remove"]
    unit = tmp_path / "systemd" / "user" / "bubbot.service"
    unit.parent.mkdir(parents=True)
    unit.write_text("[Unit]\n")
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines() == [
        "# would run: systemctl --user disable --now bubbot.service",
        f"# would remove {unit} and keep a copy",
        "# would run: systemctl --user daemon-reload",
    ]
    assert unit.exists()


def test_the_options_that_say_whose_service_it_is_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["service", "status", "--user", "--system"]) == 2
    assert "--user and --system exclude each other" in capsys.readouterr().err
