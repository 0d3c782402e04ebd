"""The daemon: every configured channel as a line, with admission and patience."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bubbot.access import ACCESS_TAPE, Access
from bubbot.errors import ConfigError
from bubbot.gateway.admission import Admission, AdmissionSettings, Space
from bubbot.gateway.line import Line, LineRules
from bubbot.gateway.manager import ChannelManager
from bubbot.gateway.outbound import Patience
from bubbot.gateway.remote import RemoteChannel
from bubbot.home import Home
from bubbot.runtime.waiting import WaitingRules
from bubbot.settings import Settings
from bubbot.settings_channels import TOKENED, UNHURRIED, ChannelSettings, GuildSettings, channel_settings
from bubbot.supervise import Pace, supervise
from bubbot.tape.entry import timestamp
from bubbot.wiring import STDIN, App, Wrap, now, open_bot
from bubbot.wiring_lines import Maker

log = logging.getLogger(__name__)

WAITS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""Seconds between tries of a delivery; the last goes on."""


@dataclass
class Daemon:
    """A running bot of many channels. `remote` is that of the terminals, which come over the control socket."""

    app: App
    access: Access
    manager: ChannelManager
    remote: RemoteChannel

    def keep_time(self) -> asyncio.Task[None]:
        """Begins to fire jobs; to be cancelled before the channels end."""
        keeper, pace = self.app.time.keeper(), Pace(random.random)
        return self.app.group.create_task(supervise("schedules", keeper.run, pace))


@asynccontextmanager
async def open_daemon(
    settings: Settings, home: Home, *, address: str = "", wrap: Wrap | None = None
) -> AsyncIterator[Daemon]:
    """A bot with every configured channel, holding the home's lock until the block ends. Nothing is received yet.

    `address`: its control socket. Raises `HomeLocked`, `ConfigError` or `StoreError` where it cannot start.
    """
    tables = _tables(settings)
    made: list[Access] = []
    remote = RemoteChannel(STDIN)

    async def lines(maker: Maker) -> list[Line]:
        listed = {name: _admission(common, settings).listed for name, (common, _) in tables.items()}
        access = Access(maker.service(ACCESS_TAPE), now=now, random=os.urandom, configured=listed)
        await access.load()
        made.append(access)
        rules = {name: _rules(common, settings, access) for name, (common, _) in tables.items()}
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
        return [*found, await maker.line(remote, LineRules(queued=True))]

    async with open_bot(settings, home, lines, wrap or Wrap(), address) as app:
        for name in tables:
            await app.lines[name].inbox.begin(timestamp(now()))
        yield Daemon(app, made[0], ChannelManager(app.lines, app.runtime, Pace(random.random)), remote)


def _tables(settings: Settings) -> dict[str, tuple[ChannelSettings, Mapping[str, Any]]]:
    """The channels to start. Raises `ConfigError` with a sentence for each problem."""
    found: dict[str, tuple[ChannelSettings, Mapping[str, Any]]] = {}
    problems: list[str] = []
    tokens: dict[object, str] = {}
    for name, table in settings.channels.items():
        try:
            common, own = channel_settings(name, table)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if common.kind in UNHURRIED or name == STDIN:
            continue  # the terminal comes through the control socket, whatever adapter it has
        if common.kind in TOKENED and not own.get("token"):
            told = "[channels.%s] has no token and is not started; `bubbot init` asks for one"
            log.warning(told, name, extra={"action": "channel.off"})
            continue
        first = tokens.setdefault((common.kind, own.get("token") or name), name)
        if first != name:
            # Each would take the other for a second program, and both would give up after a while.
            problems.append(f"[channels.{name}] token is that of [channels.{first}]: a bot can be on one channel only.")
        found[name] = (common, own)
    if problems:
        raise ConfigError("\n".join(problems))
    return found


def _admission(common: ChannelSettings, settings: Settings) -> AdmissionSettings:
    return AdmissionSettings(
        owners=frozenset(common.owners),
        admins=frozenset(common.admins),
        members=frozenset(common.members),
        groups=frozenset(common.groups),
        always=frozenset(common.always),
        listen=frozenset(common.listen),
        called=tuple(common.called) or (settings.bot.name,),
        pairing=common.pairing,
        bots=frozenset(common.bots),
        spaces={one: _space(guild) for one, guild in common.guilds.items()},
    )


def _space(guild: GuildSettings) -> Space:
    return Space(
        open=guild.open,
        admins=frozenset(guild.admins),
        members=frozenset(guild.members),
        roles=frozenset(guild.roles),
        admin_roles=frozenset(guild.admin_roles),
        always=frozenset(guild.always),
        listen=frozenset(guild.listen),
        ignored=frozenset(guild.ignored),
        called=tuple(guild.called),
    )


def _rules(common: ChannelSettings, settings: Settings, access: Access) -> LineRules:
    return LineRules(
        waiting=WaitingRules(common.debounce, common.busy, common.stale_after or None),
        patience=Patience(WAITS, goes_on=True, sleep=asyncio.sleep),
        admission=Admission(_admission(common, settings), access.role, time.monotonic),
        access=access,
        room=None,
        per_chat=common.per_chat,
        live=common.live,
        queued=True,
    )
