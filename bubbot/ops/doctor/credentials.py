"""Secrets that systemd passes to the service of a home: no settings file and no shell has them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct, field

from bubbot.home import Home
from bubbot.ops.doctor.tools import read_output
from bubbot.settings.environment import read_variables, runtime_folder

UNIT = "bubbot.service"
RUNTIME = Path("/run")
CREDSTORE = Path("/etc/credstore")
"""The folder in which systemd looks for a credential without a path."""


class ServiceCredentials(Struct, frozen=True):
    """The credentials that systemd passes to the service of a home.

    Attributes:
        folder: the credentials of the running service, if they may be read.
        sources: the file of each credential, by a name such as `channels.telegram.token`.
    """

    folder: Path | None = None
    sources: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))

    def is_there(self, name: str) -> bool:
        """Return true if this user can see that the service gets this credential."""
        return (self.folder is not None and _exists(self.folder / name)) or _exists(self.sources.get(name))

    def is_hidden(self, name: str) -> bool:
        """Return true if the service may get this credential, but only root can see it."""
        source = self.sources.get(name)
        return self.folder is None and source is not None and not os.access(source.parent, os.X_OK)


def _exists(path: Path | None) -> bool:
    return path is not None and os.access(path, os.F_OK)


def service_credentials(home: Home) -> ServiceCredentials:
    """Look up the credentials of this home's service; none without such a service, or inside it."""
    if read_variables().get("CREDENTIALS_DIRECTORY"):
        return ServiceCredentials()
    for scope, runtime in (("--system", RUNTIME), ("--user", runtime_folder())):
        # Read the text of the unit and its drop-ins: `systemctl show` prints credentials only since systemd 254.
        text = read_output(["systemctl", scope, "cat", UNIT]) or ""
        lines = [line for line in text.splitlines() if not line.lstrip().startswith(("#", ";"))]
        match = re.search(r"(?:--home[ =]|BUBBOT_HOME=)(\S+)", "\n".join(lines))
        if match is None or os.path.realpath(match[1]) != os.path.realpath(home.path):
            continue
        folder = runtime / "credentials" / UNIT if runtime else None
        readable = folder is not None and os.access(folder, os.R_OK | os.X_OK)
        return ServiceCredentials(folder if readable else None, MappingProxyType(_sources(lines)))
    return ServiceCredentials()


def _sources(lines: Iterable[str]) -> dict[str, Path]:
    """Parse the credentials of a unit: `NAME:FILE`, one on a line."""
    matches = [re.fullmatch(r"\s*LoadCredential\s*=\s*([^:\s]+):(\S+)\s*", line) for line in lines]
    return {match[1]: CREDSTORE / match[2] for match in matches if match}
