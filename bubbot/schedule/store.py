"""The jobs of a process: read once, kept up with every fact that is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from bubbot.schedule.changes import ScheduleLimits
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, timestamp
from bubbot.tape.handle import Clock
from bubbot.tape.service import NewId, TapeService
from bubbot.views.schedule import (
    OVER,
    PASSING,
    SCHEDULE_CHECKPOINT,
    JobState,
    ScheduleCheckpointView,
    ScheduleState,
    ScheduleView,
)

SCHEDULE_CHECKPOINT_INTERVAL = 500
"""Facts about firings between two marks; what a start has to read of them is about that."""

Told: TypeAlias = Callable[[Collection[str]], None]
"""Hears which jobs have changed."""


class ScheduleStore:
    """The one writer of the tape of schedules outside of turns. `zone` is the deployment's.

    Until `load` has returned there are no jobs. `state` is that of the tape, as far as this process wrote it.
    """

    def __init__(
        self, tape: TapeService, *, now: Clock, new_id: NewId, zone: str, limits: ScheduleLimits | None = None
    ) -> None:
        self._tape = tape
        self.now = now
        self.new_id = new_id
        self.zone = zone
        self.limits = limits or ScheduleLimits()
        self.state = ScheduleState()
        self.kept = False
        """Whether this process keeps time over the jobs."""
        self._told: Told = lambda _: None
        self._unmarked = 0
        self._one_at_a_time = asyncio.Lock()

    @property
    def tape(self) -> TapeService:
        """The tape of schedules."""
        return self._tape

    def on_change(self, told: Told) -> None:
        """Tells whoever keeps time."""
        self._told = told

    async def load(self) -> None:
        """Reads the tape anew."""
        async with self._one_at_a_time:
            before, head = set(self.state.jobs), -1
            while head != (head := await self._tape.head()):  # what is written meanwhile has to be read as well
                after, read = await self._read()
            self.state, self._unmarked = read, head - after
        self._told(before | set(self.state.jobs))

    async def write(self, entries: Sequence[TapeEntry]) -> None:
        """Appends facts, durable when this returns."""
        self.take(await self._tape.append(entries, keep_first=True))

    def take(self, entries: Sequence[TapeEntry]) -> None:
        """Takes note of facts that somebody has appended: a turn that was merged, say."""
        if not entries:
            return
        self.state = self.state.after(entries)
        self._unmarked += sum(entry.name in PASSING for entry in entries)
        named = {str(entry.payload["data"].get("job", "")) for entry in entries}
        sessions = {entry.payload["data"]["session"] for entry in entries if entry.name == "schedule/chat"}
        moved = (
            {one.job.id for one in self.state.jobs.values() if one.job.target.session in sessions}
            if sessions
            else set()
        )
        self._told(named | moved)

    async def mark(self) -> None:
        """Writes how all jobs stand, when enough has happened, so that the next start reads little."""
        if self._unmarked < SCHEDULE_CHECKPOINT_INTERVAL:
            return
        async with self._one_at_a_time:
            self._unmarked = 0
            head = await self._tape.head()
            _, state = await self._read()  # it has all that is on the tape, which `self.state` may be about to learn
            jobs = [_counts(one) for one in state.jobs.values() if one.status != "over"]
            await self._tape.append([anchor(SCHEDULE_CHECKPOINT, {"after": head, "jobs": jobs}, window=False)])

    async def _read(self) -> tuple[int, ScheduleState]:
        """From which entry on firings were read, and how all jobs stand by the tape."""
        after, counts = await self._tape.read(ScheduleCheckpointView())
        return after, await self._tape.read(ScheduleView(after, counts))

    async def gone(self, channel: str, chat: str, reason: str) -> None:
        """A chat cannot be reached any more: whatever is aimed at it is over."""
        over = [
            event(OVER, {"job": one.job.id, "reason": "reason_chat_gone", "detail": reason})
            for one in self.state.jobs.values()
            if one.status != "over" and (one.job.target.channel, one.job.target.chat) == (channel, chat)
        ]
        if over:
            await self.write(over)


def _counts(standing: JobState) -> dict[str, object]:
    asked = [
        {
            "mark": one.mark,
            "by": {"channel": one.by.channel, "id": one.by.id, "name": one.by.name, "roles": list(one.by.roles)},
        }
        for one in standing.asked
    ]
    return {
        "job": standing.job.id,
        "covered": timestamp(standing.covered),
        "runs": standing.runs,
        "failures": standing.failures,
        "asked": asked,
    }
