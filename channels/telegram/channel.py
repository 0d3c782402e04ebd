"""Telegram as a channel: long polling, or a webhook. python-telegram-bot makes the calls; updates are read as they come.

The other files of this package do the parts: settings, the API, polling, updates to events, sending, files, the menu.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import structs

from bubbot.errors import DeliveryFailed
from bubbot.ports.channel import (
    Attachment,
    BotIdentity,
    ButtonPress,
    ChannelAdapter,
    ChannelEvent,
    ChannelHealth,
    ChannelOptions,
    MessagePart,
    Outbound,
    Receipt,
    Receive,
)
from channels.platform.ordered import receive_together
from channels.telegram import text
from channels.telegram.api import UPDATE_KINDS, TelegramApi, TelegramApiTiming
from channels.telegram.command_menu import set_menu
from channels.telegram.errors import TelegramApiError, TelegramUnavailable, is_token_refusal, make_webhook_error
from channels.telegram.files import LocalFiles, fetch_attachment
from channels.telegram.identity import verify_token
from channels.telegram.inbound import make_unparsed, query_id, read_update
from channels.telegram.inbound_text import TelegramBotUser
from channels.telegram.poller import RetryingTelegramApi, run_polling
from channels.telegram.sender import TelegramSender
from channels.telegram.settings import TelegramSettings

log = logging.getLogger(__name__)
MAX_PRESS_ANSWER_CHARS = 200
"""Characters of the short answer to a press."""
MAX_WEBHOOK_BODY_BYTES = 1_000_000
"""Bytes in the body of one webhook call."""


class TelegramChannel:
    """A channel that polls Telegram. Settings: `TelegramSettings`.

    See `Channel`, `SupportsClose`, `SupportsTyping`, `SupportsEditing`, `FetchesAttachments`, `HasCommandMenu`,
    `ReportsHealth` and `VerifiesCredentials`.
    """

    def __init__(self, options: ChannelOptions, settings: TelegramSettings, timing: TelegramApiTiming) -> None:
        self.name = options.name
        self._commands = options.list_commands
        self._settings = settings
        self._timing = timing
        self.api = TelegramApi(settings, timing)
        """The Bot API, for calls that no other method makes."""
        self._sender = TelegramSender(self.api, settings, options.read_blob)
        self._now = options.now
        self._overhears = options.overhears
        local = LocalFiles(options.name, settings.file_folder, options.home)
        self._local = local if settings.is_self_hosted else None
        self._health = ChannelHealth(is_ready=False, note="not connected yet")
        self._retrying_api = RetryingTelegramApi(self.api, settings, timing, self._update_health)
        self._me = TelegramBotUser(0, "")

    @property
    def command_prefix(self) -> str:
        """See `HasCommandPrefix`."""
        return "/"

    async def run(self, receive: Receive) -> None:
        """Poll until cancelled."""
        await self._connect()

        async def deliver(batch: list[Any]) -> None:
            await self._receive_all(receive, map(self._read, batch))

        await run_polling(self.api, self._retrying_api, deliver)

    def health(self) -> ChannelHealth:
        """Report ready while Telegram answers; `heard` is the time of its last answer."""
        username = self._me.username
        return structs.replace(self._health, account=f"@{username}" if username else "")

    def _update_health(self, problem: str) -> None:
        heard = self._health.last_seen_at if problem else self._now()
        self._health = ChannelHealth(not problem, heard, problem or self._retrying_api.conflict_problem)

    async def _connect(self) -> None:
        """Fetch the bot's identity, which also tests the token, and set the menu."""
        me = await self._retrying_api(self._fetch_bot_user)
        self._health = ChannelHealth(
            is_ready=False, last_seen_at=self._health.last_seen_at, note="connected, nothing received yet"
        )
        self._me = me
        await self.update_commands()
        log.info(
            "telegram connected: channel=%s username=@%s", self.name, me.username, extra={"action": "telegram.ready"}
        )

    async def update_commands(self) -> None:
        """Recognize the current commands in groups, and set the menu if it is another one; once connected."""
        if not self._me.id:  # connecting takes them
            return
        commands = self._commands()
        names = frozenset(name for command in commands for name in command.slash_names)
        self._me = structs.replace(self._me, commands=names)
        await set_menu(self.api, self.name, commands)

    async def _fetch_bot_user(self) -> TelegramBotUser:
        user = await self.api.call("getMe")
        try:
            return TelegramBotUser(int(user["id"]), str(user["username"]))
        except (KeyError, TypeError, ValueError):
            raise TelegramUnavailable("its answer to getMe names no bot") from None

    def _read(self, raw: Any) -> ChannelEvent | None:
        """Return the event of an update; None if it does not concern the bot."""
        if isinstance(raw, dict) and isinstance(raw.get("my_chat_member"), dict):
            self._log_membership(raw["my_chat_member"])
        return read_update(self.name, self._me, raw, self._now())

    async def _receive_all(self, receive: Receive, events: Iterable[ChannelEvent | None]) -> None:
        """Pass events on, then answer the presses: until then Telegram shows the button as busy.

        The presses are answered concurrently, since one answer may take `press_timeout`.
        """
        presses: list[tuple[ButtonPress, str]] = []

        async def receive_event(event: ChannelEvent) -> bool | str | None:
            result = await receive(event)
            if isinstance(event, ButtonPress):
                presses.append((event, result if isinstance(result, str) else ""))
            return result

        await receive_together(receive_event, events)
        await asyncio.gather(*(self._answer_press(press, text) for press, text in presses))

    async def _answer_press(self, press: ButtonPress, text: str) -> None:
        parameters: dict[str, Any] = {"callback_query_id": query_id(press)}
        if text:
            parameters |= {"text": text[:MAX_PRESS_ANSWER_CHARS], "show_alert": False}
        try:
            async with asyncio.timeout(self._timing.press_timeout):
                await self.api.call("answerCallbackQuery", parameters)
        except (TelegramApiError, TelegramUnavailable, TimeoutError) as error:  # an old query, or an outage
            log.debug("press not answered: %s", error, extra={"action": "telegram.press"})

    def _log_membership(self, change: dict[str, Any]) -> None:
        """Log a change of the bot's membership in a chat; the operator needs the ids of chats."""
        try:
            chat, user, status = change["chat"]["id"], change["from"]["id"], change["new_chat_member"]["status"]
        except (KeyError, TypeError):
            return
        log.info(
            "bot membership changed: channel=%s status=%r chat=%r user=%r", self.name, status, chat, user,
            extra={"action": "telegram.membership"},
        )  # fmt: skip

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Split an answer into parts that fit Telegram's limits, with their entities."""
        return text.make_parts(outbound)

    async def send(self, part: MessagePart) -> Receipt:
        """Send one part; as plain text if Telegram refuses its markup, without its topic if that is gone."""
        return await self._sender.send(part)

    def mark_repeat(self, part: MessagePart, sentence: str) -> MessagePart:
        """See `MarksRepeats`."""
        return text.mark_repeat(part, sentence)

    @property
    def edit_interval(self) -> float:
        """Seconds between two edits; groups may allow fewer, which a 429 reports."""
        return self._settings.edit_interval

    async def edit(self, message: str, part: MessagePart) -> None:
        await self._sender.edit(message, part)

    async def typing(self, chat: str, thread: str) -> None:
        """Show "typing…" for about five seconds."""
        await self._sender.typing(chat, thread)

    async def leave(self, group: str) -> None:
        """See `LeavesGroups`."""
        try:
            await self.api.call("leaveChat", {"chat_id": group})
        except TelegramApiError as error:
            if error.code != 403:  # forbidden: the bot is no member any more
                raise DeliveryFailed(f"Telegram refuses: {error}", permanent=True) from error
        except TelegramUnavailable as error:
            raise DeliveryFailed(str(error)) from error

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """Fetch a file that came with a message; Telegram's own servers provide at most 20 MB."""
        return await fetch_attachment(self.api, attachment, limit, self._local)

    async def verify_token(self) -> BotIdentity:
        """Fetch the bot's identity; leave its webhook unchanged."""
        within = self._timing.verify_timeout
        return await verify_token(self.api, self._settings, overhears=self._overhears, timeout_seconds=within)

    async def aclose(self) -> None:
        await self.api.aclose()


