"""`bubbot service` as it is typed, with a `systemctl` that writes down what it is asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bubbot.home import Home, WriterLock
from tests.e2e.bot import run, sentence

FAKE = """#!/bin/sh
echo "$*" >> "$ASKED"
test -z "$BROKEN" || { echo "Failed to connect to bus: No medium found" >&2; exit 1; }
case "$*" in
*LoadState*) printf 'LoadState=%s\\nActiveState=%s\\nSubState=running\\nUnitFileState=enabled\\n' $STATE
    printf 'StatusText=receiving: telegram\\nMainPID=42\\nNRestarts=1\\nResult=success\\n' ;;
*MainPID*) echo "MainPID=$PID" ;;
*Version*) echo Version=252 ;;
esac
"""


class Shell:
    """Runs the command; `asked` is what systemctl was asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "my home 100%"
        self.units = folder / "config" / "systemd" / "user"
        (folder / "bin").mkdir()
        (folder / "bin" / "systemctl").write_text(FAKE)
        (folder / "bin" / "systemctl").chmod(0o755)

    def __call__(self, *words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
        given = {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(self.folder / "config"),
            "ASKED": str(self.folder / "asked"),
            "STATE": "loaded active",
            "PID": "42",
            **env,
        }
        return run(self.home, "service", *words, env=given)

    @property
    def asked(self) -> list[str]:
        """The arguments of systemctl, a call a line."""
        file = self.folder / "asked"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """One for this test."""
    return Shell(tmp_path)


def test_it_is_installed_shown_and_removed_and_the_home_stays(shell: Shell) -> None:
    shell.home.mkdir()
    (shell.home / "config.toml").write_text("")
    done = shell("install", "--user", OPENAI_API_KEY="sk-planted-key")
    assert done.returncode == 0, done.stderr
    out = done.stdout.decode()
    assert "loginctl enable-linger" in out
    assert "these count here: BUBBOT_MODEL__NAME, OPENAI_API_KEY. Put" in out
    assert "planted" not in out
    unit = (shell.units / "bubbot.service").read_text()
    assert f'--home "{shell.folder}/my home 100%%" run\n' in unit
    assert shell.asked == [
        "--user show --property=Version",
        "--user daemon-reload",
        "--user enable --now bubbot.service",
    ]

    done = shell("status", "--user")
    assert done.returncode == 0
    assert done.stdout.decode().splitlines() == [
        "service: active (running), enabled, process 42, 1 restarts",
        "says: receiving: telegram",
        f"home: {shell.home}: No process has written to this home yet.",
    ]

    assert shell("uninstall", "--user").returncode == 0
    assert [path.name for path in shell.units.iterdir()] == ["bubbot.service.old1"]
    assert shell.asked[-2:] == ["--user disable --now bubbot.service", "--user daemon-reload"]
    assert (shell.home / "config.toml").exists()


def test_a_dry_run_prints_the_unit_and_changes_nothing(shell: Shell) -> None:
    done = shell("install", "--user", "--dry-run", "--backups")
    out = done.stdout.decode()
    assert done.returncode == 0
    assert f"# {shell.units}/bubbot.service\n" in out
    assert "\nType=notify\n" in out
    assert out.endswith(
        "# would run: systemctl --user daemon-reload\n"
        "# would run: systemctl --user enable --now bubbot.service\n"
        "# would run: systemctl --user enable --now bubbot-backup.timer\n"
    )
    assert shell.asked == []
    assert not shell.units.exists()
    assert not shell.home.exists()

    assert shell("install", "--user").returncode == 0
    asked = shell.asked
    out = shell("uninstall", "--user", "--dry-run").stdout.decode()
    assert f"# would remove {shell.units}/bubbot.service and keep a copy\n" in out
    assert shell.asked == asked
    assert (shell.units / "bubbot.service").exists()


def test_where_systemd_does_not_answer_one_sentence_says_what_to_do(shell: Shell) -> None:
    done = shell("install", "--user", BROKEN="yes")
    assert done.returncode == 2
    assert "(Failed to connect to bus: No medium found), so nothing was changed: run `bubbot run`" in sentence(done)
    assert len(done.stderr.splitlines()) == 1
    assert not shell.units.exists()
    done = shell("status", "--user", BROKEN="yes")
    assert done.returncode == 1
    assert b"Without it: run `bubbot run`" in done.stdout


def test_a_bot_that_runs_already_is_not_given_a_second_one(shell: Shell) -> None:
    home = Home(shell.home)
    home.ensure()
    with WriterLock(home):
        done = shell("install", "--user")
        assert done.returncode == 3
        assert f"Process {os.getpid()} writes to the home" in sentence(done)
        assert not shell.units.exists()
        # The service that runs may be installed again.
        assert shell("install", "--user", PID=str(os.getpid())).returncode == 0
        assert f"Process {os.getpid()} is writing to this home" in shell("status", "--user").stdout.decode()


def test_a_service_that_is_not_installed_is_said_to_be_so(shell: Shell) -> None:
    done = shell("status", "--user", STATE="not-found inactive")
    assert (done.returncode, done.stdout.splitlines()[0]) == (
        1,
        b"service: not installed (bubbot service install)",
    )
