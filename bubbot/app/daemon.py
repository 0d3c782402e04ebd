"""The daemon: runs every configured channel, with admission and retries."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from zoneinfo import ZoneInfo

from msgspec import structs

from bubbot.app.bot import Bot, PortWrappers, open_bot
from bubbot.app.channel_factory import ChannelFactory
from bubbot.app.channels import STDIN, admission_settings, channel_policy, channel_tables
from bubbot.app.reading_on import find_shared
from bubbot.app.tapes import now
from bubbot.concurrency import Backoff, supervise
from bubbot.features.access.commands import access_tools
from bubbot.features.access.service import ACCESS_TAPE, AccessService
from bubbot.features.config.commands import config_tools
from bubbot.gateway.channel_runtime import ChannelPolicy, ChannelRuntime
from bubbot.gateway.daily_digest import DailyDigest
from bubbot.gateway.directory import ChannelDirectory
from bubbot.gateway.facts import HomeRestored
from bubbot.gateway.manager import ChannelManager, receive_at_once
from bubbot.home import Home
from bubbot.ports.channel import Outbound, SupportsWebhook
from bubbot.ports.requests import SharesRequests
from bubbot.ports.settings import ChangesSettings
from bubbot.ports.store import KeepsChain
from bubbot.server.remote import RemoteChannel
from bubbot.settings.loader import Settings
from bubbot.stores.group import ROOM_RETRY_SECONDS
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.fact import Cited

log = logging.getLogger(__name__)

COLLECTION_THRESHOLDS = (5_000, 3, 60)
"""New objects before the garbage collector looks at them, and how many collections of one generation come before one of
the next.

