"""The bot's identity on Discord, checked before it runs: its application, which contains the bot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bubbot.errors import ChannelError
from bubbot.ports.channel import BotIdentity
from channels.discord.api import DiscordApi
from channels.discord.errors import DiscordApiError, DiscordUnavailable, token_refused_error
from channels.discord.run import MESSAGE_CONTENT_FLAGS, read_application
from channels.discord.settings import DiscordSettings
from channels.platform.http_date import parse_http_date


async def verify_token(api: DiscordApi, settings: DiscordSettings, *, timeout: float) -> BotIdentity:
    """Fetch the bot's identity; see `VerifiesCredentials`. `timeout` is the timeout in seconds."""
    channel = settings.channel
    try:
        body = await api.call("GET", "/applications/@me", timeout=timeout)
        number, flags = read_application(body)
    except DiscordApiError as error:
        if error.is_token_refused:
            raise token_refused_error(channel) from None
        raise ChannelError(f"[channels.{channel}] Discord refused ({error.status}): {error.text}.") from None
    except (DiscordUnavailable, TypeError) as error:
        raise ChannelError(f"[channels.{channel}] Discord cannot be reached: {error}.") from None
    # Only an application with a bot has a token, so this should exist; the application's own name is the fallback.
    bot: dict[str, Any] = body["bot"] if isinstance(body.get("bot"), dict) else body
    name = str(bot.get("username") or body.get("name") or "")
    return BotIdentity(
        str(bot.get("id") or number), name, tuple(_remarks(body, flags, settings)), parse_http_date(api.server_date)
    )


def _remarks(app: dict[str, Any], flags: int, settings: DiscordSettings) -> Iterator[str]:
    if settings.content == "all" and not flags & MESSAGE_CONTENT_FLAGS:
        yield (
            "Discord does not give it the text of messages, and it does not start so: turn the Message Content Intent on "
            'at discord.com/developers, on the page Bot of the application, or set content = "mentions".'
        )
    if settings.slash and app.get("interactions_endpoint_url"):
        yield (
            "Its application has an Interactions Endpoint URL, so that slash commands do not come to bubbot: empty it at "
            "discord.com/developers, on the page General Information."
        )
