"""Apply changed settings while the bot runs: check them first, apply all at once, and record each change.

Running turns keep the old settings. A channel restarts if its adapter's own settings changed. Admission and settings
outside of channels change without a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from bubbot import log as logs
from bubbot.app.channels import ChannelTable, admission_settings, channel_policy, channel_tables
from bubbot.app.config_view import CONFIG_TAPE, ConfigLoaded, ConfigRefused, ConfigView
from bubbot.app.daemon import Daemon
from bubbot.app.models import ModelSet, choose_models
from bubbot.app.tapes import now
from bubbot.concurrency import run_uninterrupted
from bubbot.errors import ChannelError, ChannelRefused, ConfigError, StoreError
from bubbot.feature import Apply
from bubbot.features.attachments.settings import AttachmentSettings
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.manager import ShutdownTimeouts
from bubbot.ports.channel import Channel, HasCommandMenu, SupportsClose, SupportsWebhook, VerifiesCredentials
from bubbot.ports.settings import ReloadResult
from bubbot.runtime.recovery import find_open_work
from bubbot.server.paths import check_paths
from bubbot.settings.diff import apply_reloadable, compare, redacted_values
from bubbot.settings.loader import Settings
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.service import session_tape

log = logging.getLogger(__name__)

VERIFY_TIMEOUT_SECONDS = 10.0
"""Seconds for a platform to accept a new token; an unreachable platform is asked again when the channel runs."""
CHANNEL_CLOSE_SECONDS = 2.0
"""Seconds for the adapter that verified a token to close."""


@dataclass
class ReloadPlan:
    """Everything new, built and checked; the running bot changes only after the plan is complete.

    Attributes:
        tables: the settings of each channel.
        models: None: keep the current ones.
        ended: channels to end.
        apply_features: applies the settings of the features.
        started: channels to start or restart.
    """

    settings: Settings
    tables: Mapping[str, ChannelTable]
    models: ModelSet | None
    ended: Sequence[str]
    apply_features: Apply
    started: dict[str, ChannelRuntime] = field(default_factory=dict)


class Reloader:
    """Applies the settings that `load` reads, one reload after another. `current` holds the current settings."""

    def __init__(
        self,
        daemon: Daemon,
        current: Settings,
        load: Callable[[], Settings],
        timeouts: ShutdownTimeouts = ShutdownTimeouts(),  # noqa: B008 - frozen
    ) -> None:
        self.current = current
        self._daemon = daemon
        self._load = load
        self._grace = timeouts
        self._tables = dict(self._channels(current))
        self._tape = daemon.bot.channel_factory.open_tape(CONFIG_TAPE)
        self._lock = asyncio.Lock()
        self._later: set[asyncio.Task[None]] = set()
        self._is_ending = False

    async def record_changes(self) -> None:
        """Record the changes since the bot last ran."""
        before, after = await self._tape.read(ConfigView()), redacted_values(self.current)
        changed = {
            key: after.get(key) for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)
        }
        if changed:
            await self._tape.append([ConfigLoaded("start", changed, ()).to_entry()])

    async def reload(self, how: str) -> ReloadResult:
        """Read the settings again and apply them. `how` names the origin of the request in the fact.

        Raises:
            ConfigError: they are unusable; everything stays as it was.
        """
        async with self._lock:
            if self._is_ending:
                raise ConfigError("the bot is shutting down; its next start reads the settings")
            try:
                return await self._reload(how)
            except ConfigError as error:
                problems = [logs.redact(line) for line in str(error).splitlines()]
                await self._tape.append([ConfigRefused(how, tuple(problems)).to_entry()])
                summary = "; ".join(problems)
                log.error("settings rejected: %s", summary, extra={"action": "config.refused"})  # noqa: TRY400
                raise

    async def stop(self, timeout: float) -> None:
        """Refuse further reloads; wait up to `timeout` seconds for a running one."""
        self._is_ending = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout), self._lock:
                pass

    async def _reload(self, how: str) -> ReloadResult:
        new_settings = self._load()
        new_settings.check_server()  # a start would refuse it
        logs.reconfigure(self.current.log.level, new_settings.secrets())  # so that errors about them hide secrets
        fixed = self._daemon.bot.features.fixed_sections
        diff = compare(self.current, new_settings, fixed)
        if not diff:
            log.info("settings unchanged", extra={"action": "config.unchanged"})
            return ReloadResult()
        plan = await self._plan(apply_reloadable(self.current, new_settings, fixed))
        old, new = redacted_values(self.current), redacted_values(plan.settings)
        changed = {key: new.get(key) for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)}
        changed |= {key: "[secret]" for key in diff.reloadable if key not in changed}
        with self._daemon.manager.replacing():
            await run_uninterrupted(  # half a reload would leave channels neither running nor closed
                self._apply_and_record(plan, ConfigLoaded(how, changed, tuple(diff.restart_required)).to_entry())
            )
        for channel_runtime in self._daemon.bot.channel_runtimes.values():  # the lists may contain new people
            await channel_runtime.gate.admit()
        names = ", ".join(diff.reloadable)
        log.info(
            "settings applied: %s",
            names or "none",
            extra={"action": "config.loaded", "later": ", ".join(diff.restart_required)},
        )
        return ReloadResult(diff.reloadable, diff.restart_required, tuple(plan.started), tuple(plan.ended))

    async def _plan(self, settings: Settings) -> ReloadPlan:
        """Build the plan. Raise `ConfigError` for the first error and leave nothing open."""
        app, tables = self._daemon.bot, self._channels(settings)
        settings.bot.read_persona()
        models_changed = settings.model != self.current.model or settings.section(
            AttachmentSettings
        ) != self.current.section(AttachmentSettings)
        is_quarantined = self._daemon.quarantine is not None
        models = (
            choose_models(
                settings,
                app.channel_factory.home,
                app.wrappers.model,
                app.models.lessons,
                is_quarantined=is_quarantined,
            )
            if models_changed
            else None
        )
        ended = [name for name in self._tables if name not in tables]
        plan = ReloadPlan(settings, tables, models, ended, await app.features.prepare(settings))
        try:
            for name in (name for name in tables if self._needs_restart(name, tables[name])):
                plan.started[name] = await self._build_channel(name, tables[name], settings)
            self._check_webhooks(plan)
            answers = await asyncio.gather(*(self._verify(name, tables[name]) for name in plan.started))
            if problems := [answer for answer in answers if answer]:
                raise ConfigError("\n".join(problems))
        except BaseException:
            for channel_runtime in plan.started.values():
                await channel_runtime.aclose()
            if models is not None:
                await models.aclose()
            raise
        return plan

    def _channels(self, settings: Settings) -> Mapping[str, ChannelTable]:
        tables = channel_tables(settings)
        return tables if self._daemon.quarantine is None else {}

    def _needs_restart(self, name: str, table: ChannelTable) -> bool:
        """Return true if the adapter or its previews changed, or if the channel does not run."""
        if name not in self._tables or self._daemon.manager.states.get(name) != "running":
            return True
        (old, old_adapter), (new, new_adapter) = self._tables[name], table
        return old_adapter != new_adapter or any(
            getattr(old, key) != getattr(new, key) for key in ("kind", "live", "overhears")
        )

    def _check_webhooks(self, plan: ReloadPlan) -> None:
        """Check that the HTTP server for webhooks is open (only a start opens it) and that each has its own path."""
        running = {name: channel for name, channel in self._daemon.webhook_channels().items() if name in plan.tables}
        fresh = {
            name: channel_runtime.channel
            for name, channel_runtime in plan.started.items()
            if isinstance(channel_runtime.channel, SupportsWebhook)
        }
        if fresh and not self._daemon.has_webhook_server:
            raise ConfigError(
                f"[channels.{next(iter(fresh))}] is called over HTTP: restart the bot, which opens [http] then."
            )
        check_paths({**running, **fresh})

    async def _build_channel(self, name: str, table: ChannelTable, settings: Settings) -> ChannelRuntime:
        maker, access = self._daemon.bot.channel_factory, self._daemon.access
        channel = self._build_adapter(name, table)
        try:
            return await maker.build_runtime(channel, channel_policy(table[0], settings, access))
        except BaseException:
            if isinstance(channel, SupportsClose):
                await channel.aclose()
            raise

    def _build_adapter(self, name: str, table: ChannelTable) -> Channel:
        common, adapter_settings = table
        people = partial(self._daemon.access.list_people, name)
        try:
            return self._daemon.bot.channel_factory.build_adapter(
                name, {**adapter_settings, "kind": common.kind}, people, overhears=common.overhears
            )
        except ConfigError:
            raise
        except Exception as error:  # the adapter may be third-party code; its defect must not end the running bot
            raise _defect(name, error) from error

    async def _verify(self, name: str, table: ChannelTable) -> str:
        """Return a sentence if the platform rejects the new settings, else an empty text.

        A separate adapter verifies: one that has verified its credentials must not run.
        """
        channel = self._build_adapter(name, table)
        try:
            if isinstance(channel, VerifiesCredentials):
                async with asyncio.timeout(VERIFY_TIMEOUT_SECONDS):
                    await channel.verify_token()
        except ChannelRefused as error:
            return f"[channels.{name}]: {error}"
        except (ChannelError, TimeoutError) as error:
            log.warning(
                "[channels.%s] credentials not verified: %s",
                name,
                str(error) or "no answer",
                extra={"action": "config.unasked", "channel": name},
            )
        except Exception as error:  # noqa: BLE001 - see `_build_adapter`
            return str(_defect(name, error))
        finally:
            if isinstance(channel, SupportsClose):
                with suppress(TimeoutError):
                    async with asyncio.timeout(CHANNEL_CLOSE_SECONDS):
                        await channel.aclose()
        return ""

    async def _apply_and_record(self, plan: ReloadPlan, fact: TapeEntry) -> None:
        await self._apply(plan)
        await self._tape.append([fact])

    async def _replace_channels(self, plan: ReloadPlan) -> None:
        """End channels and replace others by new ones, which do not run yet."""
        app, manager = self._daemon.bot, self._daemon.manager
        for name in plan.ended:
            await manager.stop_channel(name, self._grace.deliveries)
            await app.runtime.stop_channel(name, self._grace.turns)
            del app.channel_runtimes[name]
        for name, channel_runtime in plan.started.items():
            if name in app.channel_runtimes:
                await manager.stop_channel(name, self._grace.deliveries)
            app.channel_runtimes[name] = channel_runtime

    async def _apply(self, plan: ReloadPlan) -> None:
        app, settings = self._daemon.bot, plan.settings
        logs.reconfigure(settings.log.level, settings.secrets())
        added = {name for name in plan.started if name not in app.channel_runtimes}
        await self._replace_channels(plan)
        self._daemon.access.configured = {
            name: admission_settings(common, settings).listed_people for name, (common, _) in plan.tables.items()
        }
        for name in plan.tables.keys() - plan.started.keys():
            if plan.tables[name][0] != self._tables[name][0] or settings.bot.name != self.current.bot.name:
                app.channel_runtimes[name].apply_policy(
                    channel_policy(plan.tables[name][0], settings, self._daemon.access)
                )
        plan.apply_features()
        old_models = app.current_models.replace(plan.models) if plan.models is not None else None
        toolbox = app.renew_sessions(settings)
        app.health_collector.settings = settings
        commands = app.list_commands(toolbox)
        app.runtime.deps.agents.log_unknown_names()
        have_commands_changed = commands != app.commands
        app.commands[:] = commands
        self.current, self._tables = settings, dict(plan.tables)
        for name in plan.started:
            await self._start_channel(name, added=name in added)
        if have_commands_changed:
            self._update_commands(app.channel_runtimes.keys() - plan.started.keys())
        for on_reloaded in self._daemon.on_reload:
            on_reloaded()
        if old_models is not None:
            self._close_later(old_models)

    def _update_commands(self, names: Iterable[str]) -> None:
        """Update the command menus of running channels, which may take a platform some time."""

        async def update(name: str, channel: HasCommandMenu) -> None:
            try:
                await channel.update_commands()
            except Exception as error:  # noqa: BLE001 - see `_build_adapter`
                log.warning("%s", _defect(name, error), extra={"action": "config.commands", "channel": name})

        for name in names:
            channel = self._daemon.bot.channel_runtimes[name].channel
            if isinstance(channel, HasCommandMenu):
                self._run_later(update(name, channel))

    async def _start_channel(self, name: str, *, added: bool) -> None:
        """Start a channel and resume its pending messages; for an added one also work that an earlier process left
        open.
        """
        try:
            await self._resume_channel(name, added=added)
        except StoreError as error:  # the channel still runs; pending messages wait for the next start
            log.error("pending messages of channel %s not resumed: %s", name, error, extra={"action": "config.owed"})  # noqa: TRY400
        self._daemon.manager.start_channel(name, self._daemon.bot.group.create_task)

    async def _resume_channel(self, name: str, *, added: bool) -> None:
        app, channel_runtime = self._daemon.bot, self._daemon.bot.channel_runtimes[name]
        if added:
            await channel_runtime.inbox.record_begin(timestamp(now()))
        if app.workers is not None:
            await app.workers.wake_idle()
            return
        if added:
            open_work = await find_open_work(
                app.store,
                {name: channel_runtime.inbox},
                app.channel_factory.open_tape,
                partial(session_tape, app.workspace),
            )
            await app.features.on_recovered()
            channel_runtime.resume(open_work)
            for session in open_work.sessions:
                app.runtime.take_up(session)
        await channel_runtime.deliverer.resume(queued=True)

    def _close_later(self, models: ModelSet) -> None:
        """Close models after the turns that began with them have ended."""

        async def close() -> None:
            await self._daemon.bot.runtime.wait_turns_ended()
            await self._daemon.bot.current_models.close(models)

        self._run_later(close())

    def _run_later(self, work: Coroutine[object, object, None]) -> None:
        """Continue work after the reload."""
        task = self._daemon.bot.group.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)


def _defect(name: str, error: Exception) -> ConfigError:
    return ConfigError(f"[channels.{name}]: its adapter failed ({type(error).__name__}: {error})")
