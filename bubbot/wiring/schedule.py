"""Putting schedules together: the book of jobs, what turns ask about them, and what keeps time over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Schedules over the lines of a bot. Jobs are loaded by whoever starts it, after recovery. `links` are those of the
    lines, which learn of each other through `join`."""

    book: ScheduleStore
    firings: Firings
    lines: Mapping[str, ChannelRuntime]
    texts: Texts
    links: dict[str, SessionChannel]

    def join(self, line: ChannelRuntime) -> None:
        """Makes a line known to jobs and to the others, as it is now."""
        name = line.channel.name
        self.links[name] = line.link = replace(line.link, other=self.links.get)
        line.deliverer.gone = _gone(self.book, name)

    def keeper(self) -> Any:
        """What keeps time, while its `run` runs. The library is loaded here, by a process that keeps time."""
        made: Any = import_module("bubbot.schedule.timer")
        return made.Keeper(self.book, self.fire, tell=self.tell)

    async def fire(self, inbound: Inbound, also: Mapping[str, Sequence[TapeEntry]]) -> bool:
        """A firing goes through the same door as a message."""
        return await self._line(inbound.channel).gate.accept(inbound, also) is not None

    async def tell(self, standing: JobState, key: str, facts: Sequence[TapeEntry]) -> None:
        """Tell the chat in which a job was made that it was missed, with its facts in the same transaction."""
        place, line = standing.job.place, self._line(standing.job.place.channel)
        out = Outbound(place.channel, place.chat, missed_text(standing, self.texts), place.thread)
        parts = tuple(line.link.parts(out))
        await line.deliver(await line.outbox.say(standing.job.session, key, parts, {SCHEDULE_TAPE: facts}))

    def _line(self, channel: str) -> ChannelRuntime:
        if (line := self.lines.get(channel)) is None:
            raise ConfigError(f"no channel {channel} runs here")
        return line


def timekeeping(
    tape: TapeService, lines: Mapping[str, ChannelRuntime], settings: Settings, texts: Texts, given: Deps
) -> Scheduler:
    """Schedules of a bot with these lines."""
    limits, zone = limits_of(settings), settings.bot.timezone
    book = ScheduleStore(tape, now=given.now, new_id=given.new_id, zone=zone, limits=limits)
    links: dict[str, SessionChannel] = {}

    def role_of(inbound: Inbound) -> Role:
        link = links.get(inbound.channel)
        return link.role(inbound) if link else Role.STRANGER

    made = Scheduler(book, Firings(book, role_of), lines, texts, links)
    for line in lines.values():
        made.join(line)
    return made


def limits_of(settings: Settings) -> ScheduleLimits:
    """What jobs are held to."""
    return ScheduleLimits(settings.schedule.per_chat, settings.schedule.failures, settings.schedule.endless)


def _gone(book: ScheduleStore, channel: str) -> Any:
    async def gone(chat: str, reason: str) -> None:
        await book.gone(channel, chat, reason)

    return gone
