"""All checks in one order: a check comes after those it depends on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from bubbot.app.models import has_address_of_backup
from bubbot.home import Home
from bubbot.ops.doctor.backups import check_backups
from bubbot.ops.doctor.channels import ChannelProbe, check_channels
from bubbot.ops.doctor.config import read_config
from bubbot.ops.doctor.conflicts import check_conflicts
from bubbot.ops.doctor.credentials import ServiceCredentials, service_credentials
from bubbot.ops.doctor.database import read_database, read_store
from bubbot.ops.doctor.disk import check_disk, check_file_system
from bubbot.ops.doctor.features import check_features
from bubbot.ops.doctor.finding import run_check
from bubbot.ops.doctor.home import check_home, check_lock
from bubbot.ops.doctor.limits import check_files, check_memory
from bubbot.ops.doctor.model import check_provider
from bubbot.ops.doctor.plugins import check_embeddings, check_model, check_plugins
from bubbot.ops.doctor.ports import check_ports
from bubbot.ops.doctor.running import check_running
from bubbot.ops.doctor.secrets import check_secrets, read_secret_files
from bubbot.ops.doctor.server import read_server
from bubbot.ops.doctor.service import check_service
from bubbot.ops.doctor.stuck import check_stuck
from bubbot.ops.doctor.system import check_python, check_sqlite, check_time_service
from bubbot.ops.doctor.versions import check_libraries
from bubbot.ports.checks import Finding, Level
from bubbot.settings.loader import Settings
from bubbot.settings.sections import DEFAULT_STORE, POSTGRES_STORE, SQLITE_STORE, StoreSettings
from bubbot.stores.sqlite.check import DatabaseState


class CheckupReport(Struct, frozen=True):
    """The findings, and the secrets that must not appear in printed findings."""

    findings: tuple[Finding, ...]
    secrets: tuple[str, ...] = ()

    @property
    def problems(self) -> int:
        """The number of findings that are problems."""
        return len(self.of_level("problem"))

    def of_level(self, level: Level) -> tuple[Finding, ...]:
        """Return the findings of one level, in their order."""
        return tuple(finding for finding in self.findings if finding.level == level)


def run_checks(
    home: Home,
    config: Path | None,
    *,
    now: datetime,
    deep: bool,
    online: bool = False,
    new_id: Callable[[], str] = str,
) -> CheckupReport:
    """Run every possible check; skip the checks of the contents if the home is unusable.

    Args:
        config: the configuration, if not the one in the home.
        deep: check every hash, too.
        online: send requests to platforms, for some seconds at most.
    """
    probe = ChannelProbe(home, config or home.config, now.isoformat, new_id, online=online)
    context = _CheckContext(home, config, now, deep, probe)
    findings = tuple(context.findings())
    return CheckupReport(findings, context.settings.secrets() if context.settings else ())


class _CheckContext:
    """One run, and the results that later checks need."""

    def __init__(self, home: Home, config: Path | None, now: datetime, deep: bool, probe: ChannelProbe) -> None:  # noqa: FBT001
        self.settings: Settings | None = None
        self._handed_over = ServiceCredentials()
        self._state: DatabaseState | None = None
        self._has_entries = self._is_quarantined = False
        self._home = home
        self._config = config
        self._now = now
        self._deep = deep
        self._probe = probe

    def findings(self) -> Iterator[Finding]:
        """Run check after check; a failed check does not prevent the next."""
        home = self._home
        yield from run_check("Python", check_python)
        yield from run_check("SQLite", check_sqlite)
        yield from run_check("the libraries", check_libraries)
        yield from run_check("the packages", check_conflicts)
        yield from run_check("the limits", check_files)
        yield from run_check("the settings", self._check_settings)
        about_home = list(run_check("the home", partial(check_home, home)))
        yield from about_home
        yield from run_check("the disk", partial(check_disk, home))
        yield from run_check("the file system", partial(check_file_system, home))
        yield from run_check("the time service", check_time_service)
        if os.path.isdir(home.path) and os.access(home.path, os.R_OK | os.X_OK):  # noqa: PTH112 - `Path.is_dir` raises
            yield from self._check_contents()
        if self.settings is not None:
            yield from self._check_configured_parts(self.settings)
        yield from run_check("the plugins", partial(check_plugins, self.settings))
        yield from run_check("the service", partial(check_service, home))

    def _check_settings(self) -> Iterator[Finding]:
        about_files, unusable = read_secret_files(self._home, self._config)
        self._handed_over = service_credentials(self._home)
        folder = self._handed_over.folder
        self.settings, findings = read_config(self._home, self._config, folder, now=self._clock)
        # The finding about the secret file has the better command.
        yield from (
            finding
            for finding in findings
            if finding.id != "config.invalid" or not any(name in finding.cause for name in unusable)
        )
        yield from about_files

    def _check_contents(self) -> Iterator[Finding]:
        home, file = self._home, self._config or self._home.config
        about_lock = list(run_check("the lock", partial(check_lock, home)))
        yield from about_lock
        running = any(finding.id == "lock.held" for finding in about_lock)
        yield from run_check("the database", partial(self._check_database, running=running))
        if self._has_entries:
            stuck = partial(
                check_stuck,
                home,
                now=self._now,
                running=running,
                pid=home.holder_pid() if running else None,
                store=self._store,
            )
            yield from run_check("what is open", stuck)
            about_tapes = list(check_features(home, file, self.settings, self._clock, of_tapes=True))
            self._is_quarantined = any(finding.id == "home.quarantine" for finding in about_tapes)
            yield from about_tapes
        if running:
            yield from run_check(
                "the running bot", partial(check_running, home, file, is_on_server=self._store.kind == POSTGRES_STORE)
            )
        yield from run_check("the backups", partial(check_backups, home, self._state, now=self._now))

    def _check_database(self, *, running: bool) -> Iterator[Finding]:
        if self._store.kind == POSTGRES_STORE:
            self._has_entries, findings = read_server(self._store, self._home, self._now)
            yield from findings
            return
        if self._store.kind != SQLITE_STORE:
            self._has_entries, finding = read_store(self._store, self._home)
            yield finding
            return
        self._state, findings = read_database(self._home, now=self._now, deep=self._deep)
        self._has_entries = self._state is not None and self._state.entries > 0
        # A running bot has made one: it reports itself that its database is gone.
        yield from (
            finding for finding in findings if finding.id not in ("database.missing", "database.lost") or not running
        )

    def _clock(self) -> datetime:
        return self._now

    @property
    def _store(self) -> StoreSettings:
        return self.settings.store if self.settings else DEFAULT_STORE

    def _check_configured_parts(self, settings: Settings) -> Iterator[Finding]:
        home = self._home
        yield from run_check("the model", partial(check_model, settings, home))
        yield from run_check("the embeddings", partial(check_embeddings, settings))
        # A restored home sends its key to no address that came with the backup.
        is_held = self._is_quarantined and has_address_of_backup(settings, settings.model.name)
        if self._probe.online and not is_held:
            yield from run_check("the provider", partial(check_provider, settings, home, self._probe.file))
        yield from run_check("the secrets", partial(check_secrets, settings, home, self._config, self._handed_over))
        yield from run_check("the memory", partial(check_memory, settings))
        probe = structs.replace(self._probe, credentials=self._handed_over)
        yield from run_check("the channels", partial(check_channels, settings, probe))
        yield from run_check("the ports", partial(check_ports, settings, home, probe.file))
