"""Lanes: the events of a chat are handled in order, one at a time; chats do not wait for each other.

A lane is a queue with a task; it exists only while it has work. A lane may have a gap: messages older than its queued
items that have to be fetched first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

log = logging.getLogger(__name__)
Item = TypeVar("Item")


@dataclass
class _ChatLane(Generic[Item]):
    items: deque[Item] = field(default_factory=deque)
    has_gap: bool = False
    task: asyncio.Task[None] | None = None


class ChatLanes(Generic[Item]):
    """All lanes of a channel.

    Args:
        on_item: awaited for each item, with the lane's name. An exception goes to `failure`.
        on_gap: awaited for a gap, with the lane's name. An exception goes to `failure`.
        is_refetched: returns true if filling a gap in this lane brings this item again.
        max_items: items that may wait in a lane.
    """

    def __init__(
        self,
        channel: str,
        on_item: Callable[[str, Item], Awaitable[None]],
        on_gap: Callable[[str], Awaitable[None]],
        is_refetched: Callable[[str, Item], bool],
        max_items: int,
    ) -> None:
        self._channel = channel
        self._take = on_item
        self._fill = on_gap
        self._is_refetched = is_refetched
        self._room = max_items
        self._lanes: dict[str, _ChatLane[Item]] = {}
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, chat: str, item: Item) -> None:
        """Queue an item. If the lane is too full, drop the items that a fetch brings again, and mark a gap.

        The other items stay, unless they alone take more than half of the room: then they are lost.
        """
        lane = self._lane(chat)
        lane.items.append(item)
        if len(lane.items) <= self._room:
            return
        others = [item for item in lane.items if not self._is_refetched(chat, item)]
        lost = len(others) if len(others) > self._room // 2 else 0
        log.warning(
            "chat queue full, messages are fetched again: channel=%s chat=%s messages=%d lost_events=%d",
            self._channel, chat, len(lane.items) - len(others), lost, extra={"action": "discord.lane_full"},
        )  # fmt: skip
        lane.has_gap = lane.has_gap or len(others) < len(lane.items)
        lane.items = deque() if lost else deque(others)

    def mark_gap(self, chat: str) -> None:
        """Mark that messages before the lane's queued items have to be fetched."""
        self._lane(chat).has_gap = True

    def has_work(self, chat: str) -> bool:
        """Return true if something of a chat is queued, under way or to be fetched."""
        return chat in self._lanes

    @property
    def lane_count(self) -> int:
        """The number of lanes with work."""
        return len(self._lanes)

    async def close(self) -> None:
        """End every lane and drop the queued items."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._lanes.clear()
        if not self.failure.cancel() and not self.failure.cancelled():
            self.failure.exception()  # mark the exception as retrieved

    def _lane(self, name: str) -> _ChatLane[Item]:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _ChatLane()
            lane.task = asyncio.create_task(self._run(name, lane), name=f"{self._channel}: chat {name}")
        return lane

    async def _run(self, name: str, lane: _ChatLane[Item]) -> None:
        try:
            while lane.has_gap or lane.items:
                if lane.has_gap:
                    lane.has_gap = False  # before the fetch, since another gap may appear during it
                    await self._fill(name)
                else:
                    await self._take(name, lane.items.popleft())
        except Exception as error:  # noqa: BLE001 - passed to the channel's run through `failure`
            if not self.failure.done():
                self.failure.set_exception(error)
        else:
            # No await since the lane was empty, so nothing was queued in between.
            del self._lanes[name]
