"""The settings of `[channels.<name>]` with `kind = "discord"`, and their validation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from channels.platform import keys
from channels.platform.keys import SettingKey, TableReader

DEFAULT_REST_URL = "https://discord.com/api/v10"
DEFAULT_GATEWAY_URL = "wss://gateway.discord.gg"

_TOKEN = re.compile(r"[\w-]{5,100}\.[\w-]{2,100}\.[\w-]{5,200}", re.ASCII)

DISCORD_KEYS = (
    SettingKey("token", "secret text", None, "The token of the bot, from the page Bot of its application."),
    SettingKey("content", "one of all, mentions", "all", "Whether Discord sends the text of every message it may see, or of those that are for the bot."),
    SettingKey("slash", "true or false", default=True, description="Whether the commands are offered as slash commands."),
    SettingKey("edit_interval", "number from 0 to 60", 1.5, "Seconds between two changes of a live answer; 0: no live answers."),
    SettingKey("link_previews", "true or false", default=False, description="Whether Discord shows a preview of a link in an answer."),
    SettingKey("rest_url", "text", DEFAULT_REST_URL, "The web address of the REST API, version 10."),
    SettingKey("gateway_url", "text", DEFAULT_GATEWAY_URL, "The web address of the gateway."),
    SettingKey("proxy", "text", None, "The web address of a proxy for everything sent to Discord: http or https."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DiscordSettings:
    """Validated settings; `repr` omits secrets.

    Attributes:
        channel: the configured name.
        token: the bot's token.
        rest_url: the base URL of the REST API; ends with the version, without `/`.
        gateway_url: the URL of the gateway.
        proxy: the URL of a proxy; None for none.
        content: "all" requests the text of every message, which has to be switched on for the application.
        edit_interval: seconds between two edits of a live answer; 0 for no live answers.
        slash: offer the commands as slash commands.
        link_previews: show previews of links in answers.
    """

    channel: str
    token: str = field(repr=False)
    rest_url: str
    gateway_url: str
    proxy: str | None = field(repr=False)
    content: Literal["all", "mentions"]
    edit_interval: float = 1.5
    slash: bool = True
    link_previews: bool = False

    @property
    def is_self_hosted(self) -> bool:
        """True if the server is not Discord's own."""
        return self.rest_url != DEFAULT_REST_URL


def read_settings(channel: str, table: Mapping[str, Any]) -> DiscordSettings:
    """Validate the table of a channel. Raise `ConfigError` with the key and the fix, never with a secret value."""
    read = TableReader(DISCORD_KEYS, channel, table)
    return DiscordSettings(
        channel=channel,
        token=_read_token(read),
        rest_url=_read_rest_url(read),
        gateway_url=read.read_url("gateway_url", ("ws", "wss")).rstrip("/"),
        proxy=read.read_url("proxy", ("https", "http")) or None,
        content="all" if read.read_choice("content", ("all", "mentions")) == "all" else "mentions",
        edit_interval=read.read_number("edit_interval", 0, 60),
        slash=read.read_boolean("slash"),
        link_previews=read.read_boolean("link_previews"),
    )


def check_keys(channel: str, names: Iterable[str]) -> None:
    """Raise `ConfigError` for the first unknown key."""
    keys.check_keys("Discord", DISCORD_KEYS, channel, names)


def _read_rest_url(read: TableReader) -> str:
    """Return the base URL with version; accept it with or without `/api` and the version, as found in examples."""
    url = read.read_url("rest_url", ("http", "https")).rstrip("/")
    path = urlsplit(url).path
    if not path:
        return f"{url}/api/v10"
    if re.search(r"/v\d+$", path):
        if not path.endswith("/v10"):
            raise read.make_error("rest_url", f"names {path.rpartition('/')[2]} of the API: only v10 is spoken here")
        return url
    return f"{url}/v10" if path.endswith("/api") else url


def _read_token(read: TableReader) -> str:
    token = read.read_text("token").removeprefix("Bot ").strip()
    if not token:
        raise read.make_error(
            "token", "is not set: the page Bot of your application at discord.com/developers gives one"
        )
    if not _TOKEN.fullmatch(token):
        raise read.make_error(
            "token",
            "is not a bot's token (three parts with full stops between them; an application's public key or client "
            "secret is something else): reset it on the page Bot of your application and copy it whole",
        )
    return token
