"""Texts about jobs for people, in the language of the chat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

import msgspec
from msgspec import Struct

from bubbot.features.schedule.changes import TERMINAL, JobChanges, find_quiet_hours, format_quiet_hours, job_label
from bubbot.features.schedule.facts import Actor, Job
from bubbot.features.schedule.firing import describe_action, mark_instant
from bubbot.features.schedule.plan import next_times, parse_rule
from bubbot.features.schedule.state import DeliveryState, JobState
from bubbot.features.schedule.words import (
    describe_rule,
    describe_schedule,
    format_date,
    format_date_time,
    format_moment,
    has_one_clock,
)
from bubbot.ports.channel import Button
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import parse_moment
from bubbot.texts import Texts
from bubbot.times.instants import wall_time
from bubbot.times.refusal import TimeRefused
from bubbot.times.rules import Interval, OneTime, When, find_zone

MAX_LINE_CHARS = 300


class JobFormatter(Struct, frozen=True):
    """Texts about jobs.

    Attributes:
        texts: the language.
        now: the current time.
        zone: the deployment's.
        edit_command: how a person here types another time for a job.
    """

    texts: Texts
    now: datetime
    zone: str
    edit_command: str = ",schedule.edit {job} {when}"

    def format_change(self, sentence: str, job: Job, changes: JobChanges, others: Sequence[When] = ()) -> str:
        """Confirm that a job was made or changed: what was understood, with its zone, and how to change that.

        Args:
            sentence: the name of the sentence.
            job: as it is now.
            changes: the jobs as they were.
            others: what the words can mean, too.
        """
        text = self.texts.say(sentence, job=job_label(job), plan=self._format_plan(job, changes))
        quiet = find_quiet_hours(changes.state, job.target.session, self.zone)
        first = changes.next_times_of(job, 1)
        if quiet is not None and first and not job.urgent and quiet.end_after(first[0]) is not None:
            text += self.texts.say("job_quiet", quiet=format_quiet_hours((quiet.start, quiet.end)))
        return f"{text}\n{self._format_hints(job, others)}"

    def _format_plan(self, job: Job, changes: JobChanges) -> str:
        """Describe the schedule of a job and its next time."""
        when, zone = parse_rule(job)
        words = describe_schedule(when, zone, self.texts)
        if isinstance(when, OneTime):
            return words
        following = changes.next_times_of(job, 1)
        if not following:
            return self.texts.say("w_next", words=words, next=self.texts.say("job_never_again"))
        format_next = format_date if has_one_clock(when) else format_date_time
        return self.texts.say("w_next", words=words, next=format_next(following[0], zone, self.texts))

    def _format_hints(self, job: Job, others: Sequence[When]) -> str:
        """Say how to change the time; if the words can mean another one, how to take that."""
        when, zone = parse_rule(job)
        if not others:
            return self.texts.say("job_change", command=self._edit_command(job, self._example(when, zone)))
        lines: list[str] = []
        for other in others:
            words, typed = describe_rule(other, zone, self.texts), self._typed_words(other, zone)
            lines.append(self.texts.say("job_other", words=words, command=self._edit_command(job, typed)))
        return "\n".join(lines)

    def change_buttons(self, job: Job, others: Sequence[When] = ()) -> tuple[Button, ...]:
        """Return the buttons below a confirmation: each other reading of the words, and removing the job."""
        when, zone = parse_rule(job)
        say = self.texts.say
        readings = tuple(
            Button(
                say("button_other", words=self._short_words(other, when, zone)),
                f",schedule.edit {job.id} {self._typed_words(other, zone)}",  # the form that runs on every platform
            )
            for other in others
        )
        return (*readings, Button(say("button_remove"), f",schedule.remove {job.id}"))

    def _short_words(self, other: When, when: When, zone: tzinfo) -> str:
        """Name another reading as short as it can be told from the one that was taken: by the time, if only that differs."""
        if isinstance(other, OneTime) and isinstance(when, OneTime):
            clock, taken = (wall_time(one.due_instant(zone), zone) for one in (other, when))
            return f"{clock:%H:%M}" if clock.date() == taken.date() else f"{clock:%Y-%m-%d %H:%M}"
        return describe_rule(other, zone, self.texts)

    def _typed_words(self, other: When, zone: tzinfo) -> str:
        """Return how another reading is typed."""
        if isinstance(other, OneTime):
            return f"{wall_time(other.due_instant(zone), zone):%Y-%m-%d %H:%M}"
        return describe_rule(other, zone, self.texts)

    def _edit_command(self, job: Job, when: str) -> str:
        return self.texts.format_commands(self.edit_command).format(job=job.id, when=when)

    def _example(self, when: When, zone: tzinfo) -> str:
        """Return another time to show how one is typed."""
        if isinstance(when, Interval) and not when.days:
            return self.texts.say("hint_interval")
        first = when.next_after(self.now, zone)
        is_at_ten = first is not None and wall_time(first, zone).hour == 10
        return self.texts.say("hint_other_time" if is_at_ten else "hint_time")

    def format_schedule(self, job: Job) -> str:
        """Describe the schedule of a job."""
        try:
            when, zone = parse_rule(job)
        except TimeRefused:
            return job.when
        return describe_schedule(when, zone, self.texts)

    def format_line(self, job_state: JobState, session: str) -> str:
        """Describe a job in one line; the line says so if the job belongs to another chat."""
        job = job_state.job
        text = self.texts.say(
            "jobs_line",
            job=job_label(job),
            state=self.format_state(job_state),
            words=self.format_schedule(job),
            next=self._format_times(job, self._next_times(job_state, 1)),
        )
        if job.name or job.do != "text":
            text = self.texts.say("jobs_line_what", line=text, what=describe_action(job, self.texts))
        return text if job.session == session else text + self.texts.say("jobs_elsewhere", session=job.session)

    def format_removed(self, job: Job) -> str:
        """Say that a job was removed; of one with a name, what it did, too."""
        text = self.texts.say("job_removed", job=job_label(job))
        return f"{text}\n{describe_action(job, self.texts)}" if job.name else text

    def format_list(self, jobs: Sequence[JobState], session: str) -> str:
        """List jobs, one per line."""
        return "\n".join(self.format_line(job_state, session) for job_state in jobs) or self.texts.say("jobs_none")

    def format_details(self, job_state: JobState) -> str:
        """Describe everything about one job."""
        job, say = job_state.job, self.texts.say
        none = say("no_limit")
        until = parse_moment(job.until) if job.until else None
        lines = [
            f"{job_label(job)}: {self.format_state(job_state)}",
            say("show_what", what=say(f"do_{job.do}", text=job.text)),
            say("show_when", words=self.format_schedule(job), when=job.when),
            say("show_next", next=self._format_times(job, self._next_times(job_state, 3))),
            say("show_by", by=self.format_actor(job.by), session=job.session),
        ]
        if job.to is not None and job.granted is not None:
            lines.append(say("show_to", to=job.to.session, by=self.format_actor(job.granted)))
        if job.allow:
            lines.append(say("show_allow", what=", ".join(job.allow)))
        lines.append(
            say(
                "show_rules",
                catch_up=job.catch_up + (f" ({job.catch_limit})" if job.catch_up == "all" else ""),
                jitter=job.jitter,
                budget=f"{job.budget} s" if job.budget else none,
                until=format_moment(until, _zone_of(job), self.texts) if until else none,
                runs=job_state.runs,
                most=job.most or none,
            )
        )
        if job_state.failures:
            lines.append(say("show_failures", count=job_state.failures))
        return "\n".join(lines)

    def format_state(self, job_state: JobState) -> str:
        """Describe the state of a job, with the reason if it is not on."""
        reason = self.format_reason(job_state.reason, job_state.detail) if job_state.reason else ""
        return self.texts.say(f"state_{job_state.status}", **({"reason": reason} if reason else {}))

    def format_reason(self, name: str, detail: str = "") -> str:
        """Return a reason by the name of its sentence."""
        return self.texts.say(name, detail=detail)

    def format_actor(self, by: Actor) -> str:
        """Format a person by display name and the id that counts."""
        if by.id == TERMINAL:
            return self.texts.say("by_terminal")
        if not by.id:
            return self.texts.say("by_bot")
        account = f"{by.channel}:{by.id}"
        return f"{by.name} ({account})" if by.name else account

    def format_history(self, job: Job, facts: Iterable[TapeEntry], deliveries: Mapping[str, DeliveryState]) -> str:
        """Describe the history of a job, oldest first; firing, running and delivery are separate lines."""
        lines: list[str] = []
        for entry in facts:
            if text := self._fact_text(job, entry):
                lines.append(self._history_line(job, entry.date, text))
            delivery = deliveries.get(str(entry.data.get("turn", "")))
            if delivery is not None and entry.name in ("schedule/ran", "schedule/failed"):
                lines.append("  " + self._delivery_text(job, entry.data, delivery))
        return "\n".join(lines) or self.texts.say("history_none", job=job_label(job))

    def _fact_text(self, job: Job, entry: TapeEntry) -> str:
        data, name = entry.data, (entry.name or "").partition("/")[2]
        values: dict[str, object] = (
            {"by": self.format_actor(msgspec.convert(data["by"], Actor))} if "by" in data else {}
        )
        if "reason" in data:
            is_named = str(data["reason"]).startswith("reason_")
            values["reason"] = (
                self.format_reason(data["reason"], data.get("detail", "")) if is_named else _shorten(data["reason"])
            )
        if "mark" in data:
            values["instant"] = self._format_moment(job, mark_instant(data["mark"]))
        if name == "skipped":
            values |= {field: self._format_moment(job, parse_moment(data[field])) for field in ("first", "last")}
        values |= {"status": data.get("status", ""), "turn": str(data.get("turn", ""))[:8]}
        if name == "fired" and "!" in data["mark"]:
            return ""  # the requester was notified
        return self.texts.say(f"h_{_SENTENCE_NAMES.get(name, name)}", **values)

    def _delivery_text(self, job: Job, data: Mapping[str, Any], delivery: DeliveryState) -> str:
        instant = self._format_moment(job, mark_instant(data["mark"]))
        return self.texts.say(f"h_{delivery.state}", instant=instant, reason=delivery.reason)

    def _history_line(self, job: Job, date: str, text: str) -> str:
        return self.texts.say("history_line", date=self._format_moment(job, parse_moment(date)), what=text)

    def _format_moment(self, job: Job, instant: datetime | None) -> str:
        if instant is None:
            return "?"
        try:
            return f"{instant.astimezone(find_zone(job.zone)):%Y-%m-%d %H:%M:%S}"
        except TimeRefused:
            return f"{instant:%Y-%m-%d %H:%M:%S} UTC"

    def _next_times(self, job_state: JobState, count: int) -> list[datetime]:
        try:
            return next_times(job_state, self.now, count)
        except TimeRefused:
            return []

    def _format_times(self, job: Job, times: Sequence[datetime]) -> str:
        zone = find_zone(job.zone) if times else None
        texts = [format_moment(instant, zone, self.texts) for instant in times] if zone else []
        return "; ".join(texts) or self.texts.say("job_never_again")


def _zone_of(job: Job) -> tzinfo:
    """Return the zone of a job; UTC if it is no longer known."""
    try:
        return find_zone(job.zone)
    except TimeRefused:
        return UTC


_SENTENCE_NAMES = {"over": "ended"}


def _shorten(text: str) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}…"
