"""What was missed: Discord sends every event once, and keeps the messages. So they are asked for after an absence.

A position is the newest message of a chat that is durable. Before a chat takes what happens now, what came after its
position is fetched, in order. What was fetched and comes again has the same id and is one thing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any

from bubbot.ports.channel import BackfillCursor, ChannelOptions
from channels.discord.chats import SILENT, ChatDirectory, DiscordChat, places
from channels.discord.errors import DiscordApiError
from channels.discord.retry import DiscordReceiveTiming, RetryingDiscordApi

log = logging.getLogger(__name__)
DISCORD_EPOCH_SECONDS = 1_420_070_400.0
"""Discord's first second, 2015-01-01, in Unix time."""
HISTORY_PAGE_MESSAGES = 100


def snowflake(seconds: float) -> int:
    """The id that something would have that came up then."""
    return max(0, int((seconds - DISCORD_EPOCH_SECONDS) * 1000) << 22)


def seconds_of(time: str) -> float | None:
    """Unix time of a time in ISO 8601; None where it is none."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


class Backfill:
    """Knows positions, says which chats have a gap, and fills it."""

    def __init__(
        self,
        options: ChannelOptions,
        known: BackfillCursor,
        places: ChatDirectory,
        ask: RetryingDiscordApi,
        pace: DiscordReceiveTiming,
    ) -> None:
        self._channel = options.name
        self._known = known
        self._places = places
        self._ask = ask
        self._pace = pace
        self._now = options.now
        self._positions = {
            thread or chat: int(message)
            for (chat, thread), message in known.newest.items()
            if message.isascii() and message.isdigit()
        }
        heard = seconds_of(known.heard)
        self._base = snowflake(heard - pace.overlap) if heard is not None else None
        self._since = snowflake(seconds_of(known.since) or 0.0)
        self._began = 0
        self._looked: set[str] = set()
        self._joined: dict[str, int] = {}

    def begin(self) -> None:
        """A session begins: whatever happened before it may have been missed."""
        self._began = snowflake(seconds_of(self._now()) or 0.0)
        # A new bot does not answer what was said before it came.
        self._base = self._began if self._base is None else self._base
        self._looked.clear()

    def position(self, chat: str) -> int:
        """The newest message of a channel or thread that is durable."""
        return max(self._positions.get(chat, self._base or 0), self._since)

    def took(self, chat: str, message: str) -> None:
        """A message is durable, or is nothing to keep."""
        if message.isascii() and message.isdigit():
            self._positions[chat] = max(self._positions.get(chat, 0), int(message))

    def new(self, chat: str) -> None:
        """A channel or thread was made: nothing was missed in it."""
        self._looked.add(chat)

    def gone(self, chat: str) -> None:
        """A channel or thread was deleted."""
        self._positions.pop(chat, None)

    def is_first(self, chat: str) -> bool:
        """Whether something happens in a chat of which nobody knows yet what was missed in it. True once a session."""
        if chat in self._looked:
            return False
        self._looked.add(chat)
        return self.position(chat) < self._began

    def in_guild(self, raw: Any) -> Iterator[str]:
        """The channels and threads of a server, as it is told, in which something was missed."""
        if not isinstance(raw, dict) or raw.get("unavailable"):
            return
        guild, joined = str(raw.get("id") or ""), raw.get("joined_at")
        since = seconds_of(joined) if isinstance(joined, str) else None
        if since is not None:
            self._joined[guild] = snowflake(since)
        for place in places(guild, raw):
            self._looked.add(place.id)
            if self._has_gap(place):
                yield place.id

    def _has_gap(self, place: DiscordChat) -> bool:
        return place.kind not in SILENT and place.last > self._from(place.id, place.guild)

    def _from(self, chat: str, guild: str) -> int:
        return max(self.position(chat), self._joined.get(guild, 0))

    async def elsewhere(self, found: Callable[[str], None]) -> None:
        """Looks at what no server tells of: conversations with people, and threads that sleep."""
        if self._base == self._began:
            return
        for person in self._known.people[: self._pace.most_asked]:
            await self._look(self._places.direct(person), found)
        await asyncio.sleep(self._pace.guilds)  # what the servers tell by then need not be asked
        chats = sorted((chat for chat in self._positions if chat not in self._looked), key=self.position, reverse=True)
        for chat in chats[: self._pace.most_asked]:
            if chat not in self._looked:
                await self._look(self._places.ask(chat), found)

    async def _look(self, ask: Awaitable[DiscordChat | None], found: Callable[[str], None]) -> None:
        try:
            place = await ask
        except DiscordApiError as error:
            log.debug(
                "channel %s: a chat is not looked at: %s", self._channel, error.text, extra={"action": "discord.missed"}
            )
            return
        if place is not None and place.id not in self._looked:
            self._looked.add(place.id)
            if self._has_gap(place):
                found(place.id)

    async def fill(self, chat: str, take: Callable[[Any], Awaitable[None]]) -> None:
        """Hands over what came after the chat's position, oldest first. Waits for as long as it cannot be had."""
        place = self._places.known(chat)
        floor = snowflake((seconds_of(self._now()) or 0.0) - self._pace.oldest)
        after, read = self._from(chat, place.guild if place else ""), 0
        if after < floor:
            log.log(
                logging.INFO if chat in self._positions else logging.DEBUG,
                "channel %s: chat %s was last heard long ago; older messages than %.0f h are not looked at",
                self._channel, chat, self._pace.oldest / 3600, extra={"action": "discord.too_old"},
            )  # fmt: skip
            after = floor
        while read < self._pace.most_missed:
            room = min(HISTORY_PAGE_MESSAGES, self._pace.most_missed - read)
            page = await self._page(chat, after, room)
            for number, raw in page:
                await take(raw)
                after = max(after, number)
            read += len(page)
            if len(page) < room:
                break
        else:
            log.warning(
                "channel %s: more than %d messages were missed in chat %s; those after %d are not answered",
                self._channel, read, chat, after, extra={"action": "discord.too_many"},
            )  # fmt: skip
        if read:
            log.info(
                "channel %s: %d messages of chat %s were fetched", self._channel, read, chat,
                extra={"action": "discord.fetched"},
            )  # fmt: skip

    async def _page(self, chat: str, after: int, room: int) -> list[tuple[int, Any]]:
        """Up to so many messages, oldest first, with their numbers; none where they may not be read."""
        try:
            found = await self._ask("GET", f"/channels/{chat}/messages", params={"after": after, "limit": room})
        except DiscordApiError as error:
            log.debug(
                "channel %s: the messages of chat %s cannot be read: %s",
                self._channel,
                chat,
                error.text,
                extra={"action": "discord.missed"},
            )
            return []
        listed = found if isinstance(found, list) else []
        return sorted(((_number(one), one) for one in listed), key=lambda one: one[0])


def _number(raw: Any) -> int:
    number = raw.get("id") if isinstance(raw, dict) else None
    return int(number) if isinstance(number, str) and number.isascii() and number.isdigit() else 0
