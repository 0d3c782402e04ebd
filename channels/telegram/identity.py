"""The bot's identity on Telegram, checked before it runs, by `getMe` and `getWebhookInfo`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from bubbot.errors import ChannelError
from bubbot.ports.channel import BotIdentity
from channels.platform.http_date import parse_http_date
from channels.telegram.api import TelegramApi
from channels.telegram.errors import TelegramApiError, TelegramUnavailable, is_token_refusal, make_token_error
from channels.telegram.settings import TelegramSettings


async def verify_token(
    api: TelegramApi, settings: TelegramSettings, *, overhears: bool, timeout_seconds: float
) -> BotIdentity:
    """Check the token and report the bot's identity, with remarks about its account. See `VerifiesCredentials`.

    Args:
        overhears: the bot also needs messages that do not address it.
        timeout_seconds: seconds for all calls.
    """
    channel = settings.channel
    try:
        async with asyncio.timeout(timeout_seconds):
            me = await api.call("getMe")
            hook = await api.call("getWebhookInfo")
        number, name = int(me["id"]), str(me["username"])
    except TimeoutError:
        raise ChannelError(f"[channels.{channel}] Telegram did not answer within {timeout_seconds:g} s.") from None
    except TelegramApiError as error:
        if is_token_refusal(error):
            raise make_token_error(channel, error, self_hosted=settings.is_self_hosted) from None
        raise ChannelError(f"[channels.{channel}] Telegram refused ({error.code}): {error.description}") from None
    except TelegramUnavailable as error:
        raise ChannelError(f"[channels.{channel}] Telegram cannot be reached: {error}.") from None
    except (KeyError, TypeError, ValueError):
        raise ChannelError(f"[channels.{channel}] Telegram's answer to getMe names no bot.") from None
    remarks = [*_privacy_remarks(me, overhears=overhears), *_webhook_remarks(hook, settings)]
    return BotIdentity(str(number), name, tuple(remarks), parse_http_date(api.date))


def _privacy_remarks(me: dict[str, Any], *, overhears: bool) -> Iterator[str]:
    if overhears and me.get("can_read_all_group_messages") is False:
        yield (
            "Privacy mode is on, so that in groups Telegram shows it only what is said to it, while respond_to_all or record_only "
            "want more: send /setprivacy to @BotFather, choose Disable, and put the bot into its groups anew (or make "
            "it their administrator)."
        )
    if me.get("can_join_groups") is False:
        yield "Nobody can put it into a group: send /setjoingroups to @BotFather and choose Enable, if it shall be in any."


def _webhook_remarks(hook: Any, settings: TelegramSettings) -> Iterator[str]:
    if not isinstance(hook, dict):
        return
    url = str(hook.get("url") or "")
    if url and not settings.uses_webhook:
        yield (
            f"Telegram calls a webhook at {_host(url)} and nobody can poll meanwhile; bubbot removes it when it starts: "
            f'stop the program that set it, or set mode = "webhook".'
        )
    elif url and url != settings.webhook_url:
        yield (
            f"Telegram calls a webhook at {_host(url)} that is not webhook_url; bubbot sets its own when it starts: stop "
            f"the program that set this one."
        )
    elif url and hook.get("last_error_message"):
        problem = " ".join(str(hook["last_error_message"]).split())[:200].replace(settings.token, "[token]")
        yield f"Telegram's last failed call of webhook_url ended with: {problem}. See that it is reached from outside."


def _host(url: str) -> str:
    """Return the host alone: the rest of the address may be another program's secret."""
    try:
        return urlsplit(url).hostname or "an address"
    except ValueError:
        return "an address"
