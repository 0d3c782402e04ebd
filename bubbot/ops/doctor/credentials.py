"""Secrets that systemd hands to the service of a home: they are in no file of the settings, and in no shell."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from bubbot.home import Home
from bubbot.ops.doctor.tools import told
from bubbot.settings.environment import runtime_folder, variables

UNIT = "bubbot.service"
RUNTIME = Path("/run")
CREDSTORE = Path("/etc/credstore")
"""Where systemd looks for a credential that is named without a folder."""


@dataclass(frozen=True, slots=True)
class ServiceCredentials:
    """What the service of a home is handed over. `folder`: the credentials of the running service, if they may be read;
    `sources`: by name such as `channels.telegram.channel.token`, the file that systemd takes it from."""

    folder: Path | None = None
    sources: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))

    def is_there(self, name: str) -> bool:
        """Return true if the service gets this credential, as far as this user can see."""
        return (self.folder is not None and _exists(self.folder / name)) or _exists(self.sources.get(name))

    def is_hidden(self, name: str) -> bool:
        """Return true if the service may get this credential, and only root can see whether it does."""
        source = self.sources.get(name)
        return self.folder is None and source is not None and not os.access(source.parent, os.X_OK)


def _exists(path: Path | None) -> bool:
    return path is not None and os.access(path, os.F_OK)


def service_credentials(home: Home) -> ServiceCredentials:
    """Look up the credentials of the service that runs this home; none without such a service, or inside it."""
    if variables().get("CREDENTIALS_DIRECTORY"):
        return ServiceCredentials()
    for scope, runtime in (("--system", RUNTIME), ("--user", runtime_folder())):
        # The text of the unit and its drop-ins: `systemctl show` prints credentials from systemd 254 on only.
        text = told(["systemctl", scope, "cat", UNIT]) or ""
        lines = [line for line in text.splitlines() if not line.lstrip().startswith(("#", ";"))]
        named = re.search(r"(?:--home[ =]|BUBBOT_HOME=)(\S+)", "\n".join(lines))
        if named is None or os.path.realpath(named[1]) != os.path.realpath(home.path):
            continue
        folder = runtime / "credentials" / UNIT if runtime else None
        readable = folder is not None and os.access(folder, os.R_OK | os.X_OK)
        return ServiceCredentials(folder if readable else None, MappingProxyType(_sources(lines)))
    return ServiceCredentials()


def _sources(lines: Iterable[str]) -> dict[str, Path]:
    """The credentials of a unit: `NAME:FILE`, one on a line."""
    found = [re.fullmatch(r"\s*LoadCredential\s*=\s*([^:\s]+):(\S+)\s*", line) for line in lines]
    return {one[1]: CREDSTORE / one[2] for one in found if one}
