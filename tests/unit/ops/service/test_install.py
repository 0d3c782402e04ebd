"""Putting bubbot under systemd: what is planned, what is written and run, and what is left alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bubbot.cli.main import main
from tests.docs.pages import ROOT


class Systemd:
    """Programs that write down how they were called; those of a line that contains `fails` fail."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        for name in ("systemctl", "systemd-sysusers", "install"):
            (folder / name).write_text(
                f'#!/bin/sh\nline="{name} $*"\necho "$line" >> {folder}/ran\n'
                f'if [ -s {folder}/fails ] && case $line in *"$(cat {folder}/fails)"*) ;; *) false;; esac\n'
                "then printf 'it is\\nbroken\\n' >&2; exit 1; fi\necho Version=252\n"
            )
            (folder / name).chmod(0o755)
        self.fails("")

    def fails(self, word: str) -> None:
        (self._folder / "fails").write_text(word)

    @property
    def ran(self) -> list[str]:
        """The lines since the last look."""
        file = self._folder / "ran"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    for name in [name for name in os.environ if name.startswith("BUBBOT_")]:  # `make test` sets one
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{tmp_path / 'programs'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("bubbot.ops.service.install.SYSTEM_UNITS", tmp_path / "units")
    monkeypatch.setattr("bubbot.ops.service.install.SYSTEM_USERS", tmp_path / "users")
    monkeypatch.setattr("bubbot.ops.service.install.HIDDEN_FOLDERS", (tmp_path / "hidden",))
    return Systemd(tmp_path / "programs")


@pytest.fixture
def service(systemd: Systemd, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """`bubbot service`, which ends with this code; what it said."""

    def run(*words: str, home: str | Path = "/var/lib/bubbot", code: int = 0) -> list[str]:
        assert main(["--home", str(home), "--plain", "service", *words]) == code
        said = capsys.readouterr()
        return (said.err if code else said.out).splitlines()

    return run


def there(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


INSTALL = ("install", "--system")
STARTED = ["systemctl daemon-reload", "systemctl enable --now bubbot.service"]


def test_a_plan_names_files_and_commands_and_changes_nothing(
    service: Callable[..., list[str]], systemd: Systemd, tmp_path: Path
) -> None:
    said = service(*INSTALL, "--dry-run")
    assert [line for line in said if line.startswith(f"# {tmp_path}")] == [
        f"# {tmp_path}/units/bubbot.service",
        f"# {tmp_path}/users/bubbot.conf",
    ]
    sysusers = f"systemd-sysusers {tmp_path}/users/bubbot.conf"
    assert said[-3:] == [f"# would run: {line}" for line in (sysusers, *STARTED)]
    assert systemd.ran == []
    assert not (tmp_path / "units").exists()


def test_a_service_of_a_user_is_in_the_users_folder(
    service: Callable[..., list[str]], systemd: Systemd, tmp_path: Path
) -> None:
    (tmp_path / "b.toml").touch()
    said = service("install", "--user", "--backups", "--config", str(tmp_path / "b.toml"), home=tmp_path / "h")
    files = there(tmp_path / "config" / "systemd" / "user")
    assert set(files) == {"bubbot.service", "bubbot-backup.service", "bubbot-backup.timer"}
    options = f"--home {tmp_path}/h --config {tmp_path}/b.toml"
    assert f"{options} run\n" in files["bubbot.service"]
    assert f"{options} backup --keep 7\n" in files["bubbot-backup.service"]
    assert systemd.ran[1:] == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now bubbot.service",
        "systemctl --user enable --now bubbot-backup.timer",
    ]
    assert any("loginctl enable-linger" in line for line in said)


def test_installing_writes_runs_and_says_so(
    service: Callable[..., list[str]], systemd: Systemd, tmp_path: Path
) -> None:
    said = service(*INSTALL)
    assert set(there(tmp_path / "units")) | set(there(tmp_path / "users")) == {"bubbot.service", "bubbot.conf"}
    assert (tmp_path / "units" / "bubbot.service").stat().st_mode & 0o777 == 0o644
    sysusers = f"systemd-sysusers {tmp_path}/users/bubbot.conf"
    assert systemd.ran == ["systemctl show --property=Version", sysusers, *STARTED]
    assert said[0] == f"wrote {tmp_path}/units/bubbot.service"
    assert said[-1] == "`systemctl status bubbot.service` shows its state, `journalctl -u bubbot.service` its log."


def test_a_second_time_changes_nothing(service: Callable[..., list[str]], systemd: Systemd, tmp_path: Path) -> None:
    service(*INSTALL)
    before = there(tmp_path / "units")
    assert service(*INSTALL)[0] == f"{tmp_path}/units/bubbot.service already exists"
    assert there(tmp_path / "units") == before
    assert not any("try-restart" in line for line in systemd.ran)


def test_a_unit_that_differs_is_kept_as_a_copy_and_what_runs_is_started_again(
    service: Callable[..., list[str]], systemd: Systemd, tmp_path: Path
) -> None:
    units = tmp_path / "units"
    service(*INSTALL)
    ours = there(units)["bubbot.service"]
    for number, mine in enumerate(("# mine\n", "# mine again\n"), 1):
        (units / "bubbot.service").write_text(mine)
        assert service(*INSTALL)[0].endswith(f"the old one is kept as {units}/bubbot.service.old{number}")
        assert "systemctl try-restart bubbot.service" in systemd.ran
    found = there(units)
    assert found.pop("bubbot.service") == ours
    assert found == {"bubbot.service.old1": "# mine\n", "bubbot.service.old2": "# mine again\n"}


def test_without_a_service_manager_nothing_is_written(
    service: Callable[..., list[str]], systemd: Systemd, tmp_path: Path
) -> None:
    systemd.fails("show")
    (said,) = service(*INSTALL, code=2)
    assert (
        "systemd does not manage the services of this system here (it is), so nothing was changed: run `bubbot" in said
    )
    assert not (tmp_path / "units").exists()


def test_a_command_that_fails_is_named_with_what_it_said(service: Callable[..., list[str]], systemd: Systemd) -> None:
    systemd.fails("enable")
    (said,) = service(*INSTALL, code=2)
    assert "systemctl enable --now bubbot.service failed (it is broken): journalctl -u bubbot.service" in said


def test_a_program_that_is_not_there_has_failed(
    service: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "(there is no command systemctl)" in service(*INSTALL, code=2)[0]


def test_a_program_that_takes_too_long_has_failed(
    service: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("bubbot.ops.service.systemctl.SHORT_COMMAND_SECONDS", 0.05)
    (tmp_path / "programs" / "systemctl").write_text("#!/bin/sh\nexec sleep 5\n")
    assert "timed out after 0.05 seconds" in service(*INSTALL, code=2)[0]


def test_a_folder_that_cannot_be_written_is_named(service: Callable[..., list[str]], tmp_path: Path) -> None:
    (tmp_path / "units").write_text("a file")
    assert "units/bubbot.service cannot be read" in service(*INSTALL, code=2)[0]


def test_what_the_service_of_the_system_would_not_see_is_refused(
    service: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = tmp_path / "hidden" / "x"
    needs = f"needs {hidden}. Install bubbot in an environment such as /opt"
    assert f"the home {needs}" in service(*INSTALL, home=hidden, code=2)[0]
    assert f"the configuration {needs}" in service(*INSTALL, "--config", str(hidden), code=2)[0]
    assert service("install", "--user", "--dry-run", home=hidden)
    for needed in (sys.executable, sys.base_prefix, ROOT):
        monkeypatch.setattr("bubbot.ops.service.install.HIDDEN_FOLDERS", (Path(needed),))
        assert f"bubbot itself needs {needed}" in service(*INSTALL, code=2)[0]


@pytest.mark.parametrize("hidden", ["/home/ada/bot", "/root", "/tmp/x", "/var/tmp/x", "/run/user/1000/x"])
def test_homes_and_temporary_folders_are_hidden_from_it(
    hidden: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", f"{hidden}/python")
    assert main(["--home", "/var/lib/bubbot", "service", *INSTALL, "--dry-run"]) == 2
    assert f"bubbot itself needs {hidden}/python" in " ".join(capsys.readouterr().err.split())


def test_another_home_of_the_system_is_made_for_the_user_who_runs_it(
    service: Callable[..., list[str]], systemd: Systemd
) -> None:
    said = service(*INSTALL, home="/srv/../srv/bot")
    assert "install -d -o bubbot -g bubbot -m 0700 /srv/bot" in systemd.ran
    assert any("has to own /srv/bot" in line for line in said)


def test_a_home_that_is_there_is_not_given_to_anybody_else(service: Callable[..., list[str]], systemd: Systemd) -> None:
    service(*INSTALL, home="/usr")
    assert not any(line.startswith("install") for line in systemd.ran)


def test_removing_keeps_copies_and_the_home(
    service: Callable[..., list[str]], systemd: Systemd, tmp_path: Path
) -> None:
    service(*INSTALL, "--backups")
    (tmp_path / "units" / "bubbot.service").write_text("# mine\n")
    assert systemd.ran
    service("uninstall", "--system")
    assert systemd.ran[1:] == [
        "systemctl disable --now bubbot-backup.timer",
        "systemctl disable --now bubbot.service",
        "systemctl daemon-reload",
    ]
    found = there(tmp_path / "units")
    assert set(found) == {"bubbot.service.old1", "bubbot-backup.service.old1", "bubbot-backup.timer.old1"}
    assert found["bubbot.service.old1"] == "# mine\n"


def test_a_service_that_does_not_stop_is_not_removed(
    service: Callable[..., list[str]], systemd: Systemd, tmp_path: Path
) -> None:
    service(*INSTALL)
    systemd.fails("disable")
    assert "disable --now bubbot.service failed" in service("uninstall", "--system", code=2)[0]
    assert (tmp_path / "units" / "bubbot.service").exists()


def test_where_there_is_no_service_there_is_nothing_to_remove(
    service: Callable[..., list[str]], systemd: Systemd
) -> None:
    assert service("uninstall", "--system") == ["There is no service to remove."]
    assert systemd.ran == ["systemctl show --property=Version"]
