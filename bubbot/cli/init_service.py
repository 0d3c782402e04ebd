"""Offers, at the end of `bubbot init`, to put the bot under systemd where that answers."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from bubbot.errors import ConfigError
from bubbot.ops.onboarding.console import Console
from bubbot.ops.service.install import InstallPlan, apply, check_manager, plan
from bubbot.ops.service.render import SYSTEM_HOME
from bubbot.ops.service.systemctl import run as ask
from bubbot.ops.service.systemctl import silent
from bubbot.settings.environment import default_home, left_behind, named_home

NO_SERVICE, USER_SERVICE, SYSTEM_SERVICE = SERVICE_KINDS = ("none", "user", "system")


@dataclass(frozen=True, slots=True)
class RequestedService:
    """The service that was asked for, of a home; `kind` None where nobody has said yet."""

    kind: str | None
    home: Path
    config: Path | None

    def check(self) -> None:
        """Raises `ConfigError` where the service that an option asked for could not be installed: before all else."""
        if self.kind in (USER_SERVICE, SYSTEM_SERVICE):
            self._plan(self.kind)
            check_manager(ask, user=self.kind == USER_SERVICE)

    def chosen(self, console: Console) -> str:
        """What an option has said, else what is answered now, where systemd answers and could run the bot."""
        if self.kind is not None:
            return self.kind
        kind = SYSTEM_SERVICE if os.geteuid() == 0 else USER_SERVICE
        if console.unasked or not self._possible(kind):
            return NO_SERVICE
        whose = "with this machine" if kind == SYSTEM_SERVICE else "with your session"
        options = {
            NO_SERVICE: "no, it is started by hand",
            kind: f"yes, systemd starts it {whose}, now and from now on",
        }
        return console.choose("Run it as a service?", options)

    def install(self, kind: str, console: Console) -> bool:
        """Installs the service of this kind; gives whether there is one then. Raises `ConfigError`."""
        if kind == NO_SERVICE:
            return False
        console.tell("")
        apply(self._plan(kind), console.tell)
        if names := left_behind():
            console.tell(
                f"The service does not see the variables of this shell, and these count here: {', '.join(names)}. "
                "Put what they say into config.toml."
            )
        return True

    def _possible(self, kind: str) -> bool:
        if silent(ask, user=kind == USER_SERVICE) is not None:
            return False
        try:
            self._plan(kind)
        except ConfigError:
            return False
        return True

    def _plan(self, kind: str) -> InstallPlan:
        made = plan(self.home, self.config, user=kind == USER_SERVICE)
        if kind == USER_SERVICE:
            return made
        # What was just written is root's. The first command makes the user it has to belong to.
        owned = [self.home, *([self.config] if self.config else [])]
        theirs = ("chown", "-R", "bubbot:bubbot", *map(str, owned))
        return replace(made, commands=(made.commands[0], theirs, *made.commands[1:]))


def home_of(kind: str | None, given: Path | None) -> Path:
    """The home that is set up: the one `given`, else the usual one of a service of the system or of this user."""
    if given is not None:
        return given.absolute()
    return (named_home() or SYSTEM_HOME) if kind == SYSTEM_SERVICE else default_home()
