"""setWebhook and delivery: updates are posted in order, each until the bot answers 2xx."""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

import aiohttp

from tests.fakes.botapi.errors import Json, bad, conflict
from tests.fakes.botapi.params import Params
from tests.fakes.botapi.updates import BY_WEBHOOK
from tests.fakes.botapi.world import Bot, Webhook, World

SECRET_HEADER = "X-Telegram-Bot-Api-Secret-Token"
PORTS = frozenset({80, 88, 443, 8443})
Reply = Callable[[Bot, Json], Awaitable[None]]
"""Carries out a request that a bot gives as the answer to an update."""


@dataclass(slots=True)
class Webhooks:
    """Delivers updates of all bots that set a webhook. The first retry comes after `retry` seconds, later ones slower.

    As a self-hosted server does in its local mode, it takes HTTP and any port for addresses of the machine itself.
    """

    world: World
    reply: Reply
    retry: float = 1.0
    longest: float = 60.0

    async def set(self, bot: Bot, params: Params) -> bool:
        """An empty address removes the webhook."""
        url, secret = params.text("url"), params.text("secret_token")
        if secret and not re.fullmatch(r"[A-Za-z0-9_-]{1,256}", secret):
            raise bad("secret token contains unallowed characters")
        if url:
            _check(url)
        await self.remove(bot, params)
        bot.queue.allow(params.decoded("allowed_updates", list, "can't parse allowed_updates JSON object"))
        if url:
            bot.queue.abort(conflict(BY_WEBHOOK))
            bot.webhook = Webhook(url, secret, params.number("max_connections", 40, 1, 100))
            bot.webhook.task = asyncio.get_running_loop().create_task(self._deliver(bot, bot.webhook))
        return True

    async def remove(self, bot: Bot, params: Params) -> bool:
        if params.flag("drop_pending_updates"):
            bot.queue.drop()
        if bot.webhook is not None and bot.webhook.task is not None:
            bot.webhook.task.cancel()
            await asyncio.wait({bot.webhook.task}, timeout=5)
        bot.webhook = None
        return True

    async def _deliver(self, bot: Bot, hook: Webhook) -> None:
        headers = {SECRET_HEADER: hook.secret} if hook.secret else {}
        pause = self.retry
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60), headers=headers) as session:
            while True:
                bot.queue.changed.clear()
                for update in bot.queue.pending()[:1]:
                    error = await self._post(session, bot, hook, update)
                    if not error:
                        bot.queue.delivered(update["update_id"])
                        bot.queue.changed.set()
                        pause = self.retry
                        continue
                    hook.last_error, hook.last_error_date = error, self.world.clock.seconds()
                    self.world.changed.set()
                    await asyncio.sleep(pause)
                    bot.queue.changed.set()
                    pause = min(pause * 2, self.longest)
                await bot.queue.changed.wait()  # ends with the task, when the webhook is removed

    async def _post(self, session: aiohttp.ClientSession, bot: Bot, hook: Webhook, update: Json) -> str:
        """What went wrong, in the server's words; empty where nothing did."""
        try:
            async with session.post(hook.url, json=update, allow_redirects=False) as answer:
                if not 200 <= answer.status < 300:
                    return f"Wrong response from the webhook: {answer.status} {answer.reason}"
                given = await answer.json() if answer.content_type == "application/json" else None
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            return f"Connection failed: {type(error).__name__}"
        if isinstance(given, dict) and isinstance(given.get("method"), str):
            await self.reply(bot, given)
        return ""


def _check(url: str) -> None:
    try:
        parts = urlsplit(url)
        port = parts.port or 443
    except ValueError as error:
        raise bad("invalid webhook URL specified") from error
    if not parts.hostname or parts.scheme not in ("http", "https"):
        raise bad("invalid webhook URL specified")
    if _here(parts.hostname):
        return
    if parts.scheme != "https":
        raise bad("bad webhook: An HTTPS URL must be provided for webhook")
    if port not in PORTS:
        raise bad("bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443")


def _here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
