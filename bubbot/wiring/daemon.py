"""The daemon: every configured channel as a line, with admission and patience."""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from zoneinfo import ZoneInfo

from bubbot.access import ACCESS_TAPE, AccessService
from bubbot.concurrency import Backoff, supervise
from bubbot.gateway.channel_runtime import ChannelPolicy, ChannelRuntime
from bubbot.gateway.daily_digest import DailyDigest
from bubbot.gateway.manager import ChannelManager
from bubbot.gateway.remote import RemoteChannel
from bubbot.home import Home
from bubbot.ports.channel import SupportsWebhook
from bubbot.settings.loader import Settings
from bubbot.stores.sqlite.writer import ROOM_RETRY_SECONDS
from bubbot.tape.entry import timestamp
from bubbot.views.quarantine import RestoreFact
from bubbot.wiring.app import Bot, PortWrappers, now, open_bot
from bubbot.wiring.channel_factory import ChannelFactory
from bubbot.wiring.channels import STDIN, admission_of, channel_tables, rules_of

log = logging.getLogger(__name__)


@dataclass
class Daemon:
    """A running bot of many channels. `remote` is that of the terminals, which come over the control socket."""

    app: Bot
    access: AccessService
    manager: ChannelManager
    remote: RemoteChannel
    quarantine: RestoreFact | None = None
    called: bool = False
    """Whether the HTTP door is open."""
    reloaded: list[Callable[[], None]] = field(default_factory=list)
    """Called after each reload, which has put other lines in the place of some."""

    def webhooks(self) -> dict[str, SupportsWebhook]:
        """The channels that are called by their platforms."""
        return {
            name: line.channel for name, line in self.app.lines.items() if isinstance(line.channel, SupportsWebhook)
        }

    def keep_time(self) -> asyncio.Task[None]:
        """Begins to fire jobs; to be cancelled before the channels end. In quarantine nothing comes."""
        if self.quarantine is not None:
            return self.app.group.create_task(_nothing())
        keeper, pace = self.app.time.keeper(), Backoff(random.random)
        return self.app.group.create_task(supervise("schedules", keeper.run, pace))

    def tell_daily(self, zone: str) -> asyncio.Task[None]:
        """Begins to log the deployment head, now and each midnight; to be cancelled at the end."""
        line = DailyDigest(self.app.watch.standing_of_tapes, ZoneInfo(zone), now)
        return self.app.group.create_task(supervise("the line of the day", line.run, Backoff(random.random)))


@asynccontextmanager
async def open_daemon(
    settings: Settings, home: Home, *, address: str = "", wrap: PortWrappers | None = None
) -> AsyncIterator[Daemon]:
    """A bot with every configured channel, holding the home's lock until the block ends. Nothing is received yet.

    `address`: its control socket. Raises `HomeLocked`, `ConfigError` or `StoreError` where it cannot start.
    """
    configured = channel_tables(settings)
    made: list[AccessService] = []
    remote = RemoteChannel(STDIN)

    async def lines(maker: ChannelFactory) -> list[ChannelRuntime]:
        if maker.restored is not None:
            _tell(maker.restored)
        tables = {} if maker.restored else configured
        listed = {name: admission_of(common, settings).listed for name, (common, _) in configured.items()}
        access = AccessService(maker.service(ACCESS_TAPE), now=now, random=os.urandom, configured=listed)
        await access.load()
        made.append(access)
        rules = {name: rules_of(common, settings, access) for name, (common, _) in tables.items()}
        found = [
            await maker.line(
                maker.channel(
                    name,
                    {**own, "kind": common.kind},
                    partial(access.people, name),
                    overhears=common.overhears,
                ),
                rules[name],
            )
            for name, (common, own) in tables.items()
        ]
        remote.blob = maker.blob(STDIN)
        return [*found, await maker.line(remote, ChannelPolicy(queued=True))]

    async with open_bot(settings, home, lines, wrap or PortWrappers(), address, room_retry=ROOM_RETRY_SECONDS) as app:
        for name in () if app.maker.restored else configured:
            await app.lines[name].inbox.begin(timestamp(now()))
        manager = ChannelManager(app.lines, app.runtime, Backoff(random.random))
        app.watch.standing = lambda: (
            {name: manager.states.get(name, "") for name in app.lines if name != remote.name},
            manager.refusals,
        )
        yield Daemon(app, made[0], manager, remote, app.maker.restored)


def _tell(restored: RestoreFact) -> None:
    log.warning(
        "this home was restored from %s (%s) and is in quarantine: no channel is started and no job fires, but bubbot chat "
        "works. bubbot restore --release, and a new start, end that", restored.backup, restored.created[:19],
        extra={"action": "run.quarantine"},
    )  # fmt: skip


async def _nothing() -> None:
    """Where no time is kept."""
