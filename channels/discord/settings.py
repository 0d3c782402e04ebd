"""The settings of `[channels.<name>]` with `kind = "discord"`."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, field_validator

from bubbot.ports.settings import (
    AdapterSettings,
    Flag,
    Number,
    OptionalText,
    SecretText,
    Text,
    setting_error,
    strip_text,
    web_address,
)

DEFAULT_REST_URL = "https://discord.com/api/v10"
DEFAULT_GATEWAY_URL = "wss://gateway.discord.gg"

_TOKEN = re.compile(r"[\w-]{5,100}\.[\w-]{2,100}\.[\w-]{5,200}", re.ASCII)


class DiscordSettings(AdapterSettings):
    """The keys of a Discord channel; `repr` omits secrets."""

    platform: ClassVar[str] = "Discord"

    token: SecretText = Field(
        default="",
        validate_default=True,
        repr=False,
        description="The token of the bot, from the page Bot of its application.",
    )
    content: Annotated[Literal["all", "mentions"], BeforeValidator(strip_text)] = Field(
        default="all",
        description="`all`: Discord sends the text of every message; `mentions`: only of messages to the bot.",
    )
    slash: Flag = Field(default=True, description="Offer the commands as slash commands.")
    edit_interval: Number = Field(
        default=1.5, ge=0, le=60, description="Seconds between two changes of a live answer; 0: no live answers."
    )
    link_previews: Flag = Field(
        default=False,
        description="Let Discord show previews of links in answers, except in those that rest on words from outside.",
    )
    rest_url: Annotated[Text, web_address("http", "https")] = Field(
        default=DEFAULT_REST_URL, description="The web address of the REST API, version 10."
    )
    gateway_url: Annotated[Text, web_address("ws", "wss")] = Field(
        default=DEFAULT_GATEWAY_URL, description="The web address of the gateway."
    )
    proxy: Annotated[OptionalText, web_address("https", "http")] = Field(
        default=None,
        repr=False,
        description="The web address of a proxy for everything sent to Discord: http or https.",
        examples=["http://localhost:3128"],
    )

    @property
    def is_self_hosted(self) -> bool:
        """True if the server is not Discord's own."""
        return self.rest_url != DEFAULT_REST_URL

    @field_validator("token")
    @classmethod
    def _check_token(cls, text: str) -> str:
        token = text.removeprefix("Bot ").strip()
        if not token:
            raise setting_error("is not set: the page Bot of your application at discord.com/developers gives one")
        if not _TOKEN.fullmatch(token):
            raise setting_error(
                "is not a bot's token (three parts with full stops between them; an application's public key or client "
                "secret is something else): reset it on the page Bot of your application and copy it whole"
            )
        return token

    @field_validator("rest_url")
    @classmethod
    def _complete_rest_url(cls, text: str) -> str:
        """Return the base URL with version; accept it with or without `/api` and the version, as found in examples."""
        url = text.rstrip("/")
        path = urlsplit(url).path
        if not path:
            return f"{url}/api/v10"
        if re.search(r"/v\d+$", path):
            if not path.endswith("/v10"):
                raise setting_error(f"names {path.rpartition('/')[2]} of the API: only v10 is spoken here")
            return url
        return f"{url}/v10" if path.endswith("/api") else url

    @field_validator("gateway_url")
    @classmethod
    def _strip_slash(cls, url: str) -> str:
        return url.rstrip("/")
