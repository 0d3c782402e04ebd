"""Putting bubbot under systemd: what would be written and run, and doing it."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import bubbot
from bubbot.errors import ConfigError
from bubbot.ops.service.render import SYSTEM_HOME, rendered, shipped
from bubbot.ops.service.systemctl import LONG_COMMAND_SECONDS, Run, run, silent, systemctl
from bubbot.settings.environment import unit_folder

UNIT, BACKUP, TIMER = "bubbot.service", "bubbot-backup.service", "bubbot-backup.timer"
HIDDEN = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108 - not used, but avoided
"""Folders of which the service of the system sees nothing."""
INSTEAD = (
    "run `bubbot run` under whatever starts programs here: it stays in the foreground, logs to standard error and ends on "
    "SIGTERM. In a container it is the container's own command."
)


@dataclass(frozen=True, slots=True)
class UnitPaths:
    """Where units and users of the system are declared."""

    units: Path = Path("/etc/systemd/system")
    users: Path = Path("/etc/sysusers.d")


@dataclass(frozen=True, slots=True)
class ServiceProgram:
    """The interpreter a service runs, and every folder it needs to read."""

    python: Path
    needs: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file as it is to be."""

    path: Path
    text: str

    @property
    def there(self) -> str | None:
        """What is there now; None for nothing. Raises `ConfigError` where that cannot be read."""
        try:
            return self.path.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read ({error.strerror}): move it away.") from None


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """What is written and then run. `hints`: what a person should know or do, a sentence each."""

    user: bool
    files: tuple[PlannedFile, ...]
    commands: tuple[tuple[str, ...], ...]
    hints: tuple[str, ...]


def this_program() -> ServiceProgram:
    """The one that runs now."""
    python = Path(sys.executable)
    package = Path(bubbot.__file__).parent.parent
    return ServiceProgram(
        python, (python, python.resolve(), Path(sys.prefix), Path(sys.base_prefix), package.resolve())
    )


def plan(
    home: Path,
    config: Path | None,
    *,
    user: bool,
    backups: bool = False,
    program: ServiceProgram | None = None,
    places: UnitPaths | None = None,
) -> InstallPlan:
    """What puts the bot of a home under systemd, as a service of this `user` or of the system; does nothing yet.

    `config`: where the settings are, if not in the home. `backups`: with a daily backup. Raises `ConfigError` where the
    service could not run.
    """
    program, places = program or this_program(), places or UnitPaths()
    home, config = _absolute(home), _absolute(config) if config else None
    if not user:
        _check_seen(program, home, config)
    folder = unit_folder() if user else places.units
    names = {UNIT: "bubbot-user.service" if user else UNIT}
    if backups:
        names |= {BACKUP: "bubbot-backup-user.service" if user else BACKUP, TIMER: TIMER}
    files = [
        PlannedFile(folder / name, rendered(source, python=program.python, home=home, config=config))
        for name, source in names.items()
    ]
    if not user:
        files.append(PlannedFile(places.users / "bubbot.conf", shipped("bubbot.sysusers")))
    commands = [*([] if user else _account(home, places)), systemctl("daemon-reload", user=user)]
    if files[0].there not in (None, files[0].text):
        commands.append(systemctl("try-restart", UNIT, user=user))  # it may run as the old unit says
    commands += [systemctl("enable", "--now", name, user=user) for name in (UNIT, *([TIMER] if backups else []))]
    return InstallPlan(user, tuple(files), tuple(commands), _hints(program, home, config, user=user))


def removal(*, user: bool, places: UnitPaths | None = None) -> InstallPlan:
    """What takes it away again: the files named are removed and not written. The home is no part of it."""
    folder = unit_folder() if user else (places or UnitPaths()).units
    files = [found for name in (TIMER, BACKUP, UNIT) if (found := PlannedFile(folder / name, "")).there is not None]
    units = [file.path.name for file in files if file.path.name != BACKUP]
    commands = [systemctl("disable", "--now", name, user=user) for name in units]
    return InstallPlan(user, tuple(files), (*commands, systemctl("daemon-reload", user=user)), ())


def apply(plan: InstallPlan, say: Callable[[str], None], run: Run = run) -> None:
    """Does what the plan says, and says what was done. A file that differs is kept as a copy before it is replaced.

    Raises `ConfigError` where systemd does not answer (then nothing was done), or where something fails.
    """
    check_manager(run, user=plan.user)
    for file in plan.files:
        say(_put(file))
    for command in plan.commands:
        carry_out(command, say, run, user=plan.user)
    for hint in plan.hints:
        say(hint)


