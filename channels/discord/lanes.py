"""Lanes: what happens in a chat is taken in order, one thing after the other; chats do not wait for each other.

A lane is a queue with a task, made where it is needed and gone when it is empty. A lane may have a gap: something
before what waits in it has to be fetched first.
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
    waiting: deque[Item] = field(default_factory=deque)
    gap: bool = False
    task: asyncio.Task[None] | None = None


class ChatLanes(Generic[Item]):
    """`take` is awaited for each item of a lane, `fill` for its gap. What either raises ends everything: `failed`."""

    def __init__(
        self,
        channel: str,
        take: Callable[[str, Item], Awaitable[None]],
        fill: Callable[[str], Awaitable[None]],
        room: int,
    ) -> None:
        self._channel = channel
        self._take = take
        self._fill = fill
        self._room = room
        self._lanes: dict[str, _ChatLane[Item]] = {}
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, name: str, item: Item) -> None:
        """Queues an item. Where too many wait, all are dropped and become a gap: the platform has them."""
        lane = self._lane(name)
        if len(lane.waiting) >= self._room:
            log.warning(
                "channel %s: %d events wait in chat %s; they are dropped and its messages are fetched again",
                self._channel, len(lane.waiting), name, extra={"action": "discord.lane_full"},
            )  # fmt: skip
            lane.waiting.clear()
            lane.gap = True
        else:
            lane.waiting.append(item)

    def gap(self, name: str) -> None:
        """Something before what waits in the lane has to be fetched."""
        self._lane(name).gap = True

    @property
    def busy(self) -> int:
        """How many lanes there are now."""
        return len(self._lanes)

    async def close(self) -> None:
        """Ends every lane; what waits is given up."""
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._lanes.clear()
        if not self.failed.cancel() and not self.failed.cancelled():
            self.failed.exception()  # somebody looked at it

    def _lane(self, name: str) -> _ChatLane[Item]:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _ChatLane()
            lane.task = asyncio.create_task(self._run(name, lane), name=f"{self._channel}: chat {name}")
        return lane

    async def _run(self, name: str, lane: _ChatLane[Item]) -> None:
        try:
            while lane.gap or lane.waiting:
                if lane.gap:
                    lane.gap = False  # another one may come up meanwhile
                    await self._fill(name)
                else:
                    await self._take(name, lane.waiting.popleft())
        except Exception as error:  # noqa: BLE001 - it is handed to whoever runs the channel
            if not self.failed.done():
                self.failed.set_exception(error)
        else:
            # Nothing was awaited since it was found empty.
            del self._lanes[name]
