"""Who the bot is on Discord, asked before it runs: its application, with the bot in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bubbot.errors import ChannelError
from bubbot.ports.channel import BotIdentity
from channels.discord.api import DiscordApi
from channels.discord.errors import DiscordApiError, DiscordUnavailable, refused_token
from channels.discord.run import SEES_TEXT, application
from channels.discord.settings import DiscordSettings
from channels.platform.http_date import iso


async def introduce(api: DiscordApi, settings: DiscordSettings, *, within: float) -> BotIdentity:
    """See `VerifiesCredentials`."""
    channel = settings.channel
    try:
        found = await api.call("GET", "/applications/@me", within=within)
        number, flags = application(found)
    except DiscordApiError as error:
        if error.token_refused:
            raise refused_token(channel) from None
        raise ChannelError(f"[channels.{channel}] Discord refused ({error.status}): {error.text}.") from None
    except (DiscordUnavailable, TypeError) as error:
        raise ChannelError(f"[channels.{channel}] Discord cannot be reached: {error}.") from None
    # An application without a bot has no token that gets so far; its own name is the next best.
    bot: dict[str, Any] = found["bot"] if isinstance(found.get("bot"), dict) else found
    name = str(bot.get("username") or found.get("name") or "")
    return BotIdentity(str(bot.get("id") or number), name, tuple(_remarks(found, flags, settings)), iso(api.date))


def _remarks(found: dict[str, Any], flags: int, settings: DiscordSettings) -> Iterator[str]:
    if settings.content == "all" and not flags & SEES_TEXT:
        yield (
            "Discord does not give it the text of messages, and it does not start so: turn the Message Content Intent on "
            'at discord.com/developers, on the page Bot of the application, or set content = "mentions".'
        )
    if settings.slash and found.get("interactions_endpoint_url"):
        yield (
            "Its application has an Interactions Endpoint URL, so that slash commands do not come to bubbot: empty it at "
            "discord.com/developers, on the page General Information."
        )