def take_away(plan: InstallPlan, say: Callable[[str], None], run: Run = run) -> None:
    """Does what a `removal` says; a unit is kept as a copy, since it may have been changed by hand."""
    check_manager(run, user=plan.user)
    if not plan.files:
        say("There is no service to remove.")
        return
    *stopping, reload = plan.commands
    for command in stopping:
        carry_out(command, say, run, user=plan.user)
    for file in plan.files:
        copy = _free(file.path)
        _guarded(file.path, partial(file.path.rename, copy))
        say(f"removed {file.path}; a copy is {copy}")
    carry_out(reload, say, run, user=plan.user)


def check_manager(run: Run, *, user: bool) -> None:
    """Raises `ConfigError` where systemd does not answer."""
    if (why := silent(run, user=user)) is not None:
        whose = "your services" if user else "the services of this system"
        raise ConfigError(f"systemd does not manage {whose} here ({why}), so nothing was changed: {INSTEAD}")


def carry_out(command: Sequence[str], say: Callable[[str], None], run: Run, *, user: bool) -> None:
    """Runs one command of a plan. Raises `ConfigError` with what it said where it fails."""
    say(f"running {' '.join(command)}")
    done = run(command, LONG_COMMAND_SECONDS)
    if done.code:
        journal = f"journalctl {'--user ' if user else ''}-u {UNIT} -n 20"
        said = " ".join(done.said.split())
        raise ConfigError(f"{' '.join(command)} failed ({said or done.code}): {journal} tells more.")


def _account(home: Path, places: UnitPaths) -> list[tuple[str, ...]]:
    """What makes the user of the service, and its home where systemd does not."""
    commands: list[tuple[str, ...]] = [("systemd-sysusers", str(places.users / "bubbot.conf"))]
    if home != SYSTEM_HOME and not home.exists():
        commands.append(("install", "-d", "-o", "bubbot", "-g", "bubbot", "-m", "0700", str(home)))
    return commands


def _hints(program: ServiceProgram, home: Path, config: Path | None, *, user: bool) -> tuple[str, ...]:
    if user:
        return (
            "A service of a user ends with the user's last session, unless: loginctl enable-linger",
            f"`systemctl --user status {UNIT}` shows how it is, `journalctl --user -u {UNIT}` what it logs.",
        )
    read = f"{home} and all that is in it" + (f", and {config}," if config else "")
    made = [] if home == SYSTEM_HOME else [f"The user bubbot has to own {read} (chown -R bubbot: …)."]
    return (
        *made,
        f"Commands of the shell are run as the user bubbot: sudo -u bubbot {program.python} -m bubbot --home {home} …",
        f"`systemctl status {UNIT}` shows how it is, `journalctl -u {UNIT}` what it logs.",
    )


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - links stay, and .. goes, which systemd refuses


def _check_seen(program: ServiceProgram, home: Path, config: Path | None) -> None:
    """Raises `ConfigError` where the service of the system would not see a path."""
    needed = {"bubbot itself": (program.python, *program.needs), "the home": (home,), "the configuration": (config,)}
    for what, paths in needed.items():
        for path in filter(None, paths):
            if any(path.is_relative_to(hidden) for hidden in HIDDEN):
                raise ConfigError(
                    f"The service of the system is kept from /home, /root and /tmp, and {what} needs {path}: install bubbot "
                    f"in an environment such as /opt/bubbot, with its home at {SYSTEM_HOME}, or take --user."
                )


def _put(file: PlannedFile) -> str:
    there = file.there
    if there == file.text:
        return f"{file.path} is there already"
    kept = ""
    if there is not None:
        copy = _free(file.path)
        _guarded(file.path, lambda: os.link(file.path, copy))
        kept = f"; what was there is kept as {copy}"
    _guarded(file.path, lambda: _write(file))
    return f"wrote {file.path}{kept}"


def _write(file: PlannedFile) -> None:
    """All or nothing, readable for everybody: it holds no secret."""
    file.path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=file.path.parent, prefix=f".{file.path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as new:
            new.write(file.text)
        Path(name).chmod(0o644)
        Path(name).replace(file.path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _free(path: Path) -> Path:
    """A name beside the path under which systemd looks for nothing and where nothing is."""
    number = 1
    while os.path.lexists(copy := path.with_name(f"{path.name}.old{number}")):
        number += 1
    return copy


def _guarded(path: Path, work: Callable[[], object]) -> None:
    try:
        work()
    except PermissionError:
        raise ConfigError(
            f"{path} cannot be written by uid {os.geteuid()}: run this as root, or take --user."
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}).") from error
