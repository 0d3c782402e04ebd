"""The service that starts the bot with the machine, as systemd tells it. Without systemd nothing is said."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bubbot.doctor.finding import Finding, quoted
from bubbot.doctor.tools import fields, told
from bubbot.home import Home

UNIT = "bubbot.service"
ASKED = (
    "LoadState", "ActiveState", "UnitFileState", "FragmentPath", "NeedDaemonReload", "WatchdogUSec", "Environment",
    "ExecStart",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Unit:
    """One unit as systemd knows it. `control`: the command that is for its manager."""

    control: str
    known: dict[str, str]

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
    """Whether a unit is installed, starts by itself, is for this home, and is watched."""
    asked = {
        scope: told(["systemctl", scope, "show", UNIT, *(f"--property={one}" for one in ASKED)])
        for scope in ("--user", "--system")
    }
    if not any(asked.values()):
        return
    units = [
        _Unit(f"systemctl {scope}" if scope == "--user" else "sudo systemctl", known)
        for scope, answer in asked.items()
        if answer and (known := fields(answer)).get("LoadState", "not-found") not in ("not-found", "masked")
    ]
    if not units:
        yield Finding("service.absent", "ok", "bubbot is not installed as a service of systemd.")
    for unit in units:
        found = [*_state(unit), *_setup(unit, home)]
        yield from found
        if not found:
            where = unit.known.get("FragmentPath") or UNIT
            yield Finding("service.ok", "ok", f"{where} is {unit.known.get('ActiveState')}, and starts by itself.")


def _state(unit: _Unit) -> Iterator[Finding]:
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


def _setup(unit: _Unit, home: Home) -> Iterator[Finding]:
    known, control = unit.known, unit.control
    if unit.home is not None and os.path.realpath(unit.home) != os.path.realpath(home.path):
        cause = f"{UNIT} runs the bot of the home {unit.home}, and this is {home.path}."
        yield Finding("service.other_home", "warning", cause, f"bubbot doctor --home {quoted(unit.home)}")
    if known.get("WatchdogUSec", "1") in ("0", "infinity"):
        cause = f"{UNIT} has no watchdog, so that a bot that hangs is not started again: WatchdogSec=60 sets one."
        yield Finding("service.unwatched", "warning", cause, f"{control} edit {UNIT}")
    if control.endswith("--user"):
        linger = fields(told(["loginctl", "show-user", str(os.getuid()), "--property=Linger"]) or "").get("Linger")
        if linger == "no":
            cause = "The service is that of a user who does not linger: it ends when the user logs out."
            yield Finding("service.no_linger", "warning", cause, "loginctl enable-linger")
