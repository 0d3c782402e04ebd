"""The last question of `bubbot init`, about a systemd service, if systemd answers."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct, structs

from bubbot.errors import ConfigError
from bubbot.ops.onboarding.console import Console
from bubbot.ops.service.install import InstallPlan, check_manager, install_service, plan_installation
from bubbot.ops.service.render import SYSTEM_HOME
from bubbot.ops.service.systemctl import find_manager_failure
from bubbot.settings.environment import configured_home, default_home, variables_missing_in_service

NO_SERVICE, USER_SERVICE, SYSTEM_SERVICE = SERVICE_KINDS = ("none", "user", "system")


class RequestedService(Struct, frozen=True):
    """The service that an option requested, if any.

    Attributes:
        kind: one of `SERVICE_KINDS`; None if no option chose one.
        config: the configuration, if not the one in the home.
    """

    kind: str | None
    home: Path
    config: Path | None

    def check(self) -> None:
        """Raise `ConfigError` if the requested service cannot be installed; call it before asking anything."""
        if self.kind in (USER_SERVICE, SYSTEM_SERVICE):
            self._plan(self.kind)
            check_manager(user=self.kind == USER_SERVICE)

    def is_offered(self) -> bool:
        """Return true if the question makes sense: no option chose, and systemd answers and can run the bot."""
        return self.kind is None and self._is_installable(_usual_kind())

    def choose_kind(self, console: Console) -> str:
        kind = _usual_kind()
        yes = console.say("init_service_machine" if kind == SYSTEM_SERVICE else "init_service_session")
        options = {NO_SERVICE: console.say("init_service_no"), kind: yes}
        console.begin_step(console.say("init_service"))
        return console.choose("", options)

    def install(self, kind: str, console: Console) -> bool:
        """Install the service of this kind; return false for `none`. Raise `ConfigError`."""
        if kind == NO_SERVICE:
            return False
        console.tell("")
        install_service(self._plan(kind), console.tell)
        if names := variables_missing_in_service():
            console.tell(console.say("init_service_variables", names=", ".join(names)))
        return True

    def _is_installable(self, kind: str) -> bool:
        if find_manager_failure(user=kind == USER_SERVICE) is not None:
            return False
        try:
            self._plan(kind)
        except ConfigError:
            return False
        return True

    def _plan(self, kind: str) -> InstallPlan:
        install_plan = plan_installation(self.home, self.config, user=kind == USER_SERVICE)
        if kind == USER_SERVICE:
            return install_plan
        # root owns the new files. The first command creates the user that must own them.
        paths = [self.home, *([self.config] if self.config else [])]
        chown = ("chown", "-R", "bubbot:bubbot", *map(str, paths))
        return structs.replace(install_plan, commands=(install_plan.commands[0], chown, *install_plan.commands[1:]))


def _usual_kind() -> str:
    return SYSTEM_SERVICE if os.geteuid() == 0 else USER_SERVICE


def choose_home(kind: str | None, path: Path | None) -> Path:
    """Return the home to set up: `path`, else the usual home of a system service or of this user."""
    if path is not None:
        return path.absolute()
    return (configured_home() or SYSTEM_HOME) if kind == SYSTEM_SERVICE else default_home()
