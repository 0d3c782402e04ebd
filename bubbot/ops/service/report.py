"""What the daemon tells its service manager: that it is heard, what its channels do, that it lives, and that it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from bubbot.concurrency import Backoff, supervise
from bubbot.ops.service.notify import ServiceNotifier
from bubbot.ports.channel import Channel, ReportsHealth


@dataclass(frozen=True, slots=True)
class ServiceTiming:
    """Seconds. `deaf`: after which the start counts as over though a channel is not heard; `looks`: between two looks
    at the channels; `extends`: between two requests for more time at the end, each of which asks for `extension`;
    `closing`: what the end takes beyond that of the channels."""

    deaf: float = 60.0
    looks: float = 0.25
    extends: float = 5.0
    extension: float = 20.0
    closing: float = 30.0


@dataclass(frozen=True, slots=True)
class WatchedChannels:
    """The channels of a daemon, and what became of them: `running`, `refused` or `ended`."""

    channels: Mapping[str, Channel]
    states: Mapping[str, str]
    refusals: Mapping[str, str]

    def look(self) -> tuple[bool, str]:
        """Whether nothing is waited for any more, and a line that says how each channel is."""
        heard, deaf, over = [], [], []
        for name, channel in sorted(self.channels.items()):
            state = self.states.get(name, "running")
            health = channel.health() if isinstance(channel, ReportsHealth) else None
            if state != "running":
                over.append(f"{name} ({self.refusals.get(name, state)})")
            elif health is None or health.ready:
                heard.append(f"{name} ({health.note})" if health and health.note else name)
            else:
                deaf.append(f"{name} ({health.note or 'not connected yet'})")
        said = {"receiving": heard, "not heard": deaf, "ended": over}
        line = "; ".join(f"{word}: {', '.join(names)}" for word, names in said.items() if names)
        return not deaf, line or "no channels; commands of the shell are answered"


class ServiceReporter:
    """What a service manager is told about one daemon. `notifier` is also for whoever reloads the settings."""

    def __init__(self, notifier: ServiceNotifier, watchdog: float | None, pace: Backoff, times: ServiceTiming) -> None:
        self.notifier = notifier
        self._watchdog = watchdog
        self._pace = pace
        self._times = times
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins with the signs of life; they come from the event loop, so that one that is stuck gives none."""
        self.notifier.status("starting")
        if self._watchdog is not None:
            pause = self._watchdog / 3
            self._run("the signs of life", lambda: self._live(pause))

    def watch(self, watched: Callable[[], WatchedChannels]) -> None:
        """Tells from now on how the channels are, as they are then, and that the start is over when all of them are heard."""
        limit = asyncio.get_running_loop().time() + self._times.deaf
        self._watching = self._run("the report to the service manager", lambda: self._watch(watched, limit))

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Around a reload."""
        self.notifier.reloading()
        try:
            yield
        finally:
            self.notifier.ready()

    def stopping(self, longest: float) -> None:
        """The end begins and takes at most so many seconds beside closing; more time is asked for until then."""
        if self._watching is not None:
            self._watching.cancel()  # how channels are is of no interest any more
        self.notifier.stopping("ending: turns under way are finished, answers are delivered")
        until = asyncio.get_running_loop().time() + longest + self._times.closing
        self._run("the request for time", lambda: self._extend(until))

    async def aclose(self) -> None:
        """Tells nothing any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.notifier.close()

    def _run(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None] | None:
        if not self.notifier.listens:
            return None
        self._tasks.append(asyncio.create_task(supervise(name, work, self._pace)))
        return self._tasks[-1]

    async def _live(self, pause: float) -> None:
        while True:
            self.notifier.alive()
            await asyncio.sleep(pause)

    async def _watch(self, watched: Callable[[], WatchedChannels], limit: float) -> None:
        loop, begun, told = asyncio.get_running_loop(), False, ""
        while True:
            if late := not begun and loop.time() >= limit:  # first of all: a channel may also fail to say how it is
                begun = self.notifier.begun(told or "started")
            settled, line = watched().look()
            if not begun and settled and not late:
                begun = self.notifier.begun(line)
                told = line if begun else told
            if line != told and self.notifier.status(line):
                told = line
            await asyncio.sleep(self._times.looks)

    async def _extend(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        while (left := until - loop.time()) > 0:
            self.notifier.extend(min(self._times.extension, left))
            await asyncio.sleep(self._times.extends)


@asynccontextmanager
async def reporting(
    notifier: ServiceNotifier, watchdog: float | None, pace: Backoff, times: ServiceTiming
) -> AsyncIterator[ServiceReporter]:
    """Reports until the block ends. `watchdog`: seconds within which the service manager wants a sign of life."""
    report = ServiceReporter(notifier, watchdog, pace, times)
    report.start()
    try:
        yield report
    finally:
        await report.aclose()
