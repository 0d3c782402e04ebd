"""Installs bubbot under systemd: plans the files and commands, and carries them out."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

import bubbot
from bubbot.errors import ConfigError
from bubbot.ops.service.render import SYSTEM_HOME, read_unit, render_unit
from bubbot.ops.service.systemctl import (
    LONG_COMMAND_SECONDS,
    find_manager_failure,
    run_command,
    systemctl,
)
from bubbot.settings.environment import unit_folder

UNIT, BACKUP, TIMER = "bubbot.service", "bubbot-backup.service", "bubbot-backup.timer"
HIDDEN_FOLDERS = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))  # noqa: S108 - not used, but avoided
"""Folders that the service of the system cannot see."""
SYSTEM_UNITS = Path("/etc/systemd/system")
SYSTEM_USERS = Path("/etc/sysusers.d")
MANUAL_START_HINT = (
    "run `bubbot run` under whatever starts programs here: it stays in the foreground, logs to standard error and ends on "
    "SIGTERM. In a container it is the container's own command."
)


class PlannedFile(Struct, frozen=True):
    """A file with its planned text."""

    path: Path
    text: str

    @property
    def current_text(self) -> str | None:
        """The file's current text; None if it does not exist. Raises `ConfigError` if it cannot be read."""
        try:
            return self.path.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read ({error.strerror}): move it away.") from None


class InstallPlan(Struct, frozen=True):
    """The files to write and the commands to run afterwards.

    Attributes:
        user: plan a service of the user instead of the system.
    """

    user: bool
    files: tuple[PlannedFile, ...]
    commands: tuple[tuple[str, ...], ...]
    hints: tuple[str, ...]


def plan_installation(
    home: Path,
    config: Path | None,
    *,
    user: bool,
    backups: bool = False,
) -> InstallPlan:
    """Plan the installation of a home's bot under systemd; change nothing yet.

    Args:
        config: the configuration, if not the one in the home.
        user: plan a service of the user instead of the system.
        backups: add a daily backup.

    Raises:
        ConfigError: the service could not run here.
    """
    python = Path(sys.executable)
    home, config = _absolute(home), _absolute(config) if config else None
    if not user:
        _check_visible(home, config)
    folder = unit_folder() if user else SYSTEM_UNITS
    names = {UNIT: "bubbot-user.service" if user else UNIT}
    if backups:
        names |= {BACKUP: "bubbot-backup-user.service" if user else BACKUP, TIMER: TIMER}
    files = [
        PlannedFile(folder / name, render_unit(source, python=python, home=home, config=config))
        for name, source in names.items()
    ]
    if not user:
        files.append(PlannedFile(SYSTEM_USERS / "bubbot.conf", read_unit("bubbot.sysusers")))
    commands = [*([] if user else _account_commands(home)), systemctl("daemon-reload", user=user)]
    if files[0].current_text not in (None, files[0].text):
        commands.append(systemctl("try-restart", UNIT, user=user))  # it may be running with the old unit
    commands += [systemctl("enable", "--now", name, user=user) for name in (UNIT, *([TIMER] if backups else []))]
    return InstallPlan(user, tuple(files), tuple(commands), _hints(home, config, user=user))


def plan_removal(*, user: bool) -> InstallPlan:
    """Plan the removal: its files are removed instead of written. The home stays."""
    folder = unit_folder() if user else SYSTEM_UNITS
    files = [
        file for name in (TIMER, BACKUP, UNIT) if (file := PlannedFile(folder / name, "")).current_text is not None
    ]
    units = [unit.path.name for unit in files if unit.path.name != BACKUP]
    commands = [systemctl("disable", "--now", name, user=user) for name in units]
    return InstallPlan(user, tuple(files), (*commands, systemctl("daemon-reload", user=user)), ())


def install_service(plan: InstallPlan, report: Callable[[str], None]) -> None:
    """Carry out an installation plan and report each step; keep a copy of a file that differs before replacing it.

    Raises `ConfigError` if systemd does not answer (then nothing was done), or if a step fails.
    """
    check_manager(user=plan.user)
    for file in plan.files:
        report(_replace_file(file))
    for command in plan.commands:
        _run_step(command, report, user=plan.user)
    for hint in plan.hints:
        report(hint)


