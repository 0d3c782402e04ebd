"""The jobs of a process: read once, updated with every fact that is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from bubbot.features.schedule.changes import ScheduleLimits
from bubbot.features.schedule.state import (
    FIRING_EVENTS,
    OVER,
    SCHEDULE_CHECKPOINT,
    JobState,
    ScheduleCheckpointView,
    ScheduleState,
    ScheduleView,
)
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, timestamp
from bubbot.tape.handle import Clock
from bubbot.tape.service import NewId, TapeService

SCHEDULE_CHECKPOINT_INTERVAL = 500
"""Facts about firings between two marks; a start reads about as many."""

OnJobsChanged: TypeAlias = Callable[[Collection[str]], None]
"""Called with the ids of the jobs that changed."""


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
        self.is_timer_running = False
        """True while a timer of this process fires the jobs."""
        self._notify: OnJobsChanged = lambda _: None
        self._unmarked = 0
        self._lock = asyncio.Lock()

    @property
    def tape(self) -> TapeService:
        """The tape of schedules."""
        return self._tape

    def set_on_change(self, on_change: OnJobsChanged) -> None:
        """Set the listener for changed jobs."""
        self._notify = on_change

    async def load(self) -> None:
        """Read the tape again."""
        async with self._lock:
            before, head = set(self.state.jobs), -1
            while head != (head := await self._tape.head()):  # entries written meanwhile have to be read as well
                after, state = await self._read()
            self.state, self._unmarked = state, head - after
        self._notify(before | set(self.state.jobs))

    async def write(self, entries: Sequence[TapeEntry]) -> None:
        """Append facts, durable when this returns."""
        self.apply(await self._tape.append(entries, if_absent=True))

    def apply(self, entries: Sequence[TapeEntry]) -> None:
        """Apply facts that were appended elsewhere, such as by a merged turn."""
        if not entries:
            return
        self.state = self.state.apply(entries)
        self._unmarked += sum(entry.name in FIRING_EVENTS for entry in entries)
        changed = {str(entry.payload["data"].get("job", "")) for entry in entries}
        sessions = {entry.payload["data"]["session"] for entry in entries if entry.name == "schedule/chat"}
        affected = (
            {job_state.job.id for job_state in self.state.jobs.values() if job_state.job.target.session in sessions}
            if sessions
            else set()
        )
        self._notify(changed | affected)

    async def write_checkpoint(self) -> None:
        """Write the state of all jobs, if enough has happened, so that the next start reads little."""
        if self._unmarked < SCHEDULE_CHECKPOINT_INTERVAL:
            return
        async with self._lock:
            self._unmarked = 0
            head = await self._tape.head()
            _, state = await self._read()  # everything on the tape, which may be ahead of `self.state`
            jobs = [_checkpoint_data(job_state) for job_state in state.jobs.values() if job_state.status != "over"]
            await self._tape.append([anchor(SCHEDULE_CHECKPOINT, {"after": head, "jobs": jobs}, window=False)])

    async def _read(self) -> tuple[int, ScheduleState]:
        """Return the entry from which firings were read, and the state of all jobs on the tape."""
        after, counts = await self._tape.read(ScheduleCheckpointView())
        return after, await self._tape.read(ScheduleView(after, counts))

    async def end_jobs_of_chat(self, channel: str, chat: str, reason: str) -> None:
        """End all jobs aimed at a chat that cannot be reached any more."""
        ended = [
            event(OVER, {"job": job_state.job.id, "reason": "reason_chat_gone", "detail": reason})
            for job_state in self.state.jobs.values()
            if job_state.status != "over"
            and (job_state.job.target.channel, job_state.job.target.chat) == (channel, chat)
        ]
        if ended:
            await self.write(ended)


def _checkpoint_data(job_state: JobState) -> dict[str, object]:
    requests = [
        {
            "mark": request.mark,
            "by": {
                "channel": request.by.channel,
                "id": request.by.id,
                "name": request.by.name,
                "roles": list(request.by.roles),
            },
        }
        for request in job_state.requests
    ]
    return {
        "job": job_state.job.id,
        "covered": timestamp(job_state.covered),
        "runs": job_state.runs,
        "failures": job_state.failures,
        "asked": requests,
    }
