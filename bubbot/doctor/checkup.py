"""All checks in one order: what stands on which other comes after it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bubbot.doctor.config import read_config
from bubbot.doctor.database import check_database
from bubbot.doctor.finding import Finding
from bubbot.doctor.home import check_disk, check_home, check_lock
from bubbot.doctor.plugins import check_model, check_plugins
from bubbot.doctor.system import check_litellm, check_python, check_sqlite
from bubbot.home import Home


@dataclass(frozen=True, slots=True)
class Checkup:
    """What was found, and the secrets that must not be in what is printed of it."""

    findings: tuple[Finding, ...]
    secrets: tuple[str, ...] = ()

    @property
    def problems(self) -> int:
        """How many findings are problems."""
        return sum(one.level == "problem" for one in self.findings)


def examine(home: Home, config: Path | None, *, now: datetime, deep: bool) -> Checkup:
    """Runs every check that can be run; a home that cannot be used leaves out what is in it."""
    settings, about_config = read_config(home, config)
    found = [*check_python(), *check_sqlite(), *check_litellm(), *about_config, *check_home(home), *check_disk(home)]
    if home.path.is_dir():
        found += [*check_lock(home), *check_database(home, now=now, deep=deep)]
    if settings is not None:
        found += check_model(settings, home)
    found += check_plugins(settings)
    return Checkup(tuple(found), settings.secrets() if settings else ())
