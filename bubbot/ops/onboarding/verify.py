"""Asks a platform who the bot with a token is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bubbot import plugins
from bubbot.errors import ChannelError
from bubbot.ports.channel import BotIdentity, Channel, ChannelOptions, SupportsClose, VerifiesCredentials
from bubbot.settings.channels import channel_settings

VERIFY_TOKEN_SECONDS = 20.0
"""Seconds an adapter may take for it all; each has a shorter patience of its own."""


def make_channel(
    name: str, table: Mapping[str, Any], home: Path, now: Callable[[], str], new_id: Callable[[], str]
) -> Channel:
    """The adapter of `[channels.NAME]` with these keys; asks nobody. Raises `ConfigError` for a wrong key or value."""
    common, own = channel_settings(name, table)
    options = ChannelOptions(name, home, now, new_id, own, overhears=bool(common.always or common.listen))
    channel: Channel = plugins.load("bubbot.channels", common.kind)(options)
    return channel


def meet(channel: Channel) -> BotIdentity | None:
    """Who the bot is; None where the adapter cannot ask.

    Raises `ChannelRefused` where the token is not taken, `ChannelError` where the platform is not reached.
    """
    return asyncio.run(_asked(channel))


async def _asked(channel: Channel) -> BotIdentity | None:
    try:
        if not isinstance(channel, VerifiesCredentials):
            return None
        async with asyncio.timeout(VERIFY_TOKEN_SECONDS):
            return await channel.introduce()
    except TimeoutError:
        raise ChannelError(f"[channels.{channel.name}] does not answer.") from None
    finally:
        if isinstance(channel, SupportsClose):
            await channel.aclose()


def close(channel: Channel) -> None:
    """Frees what an adapter that never ran holds."""
    if isinstance(channel, SupportsClose):
        asyncio.run(channel.aclose())
