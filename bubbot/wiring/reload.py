"""Taking over changed settings while the bot runs: checked first, then all at once, each change a fact.

Turns under way end as they began. A channel is begun anew where its adapter's own settings changed; who may speak, and
everything that is no channel's, changes under the running one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from bubbot import log as logs
from bubbot.concurrency import whole
from bubbot.errors import ChannelError, ChannelRefused, ConfigError, StoreError
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.manager import ShutdownTimeouts
from bubbot.gateway.paths import check_paths
from bubbot.ports.channel import Channel, SupportsClose, SupportsWebhook, VerifiesCredentials
from bubbot.ports.tool import Toolbox
from bubbot.rates import RateLimiter
from bubbot.runtime.recovery import recover
from bubbot.settings.diff import changes, effective, public
from bubbot.settings.loader import Settings
from bubbot.tape.entry import TapeEntry, event, timestamp
from bubbot.tools.session import typed_commands
from bubbot.views.config import CONFIG_REFUSED, CONFIG_TAPE, LOADED, ConfigView
from bubbot.wiring.app import now
from bubbot.wiring.budget import plan_of, rates_of, renewed
from bubbot.wiring.channels import Table, admission_of, channel_tables, rules_of
from bubbot.wiring.daemon import Daemon
from bubbot.wiring.models import ModelSet, choose_models
from bubbot.wiring.schedule import limits_of
from bubbot.wiring.turns import make_turns

log = logging.getLogger(__name__)

VERIFY_TIMEOUT_SECONDS = 10.0
"""Seconds a platform has to say whether it takes a new token; one that cannot be reached is taken at its word later."""
CHANNEL_CLOSE_SECONDS = 2.0
"""Seconds that the one who asked has to close."""


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """What a reload did: keys taken over, keys that wait for the next start, channels that were begun anew or ended."""

    now: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    begun: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


@dataclass
class ReloadPlan:
    """Everything new, made and checked; nothing of the running bot is touched before it is whole."""

    settings: Settings
    tables: Mapping[str, Table]
    models: ModelSet | None
    ended: Sequence[str]
    rates: RateLimiter | None
    fresh: dict[str, ChannelRuntime] = field(default_factory=dict)


class Reloader:
    """Takes over the settings that `load` reads, one time after another. `current` are those the bot goes by."""

    def __init__(
        self,
        daemon: Daemon,
        current: Settings,
        load: Callable[[], Settings],
        grace: ShutdownTimeouts = ShutdownTimeouts(),  # noqa: B008 - frozen
    ) -> None:
        self.current = current
        self._daemon = daemon
        self._load = load
        self._grace = grace
        self._tables = dict(self._channels(current))
        self._tape = daemon.app.maker.service(CONFIG_TAPE)
        self._one_at_a_time = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._over = False

    async def begin(self) -> None:
        """Records what has changed since the bot ran last."""
        before, after = await self._tape.read(ConfigView()), public(self.current)
        changed = {
            key: after.get(key) for key in sorted(before.keys() | after.keys()) if before.get(key) != after.get(key)
        }
        if changed:
            await self._tape.append([event(LOADED, {"how": "start", "changed": changed, "later": []})])

    async def reload(self, how: str) -> ReloadResult:
        """Reads the settings again and goes by them. `how` it was asked for is part of the fact.

        Raises `ConfigError` where they cannot be used: then everything stays as it was.
        """
        async with self._one_at_a_time:
            if self._over:
                raise ConfigError("the bot is ending; its next start reads the settings")
            try:
                return await self._reload(how)
            except ConfigError as error:
                problems = [logs.redact(line) for line in str(error).splitlines()]
                await self._tape.append([event(CONFIG_REFUSED, {"how": how, "problems": problems})])
                told = "; ".join(problems)
                log.error("the settings were not taken over: %s", told, extra={"action": "config.refused"})  # noqa: TRY400
                raise

    async def end(self, patience: float) -> None:
        """No reload begins any more; one under way has so many seconds."""
        self._over = True
        with suppress(TimeoutError):
            async with asyncio.timeout(patience), self._one_at_a_time:
                pass

    async def _reload(self, how: str) -> ReloadResult:
        read = self._load()
        logs.renew(self.current.log.level, read.secrets())  # what is wrong with them is told without them
        found = changes(self.current, read)
        if not found:
            log.info("the settings are as they were", extra={"action": "config.unchanged"})
            return ReloadResult()
        plan = await self._planned(effective(self.current, read))
        old, new = public(self.current), public(plan.settings)
        changed = {key: new.get(key) for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)}
        changed |= {key: "[secret]" for key in found.now if key not in changed}
        with self._daemon.manager.replacing():
            await whole(  # half a reload would leave channels that nobody runs, or closes
                self._in_force(plan, event(LOADED, {"how": how, "changed": changed, "later": list(found.later)}))
            )
        names = ", ".join(found.now)
        log.info(
            "settings taken over: %s",
            names or "none",
            extra={"action": "config.loaded", "later": ", ".join(found.later)},
        )
        return ReloadResult(found.now, found.later, tuple(plan.fresh), tuple(plan.ended))

    async def _planned(self, settings: Settings) -> ReloadPlan:
        """Raises `ConfigError` for whatever is wrong, with nothing left open."""
        app, tables = self._daemon.app, self._channels(settings)
        plan_of(settings)
        settings.bot.read_persona()
        asks_others = settings.model != self.current.model or settings.attachments != self.current.attachments
        models = choose_models(settings, app.shared.home, app.wrap.model) if asks_others else None
        ended = [name for name in self._tables if name not in tables]
        plan = ReloadPlan(settings, tables, models, ended, app.purse.pace.rates)
        try:
            for name in (name for name in tables if self._begins_anew(name, tables[name])):
                plan.fresh[name] = await self._line(name, tables[name], settings)
            self._check_door(plan)
            told = await asyncio.gather(*(self._introduced(name, tables[name]) for name in plan.fresh))
            if problems := [one for one in told if one]:
                raise ConfigError("\n".join(problems))
            plan.rates = await rates_of(settings, app.purse)
        except BaseException:
            for line in plan.fresh.values():
                await line.aclose()
            if models is not None:
                await models.aclose()
            raise
        return plan

    def _channels(self, settings: Settings) -> Mapping[str, Table]:
        found = channel_tables(settings)
        return found if self._daemon.quarantine is None else {}

    def _begins_anew(self, name: str, table: Table) -> bool:
        """Whether the adapter, or how it shows answers, is another than that which runs; one that was refused is tried."""
        if name not in self._tables or self._daemon.manager.states.get(name) != "running":
            return True
        (before, own_before), (after, own_after) = self._tables[name], table
        return own_before != own_after or any(
            getattr(before, key) != getattr(after, key) for key in ("kind", "live", "overhears")
        )

    def _check_door(self, plan: ReloadPlan) -> None:
        """Channels that are called need the HTTP door, which is opened at the start, and each a path of its own."""
        kept = {name: one for name, one in self._daemon.webhooks().items() if name in plan.tables}
        fresh = {name: line.channel for name, line in plan.fresh.items() if isinstance(line.channel, SupportsWebhook)}
        if fresh and not self._daemon.called:
            raise ConfigError(
                f"[channels.{next(iter(fresh))}] is called over HTTP: restart the bot, which opens [http] then."
            )
        check_paths({**kept, **fresh})

    async def _line(self, name: str, table: Table, settings: Settings) -> ChannelRuntime:
        maker, access = self._daemon.app.maker, self._daemon.access
        channel = self._adapter(name, table)
        try:
            return await maker.line(channel, rules_of(table[0], settings, access))
        except BaseException:
            if isinstance(channel, SupportsClose):
                await channel.aclose()
            raise

    def _adapter(self, name: str, table: Table) -> Channel:
        common, own = table
        people = partial(self._daemon.access.people, name)
        try:
            return self._daemon.app.maker.channel(
                name, {**own, "kind": common.kind}, people, overhears=common.overhears
            )
        except ConfigError:
            raise
        except Exception as error:  # the adapter is someone else's code; its defect must not end a bot that runs
            raise _defect(name, error) from error

    async def _introduced(self, name: str, table: Table) -> str:
        """What is wrong where the platform does not take what is new, in a sentence. An adapter of its own asks: one that
        has introduced itself is not run."""
        channel = self._adapter(name, table)
        try:
            if isinstance(channel, VerifiesCredentials):
                async with asyncio.timeout(VERIFY_TIMEOUT_SECONDS):
                    await channel.introduce()
        except ChannelRefused as error:
            return f"[channels.{name}]: {error}"
        except (ChannelError, TimeoutError) as error:
            told = "[channels.%s] could not be asked: %s"
            log.warning(told, name, str(error) or "no answer", extra={"action": "config.unasked", "channel": name})
        except Exception as error:  # noqa: BLE001 - see `_adapter`
            return str(_defect(name, error))
        finally:
            if isinstance(channel, SupportsClose):
                with suppress(TimeoutError):
                    async with asyncio.timeout(CHANNEL_CLOSE_SECONDS):
                        await channel.aclose()
        return ""

    async def _in_force(self, plan: ReloadPlan, fact: TapeEntry) -> None:
        await self._taken_over(plan)
        await self._tape.append([fact])

    async def _lines_replaced(self, plan: ReloadPlan) -> None:
        """Ends what has to end, and puts what is new in its place; nothing of it is run yet."""
        app, manager = self._daemon.app, self._daemon.manager
        for name in plan.ended:
            await manager.stop_one(name, self._grace.deliveries)
            await app.runtime.leave(name, self._grace.turns)
            del app.lines[name]
            app.time.links.pop(name, None)
        for name, line in plan.fresh.items():
            if name in app.lines:
                await manager.stop_one(name, self._grace.deliveries)
            app.lines[name] = line

    async def _taken_over(self, plan: ReloadPlan) -> None:
        app, settings = self._daemon.app, plan.settings
        logs.renew(settings.log.level, settings.secrets())
        added = {name for name in plan.fresh if name not in app.lines}
        await self._lines_replaced(plan)
        self._daemon.access.configured = {
            name: admission_of(common, settings).listed for name, (common, _) in plan.tables.items()
        }
        for name in plan.tables.keys() - plan.fresh.keys():
            if plan.tables[name][0] != self._tables[name][0] or settings.bot.name != self.current.bot.name:
                app.lines[name].renew(rules_of(plan.tables[name][0], settings, self._daemon.access))
        app.time.book.limits = limits_of(settings)
        app.purse = renewed(app.purse, settings, plan.rates)
        old_models = app.sets[-1]
        if plan.models is not None:
            app.sets.append(plan.models)
        toolbox = await self._renewed(settings)
        app.watch.settings = settings
        app.commands[:] = typed_commands(toolbox, app.shared.texts)
        self.current, self._tables = settings, dict(plan.tables)
        for name in plan.fresh:
            await self._begin(name, added=name in added)
        for changed in self._daemon.reloaded:
            changed()
        if plan.models is not None:
            self._close_later(old_models)

    async def _renewed(self, settings: Settings) -> Toolbox:
        """Every session goes by the new settings from its next turn on."""
        app = self._daemon.app
        for line in app.lines.values():
            app.time.join(line)
        deps, toolbox = make_turns(settings, app.shared, app.sets[-1], app.purse)
        app.runtime.renew({name: line.link for name, line in app.lines.items()}, deps)
        for line in app.lines.values():
            line.open_gate(app.runtime, app.shared.texts, activity=app.shared.activity, report=app.shared.report)
        return toolbox

    async def _begin(self, name: str, *, added: bool) -> None:
        """The channel is run. What it still owes is taken up: by an added one what an earlier process left, too."""
        try:
            await self._take_up(name, added=added)
        except StoreError as error:  # it is heard all the same; what is owed waits for the next start
            log.error("what %s owes was not taken up: %s", name, error, extra={"action": "config.owed"})  # noqa: TRY400
        self._daemon.manager.start_one(name, self._daemon.app.group.create_task)

    async def _take_up(self, name: str, *, added: bool) -> None:
        app, line = self._daemon.app, self._daemon.app.lines[name]
        if added:
            await line.inbox.begin(timestamp(now()))
            recovered = await recover(app.store, [line.inbox], app.maker.service)
            await app.time.book.load()
            line.take_up(recovered)
        await line.deliverer.resume(queued=True)

    def _close_later(self, models: ModelSet) -> None:
        """Closes models when the turns that began with them have ended."""

        async def close() -> None:
            await self._daemon.app.runtime.turns_ended()
            self._daemon.app.sets.remove(models)
            await models.aclose()

        task = self._daemon.app.group.create_task(close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _defect(name: str, error: Exception) -> ConfigError:
    return ConfigError(f"[channels.{name}]: its adapter failed ({type(error).__name__}: {error})")