def remove_service(plan: InstallPlan, report: Callable[[str], None]) -> None:
    """Carry out a removal plan; keep copies of the units, since they may have been edited by hand."""
    check_manager(user=plan.user)
    if not plan.files:
        report("There is no service to remove.")
        return
    *stopping, reload = plan.commands
    for command in stopping:
        _run_step(command, report, user=plan.user)
    for file in plan.files:
        copy = _free_copy_path(file.path)
        _explain_errors(file.path, partial(file.path.rename, copy))
        report(f"removed {file.path}; a copy is {copy}")
    _run_step(reload, report, user=plan.user)


def check_manager(*, user: bool) -> None:
    """Raise `ConfigError` if systemd does not answer."""
    if (reason := find_manager_failure(user=user)) is not None:
        whose = "your services" if user else "the services of this system"
        raise ConfigError(
            f"systemd does not manage {whose} here ({reason}), so nothing was changed: {MANUAL_START_HINT}"
        )


def _run_step(command: Sequence[str], report: Callable[[str], None], *, user: bool) -> None:
    """Run one command of a plan. Raises `ConfigError` with its output if it fails."""
    report(f"running {' '.join(command)}")
    output = run_command(command, LONG_COMMAND_SECONDS)
    if output.code:
        journal = f"journalctl {'--user ' if user else ''}-u {UNIT} -n 20"
        message = " ".join(output.text.split())
        raise ConfigError(f"{' '.join(command)} failed ({message or output.code}): {journal} tells more.")


def _account_commands(home: Path) -> list[tuple[str, ...]]:
    """Return the commands that make the user of the service, and its home unless systemd makes that."""
    commands: list[tuple[str, ...]] = [("systemd-sysusers", str(SYSTEM_USERS / "bubbot.conf"))]
    if home != SYSTEM_HOME and not home.exists():
        commands.append(("install", "-d", "-o", "bubbot", "-g", "bubbot", "-m", "0700", str(home)))
    return commands


def _hints(home: Path, config: Path | None, *, user: bool) -> tuple[str, ...]:
    if user:
        return (
            "A service of a user ends with the user's last session, unless: loginctl enable-linger",
            f"`systemctl --user status {UNIT}` shows its state, `journalctl --user -u {UNIT}` its log.",
        )
    owned = f"{home} and all that is in it" + (f", and {config}," if config else "")
    ownership = [] if home == SYSTEM_HOME else [f"The user bubbot has to own {owned} (chown -R bubbot: …)."]
    return (
        *ownership,
        f"Commands of the shell are run as the user bubbot: sudo -u bubbot {sys.executable} -m bubbot --home {home} …",
        f"`systemctl status {UNIT}` shows its state, `journalctl -u {UNIT}` its log.",
    )


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))  # noqa: PTH100 - keep links, but resolve .., which systemd refuses


def _check_visible(home: Path, config: Path | None) -> None:
    """Raise `ConfigError` if the service of the system could not see a path."""
    python, package = Path(sys.executable), Path(bubbot.__file__).parent.parent
    program = (python, python.resolve(), Path(sys.prefix), Path(sys.base_prefix), package.resolve())
    needed = {"bubbot itself": program, "the home": (home,), "the configuration": (config,)}
    for part, paths in needed.items():
        for path in filter(None, paths):
            if any(path.is_relative_to(hidden) for hidden in HIDDEN_FOLDERS):
                raise ConfigError(
                    f"A service of the system cannot read /home, /root and /tmp, and {part} needs {path}. Install bubbot "
                    f"in an environment such as /opt/bubbot, with its home at {SYSTEM_HOME}, or add --user to the command."
                )


def _replace_file(file: PlannedFile) -> str:
    current = file.current_text
    if current == file.text:
        return f"{file.path} already exists"
    note = ""
    if current is not None:
        copy = _free_copy_path(file.path)
        _explain_errors(file.path, lambda: os.link(file.path, copy))
        note = f"; the old one is kept as {copy}"
    _explain_errors(file.path, lambda: _write(file))
    return f"wrote {file.path}{note}"


def _write(file: PlannedFile) -> None:
    """Write the file atomically, readable for everybody: it holds no secret."""
    file.path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=file.path.parent, prefix=f".{file.path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as new:
            new.write(file.text)
        Path(name).chmod(0o644)
        Path(name).replace(file.path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _free_copy_path(path: Path) -> Path:
    """Return a free name in the same folder that systemd ignores."""
    number = 1
    while os.path.lexists(copy := path.with_name(f"{path.name}.old{number}")):
        number += 1
    return copy


def _explain_errors(path: Path, work: Callable[[], object]) -> None:
    try:
        work()
    except PermissionError:
        raise ConfigError(
            f"{path} cannot be written by uid {os.geteuid()}: run this as root, or take --user."
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}).") from error
