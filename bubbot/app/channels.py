"""Read each channel's settings: if it starts, who may speak there, and the retries of deliveries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from bubbot.errors import ConfigError
from bubbot.features.access.service import AccessService
from bubbot.gateway.admission import AdmissionPolicy, AdmissionSettings, SpaceRules
from bubbot.gateway.channel_runtime import ChannelPolicy
from bubbot.gateway.limits import PersonLimits
from bubbot.gateway.outbound import RetryPolicy
from bubbot.ports.channel import TERMINAL_CHANNEL
from bubbot.runtime.queue import QueuePolicy
from bubbot.settings.channels import (
    KINDS_REQUIRING_TOKEN,
    LINE_BUFFERED_KINDS,
    ChannelSettings,
    GuildSettings,
    split_channel_settings,
)
from bubbot.settings.loader import Settings

log = logging.getLogger(__name__)

STDIN = TERMINAL_CHANNEL
RETRY_DELAYS_SECONDS = (1.0, 2.0, 4.0, 8.0, 12.0)
"""Seconds between attempts of a delivery; the last one repeats, so it is the longest wait after an outage."""
ChannelTable = tuple[ChannelSettings, Mapping[str, Any]]
"""The common settings of a channel, and those for its adapter."""


def channel_tables(settings: Settings) -> dict[str, tuple[ChannelSettings, Mapping[str, Any]]]:
    """Return the settings of the channels to start. Raise `ConfigError` with a sentence for each problem."""
    tables: dict[str, tuple[ChannelSettings, Mapping[str, Any]]] = {}
    problems: list[str] = []
    tokens: dict[tuple[str, str], str] = {}
    for name, table in settings.channels.items():
        try:
            common, adapter_settings = split_channel_settings(name, table)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if common.kind in LINE_BUFFERED_KINDS or name == STDIN:
            continue  # terminals connect through the control socket, whatever their adapter
        if common.kind in KINDS_REQUIRING_TOKEN and not adapter_settings.get("token"):
            log.warning(
                "[channels.%s] has no token and is not started; `bubbot init` asks for one",
                name,
                extra={"action": "channel.off"},
            )
            continue
        first = tokens.setdefault((common.kind, str(adapter_settings.get("token") or name)), name)  # not validated yet
        if first != name:
            # Each would take the other for a second program, and both would stop after a while.
            problems.append(f"[channels.{name}] token is that of [channels.{first}]: a bot can be on one channel only.")
        tables[name] = (common, adapter_settings)
    if problems:
        raise ConfigError("\n".join(problems))
    return tables


def admission_settings(common: ChannelSettings, settings: Settings) -> AdmissionSettings:
    return AdmissionSettings(
        owners=frozenset(common.owners),
        admins=frozenset(common.admins),
        members=frozenset(common.members),
        groups=frozenset(common.groups),
        respond_to_all=frozenset(common.respond_to_all),
        record_only=frozenset(common.record_only),
        trigger_names=tuple(common.trigger_names) or (settings.bot.name,),
        pairing=common.pairing,
        bots=frozenset(common.bots),
        spaces={space: _space(guild) for space, guild in common.guilds.items()},
    )


def _space(guild: GuildSettings) -> SpaceRules:
    return SpaceRules(
        open=guild.open,
        admins=frozenset(guild.admins),
        members=frozenset(guild.members),
        roles=frozenset(guild.roles),
        admin_roles=frozenset(guild.admin_roles),
        respond_to_all=frozenset(guild.respond_to_all),
        record_only=frozenset(guild.record_only),
        ignored=frozenset(guild.ignored),
        trigger_names=tuple(guild.trigger_names),
    )


def channel_policy(common: ChannelSettings, settings: Settings, access: AccessService) -> ChannelPolicy:
    return ChannelPolicy(
        queue_policy=QueuePolicy(common.debounce, common.busy, common.stale_after or None),
        retry_policy=RetryPolicy(RETRY_DELAYS_SECONDS, repeat_last=True, sleep=asyncio.sleep),
        admission=AdmissionPolicy(admission_settings(common, settings), access.role, time.monotonic, access.audience),
        access=access,
        queue_limit=None,
        max_turns_per_chat=common.per_chat,
        live=common.live,
        deliver_in_background=True,
        person_limits=PersonLimits(common.messages_per_minute, common.messages_per_hour, common.bytes_per_day),
    )
