"""One run of receiving: gateway events go to their chat's lane, are parsed there, and passed to `receive`."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from msgspec import Struct

from bubbot.ports.channel import BackfillCursor, ChannelEvent, ChannelOptions
from channels.discord.backfill import Backfill
from channels.discord.chats import ChatDirectory, MemberRoles
from channels.discord.duplicates import DuplicateMonitor
from channels.discord.inbound import (
    DiscordPlace,
    MessageScene,
    author_id_without_roles,
    read_deletion,
    read_edit,
    read_message,
    unparsed_update,
)
from channels.discord.interactions import OpenInteractions
from channels.discord.lanes import ChatLanes
from channels.discord.reactions import REACTION_EVENTS, ReactionTracker, remover_id
from channels.discord.retry import DiscordReceiveTiming, RetryingDiscordApi
from channels.discord.slash_commands import is_press, read_interaction, read_press

log = logging.getLogger(__name__)
MESSAGE_CREATE, MESSAGE_UPDATE, INTERACTION_CREATE = "MESSAGE_CREATE", "MESSAGE_UPDATE", "INTERACTION_CREATE"
DELETION_EVENTS = frozenset({"MESSAGE_DELETE", "MESSAGE_DELETE_BULK"})
HANDLED_EVENTS = frozenset({MESSAGE_CREATE, MESSAGE_UPDATE, INTERACTION_CREATE}) | DELETION_EVENTS | REACTION_EVENTS
"""Events that belong to a chat."""
MAX_RECENT_MESSAGES = 4000
"""Remembered ids of messages that were already passed on, so that they are not passed on again."""

ReceiveEvent: TypeAlias = Callable[[ChannelEvent], Awaitable[object]]
"""`Receive`, with any result."""


class DiscordEvent(Struct, frozen=True):
    """An event in a chat. `serial` names it within its session."""

    name: str
    raw: Any
    serial: str


class DiscordReceiver:
    """The receiving side of one run.

    Args:
        duplicates: the check for a second program with the same token.
        receive: takes each event; returns when the event is durable.
        cursor: the durable position of this channel.
    """

    def __init__(
        self,
        options: ChannelOptions,
        api: RetryingDiscordApi,
        interactions: OpenInteractions,
        duplicates: DuplicateMonitor,
        receive: ReceiveEvent,
        *,
        cursor: BackfillCursor,
        timing: DiscordReceiveTiming,
    ) -> None:
        self._channel = options.name
        self._now = options.now
        self._zone = options.zone
        self._interactions = interactions
        self._duplicates = duplicates
        self._receive = receive
        self._directory = ChatDirectory(api, options.list_commands)
        self._member_roles = MemberRoles(api, timing.monotonic, timing.role_ttl)
        self._backfill = Backfill(options, cursor, self._directory, api, timing)
        self._reactions = ReactionTracker()
        self._recent: OrderedDict[str, None] = OrderedDict()
        self._lanes: ChatLanes[DiscordEvent] = ChatLanes(
            options.name, self._take, self._fill, _is_refetched, timing.max_queued_events
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._gap_search: asyncio.Task[None] | None = None

    @property
    def failure(self) -> asyncio.Future[None]:
        """A future that fails if an event cannot be made durable; the run ends with it."""
        return self._lanes.failure

    def update_commands(self) -> None:
        """Recognize the current commands from now on."""
        self._directory.update_commands()

    def on_event(self, event: str, raw: Any, serial: str) -> None:
        """Handle an event of the gateway. Raise only for a READY without the bot's user."""
        try:
            self._dispatch(event, raw, serial)
        except Exception:
            if event == "READY":
                raise
            log.warning(
                "unreadable event: channel=%s event=%s", self._channel, event, exc_info=True,
                extra={"action": "discord.unread"},
            )  # fmt: skip
            self._lanes.put("", DiscordEvent(event, raw, serial))

    def _dispatch(self, event: str, raw: Any, serial: str) -> None:
        if event == MESSAGE_CREATE:
            self._duplicates.check_message(self._directory.bot_user.id, raw)
        if event in HANDLED_EVENTS:
            self._queue(DiscordEvent(event, raw, serial))
        elif event == "READY":
            self._begin(raw)
        elif event == "GUILD_CREATE":
            self._directory.update(event, raw)
            for chat in self._backfill.find_guild_gaps(raw):
                self._lanes.mark_gap(chat)
        elif not event:
            self._lanes.put("", DiscordEvent("", raw, serial))
        else:
            self._learn_chat(event, raw)

    async def close(self) -> None:
        """End all work; the next run fetches the messages that are not durable."""
        tasks = [*self._tasks, *([self._gap_search] if self._gap_search else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._lanes.close()

    def start_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a background task; if it fails, the run fails."""
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.failure.done():
            self.failure.set_exception(error)

    @property
    def account(self) -> str:
        """The bot's name on Discord; empty before the first READY."""
        return self._directory.bot_user.name

    def _begin(self, raw: Any) -> None:
        self._directory.start_session(raw.get("user") if isinstance(raw, dict) else None)
        self._backfill.start_session()
        self._duplicates.start_session()
        if self._gap_search is not None:
            self._gap_search.cancel()
        self._gap_search = self.start_task(self._backfill.find_other_gaps(self._lanes.mark_gap))
        log.info(
            "discord connected: channel=%s username=%s",
            self._channel,
            self._directory.bot_user.name,
            extra={"action": "discord.ready"},
        )

    def _learn_chat(self, event: str, raw: Any) -> None:
        self._directory.update(event, raw)
        number = raw.get("id") if isinstance(raw, dict) else None
        if not isinstance(number, str):
            return
        if event in ("CHANNEL_DELETE", "THREAD_DELETE"):
            self._backfill.mark_deleted(number)
        elif event == "CHANNEL_CREATE" or (event == "THREAD_CREATE" and raw.get("newly_created")):
            self._backfill.mark_created(number)

    def _queue(self, item: DiscordEvent) -> None:
        number = item.raw.get("channel_id") if isinstance(item.raw, dict) else None
        chat = number if isinstance(number, str) and number.isascii() and number.isdigit() else ""
        if chat and self._backfill.check_first_event(chat):
            self._lanes.mark_gap(chat)
        if item.name == INTERACTION_CREATE:
            self._interactions.remember(item.raw)
        if item.name == MESSAGE_CREATE and chat and self._is_own(item.raw) and not self._lanes.has_work(chat):
            self._mark_taken(chat, item.raw)  # each answer comes back
        else:
            self._lanes.put(chat, item)

    async def _take(self, chat: str, item: DiscordEvent) -> None:
        if not chat:
            reason = f"an event {item.name} that is not in its form" if item.name else "a frame that is not JSON"
            await self._receive(unparsed_update(self._channel, "", "f", item.raw, reason))
            return
        if item.name == INTERACTION_CREATE:
            await self._take_interaction(item.raw)
        else:
            await self._take_event(self._scene(await self._directory.find_place(chat, item.raw)), item)

    async def _take_event(self, scene: MessageScene, item: DiscordEvent) -> None:
        raw, place = item.raw, scene.place
        if item.name == MESSAGE_CREATE:
            await self._take_message(scene, raw)
        elif item.name == MESSAGE_UPDATE:
            # Most updates leave the content as it is, and do not need a request for roles.
            if isinstance(raw, dict) and raw.get("edited_timestamp") and not self._is_own(raw):
                await self._pass_on(
                    read_edit(scene, raw, await self._roles(place, author_id_without_roles(place, raw)))
                )
        elif item.name in DELETION_EVENTS:
            await self._pass_on(*read_deletion(scene, raw, self._now()))
        else:
            roles = await self._roles(place, remover_id(place.space, item.name, raw))
            changes = self._reactions.read(scene, item.name, raw, serial=item.serial, now=self._now(), roles=roles)
            await self._pass_on(*changes)

    async def _take_interaction(self, raw: Any) -> None:
        """Pass on a command or a press, then respond to it: Discord waits three seconds for that."""
        if is_press(raw):
            await self._take_press(raw)
            return
        event = read_interaction(self._channel, self._directory.bot_user.id, raw)
        if event is None:
            return
        will_answer = await self._receive(event)
        if will_answer:
            self.start_task(self._interactions.defer(raw))
        elif will_answer is None:
            self.start_task(self._interactions.confirm(raw))

    async def _take_press(self, raw: Any) -> None:
        press = read_press(self._channel, raw)
        result = await self._receive(press) if press is not None else None
        self.start_task(self._interactions.acknowledge(raw, result if isinstance(result, str) else ""))

    async def _take_message(self, scene: MessageScene, raw: Any) -> None:
        number = raw.get("id") if isinstance(raw, dict) else None
        if isinstance(number, str) and number in self._recent:
            return
        place = scene.place
        if not self._is_own(raw):
            roles = await self._roles(place, author_id_without_roles(place, raw))
            self._learn_roles(place.space, raw)
            event = read_message(scene, raw, roles)
            if event is None:
                log.debug(
                    "message set aside: channel=%s chat=%s message=%s type=%s", self._channel, place.channel_id, number,
                    raw.get("type"), extra={"action": "discord.set_aside"},
                )  # fmt: skip
            await self._pass_on(event)
        self._mark_taken(place.channel_id, raw)

    def _mark_taken(self, chat: str, raw: Any) -> None:
        """Record that a message is durable, or needs no storing."""
        number = raw.get("id") if isinstance(raw, dict) else None
        if isinstance(number, str):
            self._backfill.mark_durable(chat, number)
            self._recent[number] = None
            while len(self._recent) > MAX_RECENT_MESSAGES:
                self._recent.popitem(last=False)

    def _is_own(self, raw: Any) -> bool:
        """Return true for a message of the bot, which is on the tape already."""
        author = raw.get("author") if isinstance(raw, dict) else None
        return isinstance(author, dict) and author.get("id") == self._directory.bot_user.id

    async def _pass_on(self, *events: ChannelEvent | None) -> None:
        for event in events:
            if event is not None:
                await self._receive(event)

    async def _fill(self, chat: str) -> None:
        if not chat:
            return
        place = await self._directory.find_place(chat)

        async def take(raw: Any) -> None:
            await self._take_message(self._scene(place), raw)

        await self._backfill.fill(chat, take)

    def _scene(self, place: DiscordPlace) -> MessageScene:
        directory = self._directory
        title = directory.guild_names.get(place.space, "")
        return MessageScene(
            self._channel, directory.bot_user, place, directory.channel_names, directory.role_names, title, self._zone
        )

    async def _roles(self, place: DiscordPlace, person: str) -> tuple[str, ...]:
        return await self._member_roles.fetch_roles(place.space, person) if person else ()

    def _learn_roles(self, guild: str, raw: Any) -> None:
        """Cache the author's roles that a message contains."""
        if not guild or not isinstance(raw, dict) or not isinstance(raw.get("member"), dict):
            return
        author = raw.get("author")
        if isinstance(author, dict) and isinstance(author.get("id"), str):
            self._member_roles.update(guild, author["id"], raw["member"])


def _is_refetched(chat: str, event: DiscordEvent) -> bool:
    """Return true for messages in a known chat: Discord keeps those, and nothing else."""
    return bool(chat) and event.name == MESSAGE_CREATE
