"""The daemon's reports to its service manager: start, channels, signs of life and shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from msgspec import Struct

from bubbot.concurrency import Backoff, supervise
from bubbot.ops.service.notify import ServiceNotifier
from bubbot.ports.channel import Channel, ReportsHealth


class ServiceTiming(Struct, frozen=True):
    """The intervals of the reports, in seconds.

    Attributes:
        start_timeout: the start counts as over after this time, even if a channel does not receive yet.
        poll_interval: the interval between two checks of the channels.
        extension_interval: the interval between two requests for more time during the shutdown.
        extension: the time that each of those requests.
        closing_time: the time that the shutdown takes in addition to that of the channels.
    """

    start_timeout: float = 60.0
    poll_interval: float = 0.25
    extension_interval: float = 5.0
    extension: float = 20.0
    closing_time: float = 30.0


class WatchedChannels(Struct, frozen=True):
    """The channels of a daemon and their states.

    Attributes:
        states: `running`, `refused` or `ended` by name.
        refusals: the reasons of refusals by name.
    """

    channels: Mapping[str, Channel]
    states: Mapping[str, str]
    refusals: Mapping[str, str]

    def summarize(self) -> tuple[bool, str]:
        """Return true if no channel is still connecting, and a line with the state of each."""
        receiving, connecting, ended = [], [], []
        for name, channel in sorted(self.channels.items()):
            state = self.states.get(name, "running")
            health = channel.health() if isinstance(channel, ReportsHealth) else None
            if state != "running":
                ended.append(f"{name} ({self.refusals.get(name, state)})")
            elif health is None or health.is_ready:
                receiving.append(f"{name} ({health.note})" if health and health.note else name)
            else:
                connecting.append(f"{name} ({health.note or 'not connected yet'})")
        groups = {"receiving": receiving, "not heard": connecting, "ended": ended}
        line = "; ".join(f"{state_name}: {', '.join(names)}" for state_name, names in groups.items() if names)
        return not connecting, line or "no channels; commands of the shell are answered"


class ServiceReporter:
    """Reports about one daemon to its service manager."""

    def __init__(
        self, notifier: ServiceNotifier, watchdog: float | None, backoff: Backoff, timing: ServiceTiming
    ) -> None:
        self.notifier = notifier
        self._watchdog = watchdog
        self._backoff = backoff
        self._timing = timing
        self._tasks: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the signs of life; the event loop sends them, so a blocked loop sends none."""
        self.notifier.report_status("starting")
        if self._watchdog is not None:
            pause = self._watchdog / 3
            self._run("the signs of life", lambda: self._send_signs_of_life(pause))

    def watch(self, watched: Callable[[], WatchedChannels]) -> None:
        """Start reporting the state of the channels, and the end of the start-up once all of them receive."""
        limit = asyncio.get_running_loop().time() + self._timing.start_timeout
        self._watching = self._run("the report to the service manager", lambda: self._watch(watched, limit))

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Report a reload for the duration of the block."""
        self.notifier.report_reloading()
        try:
            yield
        finally:
            self.notifier.report_reloaded()

    def begin_shutdown(self, max_seconds: float) -> None:
        """Report the shutdown, and request time for it: at most `max_seconds` seconds, and those for closing."""
        if self._watching is not None:
            self._watching.cancel()  # the state of the channels is no longer of interest
        self.notifier.report_stopping("ending: turns under way are finished, answers are delivered")
        until = asyncio.get_running_loop().time() + max_seconds + self._timing.closing_time
        self._run("the request for time", lambda: self._request_time(until))

    async def aclose(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.notifier.close()

    def _run(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None] | None:
        if not self.notifier.is_enabled:
            return None
        self._tasks.append(asyncio.create_task(supervise(name, work, self._backoff)))
        return self._tasks[-1]

    async def _send_signs_of_life(self, pause: float) -> None:
        while True:
            self.notifier.report_alive()
            await asyncio.sleep(pause)

    async def _watch(self, watched: Callable[[], WatchedChannels], limit: float) -> None:
        loop, is_started, reported = asyncio.get_running_loop(), False, ""
        while True:
            # Check the time first: reading the health of a channel may fail.
            if is_late := not is_started and loop.time() >= limit:
                is_started = self.notifier.report_started(reported or "started")
            settled, line = watched().summarize()
            if not is_started and settled and not is_late:
                is_started = self.notifier.report_started(line)
                reported = line if is_started else reported
            if line != reported and self.notifier.report_status(line):
                reported = line
            await asyncio.sleep(self._timing.poll_interval)

    async def _request_time(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        while (remaining := until - loop.time()) > 0:
            self.notifier.extend_timeout(min(self._timing.extension, remaining))
            await asyncio.sleep(self._timing.extension_interval)


@asynccontextmanager
async def open_reporter(
    notifier: ServiceNotifier, watchdog: float | None, backoff: Backoff, timing: ServiceTiming
) -> AsyncIterator[ServiceReporter]:
    """Report until the block ends.

    Args:
        watchdog: the time within which the service manager expects a sign of life, in seconds; None for no watchdog.
        backoff: the pauses before a failed report task is restarted.
    """
    reporter = ServiceReporter(notifier, watchdog, backoff, timing)
    reporter.start()
    try:
        yield reporter
    finally:
        await reporter.aclose()
