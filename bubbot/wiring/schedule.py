"""Build the scheduler: the store of jobs, what turns ask about them, and the timer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bubbot.errors import ConfigError
from bubbot.features.schedule.changes import SCHEDULE_TAPE, ScheduleLimits
from bubbot.features.schedule.firing import Firings, format_missed
from bubbot.features.schedule.state import JobState
from bubbot.features.schedule.store import ScheduleStore
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.ports.channel import Inbound, Outbound, Role
from bubbot.runtime.session import SessionChannel
from bubbot.settings.loader import Settings
from bubbot.tape.entry import TapeEntry
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from bubbot.wiring.channel_factory import Deps

if TYPE_CHECKING:
    from bubbot.features.schedule.timer import JobTimer


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The schedules of a bot. Whoever starts it loads the jobs, after recovery.

    Attributes:
        store: the jobs.
        firings: what turns ask about firings.
        channel_runtimes: the channels, by name.
        texts: the bot's own sentences.
        links: the sessions' link of each channel; they learn of each other through `join`.
    """

    store: ScheduleStore
    firings: Firings
    channel_runtimes: Mapping[str, ChannelRuntime]
    texts: Texts
    links: dict[str, SessionChannel]

    def join(self, channel_runtime: ChannelRuntime) -> None:
        """Make a channel known to jobs and to the other channels, in its current state."""
        name = channel_runtime.channel.name
        self.links[name] = channel_runtime.link = replace(channel_runtime.link, find_channel=self.links.get)
        channel_runtime.deliverer.on_chat_unreachable = _abandon_jobs_of(self.store, name)

    def make_timer(self) -> JobTimer:
        """Return the timer; it fires jobs while its `run` runs. The library is loaded here: few processes need it."""
        from bubbot.features.schedule.timer import JobTimer

        return JobTimer(self.store, self.fire, notify_missed=self.notify_missed)

    async def fire(self, inbound: Inbound, extra_entries: Mapping[str, Sequence[TapeEntry]]) -> bool:
        """Accept a firing as the channel's gate accepts a message."""
        return await self._channel_runtime(inbound.channel).gate.accept(inbound, extra_entries) is not None

    async def notify_missed(self, job_state: JobState, key: str, facts: Sequence[TapeEntry]) -> None:
        """Tell the chat in which a job was made that it was missed, with its facts in the same transaction."""
        job_chat, channel_runtime = job_state.job.place, self._channel_runtime(job_state.job.place.channel)
        outbound = Outbound(job_chat.channel, job_chat.chat, format_missed(job_state, self.texts), job_chat.thread)
        parts = tuple(channel_runtime.link.split(outbound))
        await channel_runtime.deliver(
            await channel_runtime.outbox.enqueue(job_state.job.session, key, parts, {SCHEDULE_TAPE: facts})
        )

    def _channel_runtime(self, channel: str) -> ChannelRuntime:
        if (channel_runtime := self.channel_runtimes.get(channel)) is None:
            raise ConfigError(f"no channel {channel} runs here")
        return channel_runtime


def make_scheduler(
    tape: TapeService,
    channel_runtimes: Mapping[str, ChannelRuntime],
    settings: Settings,
    texts: Texts,
    deps: Deps,
    *,
    projections: ProjectionRunner | None = None,
) -> Scheduler:
    """Build the scheduler of a bot with these channels."""
    limits, zone = schedule_limits(settings), settings.bot.timezone
    book = ScheduleStore(tape, now=deps.now, new_id=deps.new_id, zone=zone, limits=limits, projections=projections)
    links: dict[str, SessionChannel] = {}

    def role_of(inbound: Inbound) -> Role:
        link = links.get(inbound.channel)
        return link.role(inbound) if link else Role.STRANGER

    scheduler = Scheduler(book, Firings(book, role_of), channel_runtimes, texts, links)
    for channel_runtime in channel_runtimes.values():
        scheduler.join(channel_runtime)
    return scheduler


def schedule_limits(settings: Settings) -> ScheduleLimits:
    """Return the limits of jobs."""
    rules = settings.schedule
    return ScheduleLimits(rules.max_jobs_per_chat, rules.max_failures, rules.min_unbounded_interval)


def _abandon_jobs_of(book: ScheduleStore, channel: str) -> Callable[[str, str], Awaitable[None]]:
    async def abandon(chat: str, reason: str) -> None:
        await book.end_jobs_of_chat(channel, chat, reason)

    return abandon
