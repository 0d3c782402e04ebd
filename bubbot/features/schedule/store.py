"""The jobs of a process: read once, updated with every fact that is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from bubbot.features.schedule.facts import ChatRules, Job
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import SCHEDULE_PROJECTION, ScheduleState
from bubbot.tape.entry import TapeEntry
from bubbot.tape.handle import Clock
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import NewId, TapeService

OnJobsChanged: TypeAlias = Callable[[Collection[str]], None]
"""Called with the ids of the jobs that changed."""


class ScheduleStore:
    """The one writer of the tape of schedules outside of turns. `zone` is the deployment's.

    Until `load` has returned there are no jobs.
    """

    def __init__(
        self,
        tape: TapeService,
        *,
        now: Clock,
        new_id: NewId,
        zone: str,
        limits: ScheduleSettings | None = None,
        projections: ProjectionRunner | None = None,
    ) -> None:
        self._tape = tape
        self.now = now
        self.new_id = new_id
        self.zone = zone
        self.limits = limits or ScheduleSettings()
        projections = projections or ProjectionRunner()
        self.is_timer_running = projections.is_shared
        """True while a timer fires the jobs: of this process, or of one of those that share the tape."""
        self._notify: OnJobsChanged = lambda _: None
        self._projected = projections.project(SCHEDULE_PROJECTION, tape, self._notify_changed)

    @property
    def tape(self) -> TapeService:
        """The tape of schedules."""
        return self._tape

    @property
    def state(self) -> ScheduleState:
        """The jobs, as far as this process has written or read their facts."""
        return self._projected.state

    def set_on_change(self, on_change: OnJobsChanged) -> None:
        """Set the listener for changed jobs."""
        self._notify = on_change

    async def load(self) -> None:
        """Read the tape again."""
        before = set(self.state.jobs)
        await self._projected.load()
        self._notify(before | set(self.state.jobs))

    async def write(self, entries: Sequence[TapeEntry]) -> None:
        """Append facts, durable when this returns."""
        await self.follow(await self._tape.append(entries, if_absent=True))

    async def follow(self, entries: Sequence[TapeEntry]) -> None:
        """Apply facts that were appended elsewhere, such as by a merged turn."""
        await self._projected.follow(entries)

    async def catch_up(self) -> None:
        """Apply facts that were appended with others, in a transaction of another tape."""
        await self._projected.catch_up()

    async def catch_up_with(self, entries: Sequence[TapeEntry]) -> None:
        """Apply facts that were appended elsewhere; if they have no ids yet, read them from the tape."""
        if entries and not all(entry.id for entry in entries):
            await self.catch_up()
        else:
            await self.follow(entries)

    async def write_checkpoint(self) -> None:
        """Write the state of all jobs, if enough has happened, so that the next start reads little."""
        await self._projected.write_checkpoint()

    def _notify_changed(self, entries: Sequence[TapeEntry]) -> None:
        changed = {str(entry.data.get("job", "")) for entry in entries}
        sessions = {entry.data["session"] for entry in entries if entry.name in ChatRules.EVENTS}
        if sessions:
            changed |= {
                job_state.job.id for job_state in self.state.jobs.values() if job_state.job.target.session in sessions
            }
        if changed:
            self._notify(changed)

    def list_jobs_of_chat(self, channel: str, chat: str) -> tuple[Job, ...]:
        """List the jobs aimed at a chat that are not over."""
        return tuple(
            job_state.job
            for job_state in self.state.jobs.values()
            if job_state.status != "over"
            and (job_state.job.target.channel, job_state.job.target.chat) == (channel, chat)
        )
