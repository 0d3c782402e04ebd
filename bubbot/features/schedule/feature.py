"""The feature: jobs, the tools that change them, and the timer that fires them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bubbot.errors import ConfigError
from bubbot.feature import Apply, Feature, Kernel, Lifecycle
from bubbot.features.schedule.changes import job_label
from bubbot.features.schedule.commands import schedule_tools
from bubbot.features.schedule.facts import SCHEDULE_TAPE, Job, JobOver
from bubbot.features.schedule.firing import SCHEDULE_ORIGIN, Firings, format_missed
from bubbot.features.schedule.health import next_firings, schedule_health
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.schedule.state import JobState
from bubbot.features.schedule.store import ScheduleStore
from bubbot.ports.access import Allowance
from bubbot.ports.channel import Outbound, Role
from bubbot.ports.health import FeatureHealth, HealthContext
from bubbot.ports.turn import Turn
from bubbot.settings.loader import Settings
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts


class ScheduleFeature:
    """The schedules of a bot.

    Attributes:
        store: the jobs.
    """

    def __init__(self, kernel: Kernel, settings: ScheduleSettings) -> None:
        self.store = ScheduleStore(
            kernel.open_tape(SCHEDULE_TAPE),
            now=kernel.now,
            new_id=kernel.new_id,
            zone=str(kernel.zone),
            limits=settings,
            projections=kernel.projections,
        )
        self._firings = Firings(self.store, kernel.role_of)
        self._kernel = kernel
        self._endings = asyncio.Queue[tuple[Job, JobOver]]()

    def feature(self) -> Feature:
        """Build the record."""
        return Feature(
            name="schedule",
            tools=schedule_tools(self.store, self._kernel.first_session),
            services=(self.store,),
            sources={SCHEDULE_ORIGIN: self._firings},
            traces=(SCHEDULE_TAPE,),
            on_merged=(self._firings.apply_merge,),
            lifecycle=Lifecycle(
                on_recovered=self.store.load,
                background={"schedules": self.run_timer},
                background_everywhere={"notices of jobs": self.send_notices},
                prepare=self._prepare,
            ),
            health=self._report_health,
        )

    def list_allowed(self, turn: Turn) -> tuple[Allowance, ...]:
        """List what the job of a turn may do besides; nothing if it is no turn of a job."""
        return self._firings.list_allowed(turn)

    async def run_timer(self) -> None:
        """Fire jobs until cancelled. The library is loaded here: few processes need it."""
        from bubbot.features.schedule.timer import JobTimer

        await JobTimer(self.store, self._kernel.accept, notify_missed=self.notify_missed).run()

    async def notify_missed(self, job_state: JobState, key: str, facts: Sequence[TapeEntry]) -> None:
        """Tell the chat in which a job was made that it was missed, with its facts in the same transaction."""
        chat = job_state.job.place
        text = format_missed(job_state, await self._find_texts(job_state.job))
        outbound = Outbound(chat.channel, chat.chat, text, chat.thread)
        await self._kernel.send(job_state.job.session, key, outbound, {SCHEDULE_TAPE: facts})

    async def end_jobs_of_chat(self, channel: str, chat: str, reason: str) -> None:
        """End the jobs of a chat that cannot be reached any more; those of others end with the notice of it."""
        ended: list[TapeEntry] = []
        for job in self.store.list_jobs_of_chat(channel, chat):
            fact = JobOver(job.id, "reason_chat_gone", reason)
            if (job.place.channel, job.place.chat) == (channel, chat):
                ended.append(fact.to_entry())
            else:  # the delivery that found this out is still under way, and may hold up that of the notice
                self._endings.put_nowait((job, fact))
        if ended:
            await self.store.write(ended)

    async def send_notices(self) -> None:
        """End jobs, and notify the chats in which they were made in the same transaction, until cancelled.

        A job that a crash keeps from ending here fires once more, and ends then.
        """
        while True:
            job, fact = await self._endings.get()
            job_state = self.store.state.jobs.get(job.id)
            if job_state is None or job_state.status == "over":
                continue
            texts = await self._find_texts(job)
            text = texts.say("told_chat_gone", job=job_label(job), reason=fact.detail)
            outbound = Outbound(job.place.channel, job.place.chat, text, job.place.thread)
            try:
                await self._kernel.send(job.session, f"{job.id}@over", outbound, {SCHEDULE_TAPE: [fact.to_entry()]})
            except ConfigError:  # the channel does not run here: the list of jobs has the reason
                await self.store.write([fact.to_entry()])
            else:
                await self.store.catch_up()

    async def _find_texts(self, job: Job) -> Texts:
        """Return the sentences for the person who made a job."""
        return await self._kernel.find_texts(job.place.channel, job.by.id, job.place.chat)

    def _report_health(self, context: HealthContext) -> FeatureHealth:
        may_read = context.role.at_least(Role.ADMIN)  # a thousand jobs take a tenth of a second
        return schedule_health(context, next_firings(self.store.state, context.at) if may_read else ())

    async def _prepare(self, settings: Settings) -> Apply:
        limits = settings.section(ScheduleSettings)

        def apply() -> None:
            self.store.limits = limits

        return apply
