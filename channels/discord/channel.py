"""Discord as a channel, on discord.py: its gateway to receive, its REST API for everything else.

The other files `discord_*.py` do the parts. Receiving: `run` begins it, `client` is the connection, `receive` takes what
comes to `lanes`, one for each chat, `missed` fetches what nobody heard, `inbound` and `reactions` read. Sending: `send`,
`text`, `interactions`, `files`, over `api`.
"""

from __future__ import annotations

from collections.abc import Sequence

from bubbot.ports.channel import (
    Attachment,
    BotIdentity,
    ChannelHealth,
    ChannelOptions,
    MessagePart,
    Outbound,
    Receipt,
    Receive,
)
from channels.discord import text
from channels.discord.api import DiscordApi, DiscordApiTiming
from channels.discord.duplicates import DuplicateMonitor
from channels.discord.files import fetch
from channels.discord.identity import introduce
from channels.discord.interactions import OpenInteractions
from channels.discord.retry import DiscordReceiveTiming
from channels.discord.run import DiscordRun
from channels.discord.sender import DiscordSender
from channels.discord.settings import DiscordSettings, check_keys, read_settings
from channels.discord.slash_commands import sync_commands


class DiscordChannel:
    """See `Channel`, `SupportsClose`, `SupportsTyping`, `SupportsEditing`, `FetchesAttachments`, `FindsMessages`, `ReportsHealth`, `AcknowledgesInteractions` and `VerifiesCredentials`. Settings:
    `KEYS` of `discord_settings`."""

    def __init__(
        self, options: ChannelOptions, settings: DiscordSettings, timing: DiscordApiTiming, pace: DiscordReceiveTiming
    ) -> None:
        self.name = options.name
        self._commands = options.commands
        self._settings = settings
        self._api = DiscordApi(settings, timing)
        self._within = timing.introduction
        self._interactions = OpenInteractions(self._api, timing)
        duplicates = DuplicateMonitor(options.name, monotonic=pace.monotonic, grace=pace.duplicates)
        self._sending = DiscordSender(self._api, settings, options.blob, self._interactions, duplicates)
        self._run = DiscordRun(options, settings, self._api, self._interactions, duplicates, sync=self._sync, pace=pace)

    async def run(self, receive: Receive) -> None:
        """Receives until cancelled."""
        await self._run(receive)

    async def _sync(self, application: str) -> None:
        await sync_commands(self._api, application, self._commands() if self._settings.slash else ())

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Pieces that fit Discord's limits, in its Markdown."""
        return text.parts(outbound)

    async def send(self, part: MessagePart) -> Receipt:
        """Sends one part; where it answers a slash command, as the answer to that."""
        return await self._sending.send(part)

    async def find(self, part: MessagePart, since: str) -> Sequence[str]:
        """The bot's own messages that may be this part."""
        return await self._sending.find(part, since)

    @property
    def edit_interval(self) -> float:
        """Seconds; where Discord wants fewer changes, a 429 says so."""
        return self._settings.edit_interval

    async def edit(self, message: str, part: MessagePart) -> None:
        """Changes a message of ours."""
        await self._sending.edit(message, part)

    async def typing(self, chat: str, thread: str) -> None:
        """Shows "is typing…" for about ten seconds."""
        await self._sending.typing(chat, thread)

    async def dismiss(self, chat: str, thread: str, message: str) -> None:
        """Takes back the notice of a slash command to which nothing will be said."""
        await self._sending.dismiss(chat, thread, message)

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        """The bytes of a file that came with a message."""
        return await fetch(self._api, attachment, limit)

    def health(self) -> ChannelHealth:
        """How the connection to the gateway is."""
        return self._run.health()

    async def introduce(self) -> BotIdentity:
        """Who the bot is; no connection to the gateway is made."""
        return await introduce(self._api, self._settings, within=self._within)

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._api.aclose()


def create(options: ChannelOptions) -> DiscordChannel:
    """The factory of the entry point. Raises `ConfigError`."""
    check_keys(options.name, options.settings.keys())
    return DiscordChannel(
        options, read_settings(options.name, options.settings), DiscordApiTiming(), DiscordReceiveTiming()
    )
