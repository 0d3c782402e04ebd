"""Backfill of missed messages: Discord sends every event once but keeps messages, so bubbot fetches them afterwards.

A position is the newest durable message of a chat. Before a chat handles new events, the messages after its position
are fetched, in order. A fetched message that the gateway sends again has the same id and counts once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any

from bubbot.ports.channel import BackfillCursor, ChannelOptions
from channels.discord.chats import TYPES_WITHOUT_MESSAGES, ChatDirectory, DiscordChat, parse_chats
from channels.discord.errors import DiscordApiError
from channels.discord.retry import DiscordReceiveTiming, RetryingDiscordApi

log = logging.getLogger(__name__)
DISCORD_EPOCH_SECONDS = 1_420_070_400.0
"""Discord's first second, 2015-01-01, in Unix time."""
HISTORY_PAGE_MESSAGES = 100


def snowflake_at(seconds: float) -> int:
    """Return the smallest id of something created at that Unix time."""
    return max(0, int((seconds - DISCORD_EPOCH_SECONDS) * 1000) << 22)


def parse_unix_time(time: str) -> float | None:
    """Return an ISO 8601 time as Unix time; None if it is not a time."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


class Backfill:
    """The positions of all chats: finds the chats with a gap, and fills it."""

    def __init__(
        self,
        options: ChannelOptions,
        cursor: BackfillCursor,
        directory: ChatDirectory,
        api: RetryingDiscordApi,
        timing: DiscordReceiveTiming,
    ) -> None:
        self._channel = options.name
        self._cursor = cursor
        self._directory = directory
        self._api = api
        self._timing = timing
        self._now = options.now
        self._positions = {
            thread or chat: int(message)
            for (chat, thread), message in cursor.newest_ids.items()
            if message.isascii() and message.isdigit()
        }
        heard = parse_unix_time(cursor.last_message_at)
        self._base = snowflake_at(heard - timing.backfill_overlap) if heard is not None else None
        self._since = snowflake_at(parse_unix_time(cursor.handled_until) or 0.0)
        self._began = 0
        self._checked: set[str] = set()
        self._joined: dict[str, int] = {}

    def start_session(self) -> None:
        """Start a session: anything before it may have been missed."""
        self._began = snowflake_at(parse_unix_time(self._now()) or 0.0)
        # A new bot does not answer messages from before it joined.
        self._base = self._began if self._base is None else self._base
        self._checked.clear()

    def position(self, chat: str) -> int:
        """Return the newest durable message of a channel or thread."""
        return max(self._positions.get(chat, self._base or 0), self._since)

    def mark_durable(self, chat: str, message_id: str) -> None:
        """Record that a message is durable, or needs no storing."""
        if message_id.isascii() and message_id.isdigit():
            self._positions[chat] = max(self._positions.get(chat, 0), int(message_id))

    def mark_created(self, chat: str) -> None:
        """Record a new channel or thread: nothing was missed in it."""
        self._checked.add(chat)

    def mark_deleted(self, chat: str) -> None:
        """Forget a deleted channel or thread."""
        self._positions.pop(chat, None)

    def check_first_event(self, chat: str) -> bool:
        """Return true at the first event of a chat that may have missed messages. True at most once per session."""
        if chat in self._checked:
            return False
        self._checked.add(chat)
        return self.position(chat) < self._began

    def find_guild_gaps(self, raw: Any) -> Iterator[str]:
        """Yield the channels and threads of a server (a GUILD_CREATE) that missed messages."""
        if not isinstance(raw, dict) or raw.get("unavailable"):
            return
        guild, joined = str(raw.get("id") or ""), raw.get("joined_at")
        since = parse_unix_time(joined) if isinstance(joined, str) else None
        if since is not None:
            self._joined[guild] = snowflake_at(since)
        for chat in parse_chats(guild, raw):
            self._checked.add(chat.id)
            if self._has_gap(chat):
                yield chat.id

    def _has_gap(self, chat: DiscordChat) -> bool:
        return chat.kind not in TYPES_WITHOUT_MESSAGES and chat.last_message_id > self._start(chat.id, chat.guild)

    def _start(self, chat: str, guild: str) -> int:
        return max(self.position(chat), self._joined.get(guild, 0))

    async def find_other_gaps(self, on_gap: Callable[[str], None]) -> None:
        """Check chats that no GUILD_CREATE lists: direct messages and archived threads."""
        if self._base == self._began:
            return
        for person in self._cursor.allowed_ids[: self._timing.max_checked_chats]:
            await self._check(self._directory.open_direct_chat(person), on_gap)
        await asyncio.sleep(self._timing.guild_list_wait)  # chats that the gateway lists by then need no request
        chats = sorted((chat for chat in self._positions if chat not in self._checked), key=self.position, reverse=True)
        for chat in chats[: self._timing.max_checked_chats]:
            if chat not in self._checked:
                await self._check(self._directory.fetch(chat), on_gap)

    async def _check(self, request: Awaitable[DiscordChat | None], found: Callable[[str], None]) -> None:
        try:
            chat = await request
        except DiscordApiError as error:
            log.debug(
                "chat skipped by backfill: channel=%s error=%s",
                self._channel,
                error.text,
                extra={"action": "discord.missed"},
            )
            return
        if chat is not None and chat.id not in self._checked:
            self._checked.add(chat.id)
            if self._has_gap(chat):
                found(chat.id)

    async def fill(self, chat: str, on_message: Callable[[Any], Awaitable[None]]) -> None:
        """Hand over the messages after the chat's position, oldest first. Wait while Discord is unavailable."""
        entry = self._directory.find_cached(chat)
        floor = snowflake_at((parse_unix_time(self._now()) or 0.0) - self._timing.max_message_age)
        after, count = self._start(chat, entry.guild if entry else ""), 0
        if after < floor:
            log.log(
                logging.INFO if chat in self._positions else logging.DEBUG,
                "backfill limited by age, older messages skipped: channel=%s chat=%s max_age=%.0fh",
                self._channel, chat, self._timing.max_message_age / 3600, extra={"action": "discord.too_old"},
            )  # fmt: skip
            after = floor
        while count < self._timing.max_missed_messages:
            size = min(HISTORY_PAGE_MESSAGES, self._timing.max_missed_messages - count)
            page = await self._fetch_page(chat, after, size)
            for number, raw in page:
                await on_message(raw)
                after = max(after, number)
            count += len(page)
            if len(page) < size:
                break
        else:
            log.warning(
                "backfill limited by count, later messages skipped: channel=%s chat=%s messages=%d after=%d",
                self._channel, chat, count, after, extra={"action": "discord.too_many"},
            )  # fmt: skip
        if count:
            log.info(
                "missed messages fetched: channel=%s chat=%s messages=%d", self._channel, chat, count,
                extra={"action": "discord.fetched"},
            )  # fmt: skip

    async def _fetch_page(self, chat: str, after: int, size: int) -> list[tuple[int, Any]]:
        """Fetch up to `size` messages with their ids, oldest first; none if the bot may not read them."""
        try:
            body = await self._api("GET", f"/channels/{chat}/messages", params={"after": after, "limit": size})
        except DiscordApiError as error:
            log.debug(
                "chat history unreadable: channel=%s chat=%s error=%s",
                self._channel,
                chat,
                error.text,
                extra={"action": "discord.missed"},
            )
            return []
        messages = body if isinstance(body, list) else []
        return sorted(((_message_id(message), message) for message in messages), key=lambda pair: pair[0])


def _message_id(raw: Any) -> int:
    number = raw.get("id") if isinstance(raw, dict) else None
    return int(number) if isinstance(number, str) and number.isascii() and number.isdigit() else 0
