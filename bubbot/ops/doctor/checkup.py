"""All checks in one order: what stands on which other comes after it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from bubbot.home import Home
from bubbot.ops.doctor.answers import check_answers
from bubbot.ops.doctor.backups import check_backups
from bubbot.ops.doctor.channels import ChannelProbe, check_channels
from bubbot.ops.doctor.clock import check_time_service
from bubbot.ops.doctor.config import read_config
from bubbot.ops.doctor.credentials import ServiceCredentials, service_credentials
from bubbot.ops.doctor.database import read_database
from bubbot.ops.doctor.disk import check_disk, check_file_system
from bubbot.ops.doctor.finding import Finding
from bubbot.ops.doctor.guard import guarded
from bubbot.ops.doctor.home import check_home, check_lock
from bubbot.ops.doctor.jobs import check_jobs
from bubbot.ops.doctor.limits import check_files, check_memory
from bubbot.ops.doctor.plugins import check_model, check_plugins
from bubbot.ops.doctor.ports import check_ports
from bubbot.ops.doctor.quarantine import check_quarantine
from bubbot.ops.doctor.running import check_running
from bubbot.ops.doctor.secrets import check_secrets, read_secret_files
from bubbot.ops.doctor.service import check_service
from bubbot.ops.doctor.stuck import check_stuck
from bubbot.ops.doctor.system import check_python, check_sqlite
from bubbot.ops.doctor.versions import check_libraries, check_litellm
from bubbot.settings.loader import Settings
from bubbot.stores.sqlite.check import DatabaseState


@dataclass(frozen=True, slots=True)
class CheckupReport:
    """What was found, and the secrets that must not be in what is printed of it."""

    findings: tuple[Finding, ...]
    secrets: tuple[str, ...] = ()

    @property
    def problems(self) -> int:
        """How many findings are problems."""
        return sum(one.level == "problem" for one in self.findings)


def examine(
    home: Home,
    config: Path | None,
    *,
    now: datetime,
    deep: bool,
    online: bool = False,
    new_id: Callable[[], str] = str,
) -> CheckupReport:
    """Runs every check that can be run; a home that cannot be used leaves out what is in it.

    `deep`: every hash, too; `online`: platforms are asked, for some seconds at most.
    """
    asking = ChannelProbe(home, config or home.config, now.isoformat, new_id, online=online)
    made = _CheckContext(home, config, now, deep, asking)
    found = tuple(made.findings())
    return CheckupReport(found, made.settings.secrets() if made.settings else ())


class _CheckContext:
    """One run: what a check learned and a later one needs."""

    def __init__(self, home: Home, config: Path | None, now: datetime, deep: bool, asking: ChannelProbe) -> None:  # noqa: FBT001
        self.settings: Settings | None = None
        self._handed_over = ServiceCredentials()
        self._state: DatabaseState | None = None
        self._home = home
        self._config = config
        self._now = now
        self._deep = deep
        self._asking = asking

    def findings(self) -> Iterator[Finding]:
        """Check after check; none keeps another from being made."""
        home = self._home
        yield from guarded("Python", check_python)
        yield from guarded("SQLite", check_sqlite)
        yield from guarded("litellm", check_litellm)
        yield from guarded("the libraries", check_libraries)
        yield from guarded("the limits", check_files)
        yield from guarded("the settings", self._config_and_secrets)
        about_home = list(guarded("the home", partial(check_home, home)))
        yield from about_home
        yield from guarded("the disk", partial(check_disk, home))
        yield from guarded("the file system", partial(check_file_system, home))
        yield from guarded("the time service", check_time_service)
        if os.path.isdir(home.path) and os.access(home.path, os.R_OK | os.X_OK):  # noqa: PTH112 - `Path.is_dir` raises
            yield from self._inside()
        if self.settings is not None:
            yield from self._configured(self.settings)
        yield from guarded("the plugins", partial(check_plugins, self.settings))
        yield from guarded("the service", partial(check_service, home))

    def _config_and_secrets(self) -> Iterator[Finding]:
        about_files, useless = read_secret_files(self._home, self._config)
        self._handed_over = service_credentials(self._home)
        self.settings, found = read_config(self._home, self._config, self._handed_over.folder)
        # What is told of a secret file has the better command.
        yield from (
            one for one in found if one.id != "config.invalid" or not any(name in one.cause for name in useless)
        )
        yield from about_files

    def _inside(self) -> Iterator[Finding]:
        home = self._home
        about_lock = list(guarded("the lock", partial(check_lock, home)))
        yield from about_lock
        yield from guarded("the database", self._database)
        if self._state is not None and self._state.entries:
            running = any(one.id == "lock.held" for one in about_lock)
            stuck = partial(check_stuck, home, now=self._now, running=running, pid=home.holder() if running else None)
            yield from guarded("what is open", stuck)
            yield from guarded("the schedule", partial(check_jobs, home, now=self._now))
            yield from guarded("the quarantine", partial(check_quarantine, home))
            if self.settings is not None:
                yield from guarded("the answers", partial(check_answers, home, self.settings, now=self._now))
            if running:
                yield from guarded("the running bot", partial(check_running, home, self._config or home.config))
        yield from guarded("the backups", partial(check_backups, home, self._state, now=self._now))

    def _database(self) -> Iterator[Finding]:
        self._state, found = read_database(self._home, now=self._now, deep=self._deep)
        yield from found

    def _configured(self, settings: Settings) -> Iterator[Finding]:
        home = self._home
        yield from guarded("the model", partial(check_model, settings, home))
        yield from guarded("the secrets", partial(check_secrets, settings, home, self._config, self._handed_over))
        yield from guarded("the memory", partial(check_memory, settings))
        asking = replace(self._asking, handed_over=self._handed_over)
        yield from guarded("the channels", partial(check_channels, settings, asking))
        yield from guarded("the ports", partial(check_ports, settings, home, asking.file))
