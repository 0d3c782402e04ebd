"""Collect the health of a running bot into one value for people and programs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, structs

from bubbot.app.diagnostics import check_health, failed_health
from bubbot.app.features import BotFeatures
from bubbot.app.offline import blank_snapshot, describe_backup, measure_database, newest_backup, unowned_sections
from bubbot.errors import BubbotError
from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.daily_digest import DeploymentHead
from bubbot.gateway.facts import HomeRestored
from bubbot.gateway.health.formatter import HealthFormatter
from bubbot.gateway.health.snapshot import (
    ChannelState,
    ChannelStatus,
    DiskProblem,
    HealthSnapshot,
    pending_deliveries,
)
from bubbot.gateway.names import NO_NAMES, NameBook
from bubbot.home import Home
from bubbot.log import recent_warnings, redact
from bubbot.ports.channel import Channel, ChannelHealth, ReportsHealth, Role
from bubbot.ports.health import FeatureHealth, HealthContext
from bubbot.ports.store import CountsEntries, NoticesReplacement, WaitsForRoom, require_chain
from bubbot.runtime.app import AppRuntime
from bubbot.settings.loader import Settings
from bubbot.tape.entry import timestamp
from bubbot.tape.fact import Cited
from bubbot.tape.handle import Clock
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts

log = logging.getLogger(__name__)

STANDING_BY = "another process receives"
ChannelStates: TypeAlias = Callable[[], tuple[Mapping[str, ChannelStatus], Mapping[str, str]]]
"""Return the state of each configured channel (empty before its start) and the reason of each refused one."""


class HealthSources(Struct, frozen=True):
    """The parts of a running bot that report their health. `loading_models` returns names."""

    channel_runtimes: Mapping[str, ChannelRuntime]
    runtime: AppRuntime
    activity: ActivityTracker
    features: BotFeatures
    loading_models: Callable[[], Sequence[str]]


class HealthCollector:
    """Collects the health of a running bot on request.

    Attributes:
        quarantine: the backup from which the home was restored, if it therefore has no channels. A release applies from
            the next start on.
        standing_by: the channels on which another process of the store receives.
        channel_states: returns the states of the configured channels; None for a bot with one channel, whose user sees
            it.
    """

    def __init__(
        self,
        store: TapeStore,
        home: Home,
        sources: HealthSources,
        settings: Settings,
        texts: Texts,
        *,
        now: Clock,
        restored: Cited[HomeRestored] | None = None,
    ) -> None:
        self.store = store
        self.quarantine = describe_backup(restored)
        self.sources = sources
        self.channel_states: ChannelStates | None = None
        self.standing_by: Collection[str] = ()
        self._home = home
        self.settings = settings
        self._texts = texts
        self._now = now
        self._began = timestamp(now())

    @property
    def runtime(self) -> AppRuntime:
        return self.sources.runtime

    def channels(self) -> tuple[ChannelState, ...]:
        """Return the states of the configured channels, without I/O."""
        if self.channel_states is None:
            return ()
        states, refusals = self.channel_states()
        channel_states = []
        for name, state in states.items():
            channel_runtime = self.sources.channel_runtimes[name]
            health = _health(channel_runtime.channel, state)
            if name in self.standing_by:
                health = ChannelHealth(is_ready=True, last_seen_at=health.last_seen_at, note=STANDING_BY)
            note = redact(refusals.get(name) or health.note)
            channel_states.append(ChannelState(name, state, health.is_ready, health.last_seen_at, note))
        return tuple(channel_states)

    def features(self, texts: Texts, role: Role = Role.OWNER, names: NameBook = NO_NAMES) -> tuple[FeatureHealth, ...]:
        """Return the reports of the features for a reader with this role, without I/O."""
        context, reports = structs.replace(self._context(texts, role), chats=names.chats, people=names.people), []
        for feature in self.sources.features.reporting:
            try:
                if feature.health is not None:
                    reports.append(check_health(feature.health(context)))
            except Exception as error:  # noqa: BLE001 - it may be third-party code; the others still report
                reports.append(failed_health(feature.name, error))
        return tuple(reports)

    def readiness(self) -> dict[str, Any]:
        """Return what features and loading models add to the answer of `/ready`, without I/O."""
        context, values = self._context(Texts()), dict[str, Any]()
        if budget := self.sources.features.budget:
            values |= budget.readiness(context)
        if names := self.sources.loading_models():
            values["loading"] = [Texts().say("st_loading_is", name=name) for name in names]
        return values

    def _context(self, texts: Texts, role: Role = Role.OWNER) -> HealthContext:
        return HealthContext(texts, timestamp(self._now()), self.settings.bot.timezone, role)

    def disk_problem(self) -> DiskProblem:
        """Return the reason why writing waits; empty if it does not."""
        if not (isinstance(self.store, WaitsForRoom) and self.store.is_full):
            return ""
        return "read-only" if os.statvfs(self._home.path).f_flag & os.ST_RDONLY else "full"

    def is_database_replaced(self) -> bool:
        """Return true if the database was removed or replaced under this process."""
        return isinstance(self.store, NoticesReplacement) and self.store.is_replaced

    def commit_count(self) -> int:
        """Return the number of committed transactions; 0 if the store does not count."""
        return self.store.commit_count if isinstance(self.store, CountsEntries) else 0

    async def snapshot(self, texts: Texts | None = None, role: Role = Role.OWNER) -> HealthSnapshot:
        """Return the current health for a reader, by default in English. Raise a `StoreError` if the database is
        unreadable.
        """
        log_summary, sources, disk = recent_warnings(), self.sources, self.disk_problem()
        pending = [
            pending_deliveries(name, await channel_runtime.outbox.pending())
            for name, channel_runtime in list(sources.channel_runtimes.items())
        ]
        database = await measure_database(self._home, self.store)
        texts = texts or Texts()
        channels = [f"{name}:" for name in sources.channel_runtimes] if role.at_least(Role.ADMIN) else []
        names = await NameBook.find(self.store, texts, channels)
        return structs.replace(
            blank_snapshot(self.settings, self._home, self._now),
            pid=os.getpid(),
            began=self._began,
            channels=self.channels(),
            outcomes=sources.activity.recent_outcomes,
            load=sources.runtime.measure_load(),
            owed=tuple(pending),
            database=database,
            backup=await asyncio.to_thread(newest_backup, self._home),
            warnings=log_summary.warnings,
            errors=log_summary.errors,
            newest=log_summary.newest,
            quarantine=self.quarantine,
            features=(*sources.features.problems, *unowned_sections(self.settings)),
            full=bool(disk),
            readonly=disk == "read-only",
            replaced=self.is_database_replaced(),
            reports=self.features(texts, role, names),
            loading=tuple(sources.loading_models()),
        )

    async def deployment_head(self) -> DeploymentHead:
        """Return the head for the daily digest. Raise a `StoreError` if the database is unreadable."""
        database = await measure_database(self._home, self.store)
        head = await require_chain(self.store).deployment_head()
        return DeploymentHead(head, database.entries, database.size)

    async def report(self, role: Role, *, direct: bool, own: int = 0, texts: Texts | None = None) -> Sequence[str]:
        """See `HealthReport`. If the database is unreadable, say so: a chat's status always gets an answer."""
        texts = texts or self._texts
        if not role.at_least(Role.ADMIN):  # others may not see the rest, so do not read it
            blank = blank_snapshot(self.settings, self._home, self._now)
            formatter = HealthFormatter(texts, structs.replace(blank, reports=self.features(texts, role)))
            return formatter.in_chat(role, direct=direct)
        try:
            snapshot = await self.snapshot(texts, role)
        except BubbotError as error:
            return (texts.say("st_unknown", reason=texts.reason(error)),)
        load = structs.replace(snapshot.load, running=max(0, snapshot.load.running - own))
        return HealthFormatter(texts, structs.replace(snapshot, load=load)).in_chat(role, direct=direct)


def _health(channel: Channel, state: ChannelStatus) -> ChannelHealth:
    """Return the health of a channel's connection; without a report it is ready while it runs."""
    if not isinstance(channel, ReportsHealth):
        return ChannelHealth(is_ready=state == "running")
    try:
        return channel.health()
    except Exception as error:  # the adapter may be third-party code; its defect must not hide the rest
        log.exception("channel health check failed", extra={"action": "health.defect", "channel": channel.name})
        return ChannelHealth(is_ready=False, note=type(error).__name__)
