"""What the environment says beside the settings: folders, secrets, the terminal, the service manager.

The one file that reads the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from bubbot.errors import ConfigError
from bubbot.settings.values import Level

ENVIRONMENT_PREFIX = "BUBBOT_"
"""What the name of every environment variable of bubbot begins with."""
SECRET_KEY = re.compile(r"(^|_)(token|secret|password|key)$")
"""What the name of a setting or of a variable ends in that holds a secret."""


def variables() -> Mapping[str, str]:
    """The environment, as it is now."""
    return os.environ  # noqa: TID251 - this is the file that may


def default_home() -> Path:
    """The home folder: `$BUBBOT_HOME`, else `$XDG_DATA_HOME/bubbot`, else `~/.local/share/bubbot`; absolute.

    Raises `ConfigError` where the folder of the user cannot be found out.
    """
    try:
        if home := variables().get("BUBBOT_HOME"):
            return Path(home).expanduser().absolute()
        data = Path(variables().get("XDG_DATA_HOME", ""))
        # The specification says that a relative path there is to be ignored.
        return (data if data.is_absolute() else Path.home() / ".local" / "share") / "bubbot"
    except RuntimeError as error:
        raise ConfigError(
            f"The home folder cannot be found out ({error}): name it with --home or BUBBOT_HOME."
        ) from None


def named_home() -> Path | None:
    """The home folder that `$BUBBOT_HOME` names, absolute. Raises `ConfigError` for `~nobody`."""
    return default_home() if variables().get("BUBBOT_HOME") else None


def runtime_folder() -> Path | None:
    """The user's own folder for sockets (`XDG_RUNTIME_DIR`); None where the system has none."""
    named = variables().get("XDG_RUNTIME_DIR")
    return Path(named) if named else None


def unit_folder() -> Path:
    """Where a user's own services are: `$XDG_CONFIG_HOME/systemd/user`, else `~/.config/systemd/user`.

    Raises `ConfigError` where the folder of the user cannot be found out.
    """
    named = Path(variables().get("XDG_CONFIG_HOME", ""))
    try:
        return (named if named.is_absolute() else Path.home() / ".config") / "systemd" / "user"
    except RuntimeError as error:
        raise ConfigError(f"The folder of this user cannot be found out ({error}): set HOME.") from None


def environment_secrets() -> tuple[str, ...]:
    """The values of all variables that are named like a secret: providers' keys are taken from there by litellm."""
    return tuple(value for name, value in variables().items() if value and SECRET_KEY.search(name.lower()))


def logging_environment() -> tuple[str, tuple[str, ...]]:
    """The level of `BUBBOT_LOG__LEVEL` ("info" where it is none) and the secrets among the variables of bubbot.

    For the crash that comes before the settings are loaded; raises nothing.
    """
    ours = {name.upper(): value for name, value in variables().items() if name.upper().startswith(ENVIRONMENT_PREFIX)}
    level = ours.get("BUBBOT_LOG__LEVEL", "").lower()
    secrets = tuple(value for name, value in ours.items() if SECRET_KEY.search(name.lower()))
    return level if level in get_args(get_args(Level)[0]) else "info", secrets


def zone_variable() -> str:
    """The variable `TZ`, which may name a time zone; empty where it is not set."""
    return variables().get("TZ", "")


def terminal_style() -> str:
    """What the terminal wants by its environment: `dumb` (lines only), `plain` (no colours) or `colour`."""
    dumb, plain = variables().get("TERM", "dumb") == "dumb", variables().get("NO_COLOR")
    return "dumb" if dumb else "plain" if plain else "colour"


def service_manager(pid: int) -> tuple[str, float | None]:
    """Where a service manager such as systemd wants to hear from process `pid` (`NOTIFY_SOCKET`; empty: nowhere), and
    how many seconds it bears to hear nothing (`WATCHDOG_USEC`; None: any number, or another process is meant)."""
    address, most, meant = (variables().get(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"))
    watched = most.isascii() and most.isdigit() and int(most) > 0 and meant in ("", str(pid))
    return (address if address[:1] in ("/", "@") else ""), int(most) / 1e6 if watched else None


def left_behind() -> tuple[str, ...]:
    """The names of variables that count here and that a service does not see: settings, and keys of providers."""
    named = (name for name, value in variables().items() if value and name != "BUBBOT_HOME")
    return tuple(sorted(name for name in named if name.startswith(ENVIRONMENT_PREFIX) or name.endswith("_API_KEY")))
