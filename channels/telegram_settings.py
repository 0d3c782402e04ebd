"""The settings of `[channels.<name>]` with `kind = "telegram"`: what they are, and their check.

Values may be text, since those of the environment are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from bubbot.errors import ConfigError

API = "https://api.telegram.org"
PORTS = (443, 80, 88, 8443)
"""Where Telegram's own servers call webhooks."""

_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,200}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{8,256}")


@dataclass(frozen=True, slots=True)
class Key:
    """One key as the reference describes it; `default` None where it is not set."""

    name: str
    type: str
    default: str | int | float | bool | None
    description: str


KEYS = (
    Key("token", "secret text", None, "The token that @BotFather gave to the bot."),
    Key("mode", "one of polling, webhook", "polling", "Whether bubbot asks Telegram, or Telegram calls bubbot."),
    Key("base_url", "text", API, "The web address of the Bot API server."),
    Key("base_file_url", "text", None, "Where files are fetched; where not set, `/file` at `base_url`."),
    Key("proxy", "text", None, "The web address of a proxy for everything sent to Telegram: http, https or socks5."),
    Key("poll_timeout", "whole number from 1 to 50", 30, "Seconds Telegram holds a request that has no news."),
    Key("webhook_url", "text", None, "The public web address that Telegram calls; its path is the one bubbot serves."),
    Key("webhook_secret", "secret text", None, "What Telegram has to send with each call; 8 to 256 of A-Z a-z 0-9 _ -."),
    Key("edit_interval", "number from 0 to 60", 1.5, "Seconds between two changes of a live answer; 0: no live answers."),
    Key("link_previews", "true or false", default=False, description="Whether Telegram shows a preview of a link in an answer."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TelegramSettings:
    """Checked values. The addresses end before the token; secrets are left out of `repr`."""

    channel: str
    token: str = field(repr=False)
    webhook: bool
    base_url: str
    base_file_url: str
    proxy: str | None = field(repr=False)
    poll_timeout: int
    webhook_url: str
    webhook_secret: str = field(repr=False)
    edit_interval: float
    link_previews: bool

    @property
    def self_hosted(self) -> bool:
        """Whether the Bot API server is not Telegram's own."""
        return self.base_url != f"{API}/bot"


def read_settings(channel: str, table: Mapping[str, Any]) -> TelegramSettings:
    """Checks the table of a channel. Raises `ConfigError` naming the key and the fix, never a secret value."""
    read = _Reader(channel, table)
    server = _server(read)
    files = read.address("base_file_url", ("http", "https")) or f"{server}/file"
    webhook = read.one_of("mode", ("polling", "webhook")) == "webhook"
    return TelegramSettings(
        channel=channel,
        token=_token(read),
        webhook=webhook,
        base_url=f"{server}/bot",
        base_file_url=f"{files.removesuffix('/bot').rstrip('/')}/bot",
        proxy=read.address("proxy", ("http", "https", "socks5", "socks5h")) or None,
        poll_timeout=int(read.number("poll_timeout", 1, 50, whole=True)),
        webhook_url=_webhook_url(read, self_hosted=server != API) if webhook else "",
        webhook_secret=_webhook_secret(read) if webhook else "",
        edit_interval=read.number("edit_interval", 0, 60),
        link_previews=read.flag("link_previews"),
    )


def check_keys(channel: str, names: Iterable[str]) -> None:
    """Raises `ConfigError` for the first name that is no key of ours: a misspelt one must not pass for the default."""
    known = [key.name for key in KEYS]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "docs/reference/config.md lists the keys of a channel."
            raise ConfigError(f"[channels.{channel}] {name} is no key of a Telegram channel: {hint}")


def _server(read: _Reader) -> str:
    # Examples elsewhere write the address with its `/bot`; both are taken.
    return read.address("base_url", ("http", "https")).rstrip("/").removesuffix("/bot").rstrip("/")


def _token(read: _Reader) -> str:
    token = read.text("token")
    if not token:
        raise read.wrong("token", "is not set: @BotFather gives one, see docs/howto/run-on-telegram.md")
    if not _TOKEN.fullmatch(token):
        raise read.wrong("token", "is not a bot's token (12345678:AbC-dEf…): copy it whole from @BotFather")
    return token


def _webhook_url(read: _Reader, *, self_hosted: bool) -> str:
    url = read.address("webhook_url", ("http", "https") if self_hosted else ("https",))
    if not url:
        raise read.wrong("webhook_url", 'is not set, and mode = "webhook" needs it: the address Telegram is to call')
    if not self_hosted and (urlsplit(url).port or 443) not in PORTS:
        raise read.wrong(
            "webhook_url", f"has a port that Telegram never calls: use one of {', '.join(map(str, PORTS))}"
        )
    return url


def _webhook_secret(read: _Reader) -> str:
    secret = read.text("webhook_secret")
    if not secret:
        raise read.wrong("webhook_secret", 'is not set, and mode = "webhook" needs it: make one up, say 40 letters')
    if not _SECRET.fullmatch(secret):
        raise read.wrong("webhook_secret", "has to be 8 to 256 characters out of A-Z, a-z, 0-9, _ and -")
    return secret


class _Reader:
    """Reads values of a table by the types of `KEYS`."""

    def __init__(self, channel: str, table: Mapping[str, Any]) -> None:
        self._channel = channel
        self._table = table

    def wrong(self, key: str, sentence: str) -> ConfigError:
        return ConfigError(f"[channels.{self._channel}] {key} {sentence}.")

    def _value(self, key: str) -> Any:
        value = self._table.get(key)
        if value is None or value == "":
            return next(one.default for one in KEYS if one.name == key)
        return value

    def text(self, key: str) -> str:
        value = self._value(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(key, f"has to be text, in quotes, and is {type(value).__name__}")
        return value.strip()

    def one_of(self, key: str, words: tuple[str, ...]) -> str:
        value = self.text(key)
        if value not in words:
            raise self.wrong(key, f"is {value!r} and has to be one of {', '.join(words)}")
        return value

    def address(self, key: str, schemes: tuple[str, ...]) -> str:
        """A web address, or the empty text. It is not shown in errors: a proxy's has a password in it."""
        value = self.text(key)
        if not value:
            return ""
        try:
            parts = urlsplit(value)
            complete = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            complete = False
        if not complete or re.search(r"[\s{}?#]", value):
            raise self.wrong(key, f"has to be a whole web address such as {schemes[-1]}://host/path, without ? and #")
        return value

    def number(self, key: str, low: float, high: float, *, whole: bool = False) -> float:
        value = self._value(key)
        try:
            number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or not low <= number <= high or (whole and number != int(number)):
            raise self.wrong(key, f"is {value!r} and has to be a {'whole ' * whole}number from {low:g} to {high:g}")
        return number

    def flag(self, key: str) -> bool:
        value = self._value(key)
        known = {True: True, False: False, "true": True, "false": False}
        word = value.strip().lower() if isinstance(value, str) else value
        if not isinstance(word, bool | str) or word not in known:
            raise self.wrong(key, f"is {value!r} and has to be true or false")
        return known[word]
