"""One run of receiving: what the gateway says goes to the lane of its chat, is read there, and handed to the gate."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

from bubbot.ports.channel import BackfillCursor, ChannelEvent, ChannelOptions
from channels.discord.backfill import Backfill
from channels.discord.chats import ChatDirectory, MemberRoles
from channels.discord.duplicates import DuplicateMonitor
from channels.discord.inbound import (
    DiscordPlace,
    MessageScene,
    author_without_roles,
    read_deletion,
    read_edit,
    read_message,
    unparsed,
)
from channels.discord.interactions import OpenInteractions
from channels.discord.lanes import ChatLanes
from channels.discord.reactions import REACTIONS, ReactionTracker, who_took_back
from channels.discord.retry import DiscordReceiveTiming, RetryingDiscordApi
from channels.discord.slash_commands import read_interaction

log = logging.getLogger(__name__)
MESSAGE_CREATE, MESSAGE_UPDATE, INTERACTION_CREATE = "MESSAGE_CREATE", "MESSAGE_UPDATE", "INTERACTION_CREATE"
DELETED = frozenset({"MESSAGE_DELETE", "MESSAGE_DELETE_BULK"})
HANDLED_EVENTS = frozenset({MESSAGE_CREATE, MESSAGE_UPDATE, INTERACTION_CREATE}) | DELETED | REACTIONS
"""Events that happen in a chat."""
RECENT = 4000
"""Messages that were handed over, of which is known that they need not be once more."""

Take: TypeAlias = Callable[[ChannelEvent], Awaitable[object]]
"""`Receive`."""


@dataclass(frozen=True, slots=True)
class DiscordEvent:
    """Something that happened in a chat. `serial` names it within its session."""

    event: str
    raw: Any
    serial: str


class DiscordReceiver:
    """Lives as long as one `run`. `ready` is called at the beginning of each session."""

    def __init__(
        self,
        options: ChannelOptions,
        ask: RetryingDiscordApi,
        interactions: OpenInteractions,
        duplicates: DuplicateMonitor,
        receive: Take,
        *,
        known: BackfillCursor,
        pace: DiscordReceiveTiming,
    ) -> None:
        self._channel = options.name
        self._now = options.now
        self._interactions = interactions
        self._duplicates = duplicates
        self._receive = receive
        self._places = ChatDirectory(ask)
        self._people = MemberRoles(ask, pace.monotonic, pace.believed)
        self._missed = Backfill(options, known, self._places, ask, pace)
        self._shown = ReactionTracker()
        self._recent: OrderedDict[str, None] = OrderedDict()
        self._lanes: ChatLanes[DiscordEvent] = ChatLanes(options.name, self._take, self._fill, pace.room)
        self._beside: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None

    @property
    def failed(self) -> asyncio.Future[None]:
        """Done when something cannot be made durable; the run ends with it."""
        return self._lanes.failed

    def hear(self, event: str, raw: Any, serial: str) -> None:
        """Takes an event of the gateway. Raises only over a READY that does not say who we are."""
        try:
            self._hear(event, raw, serial)
        except Exception:
            if event == "READY":
                raise
            log.warning(
                "channel %s: an event %s cannot be read", self._channel, event, exc_info=True,
                extra={"action": "discord.unread"},
            )  # fmt: skip
            self._lanes.put("", DiscordEvent(event, raw, serial))

    def _hear(self, event: str, raw: Any, serial: str) -> None:
        if event == MESSAGE_CREATE:
            self._duplicates.hear(self._places.me.id, raw)
        if event in HANDLED_EVENTS:
            self._queue(DiscordEvent(event, raw, serial))
        elif event == "READY":
            self._begin(raw)
        elif event == "GUILD_CREATE":
            self._places.learn(event, raw)
            for chat in self._missed.in_guild(raw):
                self._lanes.gap(chat)
        elif not event:
            self._lanes.put("", DiscordEvent("", raw, serial))
        else:
            self._learn(event, raw)

    async def close(self) -> None:
        """Ends everything; what is not durable is fetched by the next run."""
        tasks = [*self._beside, *([self._looking] if self._looking else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._lanes.close()

    def beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Does work that nobody waits for; where it fails, the run does."""
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._beside.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)

    def _begin(self, raw: Any) -> None:
        self._places.begin(raw.get("user") if isinstance(raw, dict) else None)
        self._missed.begin()
        self._duplicates.begin()
        if self._looking is not None:
            self._looking.cancel()
        self._looking = self.beside(self._missed.elsewhere(self._lanes.gap))
        log.info("channel %s: connected as %s", self._channel, self._places.me.name, extra={"action": "discord.ready"})

    def _learn(self, event: str, raw: Any) -> None:
        self._places.learn(event, raw)
        number = raw.get("id") if isinstance(raw, dict) else None
        if not isinstance(number, str):
            return
        if event in ("CHANNEL_DELETE", "THREAD_DELETE"):
            self._missed.gone(number)
        elif event == "CHANNEL_CREATE" or (event == "THREAD_CREATE" and raw.get("newly_created")):
            self._missed.new(number)

    def _queue(self, item: DiscordEvent) -> None:
        number = item.raw.get("channel_id") if isinstance(item.raw, dict) else None
        chat = number if isinstance(number, str) and number.isascii() and number.isdigit() else ""
        if chat and self._missed.is_first(chat):
            self._lanes.gap(chat)
        if item.event == INTERACTION_CREATE:
            self._interactions.remember(item.raw)
        self._lanes.put(chat, item)

    async def _take(self, chat: str, item: DiscordEvent) -> None:
        if not chat:
            reason = f"an event {item.event} that is not in its form" if item.event else "a frame that is not JSON"
            await self._receive(unparsed(self._channel, "", "f", item.raw, reason))
            return
        if item.event == INTERACTION_CREATE:
            await self._used(item.raw)
        else:
            await self._take_in(self._scene(await self._places.find(chat, item.raw)), item)

    async def _take_in(self, scene: MessageScene, item: DiscordEvent) -> None:
        raw, where = item.raw, scene.where
        if item.event == MESSAGE_CREATE:
            await self._message(scene, raw)
        elif item.event == MESSAGE_UPDATE:
            # Most are about looks, and not worth asking for anybody's roles.
            if isinstance(raw, dict) and raw.get("edited_timestamp"):
                await self._hand_over(read_edit(scene, raw, await self._roles(where, author_without_roles(where, raw))))
        elif item.event in DELETED:
            await self._hand_over(*read_deletion(scene, raw, self._now()))
        else:
            roles = await self._roles(where, who_took_back(where.space, item.event, raw))
            found = self._shown.read(scene, item.event, raw, serial=item.serial, now=self._now(), roles=roles)
            await self._hand_over(*found)

    async def _used(self, raw: Any) -> None:
        """Somebody used a command. Discord waits three seconds to hear that an answer comes."""
        event = read_interaction(self._channel, self._places.me.id, raw)
        if event is None:
            return
        said = await self._receive(event)
        if said:
            self.beside(self._interactions.defer(raw))
        elif said is None:
            self.beside(self._interactions.confirm(raw))

    async def _message(self, scene: MessageScene, raw: Any) -> None:
        number = raw.get("id") if isinstance(raw, dict) else None
        if isinstance(number, str) and number in self._recent:
            return
        where = scene.where
        roles = await self._roles(where, author_without_roles(where, raw))
        self._learn_roles(where.space, raw)
        await self._hand_over(read_message(scene, raw, roles))
        if isinstance(number, str):
            self._missed.took(where.id, number)
            self._recent[number] = None
            while len(self._recent) > RECENT:
                self._recent.popitem(last=False)

    async def _hand_over(self, *events: ChannelEvent | None) -> None:
        for event in events:
            if event is not None:
                await self._receive(event)

    async def _fill(self, chat: str) -> None:
        if not chat:
            return
        where = await self._places.find(chat)

        async def take(raw: Any) -> None:
            await self._message(self._scene(where), raw)

        await self._missed.fill(chat, take)

    def _scene(self, where: DiscordPlace) -> MessageScene:
        places = self._places
        return MessageScene(self._channel, places.me, where, places.channel_names, places.role_names)

    async def _roles(self, where: DiscordPlace, person: str) -> tuple[str, ...]:
        return await self._people.roles(where.space, person) if person else ()

    def _learn_roles(self, guild: str, raw: Any) -> None:
        """What a message says about the roles of who wrote it."""
        if not guild or not isinstance(raw, dict) or not isinstance(raw.get("member"), dict):
            return
        author = raw.get("author")
        if isinstance(author, dict) and isinstance(author.get("id"), str):
            self._people.learn(guild, author["id"], raw["member"])
