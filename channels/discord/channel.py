"""The Discord channel on discord.py: the gateway to receive, the REST API for everything else.

The other files of the package are its parts. Receiving: `run` starts it, `client` is the connection, `receiver` puts
events into `lanes`, one per chat, `backfill` fetches missed messages, `inbound` and `reactions` parse. Sending:
`sender`, `text`, `interactions` and `files`, over `api`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from bubbot.errors import DeliveryFailed
from bubbot.ports.channel import (
    Attachment,
    BotIdentity,
    ChannelAdapter,
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
from channels.discord.errors import DiscordApiError, DiscordUnavailable
from channels.discord.files import fetch_attachment
from channels.discord.identity import verify_token
from channels.discord.interactions import OpenInteractions
from channels.discord.retry import DiscordReceiveTiming
from channels.discord.run import DiscordRun
from channels.discord.sender import DiscordSender
from channels.discord.settings import DiscordSettings
from channels.discord.slash_commands import sync_commands


class DiscordChannel:
    """The adapter for Discord; its settings are `DiscordSettings`.

    Implements `Channel`, `SupportsClose`, `SupportsTyping`, `SupportsEditing`, `LeavesGroups`, `FetchesAttachments`, `FindsMessages`,
    `MarksRepeats`, `HasCommandMenu`, `ReportsHealth`, `AcknowledgesInteractions` and `VerifiesCredentials`.
    """

    def __init__(
        self,
        options: ChannelOptions,
        settings: DiscordSettings,
        timing: DiscordApiTiming,
        receive_timing: DiscordReceiveTiming,
    ) -> None:
        self.name = options.name
        self._commands = options.list_commands
        self._settings = settings
        self._api = DiscordApi(settings, timing)
        self._verify_timeout = timing.verify_timeout
        self._interactions = OpenInteractions(self._api, timing, options.list_commands)
        duplicates = DuplicateMonitor(
            options.name, monotonic=receive_timing.monotonic, grace_seconds=receive_timing.duplicate_grace
        )
        self._sender = DiscordSender(self._api, settings, options.read_blob, self._interactions, duplicates)
        self._run = DiscordRun(
            options,
            settings,
            self._api,
            self._interactions,
            duplicates,
            sync_commands=self._sync_commands,
            timing=receive_timing,
        )

    @property
    def command_prefix(self) -> str:
        """See `HasCommandPrefix`."""
        return "/"

    async def run(self, receive: Receive) -> None:
        """Receive until cancelled."""
        await self._run(receive)

    async def update_commands(self) -> None:
        """Recognize the current commands, and register them if others are registered; once connected."""
        await self._run.update_commands()

    async def _sync_commands(self, application: str) -> None:
        await sync_commands(self._api, application, self._commands() if self._settings.slash else ())

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """Split an answer into parts that fit Discord's limits, in its Markdown."""
        parts = text.split_answer(outbound)
        if self._interactions.is_private(outbound.reply_to):  # the later parts, too, are for its user alone
            parts = [structs.replace(part, reply_to=outbound.reply_to) for part in parts]
        return parts

    async def send(self, part: MessagePart) -> Receipt:
        """Send one part; as the response to a slash command if it replies to one."""
        return await self._sender.send(part)

    async def find(self, part: MessagePart, since: str) -> Sequence[str]:
        """Find the bot's own messages that may be this part."""
        return await self._sender.find(part, since)

    def mark_repeat(self, part: MessagePart, sentence: str) -> MessagePart:
        """See `MarksRepeats`."""
        return text.mark_repeat(part, sentence)

    @property
    def edit_interval(self) -> float:
        """Seconds between two edits; Discord answers 429 if it wants fewer."""
        return self._settings.edit_interval

    async def edit(self, message: str, part: MessagePart) -> None:
        await self._sender.edit(message, part)

    async def typing(self, chat: str, thread: str) -> None:
        """Show "is typing…" for about ten seconds."""
        await self._sender.typing(chat, thread)

    async def dismiss(self, chat: str, thread: str, message: str) -> None:
        """Remove the "thinking" notice of a slash command that gets no answer."""
        await self._sender.dismiss(chat, thread, message)

    async def leave(self, group: str) -> None:
        """See `LeavesGroups`: leave a server. A channel of one cannot be left."""
        try:
            await self._api.call("DELETE", f"/users/@me/guilds/{group}")
        except DiscordApiError as error:
            raise DeliveryFailed(f"Discord refuses: {error}", permanent=True) from error
        except DiscordUnavailable as error:
            raise DeliveryFailed(str(error)) from error

    async def fetch(self, attachment: Attachment, limit: int) -> bytes:
        return await fetch_attachment(self._api, attachment, limit)

    def health(self) -> ChannelHealth:
        """Return the state of the gateway connection."""
        return self._run.health()

    async def verify_token(self) -> BotIdentity:
        """Return the bot's identity, without connecting to the gateway."""
        return await verify_token(self._api, self._settings, timeout=self._verify_timeout)

    async def aclose(self) -> None:
        await self._api.aclose()


def _build(options: ChannelOptions, settings: DiscordSettings) -> DiscordChannel:
    return DiscordChannel(options, settings, DiscordApiTiming(), DiscordReceiveTiming())


create = ChannelAdapter(DiscordSettings, _build)
"""The factory of the entry point."""
