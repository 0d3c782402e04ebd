"""A firing: its inbound, the permissions of its turn, and the facts and messages at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct, structs

from bubbot.features.schedule.changes import TERMINAL, job_label, shorten_action
from bubbot.features.schedule.facts import (
    BOT,
    SCHEDULE_TAPE,
    Actor,
    ChatRef,
    FiringFailed,
    FiringRan,
    FiringRefused,
    Job,
    JobFired,
    JobPaused,
)
from bubbot.features.schedule.plan import LATE_AFTER, jitter_delay
from bubbot.features.schedule.state import JobState
from bubbot.features.schedule.store import ScheduleStore
from bubbot.features.schedule.words import format_delay, format_moment
from bubbot.ports.access import Allowance
from bubbot.ports.channel import Inbound, Outbound, Role, Sender
from bubbot.ports.turn import SourcedReply, Turn, TurnOutcome
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.fork import MergeResult
from bubbot.tape.query import parse_moment
from bubbot.texts import Texts
from bubbot.times.cron import format_instant
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import find_zone

SCHEDULE_ORIGIN = "schedule"
"""The origin of everything that a job causes."""
FIRING_KEY_PREFIX = "schedule:"
"""The prefix of a firing's external id; the job, `@` and the mark follow."""

RoleOf = Callable[[Inbound], Role]
"""Return the role of an inbound's sender, on any channel."""


def fired_entry(job: Job, mark: str) -> TapeEntry:
    """Make the fact that a job fired; the same for every writer."""
    return JobFired(job.id, mark).to_entry(key=f"fired:{job.id}@{mark}")


def firing_inbound(job_state: JobState, mark: str, by: Actor, now: datetime) -> Inbound:
    """Build the inbound of a firing. `mark`: its instant, or that of the request; `by`: the person for whom it runs."""
    job = job_state.job
    return Inbound(
        channel=job.place.channel,
        external_id=f"{FIRING_KEY_PREFIX}{job.id}@{mark}",
        chat=job.place.chat,
        sender=Sender(by.id, by.name, roles=by.roles),
        text=_tape_text(job, mark),
        time=timestamp(now),
        thread=job.place.thread,
        direct=job.place.direct,
        space=job.place.space,
        origin=SCHEDULE_ORIGIN,
        provenance=str(job_state.provenance),
    )


def _tape_text(job: Job, mark: str) -> str:
    """Return the text for the tape. Prompts say what they are: nobody has just written them."""
    if job.do == "command":
        return job.text
    label = f"{job.id} ({job.name})" if job.name else job.id
    head = f"Scheduled job {label}, due {_due_text(job, mark)}"
    if job.do == "text":
        return f"[{head}: the text that follows was sent as it is.]"
    return f"[{head}. Nobody waits for an answer: if there is nothing to say, answer exactly [SILENT].]\n{job.text}"


def _due_text(job: Job, mark: str) -> str:
    instant = mark_instant(mark)
    try:
        return f"{instant.astimezone(find_zone(job.zone)):%Y-%m-%d %H:%M} {job.zone}"
    except TimeRefused:
        return format_instant(instant)


def mark_instant(mark: str) -> datetime:
    """Return the instant of a mark."""
    return parse_moment(mark.partition("!")[0]) or datetime(1970, 1, 1, tzinfo=UTC)


class Firing(Struct, frozen=True):
    """The firing that an inbound stands for."""

    job_state: JobState
    mark: str
    inbound: Inbound

    @property
    def job(self) -> Job:
        """Its job, as it is now."""
        return self.job_state.job

    @property
    def is_late(self) -> bool:
        """True if it was accepted so late that people are notified."""
        return self._seconds_late() > LATE_AFTER.total_seconds()

    def late_text(self, texts: Texts) -> str:
        """Build the notice that it is late."""
        accepted = parse_moment(self.inbound.time) or mark_instant(self.mark)
        due = mark_instant(self.mark)
        due_text = format_moment(due, find_zone(self.job.zone), texts)
        return texts.say("told_late", moment=due_text, late=format_delay(accepted - due, texts))

    def _seconds_late(self) -> float:
        accepted, due = parse_moment(self.inbound.time), mark_instant(self.mark)
        if accepted is None or "!" in self.mark:
            return 0.0
        return (accepted - due - jitter_delay(self.job, due)).total_seconds()


class ScheduledTurn(Struct, frozen=True):
    """What the jobs' tools know of a scheduled turn: whether it may schedule jobs."""

    may_schedule: bool = False


