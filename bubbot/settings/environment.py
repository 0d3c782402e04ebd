"""Environment variables besides the settings: folders, secrets, the terminal, the service manager.

The one file that reads the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from bubbot.errors import ConfigError

ENVIRONMENT_PREFIX = "BUBBOT_"
"""The prefix of all environment variables of bubbot."""
SECRET_KEY = re.compile(r"(^|_)(token|secret|password|key)$")
"""The end of the name of a setting or variable that holds a secret."""


def read_variables() -> Mapping[str, str]:
    """Return the current environment."""
    return os.environ  # noqa: TID251 - this is the file that may


NETWORK_VARIABLES = (
    *(f"{name}_proxy" for name in ("http", "https", "all", "no")),
    *(f"{name}_PROXY" for name in ("HTTP", "HTTPS", "ALL", "NO")),
    *("SSL_CERT_FILE", "SSL_CERT_DIR"),
)
"""What a process needs of the environment to reach others as this one does: proxies and certificates."""


def network_variables() -> dict[str, str]:
    """Return these variables, those that are set."""
    return {name: value for name in NETWORK_VARIABLES if (value := read_variables().get(name))}


def find_proxy(address: str) -> str | None:
    """Return the proxy that the environment names for an address; None if it names none."""
    # Imported here: it loads a client for HTTP, which most commands do not need.
    from urllib.request import getproxies, proxy_bypass

    parts, proxies = urlsplit(address), getproxies()
    proxy, host = proxies.get(parts.scheme) or proxies.get("all"), parts.hostname or ""
    if not proxy or proxy_bypass(host) or proxy_bypass(f"{host}:{parts.port}"):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def default_home() -> Path:
    """Return the home folder: `$BUBBOT_HOME`, else `$XDG_DATA_HOME/bubbot`, else `~/.local/share/bubbot`; absolute.

    Raise `ConfigError` if the user's folder cannot be determined.
    """
    try:
        if home := read_variables().get("BUBBOT_HOME"):
            return Path(home).expanduser().absolute()
        data = Path(read_variables().get("XDG_DATA_HOME", ""))
        # The specification says to ignore a relative path there.
        return (data if data.is_absolute() else Path.home() / ".local" / "share") / "bubbot"
    except RuntimeError as error:
        raise ConfigError(
            f"The home folder cannot be determined ({error}): name it with --home or BUBBOT_HOME."
        ) from None


def configured_home() -> Path | None:
    """Return the absolute home folder of `$BUBBOT_HOME`; None if not set. Raise `ConfigError` for `~nobody`."""
    return default_home() if read_variables().get("BUBBOT_HOME") else None


def runtime_folder() -> Path | None:
    """Return the user's own folder for sockets (`XDG_RUNTIME_DIR`); None if the system has none."""
    folder = read_variables().get("XDG_RUNTIME_DIR")
    return Path(folder) if folder else None


def unit_folder() -> Path:
    """Return the folder of the user's services: `$XDG_CONFIG_HOME/systemd/user`, else `~/.config/systemd/user`.

    Raise `ConfigError` if the user's folder cannot be determined.
    """
    return user_folder("XDG_CONFIG_HOME", ".config") / "systemd" / "user"


def user_folder(variable: str, default: str) -> Path:
    """Return a folder of the XDG specification, such as `$XDG_DATA_HOME`, else `default` below the user's folder.

    Raise `ConfigError` if the user's folder cannot be determined.
    """
    folder = Path(read_variables().get(variable, ""))
    try:
        return folder if folder.is_absolute() else Path.home() / default
    except RuntimeError as error:
        raise ConfigError(f"The folder of this user cannot be determined ({error}): set HOME.") from None


def environment_secrets() -> tuple[str, ...]:
    """Return the values of all variables that are named like a secret: litellm takes providers' keys from there."""
    return tuple(value for name, value in read_variables().items() if value and SECRET_KEY.search(name.lower()))


def logging_environment() -> tuple[str, tuple[str, ...]]:
    """Return the level of `BUBBOT_LOG__LEVEL` ("info" if invalid) and the secrets among the variables of bubbot.

    For a crash before the settings are loaded; it raises nothing.
    """
    # Imported here: completion reads the folders of this file within a tenth of a second.
    from bubbot.settings.values import Level

    ours = {
        name.upper(): value for name, value in read_variables().items() if name.upper().startswith(ENVIRONMENT_PREFIX)
    }
    level = ours.get("BUBBOT_LOG__LEVEL", "").lower()
    secrets = tuple(value for name, value in ours.items() if SECRET_KEY.search(name.lower()))
    return level if level in get_args(get_args(Level)[0]) else "info", secrets


def read_zone_variable() -> str:
    """Return the variable `TZ`, which may name a time zone; empty if not set."""
    return read_variables().get("TZ", "")


def read_shell_language() -> str:
    """Return the language of the shell: the tag in `LC_ALL`, `LC_MESSAGES` or `LANG`, such as `de` of `de_DE.UTF-8`."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    locale = next(filter(None, map(read_variables().get, names)), "")
    language = re.match("[a-z]{2,3}(?![a-z])", locale)
    return language[0] if language else "en"


def terminal_style() -> str:
    """Return the style that the environment requests: `dumb` (lines only), `plain` (no colours) or `colour`."""
    dumb, plain = read_variables().get("TERM", "dumb") == "dumb", read_variables().get("NO_COLOR")
    dumb = dumb or is_set(read_variables().get("BUBBOT_PLAIN", ""))
    return "dumb" if dumb else "plain" if plain else "colour"


def has_display() -> bool:
    """Return true if a window can be opened: a browser without one would take the terminal."""
    return bool(read_variables().get("DISPLAY") or read_variables().get("WAYLAND_DISPLAY"))


def is_set(value: str) -> bool:
    """Return true for a switch that is on: anything except nothing, `0`, `false` and `no`."""
    return value.strip().lower() not in ("", "0", "false", "no", "off")


def read_service_manager(pid: int) -> tuple[str, float | None]:
    """Return the address and the watchdog interval of a service manager such as systemd, for process `pid`.

    The address (`NOTIFY_SOCKET`) is empty if there is none. The interval is in seconds (`WATCHDOG_USEC`); None if there
    is no watchdog, or if it watches another process.
    """
    address, micros, watched = (
        read_variables().get(name, "") for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
    )
    is_watched = micros.isascii() and micros.isdigit() and int(micros) > 0 and watched in ("", str(pid))
    return (address if address[:1] in ("/", "@") else ""), int(micros) / 1e6 if is_watched else None


def variables_missing_in_service() -> tuple[str, ...]:
    """Return the variables that are set here and that a service does not see: settings, and keys of providers."""
    names = (name for name, value in read_variables().items() if value and name not in ("BUBBOT_HOME", "BUBBOT_PLAIN"))
    return tuple(sorted(name for name in names if name.startswith(ENVIRONMENT_PREFIX) or name.endswith("_API_KEY")))
