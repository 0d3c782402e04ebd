"""Build the scheduler: the store of jobs, what turns ask about them, and the timer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bubbot.errors import ConfigError
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.ports.channel import Inbound, Outbound, Role
from bubbot.runtime.link import SessionChannel
from bubbot.schedule.changes import SCHEDULE_TAPE, ScheduleLimits
from bubbot.schedule.firing import Firings, missed_text
from bubbot.schedule.store import ScheduleStore
from bubbot.settings.loader import Settings
from bubbot.tape.entry import TapeEntry
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from bubbot.views.schedule import JobState
from bubbot.wiring.channel_factory import Deps

if TYPE_CHECKING:
    from bubbot.schedule.timer import JobTimer


@dataclass(frozen=True, slots=True)
class Scheduler:
    """The schedules of a bot. Whoever starts it loads the jobs, after recovery.

    Attributes:
        book: the jobs.
        firings: what turns ask about firings.
        lines: the channels, by name.
        texts: the bot's own sentences.
        links: the sessions' link of each channel; they learn of each other through `join`.
    """

    book: ScheduleStore
    firings: Firings
    lines: Mapping[str, ChannelRuntime]
    texts: Texts
    links: dict[str, SessionChannel]

    def join(self, line: ChannelRuntime) -> None:
        """Make a channel known to jobs and to the other channels, in its current state."""
        name = line.channel.name
        self.links[name] = line.link = replace(line.link, other=self.links.get)
        line.deliverer.gone = _abandon_jobs_of(self.book, name)

    def keeper(self) -> JobTimer:
        """Return the timer; it fires jobs while its `run` runs. The library is loaded here: few processes need it."""
        from bubbot.schedule.timer import JobTimer

        return JobTimer(self.book, self.fire, tell=self.tell)

    async def fire(self, inbound: Inbound, also: Mapping[str, Sequence[TapeEntry]]) -> bool:
        """Accept a firing as the channel's gate accepts a message."""
        return await self._channel_runtime(inbound.channel).gate.accept(inbound, also) is not None

    async def tell(self, standing: JobState, key: str, facts: Sequence[TapeEntry]) -> None:
        """Tell the chat in which a job was made that it was missed, with its facts in the same transaction."""
        job_chat, channel_runtime = standing.job.place, self._channel_runtime(standing.job.place.channel)
        outbound = Outbound(job_chat.channel, job_chat.chat, missed_text(standing, self.texts), job_chat.thread)
        parts = tuple(channel_runtime.link.parts(outbound))
        await channel_runtime.deliver(
            await channel_runtime.outbox.say(standing.job.session, key, parts, {SCHEDULE_TAPE: facts})
        )

    def _channel_runtime(self, channel: str) -> ChannelRuntime:
        if (channel_runtime := self.lines.get(channel)) is None:
            raise ConfigError(f"no channel {channel} runs here")
        return channel_runtime


def timekeeping(
    tape: TapeService, lines: Mapping[str, ChannelRuntime], settings: Settings, texts: Texts, given: Deps
) -> Scheduler:
    """Build the scheduler of a bot with these channels."""
    limits, zone = limits_of(settings), settings.bot.timezone
    book = ScheduleStore(tape, now=given.now, new_id=given.new_id, zone=zone, limits=limits)
    links: dict[str, SessionChannel] = {}

    def role_of(inbound: Inbound) -> Role:
        link = links.get(inbound.channel)
        return link.role(inbound) if link else Role.STRANGER

    scheduler = Scheduler(book, Firings(book, role_of), lines, texts, links)
    for channel_runtime in lines.values():
        scheduler.join(channel_runtime)
    return scheduler


def limits_of(settings: Settings) -> ScheduleLimits:
    """Return the limits of jobs."""
    return ScheduleLimits(settings.schedule.per_chat, settings.schedule.failures, settings.schedule.endless)


def _abandon_jobs_of(book: ScheduleStore, channel: str) -> Any:
    async def abandon(chat: str, reason: str) -> None:
        await book.gone(channel, chat, reason)

    return abandon
