"""A firing: the inbound it becomes, what its turn may do, and what is written and told when that has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from bubbot.errors import ScheduleRefused
from bubbot.ports.channel import Inbound, Role, Sender
from bubbot.ports.turn import SCHEDULED, Status, Turn
from bubbot.schedule.changes import SCHEDULE_TAPE, TERMINAL
from bubbot.schedule.cron import instant_text
from bubbot.schedule.plan import LATE_AFTER, jitter
from bubbot.schedule.store import ScheduleStore
from bubbot.schedule.when import zone_named
from bubbot.schedule.words import late_words, moment_words
from bubbot.tape.entry import TapeEntry, event, timestamp
from bubbot.tape.fork import MergeResult
from bubbot.tape.query import moment
from bubbot.texts import Texts
from bubbot.views.schedule import FIRED, FIRING_FAILED, NOT_RUN, PAUSED, RAN, Actor, ChatRef, Job, JobState

WHAT_SHOWN = 120
"""Characters of what a job does, where it is named."""
KEY = "schedule:"
"""What the external id of a firing begins with; the job, `@` and the mark follow."""

RoleOf = Callable[[Inbound], Role]
"""The role in which an inbound is spoken, on whichever channel it is."""


def fired(job: Job, mark: str) -> TapeEntry:
    """The fact that a job fired; the same for whoever writes it."""
    return event(FIRED, {"job": job.id, "mark": mark}, key=f"fired:{job.id}@{mark}")


def firing_inbound(job: Job, mark: str, by: Actor, now: datetime) -> Inbound:
    """A firing as an inbound. `mark`: its instant, or how it was asked for; `by`: for whom it runs."""
    return Inbound(
        channel=job.place.channel,
        external_id=f"{KEY}{job.id}@{mark}",
        chat=job.place.chat,
        sender=Sender(by.id, by.name, roles=by.roles),
        text=_text(job, mark),
        time=timestamp(now),
        thread=job.place.thread,
        direct=job.place.direct,
        space=job.place.space,
        origin=SCHEDULED,
    )


def _text(job: Job, mark: str) -> str:
    """What stands on the tape. Prompts are told what they are: nobody has just written them."""
    if job.do == "command":
        return job.text
    named = f"{job.id} ({job.name})" if job.name else job.id
    head = f"Scheduled job {named}, due {_shown(job, mark)}"
    if job.do == "text":
        return f"[{head}: the text that follows was sent as it is.]"
    return f"[{head}. Nobody waits for an answer: if there is nothing to say, answer exactly [SILENT].]\n{job.text}"


def _shown(job: Job, mark: str) -> str:
    instant = due_of(mark)
    try:
        return f"{instant.astimezone(zone_named(job.zone)):%Y-%m-%d %H:%M} {job.zone}"
    except ScheduleRefused:
        return instant_text(instant)


def due_of(mark: str) -> datetime:
    """The instant of a mark."""
    return moment(mark.partition("!")[0]) or datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Firing:
    """The firing that an inbound is."""

    standing: JobState
    mark: str
    inbound: Inbound

    @property
    def job(self) -> Job:
        """Its job, as it is now."""
        return self.standing.job

    @property
    def late(self) -> bool:
        """Whether it was accepted later than it was due, and so much that people are told."""
        return self._behind() > LATE_AFTER.total_seconds()

    def late_text(self, texts: Texts) -> str:
        """What people are told of that."""
        late = moment(self.inbound.time) or due_of(self.mark)
        due = due_of(self.mark)
        shown = moment_words(due, zone_named(self.job.zone), texts)
        return texts.say("told_late", moment=shown, late=late_words(late - due, texts))

    def _behind(self) -> float:
        accepted, due = moment(self.inbound.time), due_of(self.mark)
        if accepted is None or "!" in self.mark:
            return 0.0
        return (accepted - due - jitter(self.job, due)).total_seconds()


@dataclass(frozen=True, slots=True)
class FiringOutcome:
    """What a firing's turn ends with: what people are told, where (None: nowhere), and facts for the tape of schedules."""

    text: str
    place: ChatRef | None
    facts: tuple[TapeEntry, ...] = ()


