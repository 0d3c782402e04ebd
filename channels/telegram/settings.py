"""The settings of `[channels.<name>]` with `kind = "telegram"`, and their validation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from channels.platform import keys
from channels.platform.keys import SettingKey, TableReader

TELEGRAM_API_URL = "https://api.telegram.org"
TELEGRAM_WEBHOOK_PORTS = (443, 80, 88, 8443)
"""Ports on which Telegram's own servers call webhooks."""

_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,200}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{8,256}")


TELEGRAM_KEYS = (
    SettingKey("token", "secret text", None, "The token that @BotFather gave to the bot."),
    SettingKey("mode", "one of polling, webhook", "polling", "Whether bubbot asks Telegram, or Telegram calls bubbot."),
    SettingKey("base_url", "text", TELEGRAM_API_URL, "The web address of the Bot API server."),
    SettingKey("base_file_url", "text", None, "Where files are fetched; where not set, `/file` at `base_url`."),
    SettingKey("file_folder", "text", None, "The folder in which a Bot API server of your own that runs with `--local` keeps its files; none of another folder is read."),
    SettingKey("proxy", "text", None, "The web address of a proxy for everything sent to Telegram: http, https or socks5."),
    SettingKey("poll_timeout", "whole number from 1 to 50", 30, "Seconds Telegram holds a request that has no news."),
    SettingKey("webhook_url", "text", None, "The public web address that Telegram calls; its path is the one bubbot serves."),
    SettingKey("webhook_secret", "secret text", None, "What Telegram has to send with each call; 8 to 256 of A-Z a-z 0-9 _ -."),
    SettingKey("edit_interval", "number from 0 to 60", 1.5, "Seconds between two changes of a live answer; 0: no live answers."),
    SettingKey("link_previews", "true or false", default=False, description="Whether Telegram shows a preview of a link in an answer."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TelegramSettings:
    """Validated values. Secrets are left out of `repr`.

    Attributes:
        channel: the configured name of the channel.
        token: the bot's token.
        uses_webhook: Telegram calls the channel; else the channel polls.
        base_url: the address of the Bot API, up to the token.
        base_file_url: the address of files, up to the token.
        file_folder: a self-hosted server's folder of files; None if not set.
        proxy: the address of the proxy; None if not set.
        poll_timeout: seconds that Telegram holds a poll.
        webhook_url: the address that Telegram calls; empty without `uses_webhook`.
        webhook_secret: the secret in each call; empty without `uses_webhook`.
        edit_interval: seconds between two edits of a live answer; 0: no live answers.
        link_previews: Telegram shows previews of links.
    """

    channel: str
    token: str = field(repr=False)
    uses_webhook: bool
    base_url: str
    base_file_url: str
    file_folder: Path | None
    proxy: str | None = field(repr=False)
    poll_timeout: int
    webhook_url: str
    webhook_secret: str = field(repr=False)
    edit_interval: float
    link_previews: bool

    @property
    def is_self_hosted(self) -> bool:
        """True if the Bot API server is not Telegram's own."""
        return self.base_url != f"{TELEGRAM_API_URL}/bot"


def read_settings(channel: str, table: Mapping[str, Any]) -> TelegramSettings:
    """Validate the table of a channel. Raises `ConfigError` with the key and the fix, never a secret value."""
    reader = TableReader(TELEGRAM_KEYS, channel, table)
    server = _read_server(reader)
    files = reader.read_url("base_file_url", ("http", "https")) or f"{server}/file"
    webhook = reader.read_choice("mode", ("polling", "webhook")) == "webhook"
    return TelegramSettings(
        channel=channel,
        token=_read_token(reader),
        uses_webhook=webhook,
        base_url=f"{server}/bot",
        base_file_url=f"{files.removesuffix('/bot').rstrip('/')}/bot",
        file_folder=_read_file_folder(reader),
        proxy=reader.read_url("proxy", ("http", "https", "socks5", "socks5h")) or None,
        poll_timeout=int(reader.read_number("poll_timeout", 1, 50, is_integer=True)),
        webhook_url=_read_webhook_url(reader, self_hosted=server != TELEGRAM_API_URL) if webhook else "",
        webhook_secret=_read_webhook_secret(reader) if webhook else "",
        edit_interval=reader.read_number("edit_interval", 0, 60),
        link_previews=reader.read_boolean("link_previews"),
    )


def check_keys(channel: str, names: Iterable[str]) -> None:
    """Raise `ConfigError` for the first name that is not a key of this channel."""
    keys.check_keys("Telegram", TELEGRAM_KEYS, channel, names)


def _read_server(reader: TableReader) -> str:
    # Many examples write the address with `/bot`; both forms are accepted.
    return reader.read_url("base_url", ("http", "https")).rstrip("/").removesuffix("/bot").rstrip("/")


def _read_file_folder(reader: TableReader) -> Path | None:
    text = reader.read_text("file_folder")
    if not text:
        return None
    folder = Path(text)
    if not folder.is_absolute() or len(folder.parts) == 1:
        raise reader.make_error(
            "file_folder", f"is {text!r} and has to be a whole path such as /var/lib/telegram-bot-api"
        )
    return folder


def _read_token(reader: TableReader) -> str:
    token = reader.read_text("token")
    if not token:
        raise reader.make_error("token", "is not set: @BotFather gives one, see docs/howto/run-on-telegram.md")
    if not _TOKEN.fullmatch(token):
        raise reader.make_error("token", "is not a bot's token (12345678:AbC-dEf…): copy it whole from @BotFather")
    return token


def _read_webhook_url(reader: TableReader, *, self_hosted: bool) -> str:
    url = reader.read_url("webhook_url", ("http", "https") if self_hosted else ("https",))
    if not url:
        raise reader.make_error(
            "webhook_url", 'is not set, and mode = "webhook" needs it: the address Telegram is to call'
        )
    if not self_hosted and (urlsplit(url).port or 443) not in TELEGRAM_WEBHOOK_PORTS:
        raise reader.make_error(
            "webhook_url",
            f"has a port that Telegram never calls: use one of {', '.join(map(str, TELEGRAM_WEBHOOK_PORTS))}",
        )
    return url


def _read_webhook_secret(reader: TableReader) -> str:
    secret = reader.read_text("webhook_secret")
    if not secret:
        raise reader.make_error(
            "webhook_secret", 'is not set, and mode = "webhook" needs it: make one up, say 40 letters'
        )
    if not _SECRET.fullmatch(secret):
        raise reader.make_error("webhook_secret", "has to be 8 to 256 characters out of A-Z, a-z, 0-9, _ and -")
    return secret
