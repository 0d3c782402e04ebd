"""Verifies a token: asks its platform for the identity of the bot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bubbot import plugins
from bubbot.errors import ChannelError
from bubbot.ports.channel import BotIdentity, Channel, ChannelOptions, SupportsClose, VerifiesCredentials
from bubbot.settings.channels import split_channel_settings

VERIFY_TOKEN_SECONDS = 20.0
"""The time an adapter may take in total; each has a shorter timeout itself."""


def make_channel(
    name: str, table: Mapping[str, Any], home: Path, now: Callable[[], str], new_id: Callable[[], str]
) -> Channel:
    """Make the adapter of `[channels.NAME]` with these keys; send no request. Raises `ConfigError` for a wrong key."""
    common, channel_options = split_channel_settings(name, table)
    options = ChannelOptions(
        name, home, now, new_id, channel_options, overhears=bool(common.respond_to_all or common.record_only)
    )
    channel: Channel = plugins.load("bubbot.channels", common.kind)(options)
    return channel


def verify_token(channel: Channel) -> BotIdentity | None:
    """Ask the platform for the bot's identity; None if the adapter cannot ask.

    Raises `ChannelRefused` for a wrong token, `ChannelError` if the platform cannot be reached.
    """
    return asyncio.run(_introduce(channel))


async def _introduce(channel: Channel) -> BotIdentity | None:
    try:
        if not isinstance(channel, VerifiesCredentials):
            return None
        async with asyncio.timeout(VERIFY_TOKEN_SECONDS):
            return await channel.verify_token()
    except TimeoutError:
        raise ChannelError(f"[channels.{channel.name}] does not answer.") from None
    finally:
        if isinstance(channel, SupportsClose):
            await channel.aclose()


def close_channel(channel: Channel) -> None:
    """Free the resources of an adapter that never ran."""
    if isinstance(channel, SupportsClose):
        asyncio.run(channel.aclose())