class Firings:
    """What a session asks about turns that a schedule began. `role_of`: what a person may do now."""

    def __init__(self, book: ScheduleStore, role_of: RoleOf) -> None:
        self._book = book
        self._role_of = role_of

    def of(self, inbound: Inbound) -> Firing | None:
        """The firing that an inbound is; None where its job is there no more."""
        job_id, _, mark = inbound.external_id.removeprefix(KEY).partition("@")
        standing = self._book.state.jobs.get(job_id)
        return Firing(standing, mark, inbound) if standing else None

    def prepare(self, turn: Turn, inbound: Inbound) -> None:
        """Sets what the turn may do: the role of whoever it runs for, as that is now; nothing without a job."""
        turn.origin, turn.may_schedule = SCHEDULED, False
        firing = self.of(inbound)
        turn.role = self._role(firing) if firing and not self._refusal(firing) else Role.STRANGER
        if firing is None or turn.role is Role.STRANGER:
            return
        turn.job, turn.seconds, turn.may_schedule = firing.job.id, float(firing.job.budget), firing.job.nested
        turn.fixed = firing.job.text if firing.job.do == "text" else None
        if firing.late:
            turn.notices.append(firing.late_text(turn.texts))

    def ends(self, turn: Turn, inbound: Inbound, status: Status, text: str) -> FiringOutcome:
        """What is written and told when the turn has ended in this way."""
        firing = self.of(inbound)
        if firing is None:
            return FiringOutcome("", None)
        data = {"job": firing.job.id, "mark": firing.mark, "turn": turn.id}
        if reason := self._refusal(firing):
            why = {"reason": reason}
            paused = event(PAUSED, {"job": firing.job.id, "by": _BOT, **why})
            return FiringOutcome("", None, (event(NOT_RUN, {**data, **why}), paused))
        if status == "failed":
            return self._failed(firing, text, data, turn.texts)
        before, job = firing.standing.failures, firing.job
        if before:
            recovered = turn.texts.say("told_recovered", job=named(job), count=before)
            text = f"{recovered}\n\n{text}" if text else recovered
        return FiringOutcome(text, job.target, (event(RAN, {**data, "status": status}),))

    def _failed(self, firing: Firing, text: str, data: dict[str, str], texts: Texts) -> FiringOutcome:
        """Told where the job was made: at the first failure in a row, the second, the fourth, and so on; and when the job is
        paused."""
        job, count = firing.job, firing.standing.failures + 1
        facts = [event(FIRING_FAILED, {**data, "reason": text[:500], "count": count})]
        said = texts.say("told_failed", job=named(job), count=count, reason=text)
        paused = count >= self._book.limits.failures
        if paused:
            facts.append(event(PAUSED, {"job": job.id, "by": _BOT, "reason": "reason_failing"}))
            said += "\n" + texts.say("told_paused", job=job.id, count=count)
        told = paused or count & (count - 1) == 0
        return FiringOutcome(said if told else "", job.place, tuple(facts))

    def poisoned(self, inbound: Inbound, reason: str) -> Sequence[TapeEntry]:
        """The facts of a firing that no turn can be made of."""
        if (firing := self.of(inbound)) is None:
            return ()
        count = firing.standing.failures + 1
        data = {"job": firing.job.id, "mark": firing.mark, "turn": "", "reason": reason, "count": count}
        return (event(FIRING_FAILED, data),)

    def take(self, entries: Sequence[TapeEntry]) -> None:
        """Takes note of facts that were appended."""
        self._book.take(entries)

    async def merged(self, merged: MergeResult) -> None:
        """Takes note of what a turn has merged; where it erased a tape, jobs may have gone with it."""
        if any(entry.name == "tape/erased" for entry in merged.delta):
            await self._book.load()
        else:
            self._book.take(merged.staged.get(SCHEDULE_TAPE, ()))

    def _role(self, firing: Firing) -> Role:
        if firing.inbound.sender.id == TERMINAL:
            return Role.OWNER
        return self._role_of(firing.inbound)

    def _refusal(self, firing: Firing) -> str:
        """The name of the reason why it may not run now; empty where it may."""
        if self._role(firing) is Role.STRANGER:
            return "reason_revoked"
        granted = firing.job.granted
        if granted is None or granted.id == TERMINAL:
            return ""
        asked = replace(
            firing.inbound,
            channel=granted.channel,
            sender=Sender(granted.id, granted.name, roles=granted.roles),
            direct=True,
        )
        return "" if self._role_of(asked) is Role.OWNER else "reason_grant"


def missed_text(standing: JobState, texts: Texts) -> str:
    """What a chat is told of a job for one time that was not done."""
    job = standing.job
    due = moment_words(standing.covered, zone_named(job.zone), texts)
    return texts.say("told_missed", what=what_words(job, texts), moment=due, job=named(job))


def what_words(job: Job, texts: Texts) -> str:
    """What a job does."""
    shown = job.text if len(job.text) <= WHAT_SHOWN else f"{job.text[:WHAT_SHOWN]}…"
    return texts.say(f"do_{job.do}", text=shown)


_BOT = {"channel": "", "id": "", "name": "", "roles": []}


def named(job: Job) -> str:
    """What people know a job by."""
    return f"{job.id} ({job.name})" if job.name else job.id