class Firings:
    """The source of scheduled turns: their permissions, replies and facts. See `TurnSource`.

    `role_of` returns a person's current role.
    """

    def __init__(self, store: ScheduleStore, role_of: RoleOf) -> None:
        self._book = store
        self._role_of = role_of

    def find(self, inbound: Inbound) -> Firing | None:
        """Return the firing of an inbound; None if its job no longer exists."""
        job_id, _, mark = inbound.external_id.removeprefix(FIRING_KEY_PREFIX).partition("@")
        job_state = self._book.state.jobs.get(job_id)
        return Firing(job_state, mark, inbound) if job_state else None

    def prepare(self, turn: Turn, inbound: Inbound) -> None:
        """Set the turn's permissions: the current role of the person for whom it runs; none without a job."""
        turn.metadata[ScheduledTurn] = ScheduledTurn()
        firing = self.find(inbound)
        turn.role = self._role(firing) if firing and not self._refusal_reason(firing) else Role.STRANGER
        if firing is None or turn.role is Role.STRANGER:
            return
        turn.cause, turn.time_limit_seconds = firing.job.id, float(firing.job.budget)
        turn.metadata[ScheduledTurn] = ScheduledTurn(may_schedule=firing.job.nested)
        turn.replies_elsewhere = firing.job.target.session != firing.job.session
        turn.fixed_reply = _reminder_text(turn, firing.job) if firing.job.do == "text" else None
        if firing.is_late:
            turn.notices.append(firing.late_text(turn.texts))

    def list_allowed(self, turn: Turn) -> tuple[Allowance, ...]:
        """List what the job that caused a turn may do besides; nothing if no job did, or if it is gone."""
        job_state = None if turn.works_for_person else self._book.state.jobs.get(turn.cause)
        return tuple(map(Allowance.parse, job_state.job.allow)) if job_state else ()

    def build_reply(self, turn: Turn, inbound: Inbound, outcome: TurnOutcome) -> SourcedReply:
        """Build the reply and the facts of a turn that ended."""
        firing, status, text = self.find(inbound), outcome.status, outcome.text
        if firing is None:
            return SourcedReply()
        before, job = firing.job_state.failures, firing.job
        if reason := self._refusal_reason(firing):
            refused = FiringRefused(job=job.id, mark=firing.mark, turn=turn.id, reason=reason)
            paused = JobPaused(job.id, BOT, reason)
            return SourcedReply(entries={SCHEDULE_TAPE: (refused.to_entry(), paused.to_entry())})
        if status == "failed":
            return self._failure_reply(firing, text, turn)
        if before:
            label = (
                job_label(job) if job.target.session == job.session else job.id
            )  # what it says is for the chat where it was made
            recovered = turn.texts.say("told_recovered", job=label, count=before)
            text = f"{recovered}\n\n{text}" if text else recovered
        fact = FiringRan(job.id, firing.mark, turn.id, status)
        return SourcedReply(text, _outbound(job.target), {SCHEDULE_TAPE: (fact.to_entry(),)})

    def _failure_reply(self, firing: Firing, text: str, turn: Turn) -> SourcedReply:
        """Build the reply of a failed turn.

        It notifies the chat where the job was made: at the first failure in a row, the second, the fourth, and so on;
        and when the job is paused.
        """
        job, count, texts = firing.job, firing.job_state.failures + 1, turn.texts
        facts = [FiringFailed(job.id, firing.mark, turn.id, text[:500], count).to_entry()]
        notice = texts.say("told_failed", job=job_label(job), count=count, reason=text)
        paused = count >= self._book.limits.max_failures
        if paused:
            facts.append(JobPaused(job.id, BOT, "reason_failing").to_entry())
            notice += "\n" + texts.say("told_paused", job=job.id, count=count)
        should_notify = paused or count & (count - 1) == 0
        return SourcedReply(notice if should_notify else "", _outbound(job.place), {SCHEDULE_TAPE: tuple(facts)})

    def failure_entries(self, inbound: Inbound, reason: str) -> Mapping[str, Sequence[TapeEntry]]:
        """Make the facts of a firing from which no turn can be made."""
        if (firing := self.find(inbound)) is None:
            return {}
        fact = FiringFailed(firing.job.id, firing.mark, "", reason, firing.job_state.failures + 1)
        return {SCHEDULE_TAPE: (fact.to_entry(),)}

    async def apply_merge(self, result: MergeResult) -> None:
        """Apply the merged facts of a turn; if it erased a tape, load everything, since jobs may have gone with it."""
        if result.has_erased:
            await self._book.load()
        elif facts := result.staged.get(SCHEDULE_TAPE):
            await self._book.catch_up_with(facts)

    def _role(self, firing: Firing) -> Role:
        if firing.inbound.sender.id == TERMINAL:
            return Role.OWNER
        return self._role_of(firing.inbound)

    def _refusal_reason(self, firing: Firing) -> str:
        """Return the name of the reason why the firing may not run now; empty if it may."""
        if self._role(firing) is Role.STRANGER:
            return "reason_revoked"
        granted = firing.job.granted
        if granted is None or granted.id == TERMINAL:
            return ""
        as_granter = structs.replace(
            firing.inbound,
            channel=granted.channel,
            sender=Sender(granted.id, granted.name, roles=granted.roles),
            direct=True,
        )
        return "" if self._role_of(as_granter) is Role.OWNER else "reason_grant"


def _reminder_text(turn: Turn, job: Job) -> str:
    """Return a text as its chat gets it: with a sign that it is a reminder; one for another chat as it is."""
    if turn.replies_elsewhere:
        return job.text
    return turn.texts.say("told_reminder_lines" if "\n" in job.text else "told_reminder", text=job.text)


def _outbound(chat: ChatRef) -> Outbound:
    return Outbound(chat.channel, chat.chat, "", chat.thread)


def format_missed(job_state: JobState, texts: Texts) -> str:
    """Build the notice that a job for one time was missed."""
    job = job_state.job
    due = format_moment(job_state.covered, find_zone(job.zone), texts)
    return texts.say("told_missed", moment=due, job=job_label(job))


def describe_action(job: Job, texts: Texts) -> str:
    """Describe a job's action."""
    return texts.say(f"do_{job.do}", text=shorten_action(job))
