"""The channels of a daemon: it supervises each and ends all in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from msgspec import Struct

from bubbot.concurrency import Backoff, supervise
from bubbot.errors import ChannelRefused
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.health.snapshot import ChannelStatus
from bubbot.gateway.outbound import CreateTask
from bubbot.ports.channel import Channel
from bubbot.runtime.app import AppRuntime

log = logging.getLogger(__name__)

Receiving: TypeAlias = Callable[[Channel, Callable[[], Awaitable[None]]], Awaitable[None]]
"""Runs the receiving of a channel while it is this process that has to receive."""


class ShutdownTimeouts(Struct, frozen=True):
    """Seconds of an orderly shutdown: for running turns to finish, then for their answers to be sent."""

    turns: float = 30.0
    deliveries: float = 10.0

    def max_seconds(self, channels: int) -> float:
        """Return the seconds that `ChannelManager.stop` takes at most with so many channels."""
        return self.turns + self.deliveries * (3 + channels)


async def receive_at_once(_channel: Channel, run: Callable[[], Awaitable[None]]) -> None:
    """Receive: no other process does."""
    await run()


class ChannelManager:
    """Runs the channels. It restarts a failed one; a refused one ends while the others keep running."""

    def __init__(
        self,
        channel_runtimes: Mapping[str, ChannelRuntime],
        runtime: AppRuntime,
        backoff: Backoff,
        receive: Receiving = receive_at_once,
    ) -> None:
        """`receive`: runs the receiving of a channel, once it is this process's turn to receive."""
        self._receive = receive
        self._channel_runtimes = channel_runtimes
        self._runtime = runtime
        self._pace = backoff
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.states: dict[str, ChannelStatus] = {}
        self.refusals: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._replacing = False

    def start(self, create_task: CreateTask) -> None:
        """Start receiving on every channel."""
        for name in self._channel_runtimes:
            self.start_channel(name, create_task)

    def start_channel(self, name: str, create_task: CreateTask) -> None:
        """Start receiving on one channel."""
        self.states[name] = "running"
        self.refusals.pop(name, None)
        self._tasks[name] = create_task(self._run(name, self._channel_runtimes[name]))
        self._changed.set()

    async def stop_channel(self, name: str, timeout: float) -> None:
        """Stop receiving on one channel, wait up to `timeout` seconds for deliveries, and close it."""
        channel_runtime = self._channel_runtimes[name]
        if task := self._tasks.pop(name, None):
            task.cancel()
            await asyncio.wait([task], timeout=timeout)
        self._changed.set()
        self.states[name] = "ended"
        await _finishes_within(timeout, channel_runtime.deliverer.wait_until_idle())
        await self._close(channel_runtime, timeout)

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """Enclose a change of the channels: those that stop inside do not count as ended."""
        self._replacing = True
        try:
            yield
        finally:
            self._replacing = False
            self._changed.set()

    async def wait_until_refused(self, *, excluding: str) -> None:
        """Wait until all channels except `excluding` were refused; for ever if there are no others."""
        while True:
            self._changed.clear()
            tasks = [task for name, task in self._tasks.items() if name != excluding]
            if tasks and not self._replacing and all(task.done() for task in tasks):
                return
            changed = asyncio.ensure_future(self._changed.wait())
            try:
                await asyncio.wait(
                    [changed, *(task for task in tasks if not task.done())], return_when="FIRST_COMPLETED"
                )
            finally:
                changed.cancel()

    async def stop(self, timeouts: ShutdownTimeouts) -> None:
        """Stop receiving, let turns finish or cancel them, deliver, and close the channels.

        Cancelled turns and undelivered messages are durable; the next start continues them.
        """
        for task in self._tasks.values():
            task.cancel()
        if self._tasks and (await asyncio.wait(self._tasks.values(), timeout=timeouts.deliveries))[1]:
            log.warning("channel does not stop receiving", extra={"action": "end.receiving"})
        self._runtime.pause()
        if not await _finishes_within(timeouts.turns, self._runtime.wait_idle()):
            log.warning("turns cancelled, the next start continues them", extra={"action": "end.cut_off"})
            await _finishes_within(timeouts.deliveries, self._runtime.cancel())
        idle = asyncio.gather(
            *(channel_runtime.deliverer.wait_until_idle() for channel_runtime in self._channel_runtimes.values())
        )
        if not await _finishes_within(timeouts.deliveries, idle):
            log.warning("answers undelivered, the next start sends them", extra={"action": "end.undelivered"})
        for channel_runtime in list(self._channel_runtimes.values()):
            await self._close(channel_runtime, timeouts.deliveries)

    async def _close(self, channel_runtime: ChannelRuntime, patience: float) -> None:
        channel_runtime.cancel()
        try:
            async with asyncio.timeout(patience):
                await channel_runtime.aclose()
        except Exception as error:  # the adapter may be third-party code, and the others must be closed
            log.warning(
                "channel %s failed to close: %s",
                channel_runtime.channel.name,
                error,
                exc_info=True,
                extra={"action": "end.close"},
            )

    async def _run(self, name: str, channel_runtime: ChannelRuntime) -> None:
        try:
            await supervise(
                f"the channel {name}",
                lambda: self._receive(
                    channel_runtime.channel, lambda: channel_runtime.channel.run(channel_runtime.receive)
                ),
                self._pace,
                fatal=(ChannelRefused,),
            )
            if self._is_current_task(name):
                self.states[name] = "ended"
        except ChannelRefused as error:
            if not self._is_current_task(name):
                return
            self.states[name], self.refusals[name] = "refused", str(error)
            log.error(  # noqa: TRY400
                "channel %s refused, stopping it: %s", name, error, extra={"action": "channel.refused", "channel": name}
            )

    def _is_current_task(self, name: str) -> bool:
        """Return true if the calling task still runs this channel: it may have been replaced."""
        return self._tasks.get(name) is asyncio.current_task()


async def _finishes_within(seconds: float, work: Awaitable[object]) -> bool:
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait([task], timeout=seconds)
    if not done:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return bool(done)
