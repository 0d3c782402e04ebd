"""The settings of `[channels.<name>]` with `kind = "telegram"`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from bubbot.ports.settings import (
    AdapterSettings,
    Flag,
    Number,
    OptionalText,
    SecretText,
    Text,
    Whole,
    check_web_address,
    quote_value,
    setting_error,
    strip_text,
    web_address,
)

TELEGRAM_API_URL = "https://api.telegram.org"
TELEGRAM_WEBHOOK_PORTS = (443, 80, 88, 8443)
"""Ports on which Telegram's own servers call webhooks."""

_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{1,200}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{8,256}")


class TelegramSettings(AdapterSettings):
    """The keys of a Telegram channel; `repr` omits secrets.

    `base_url` and `base_file_url` are completed up to the token; the keys of the webhook are empty without it.
    """

    platform: ClassVar[str] = "Telegram"

    token: SecretText = Field(
        default="", validate_default=True, repr=False, description="The token that @BotFather gave to the bot."
    )
    mode: Annotated[Literal["polling", "webhook"], BeforeValidator(strip_text)] = Field(
        default="polling", description="`polling`: bubbot asks Telegram; `webhook`: Telegram calls bubbot."
    )
    base_url: Annotated[Text, web_address("http", "https")] = Field(
        default=TELEGRAM_API_URL, validate_default=True, description="The web address of the Bot API server."
    )
    base_file_url: Text = Field(
        default="",
        validate_default=True,
        description="The address for downloading files; default: `/file` at `base_url`.",
        examples=["http://localhost:8081/file"],
    )
    file_folder: Path | None = Field(
        default=None,
        description="The folder in which a Bot API server of your own that runs with `--local` keeps its files; none of "
        "another folder is read.",
        examples=["/var/lib/telegram-bot-api"],
    )
    proxy: Annotated[OptionalText, web_address("http", "https", "socks5", "socks5h")] = Field(
        default=None,
        repr=False,
        description="The web address of a proxy for everything sent to Telegram: http, https or socks5.",
        examples=["socks5://localhost:1080"],
    )
    poll_timeout: Whole = Field(
        default=30, ge=1, le=50, description="Seconds that Telegram holds a poll without updates."
    )
    webhook_url: Text = Field(
        default="",
        validate_default=True,
        description="The public web address that Telegram calls; its path is the one bubbot serves.",
        examples=["https://bot.example.org/telegram"],
    )
    webhook_secret: SecretText = Field(
        default="",
        validate_default=True,
        repr=False,
        description="The secret that Telegram sends with each call; 8 to 256 of A-Z a-z 0-9 _ -.",
    )
    edit_interval: Number = Field(
        default=1.5, ge=0, le=60, description="Seconds between two changes of a live answer; 0: no live answers."
    )
    link_previews: Flag = Field(
        default=False,
        description="Let Telegram show previews of links in answers, except in those that rest on words from outside.",
    )

    @property
    def uses_webhook(self) -> bool:
        """True if Telegram calls the channel; else the channel polls."""
        return self.mode == "webhook"

    @property
    def is_self_hosted(self) -> bool:
        """True if the Bot API server is not Telegram's own."""
        return self.base_url != _bot_url(TELEGRAM_API_URL)

    @field_validator("token")
    @classmethod
    def _check_token(cls, token: str) -> str:
        if not token:
            raise setting_error("is not set: @BotFather gives one, see docs/howto/run-on-telegram.md")
        if not _TOKEN.fullmatch(token):
            raise setting_error("is not a bot's token (12345678:AbC-dEf…): copy it whole from @BotFather")
        return token

    @field_validator("base_url")
    @classmethod
    def _complete_base_url(cls, url: str) -> str:
        return _bot_url(url)

    @field_validator("base_file_url")
    @classmethod
    def _complete_base_file_url(cls, url: str, info: ValidationInfo) -> str:
        return _bot_url(check_web_address(url, ("http", "https")) if url else f"{_server(info)}/file")

    @field_validator("file_folder", mode="before")
    @classmethod
    def _check_file_folder(cls, value: Any) -> Any:
        text = str(strip_text(value))
        if text and (not Path(text).is_absolute() or len(Path(text).parts) == 1):
            raise setting_error(f"is {quote_value(text)} and has to be a whole path such as /var/lib/telegram-bot-api")
        return text or None

    @field_validator("webhook_url", "webhook_secret", mode="before")
    @classmethod
    def _drop_unless_webhook(cls, value: Any, info: ValidationInfo) -> Any:
        return value if info.data.get("mode") == "webhook" else ""

    @field_validator("webhook_url")
    @classmethod
    def _check_webhook_url(cls, url: str, info: ValidationInfo) -> str:
        if info.data.get("mode") != "webhook":
            return url
        if not url:
            raise setting_error('is not set, and mode = "webhook" needs it: the address Telegram is to call')
        # A wrong base_url is an error of its own, and hardly meant Telegram's own server.
        self_hosted = "base_url" not in info.data or _server(info) != TELEGRAM_API_URL
        check_web_address(url, ("http", "https") if self_hosted else ("https",))
        if not self_hosted and (urlsplit(url).port or 443) not in TELEGRAM_WEBHOOK_PORTS:
            ports = ", ".join(map(str, TELEGRAM_WEBHOOK_PORTS))
            raise setting_error(f"has a port that Telegram never calls: use one of {ports}")
        return url

    @field_validator("webhook_secret")
    @classmethod
    def _check_webhook_secret(cls, secret: str, info: ValidationInfo) -> str:
        if info.data.get("mode") != "webhook":
            return secret
        if not secret:
            raise setting_error('is not set, and mode = "webhook" needs it: make one up, say 40 letters')
        if not _SECRET.fullmatch(secret):
            raise setting_error("has to be 8 to 256 characters out of A-Z, a-z, 0-9, _ and -")
        return secret


def _bot_url(url: str) -> str:
    """Return the address up to the token. Many examples write it with `/bot`; both forms are accepted."""
    return f"{url.rstrip('/').removesuffix('/bot').rstrip('/')}/bot"


def _server(info: ValidationInfo) -> str:
    """Return the address of the Bot API server; the usual one if that of the settings is wrong."""
    return str(info.data.get("base_url", _bot_url(TELEGRAM_API_URL))).removesuffix("/bot")
