"""The service that starts the bot with the machine, as systemd tells it. Without systemd nothing is said."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.ops.doctor.finding import Finding, quoted
from bubbot.ops.doctor.tools import fields, told
from bubbot.ops.service.render import rendered, shipped

UNIT = "bubbot.service"
UNIT_PROPERTIES = (
    "LoadState", "ActiveState", "UnitFileState", "FragmentPath", "NeedDaemonReload", "WatchdogUSec", "Environment",
    "ExecStart",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _UnitState:
    """One unit as systemd knows it. `control`: the command that is for its manager."""

    control: str
    known: dict[str, str]

    @property
    def of_user(self) -> bool:
        """Whether it is a user's own."""
        return self.control.endswith("--user")

    @property
    def config(self) -> Path | None:
        """The settings it names."""
        found = re.search(r"--config[ =](\S+)", self.known.get("ExecStart", ""))
        return Path(found[1]) if found else None

    @property
    def home(self) -> Path | None:
        """The home it names; None where it names none, which stands for that of its user."""
        found = re.search(r"--home[ =](\S+)", self.known.get("ExecStart", ""))
        if found:
            return Path(found[1])
        try:
            words = shlex.split(self.known.get("Environment", ""))
        except ValueError:
            return None
        return next((Path(word.partition("=")[2]) for word in words if word.startswith("BUBBOT_HOME=")), None)


def check_service(home: Home) -> Iterator[Finding]:
    """Whether a unit is installed as this version writes it, starts by itself, is for this home, and is watched."""
    asked = {
        scope: told(["systemctl", scope, "show", UNIT, *(f"--property={one}" for one in UNIT_PROPERTIES)])
        for scope in ("--user", "--system")
    }
    if not any(asked.values()):
        return
    units = [
        _UnitState(f"systemctl {scope}" if scope == "--user" else "sudo systemctl", known)
        for scope, answer in asked.items()
        if answer and (known := fields(answer)).get("LoadState", "not-found") not in ("not-found", "masked")
    ]
    if not units:
        yield Finding("service.absent", "ok", "bubbot is not installed as a service of systemd.")
    for unit in units:
        found = [*_state(unit), *_setup(unit, home), *_text(unit, home)]
        yield from found
        if not found:
            where = unit.known.get("FragmentPath") or UNIT
            yield Finding("service.ok", "ok", f"{where} is {unit.known.get('ActiveState')}, and starts by itself.")


def _state(unit: _UnitState) -> Iterator[Finding]:
    known, control = unit.known, unit.control
    if known.get("ActiveState") == "failed":
        cause = f"{UNIT} failed and is not started again by itself; journalctl -u {UNIT} says why."
        yield Finding("service.failed", "problem", cause, f"{control} restart {UNIT}")
    if known.get("UnitFileState") == "disabled":
        cause = f"{UNIT} is installed and does not start with the machine."
        yield Finding("service.disabled", "warning", cause, f"{control} enable {UNIT}")
    if known.get("NeedDaemonReload") == "yes":
        cause = f"{UNIT} was changed, and systemd still goes by what it said before."
        yield Finding("service.changed", "warning", cause, f"{control} daemon-reload")


def _setup(unit: _UnitState, home: Home) -> Iterator[Finding]:
    known, control = unit.known, unit.control
    if unit.home is not None and os.path.realpath(unit.home) != os.path.realpath(home.path):
        cause = f"{UNIT} runs the bot of the home {unit.home}, and this is {home.path}."
        yield Finding("service.other_home", "warning", cause, f"bubbot doctor --home {quoted(unit.home)}")
    if known.get("WatchdogUSec", "1") in ("0", "infinity"):
        cause = f"{UNIT} has no watchdog, so that a bot that hangs is not started again: WatchdogSec=60 sets one."
        fix = (
            f"{control} edit {UNIT} && {control} restart {UNIT}"  # one that runs keeps the watchdog it was started with
        )
        yield Finding("service.unwatched", "warning", cause, fix)
    if unit.of_user:
        linger = fields(told(["loginctl", "show-user", str(os.getuid()), "--property=Linger"]) or "").get("Linger")
        if linger == "no":
            cause = "The service is that of a user who does not linger: it ends when the user logs out."
            yield Finding("service.no_linger", "warning", cause, "loginctl enable-linger")


def _text(unit: _UnitState, home: Home) -> Iterator[Finding]:
    """Whether the file is what this program would write; one that was put there by hand as it is shipped is fine, too."""
    path, name = Path(unit.known.get("FragmentPath", "")), "bubbot-user.service" if unit.of_user else UNIT
    named = unit.home or home.path.absolute()
    if os.path.realpath(named) != os.path.realpath(home.path):
        return  # told already
    try:
        there = path.read_text(encoding="utf-8", errors="surrogateescape")
        wanted = rendered(name, python=Path(sys.executable), home=named, config=unit.config)
    except (OSError, ConfigError):
        return
    if there not in (wanted, shipped(name)):
        cause = (
            f"{path} is not what this bubbot would write: it is of another version or program, or was changed by hand. A copy "
            f"is kept when it is replaced; what is to stay belongs into a drop-in ({unit.control} edit {UNIT})."
        )
        paths = [f"--home {quoted(named)}", *([f"--config {quoted(unit.config)}"] if unit.config else [])]
        mend = f"bubbot service install {'--user' if unit.of_user else '--system'} {' '.join(paths)}"
        yield Finding("service.differs", "warning", cause, mend if unit.of_user else f"sudo {mend}")