class TelegramWebhookChannel(TelegramChannel):
    """A channel that Telegram calls. See `SupportsWebhook` and `WebhookVerifier`."""

    def __init__(self, options: ChannelOptions, settings: TelegramSettings, timing: TelegramApiTiming) -> None:
        super().__init__(options, settings, timing)
        self._receiving: Receive | None = None
        self._was_set = False

    async def run(self, receive: Receive) -> None:
        """Set the webhook and check every few minutes that it is still set, until cancelled."""
        await self._connect()
        self._receiving = receive
        try:
            await self._retrying_api(self._set_first_webhook)
            while True:
                await asyncio.sleep(self._timing.webhook_check_interval)
                await self._check_webhook()
        finally:
            self._receiving = None

    async def _set_first_webhook(self) -> None:
        try:
            await self._set_webhook()
        except TelegramApiError as error:
            if error.code != 400 or self._was_set:
                raise
            raise make_webhook_error(self.name, error) from None
        self._was_set = True

    async def _set_webhook(self) -> None:
        await self.api.call(
            "setWebhook",
            {
                "url": self._settings.webhook_url,
                "secret_token": self._settings.webhook_secret,
                "allowed_updates": UPDATE_KINDS,
                "drop_pending_updates": False,
                # One call at a time keeps the messages of a chat in order.
                "max_connections": 1,
            },
        )

    async def _check_webhook(self) -> None:
        try:
            webhook = await self.api.call("getWebhookInfo")
            if isinstance(webhook, dict) and webhook.get("url") != self._settings.webhook_url:
                log.warning(
                    "webhook changed by another program, setting it again: channel=%s",
                    self.name, extra={"action": "telegram.webhook_changed"},
                )  # fmt: skip
                await self._set_webhook()
        except (TelegramApiError, TelegramUnavailable) as error:
            if isinstance(error, TelegramApiError) and is_token_refusal(error):
                return await self._retrying_api(self._set_webhook)
            log.warning(
                "webhook check failed: channel=%s error=%s", self.name, error,
                extra={"action": "telegram.webhook_unchecked"},
            )  # fmt: skip

    @property
    def path(self) -> str:
        """The path of `webhook_url`."""
        return urlsplit(self._settings.webhook_url).path or "/"

    def verify(self, headers: Mapping[str, str]) -> bool:
        """See `WebhookVerifier`. A caller without the secret learns nothing, not even from the response time."""
        secret = headers.get("x-telegram-bot-api-secret-token", "")
        return hmac.compare_digest(secret.encode(errors="replace"), self._settings.webhook_secret.encode())

    async def handle(self, headers: Mapping[str, str], body: bytes) -> int:
        """Handle one call: return 200 when its update is durable.

        Return 401 if the secret is wrong, 413 if the body is too long, 503 if the channel is not ready yet. Errors of
        `receive` pass through; the caller then has to answer 500, so that Telegram calls again.
        """
        if not self.verify(headers):
            return 401
        if len(body) > MAX_WEBHOOK_BODY_BYTES:
            return 413
        if self._receiving is None:
            return 503
        receive = self._receiving
        self._update_health("")
        try:
            raw = json.loads(body)
        except (ValueError, RecursionError):
            await receive(make_unparsed(self.name, self._me, body, "a call of the webhook that is not JSON"))
        else:
            await self._receive_all(receive, [self._read(raw)])
        return 200


def _build(options: ChannelOptions, settings: TelegramSettings) -> TelegramChannel:
    kind = TelegramWebhookChannel if settings.uses_webhook else TelegramChannel
    return kind(options, settings, TelegramApiTiming())


create = ChannelAdapter(TelegramSettings, _build)
"""The factory of the entry point."""
