"""The channels of a daemon: each under supervision, all ended in an orderly way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Literal

from bubbot.errors import ChannelRefused
from bubbot.gateway.line import Line
from bubbot.gateway.outbound import Spawn
from bubbot.runtime.app import AppRuntime
from bubbot.supervise import Pace, supervise

log = logging.getLogger(__name__)

State = Literal["running", "refused", "ended"]


@dataclass(frozen=True, slots=True)
class Grace:
    """Seconds that an orderly end gives: turns under way to finish, and then their answers to go out."""

    turns: float = 30.0
    deliveries: float = 10.0

    def longest(self, lines: int) -> float:
        """Seconds that `ChannelManager.end` takes at most with so many lines."""
        return self.turns + self.deliveries * (3 + lines)


class ChannelManager:
    """Runs the lines. One that fails is run again; one that is refused ends, and the others go on."""

    def __init__(self, lines: Mapping[str, Line], runtime: AppRuntime, pace: Pace) -> None:
        self._lines = lines
        self._runtime = runtime
        self._pace = pace
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.states: dict[str, State] = {}
        self.refusals: dict[str, str] = {}

    def start(self, spawn: Spawn) -> None:
        """Begins to receive on every line."""
        for name, line in self._lines.items():
            self.states[name] = "running"
            self._tasks[name] = spawn(self._run(name, line))

    async def wait(self, *, beside: str) -> None:
        """Returns when no line but `beside` receives any more: all were refused. Where there was none, never."""
        tasks = [task for name, task in self._tasks.items() if name != beside]
        await (asyncio.wait(tasks) if tasks else asyncio.Event().wait())

    async def end(self, grace: Grace) -> None:
        """Stops receiving, lets turns finish or cuts them off, delivers, and closes the channels.

        What is cut off or undelivered is durable; the next start goes on with it.
        """
        for task in self._tasks.values():
            task.cancel()
        if self._tasks and (await asyncio.wait(self._tasks.values(), timeout=grace.deliveries))[1]:
            log.warning("a channel does not stop receiving", extra={"action": "end.receiving"})
        self._runtime.pause()
        if not await _within(grace.turns, self._runtime.idle()):
            log.warning("turns were cut off; the next start goes on with them", extra={"action": "end.cut_off"})
            await _within(grace.deliveries, self._runtime.cancel())
        idle = asyncio.gather(*(line.deliverer.idle() for line in self._lines.values()))
        if not await _within(grace.deliveries, idle):
            log.warning("answers are undelivered; the next start sends them", extra={"action": "end.undelivered"})
        for line in self._lines.values():
            line.cancel()
            try:
                async with asyncio.timeout(grace.deliveries):
                    await line.aclose()
            except Exception as error:  # the adapter is someone else's code, and the others have to be closed
                name, extra = line.channel.name, {"action": "end.close"}
                log.warning("the channel %s did not close: %s", name, error, exc_info=True, extra=extra)

    async def _run(self, name: str, line: Line) -> None:
        try:
            await supervise(
                f"the channel {name}",
                lambda: line.channel.run(line.gate.receive),
                self._pace,
                fatal=(ChannelRefused,),
            )
            self.states[name] = "ended"
        except ChannelRefused as error:
            self.states[name], self.refusals[name] = "refused", str(error)
            log.error("the channel %s ends: %s", name, error, extra={"action": "channel.refused", "channel": name})  # noqa: TRY400


async def _within(seconds: float, work: Awaitable[object]) -> bool:
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait([task], timeout=seconds)
    if not done:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return bool(done)
