"""Putting bubbot under systemd: what is planned, what is written and run, and what is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bubbot.errors import ConfigError
from bubbot.ops.service.install import (
    InstallPlan,
    ServiceProgram,
    UnitPaths,
    install_service,
    plan_installation,
    plan_removal,
    remove_service,
)
from bubbot.ops.service.systemctl import CommandOutput, run_command

PROGRAM = ServiceProgram(Path("/opt/bubbot/bin/python"))
HOME = Path("/var/lib/bubbot")


@dataclass
class Systemd:
    """Takes commands down; those that contain a word fail."""

    fails: str = ""
    ran: list[str] = field(default_factory=list)

    def __call__(self, command: Sequence[str], seconds: float) -> CommandOutput:
        line = " ".join(command)
        self.ran.append(line)
        return (
            CommandOutput(1, "it is\nbroken\n")
            if self.fails and self.fails in line
            else CommandOutput(0, "Version=252\n")
        )


@pytest.fixture
def places(tmp_path: Path) -> UnitPaths:
    """Folders of this test."""
    return UnitPaths(tmp_path / "units", tmp_path / "users")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own folder."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def system(places: UnitPaths, home: Path = HOME, *, backups: bool = False) -> InstallPlan:
    return plan_installation(home, None, user=False, backups=backups, program=PROGRAM, paths=places)


def there(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_service_of_the_system_has_a_user_a_unit_and_commands(tmp_path: Path, places: UnitPaths) -> None:
    made = system(places)
    assert [file.path for file in made.files] == [places.units / "bubbot.service", places.users / "bubbot.conf"]
    assert made.commands == (
        ("systemd-sysusers", str(places.users / "bubbot.conf")),
        ("systemctl", "daemon-reload"),
        ("systemctl", "enable", "--now", "bubbot.service"),
    )
    assert there(tmp_path) == {}, "a plan changes nothing"


def test_a_service_of_a_user_is_in_the_users_folder(tmp_path: Path) -> None:
    made = plan_installation(tmp_path / "h", Path("/etc/b.toml"), user=True, backups=True, program=PROGRAM)
    folder = tmp_path / "config" / "systemd" / "user"
    assert [file.path for file in made.files] == [
        folder / name for name in ("bubbot.service", "bubbot-backup.service", "bubbot-backup.timer")
    ]
    assert f"--home {tmp_path}/h --config /etc/b.toml run\n" in made.files[0].text
    assert f"--home {tmp_path}/h --config /etc/b.toml backup --keep 7\n" in made.files[1].text
    assert [" ".join(command) for command in made.commands] == [
        "systemctl --user daemon-reload",
        "systemctl --user enable --now bubbot.service",
        "systemctl --user enable --now bubbot-backup.timer",
    ]
    assert any("loginctl enable-linger" in hint for hint in made.hints)


def test_applying_writes_runs_and_says_so(tmp_path: Path, places: UnitPaths) -> None:
    systemd, said = Systemd(), list[str]()
    made = system(places)
    install_service(made, said.append, systemd)
    assert there(tmp_path) == {"bubbot.service": made.files[0].text, "bubbot.conf": made.files[1].text}
    assert (places.units / "bubbot.service").stat().st_mode & 0o777 == 0o644
    assert systemd.ran == ["systemctl show --property=Version", *(" ".join(command) for command in made.commands)]
    assert said[0] == f"wrote {places.units}/bubbot.service"
    assert said[-len(made.hints) :] == list(made.hints)


def test_a_second_time_changes_nothing(tmp_path: Path, places: UnitPaths) -> None:
    install_service(system(places), lambda _: None, Systemd())
    before, said = there(tmp_path), list[str]()
    again = system(places)
    install_service(again, said.append, Systemd())
    assert there(tmp_path) == before
    assert said[0] == f"{places.units}/bubbot.service already exists"
    assert not any("try-restart" in command for command in again.commands)


def test_a_unit_that_differs_is_kept_as_a_copy_and_what_runs_is_started_again(
    tmp_path: Path, places: UnitPaths
) -> None:
    for mine in ("# mine\n", "# mine again\n"):
        install_service(system(places), lambda _: None, Systemd())
        (places.units / "bubbot.service").write_text(mine)
    made, said = system(places), list[str]()
    assert ("systemctl", "try-restart", "bubbot.service") in made.commands
    install_service(made, said.append, Systemd())
    found = there(places.units)
    assert found.pop("bubbot.service") == made.files[0].text
    assert found == {"bubbot.service.old1": "# mine\n", "bubbot.service.old2": "# mine again\n"}
    assert said[0].endswith(f"the old one is kept as {places.units}/bubbot.service.old2")


def test_without_a_service_manager_nothing_is_written(tmp_path: Path, places: UnitPaths) -> None:
    with pytest.raises(ConfigError, match=r"systemd does not manage .* \(it is\), so nothing was changed: run `bubbot"):
        install_service(system(places), lambda _: None, Systemd(fails="show"))
    assert there(tmp_path) == {}


def test_a_command_that_fails_is_named_with_what_it_said(places: UnitPaths) -> None:
    with pytest.raises(
        ConfigError,
        match=r"systemctl enable --now bubbot.service failed \(it is broken\): journalctl -u bubbot.service",
    ):
        install_service(system(places), lambda _: None, Systemd(fails="enable"))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, places: UnitPaths) -> None:
    places.units.write_text("a file")
    with pytest.raises(ConfigError, match=r"units/bubbot\.service cannot be (read|written)"):
        install_service(system(places), lambda _: None, Systemd())


@pytest.mark.parametrize("hidden", ["/home/ada/bot", "/root", "/tmp/x", "/var/tmp/x", "/run/user/1000/x"])
def test_what_the_service_of_the_system_would_not_see_is_refused(places: UnitPaths, hidden: str) -> None:
    with pytest.raises(ConfigError, match=rf"the home needs {hidden}. Install bubbot in an environment such as /opt"):
        system(places, Path(hidden))
    for program in (ServiceProgram(Path(hidden)), ServiceProgram(PROGRAM.python, (Path(hidden),))):
        with pytest.raises(ConfigError, match=f"bubbot itself needs {hidden}"):
            plan_installation(HOME, None, user=False, program=program, paths=places)
    with pytest.raises(ConfigError, match=f"the configuration needs {hidden}"):
        plan_installation(HOME, Path(hidden), user=False, program=PROGRAM, paths=places)
    assert plan_installation(Path(hidden), None, user=True, program=ServiceProgram(Path(hidden))).files


def test_another_home_of_the_system_is_made_for_the_user_who_runs_it(places: UnitPaths) -> None:
    made = system(places, Path("/srv/../srv/bot"))
    assert ("install", "-d", "-o", "bubbot", "-g", "bubbot", "-m", "0700", "/srv/bot") in made.commands
    assert any("has to own /srv/bot" in hint for hint in made.hints)


def test_a_home_that_is_there_is_not_given_to_anybody_else(places: UnitPaths) -> None:
    assert not any(command[0] == "install" for command in system(places, Path("/usr")).commands)


def test_removing_keeps_copies_and_the_home(tmp_path: Path, places: UnitPaths) -> None:
    install_service(system(places, backups=True), lambda _: None, Systemd())
    (places.units / "bubbot.service").write_text("# mine\n")
    systemd, said = Systemd(), list[str]()
    remove_service(plan_removal(user=False, paths=places), said.append, systemd)
    assert systemd.ran[1:] == [
        "systemctl disable --now bubbot-backup.timer",
        "systemctl disable --now bubbot.service",
        "systemctl daemon-reload",
    ]
    found = there(places.units)
    assert set(found) == {"bubbot.service.old1", "bubbot-backup.service.old1", "bubbot-backup.timer.old1"}
    assert found["bubbot.service.old1"] == "# mine\n"


def test_a_service_that_does_not_stop_is_not_removed(places: UnitPaths) -> None:
    install_service(system(places), lambda _: None, Systemd())
    with pytest.raises(ConfigError, match=r"disable --now bubbot\.service failed"):
        remove_service(plan_removal(user=False, paths=places), lambda _: None, Systemd(fails="disable"))
    assert (places.units / "bubbot.service").exists()


def test_where_there_is_no_service_there_is_nothing_to_remove(places: UnitPaths) -> None:
    systemd, said = Systemd(), list[str]()
    remove_service(plan_removal(user=False, paths=places), said.append, systemd)
    assert said == ["There is no service to remove."]
    assert systemd.ran == ["systemctl show --property=Version"]


def test_a_command_that_is_not_there_or_takes_too_long_has_failed() -> None:
    assert run_command(["no-such-command-of-bubbot"], 5) == CommandOutput(
        127, "there is no command no-such-command-of-bubbot"
    )
    assert run_command(["sh", "-c", "echo out; echo err >&2; exit 3"], 5) == CommandOutput(3, "err")
    assert run_command(["sh", "-c", "echo out"], 5) == CommandOutput(0, "out\n")
    assert run_command(["sleep", "5"], 0.05).code == 126