A turn leaves no garbage, so a collection only blocks the event loop: those of the first two generations must be short,
and full ones must be rare.
"""


@dataclass
class Daemon:
    """A running bot with many channels.

    Attributes:
        access: knows the people of its channels.
        manager: runs the channels.
        remote: the channel of terminals that connect to the control socket.
        quarantine: the backup from which the home was restored, while it is in quarantine.
        has_webhook_server: true if the HTTP server for webhooks is open.
        on_reload: called after each reload, which may have replaced channels.
    """

    bot: Bot
    access: AccessService
    manager: ChannelManager
    remote: RemoteChannel
    quarantine: Cited[HomeRestored] | None = None
    has_webhook_server: bool = False
    on_reload: list[Callable[[], None]] = field(default_factory=list)

    def webhook_channels(self) -> dict[str, SupportsWebhook]:
        """Return the channels whose platforms call webhooks."""
        return {
            name: channel_runtime.channel
            for name, channel_runtime in self.bot.channel_runtimes.items()
            if isinstance(channel_runtime.channel, SupportsWebhook)
        }

    def start_features(self) -> list[asyncio.Task[None]]:
        """Start the background work of the features, none in quarantine. Cancel it before the channels end."""
        if self.quarantine is not None:
            return []
        shared, works = find_shared(self.bot.base_store), dict[str, Callable[[], Awaitable[None]]]()
        for feature in self.bot.features.lasting:
            works |= feature.lifecycle.background_everywhere
            for name, work in feature.lifecycle.background.items():
                works[name] = work if shared is None else partial(shared.keep, f"{feature.name}: {name}", work)
        if shared is not None:
            works["reading on"] = self.bot.features.reader.run
        if isinstance(self.bot.base_store, SharesRequests):
            works["requests of other processes"] = partial(
                self.bot.base_store.requests.serve, self.bot.runtime.answer_request
            )
        return [
            self.bot.group.create_task(supervise(name, work, Backoff(random.random))) for name, work in works.items()
        ]

    def start_daily_digest(self, zone: str) -> list[asyncio.Task[None]]:
        """Start logging the deployment head, now and each midnight, if the store has one. Cancel it at the end."""
        if not isinstance(self.bot.base_store, KeepsChain):
            return []
        digest = DailyDigest(self.bot.health_collector.deployment_head, ZoneInfo(zone), now)
        return [self.bot.group.create_task(supervise("daily tape digest", digest.run, Backoff(random.random)))]


@asynccontextmanager
async def open_daemon(
    settings: Settings,
    home: Home,
    *,
    address: str = "",
    wrappers: PortWrappers | None = None,
    running: ChangesSettings | None = None,
) -> AsyncIterator[Daemon]:
    """Open a bot with every configured channel; hold the home's lock until the block ends. It receives nothing yet.

    Args:
        address: its control socket; empty: none.
        running: lets owners change its settings in a chat; None: they cannot.

    Raises:
        HomeLocked: another process holds the lock.
        ConfigError: a setting cannot be used.
        StoreError: the database cannot be opened.
    """
    configured = channel_tables(settings)
    access_services: list[AccessService] = []
    directories: list[ChannelDirectory] = []
    remote = RemoteChannel(STDIN)

    async def on_granted(channel: str, sender_id: str) -> None:
        await directories[0].admit(channel, sender_id)

    async def is_group(channel: str, number: str) -> bool:
        return await directories[0].is_group(channel, number)

    async def leave(channel: str, group: str) -> None:
        await directories[0].leave(channel, group)

    async def build_channels(maker: ChannelFactory) -> list[ChannelRuntime]:
        if maker.restore_fact is not None:
            _warn_of_quarantine(maker.restore_fact)
        tables = {} if maker.restore_fact else configured
        people = {name: admission_settings(common, settings).listed_people for name, (common, _) in configured.items()}
        access = AccessService(
            maker.open_tape(ACCESS_TAPE),
            now=now,
            random=os.urandom,
            configured=people,
            projections=maker.projections,
            first_session=maker.first_session,
            on_granted=on_granted,
            is_group=is_group,
        )
        await access.load()
        access_services.append(access)
        rules = {name: channel_policy(common, settings, access) for name, (common, _) in tables.items()}
        runtimes = [
            await maker.build_runtime(
                maker.build_adapter(
                    name,
                    {**adapter_settings, "kind": common.kind},
                    partial(access.list_people, name),
                    overhears=common.overhears,
                ),
                rules[name],
            )
            for name, (common, adapter_settings) in tables.items()
        ]
        remote.read_blob = maker.blob_reader(STDIN)
        return [*runtimes, await maker.build_runtime(remote, ChannelPolicy(deliver_in_background=True))]

    wrappers = wrappers or PortWrappers()

    async def send(
        session: str, key: str, outbound: Outbound, extra_entries: Mapping[str, Sequence[TapeEntry]]
    ) -> None:
        await directories[0].send(session, key, outbound, extra_entries)

    own_tools = (*access_tools(lambda: access_services[0], send, leave), *(config_tools(running) if running else ()))
    wrappers = structs.replace(wrappers, tools=[*wrappers.tools, *own_tools])
    async with open_bot(
        settings,
        home,
        build_channels,
        wrappers,
        address,
        room_retry=ROOM_RETRY_SECONDS,
        is_daemon=True,
        may_read=lambda reader, source: access_services[0].may_read(reader, source),  # noqa: PLW0108 - it exists by then
    ) as app:
        directories.append(app.directory)
        app.turn_services.texts.read_all()
        for name in () if app.channel_factory.restore_fact else configured:
            await app.channel_runtimes[name].inbox.record_begin(timestamp(now()))
        manager = ChannelManager(
            app.channel_runtimes,
            app.runtime,
            Backoff(random.random),
            app.workers.receive if app.workers else receive_at_once,
        )
        app.health_collector.channel_states = lambda: (
            {name: manager.states.get(name, "") for name in app.channel_runtimes if name != remote.name},
            manager.refusals,
        )
        if app.workers is not None:
            app.health_collector.standing_by = app.workers.standing_by
        with rare_collections():
            yield Daemon(app, access_services[0], manager, remote, app.channel_factory.restore_fact)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Let the garbage collector run less often within the block."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _warn_of_quarantine(restored: Cited[HomeRestored]) -> None:
    log.warning(
        "this home was restored from %s (%s) and is in quarantine: no channel is started and no job fires, but bubbot chat "
        "works. To end this, run bubbot restore --release and start again", restored.fact.backup, restored.fact.created[:19],
        extra={"action": "run.quarantine"},
    )  # fmt: skip
