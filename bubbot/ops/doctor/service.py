"""The service that starts the bot with the machine, as systemd reports it; no findings without systemd."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.ops.doctor.finding import sudo_bubbot
from bubbot.ops.doctor.tools import parse_properties, read_output
from bubbot.ops.service.render import read_unit, render_unit
from bubbot.ports.checks import Finding, shell_quote

UNIT = "bubbot.service"
UNIT_PROPERTIES = (
    "LoadState", "ActiveState", "UnitFileState", "FragmentPath", "NeedDaemonReload", "WatchdogUSec", "Environment",
    "ExecStart",
)  # fmt: skip


class _UnitState(Struct, frozen=True):
    """The state of a unit.

    Attributes:
        control: the `systemctl` command for its manager.
    """

    control: str
    properties: dict[str, str]

    @property
    def is_user_unit(self) -> bool:
        """True for a service of a user."""
        return self.control.endswith("--user")

    @property
    def config(self) -> Path | None:
        """The configuration in its command; None without one."""
        match = re.search(r"--config[ =](\S+)", self.properties.get("ExecStart", ""))
        return Path(match[1]) if match else None

    @property
    def home(self) -> Path | None:
        """The home in its command; None for the default home of its user."""
        match = re.search(r"--home[ =](\S+)", self.properties.get("ExecStart", ""))
        if match:
            return Path(match[1])
        try:
            assignments = shlex.split(self.properties.get("Environment", ""))
        except ValueError:
            return None
        return next(
            (Path(assignment.partition("=")[2]) for assignment in assignments if assignment.startswith("BUBBOT_HOME=")),
            None,
        )


def check_service(home: Home) -> Iterator[Finding]:
    """Check each installed unit: its text, its home, its watchdog, and its start with the machine."""
    answers = {
        scope: read_output(["systemctl", scope, "show", UNIT, *(f"--property={name}" for name in UNIT_PROPERTIES)])
        for scope in ("--user", "--system")
    }
    if not any(answers.values()):
        return
    units = [
        _UnitState(f"systemctl {scope}" if scope == "--user" else "sudo systemctl", properties)
        for scope, answer in answers.items()
        if answer
        and (properties := parse_properties(answer)).get("LoadState", "not-found") not in ("not-found", "masked")
    ]
    if not units:
        yield Finding("service.absent", "ok", "bubbot is not installed as a service of systemd.")
    for unit in units:
        findings = [*_check_state(unit), *_check_setup(unit, home), *_check_text(unit, home)]
        yield from findings
        if not findings:
            path = unit.properties.get("FragmentPath") or UNIT
            yield Finding("service.ok", "ok", f"{path} is {unit.properties.get('ActiveState')}, and starts at boot.")


def _check_state(unit: _UnitState) -> Iterator[Finding]:
    properties, control = unit.properties, unit.control
    if properties.get("ActiveState") == "failed":
        cause = f"{UNIT} failed and does not restart by itself; journalctl -u {UNIT} says why."
        yield Finding("service.failed", "problem", cause, f"{control} restart {UNIT}")
    if properties.get("UnitFileState") == "disabled":
        cause = f"{UNIT} is installed but does not start at boot."
        yield Finding("service.disabled", "warning", cause, f"{control} enable {UNIT}")
    if properties.get("NeedDaemonReload") == "yes":
        cause = f"{UNIT} was changed, but systemd still uses the old version."
        yield Finding("service.changed", "warning", cause, f"{control} daemon-reload")


def _check_setup(unit: _UnitState, home: Home) -> Iterator[Finding]:
    properties, control = unit.properties, unit.control
    if unit.home is not None and os.path.realpath(unit.home) != os.path.realpath(home.path):
        cause = f"{UNIT} runs the bot of the home {unit.home}, and this is {home.path}."
        yield Finding("service.other_home", "warning", cause, f"bubbot doctor --home {shell_quote(unit.home)}")
    if properties.get("WatchdogUSec", "1") in ("0", "infinity"):
        cause = f"{UNIT} has no watchdog, so a bot that hangs is not restarted: WatchdogSec=60 sets one."
        fix = (
            f"{control} edit {UNIT} && {control} restart {UNIT}"  # a running unit keeps its watchdog until the restart
        )
        yield Finding("service.unwatched", "warning", cause, fix)
    if unit.is_user_unit:
        linger = parse_properties(
            read_output(["loginctl", "show-user", str(os.getuid()), "--property=Linger"]) or ""
        ).get("Linger")
        if linger == "no":
            cause = "The service is that of a user who does not linger: it ends when the user logs out."
            yield Finding("service.no_linger", "warning", cause, "loginctl enable-linger")


def _check_text(unit: _UnitState, home: Home) -> Iterator[Finding]:
    """Compare the file with what this program would write; the shipped text is fine, too."""
    path, name = Path(unit.properties.get("FragmentPath", "")), "bubbot-user.service" if unit.is_user_unit else UNIT
    unit_home = unit.home or home.path.absolute()
    if os.path.realpath(unit_home) != os.path.realpath(home.path):
        return  # `_check_setup` reports it
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        expected = render_unit(name, python=Path(sys.executable), home=unit_home, config=unit.config)
    except (OSError, ConfigError):
        return
    if text not in (expected, read_unit(name)):
        cause = (
            f"{path} is not what this bubbot would write: it is of another version or program, or was changed by hand. A copy "
            f"is kept when it is replaced; what is to stay belongs into a drop-in ({unit.control} edit {UNIT})."
        )
        paths = [f"--home {shell_quote(unit_home)}", *([f"--config {shell_quote(unit.config)}"] if unit.config else [])]
        install = f"service install {'--user' if unit.is_user_unit else '--system'} {' '.join(paths)}"
        fix = f"bubbot {install}" if unit.is_user_unit else sudo_bubbot(install)
        yield Finding("service.differs", "warning", cause, fix)
