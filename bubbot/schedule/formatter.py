"""Texts about jobs for people, in the language of the chat."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bubbot.errors import ScheduleRefused
from bubbot.schedule.changes import TERMINAL, JobChanges, quiet_of, quiet_text
from bubbot.schedule.firing import due_of, named, what_words
from bubbot.schedule.plan import next_times, rule_of
from bubbot.schedule.when import zone_named
from bubbot.schedule.words import in_words, moment_words
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import moment
from bubbot.texts import Texts
from bubbot.views.schedule import ChatRules, DeliveryState, Job, JobState, ScheduleState

LINE_LENGTH = 300


@dataclass(frozen=True, slots=True)
class JobFormatter:
    """Texts about jobs. `zone` is the deployment's."""

    texts: Texts
    now: datetime
    zone: str

    def made(self, sentence: str, job: Job, changes: JobChanges) -> str:
        """Confirm that a job was made or changed: its schedule in words, its zone, the next three times."""
        text = self.texts.say(
            sentence, job=named(job), words=self.words(job), next=self._format_times(job, changes.next_of(job))
        )
        quiet = quiet_of(changes.state, job.target.session, self.zone)
        first = changes.next_of(job, 1)
        if quiet is not None and first and not job.urgent and quiet.until(first[0]) is not None:
            text += self.texts.say("job_quiet", quiet=quiet_text((quiet.start, quiet.end)))
        return text

    def words(self, job: Job) -> str:
        """Describe the schedule of a job."""
        try:
            when, zone = rule_of(job)
        except ScheduleRefused:
            return job.when
        return in_words(when, zone, self.texts)

    def line(self, standing: JobState, session: str) -> str:
        """Describe a job in one line; the line says so if the job belongs to another chat."""
        job = standing.job
        text = self.texts.say(
            "jobs_line",
            job=named(job),
            state=self.state(standing),
            words=self.words(job),
            next=self._format_times(job, self._next_times(standing, 1)),
            what=what_words(job, self.texts),
        )
        return text if job.session == session else text + self.texts.say("jobs_elsewhere", session=job.session)

    def listed(self, jobs: Sequence[JobState], session: str) -> str:
        """List jobs, one per line."""
        return "\n".join(self.line(job_state, session) for job_state in jobs) or self.texts.say("jobs_none")

    def shown(self, standing: JobState) -> str:
        """Describe everything about one job."""
        job, say = standing.job, self.texts.say
        none = say("no_limit")
        until = moment(job.until) if job.until else None
        lines = [
            f"{named(job)}: {self.state(standing)}",
            say("show_what", what=say(f"do_{job.do}", text=job.text)),
            say("show_when", words=self.words(job), when=job.when),
            say("show_next", next=self._format_times(job, self._next_times(standing, 3))),
            say("show_by", by=self.who(vars_of(job.by)), session=job.session),
        ]
        if job.to is not None and job.granted is not None:
            lines.append(say("show_to", to=job.to.session, by=self.who(vars_of(job.granted))))
        lines.append(
            say(
                "show_rules",
                catch_up=job.catch_up + (f" ({job.catch_limit})" if job.catch_up == "all" else ""),
                jitter=job.jitter,
                budget=f"{job.budget} s" if job.budget else none,
                until=moment_words(until, zone_named(job.zone), self.texts) if until else none,
                runs=standing.runs,
                most=job.most or none,
            )
        )
        if standing.failures:
            lines.append(say("show_failures", count=standing.failures))
        return "\n".join(lines)

    def state(self, standing: JobState) -> str:
        """Describe the state of a job, with the reason if it is not on."""
        reason = self.reason(standing.reason, standing.detail) if standing.reason else ""
        return self.texts.say(f"state_{standing.status}", **({"reason": reason} if reason else {}))

    def reason(self, name: str, detail: str = "") -> str:
        """Return a reason by the name of its sentence."""
        return self.texts.say(name, detail=detail)

    def who(self, by: Mapping[str, Any]) -> str:
        """Format a person by display name and the id that counts."""
        if by["id"] == TERMINAL:
            return self.texts.say("by_terminal")
        if not by["id"]:
            return self.texts.say("by_bot")
        account = f"{by['channel']}:{by['id']}"
        return f"{by['name']} ({account})" if by["name"] else account

    def chat(self, state: ScheduleState, session: str) -> str:
        """Describe the rules of a chat."""
        rules = state.chats.get(session, ChatRules())
        quiet = quiet_text(rules.quiet) if rules.quiet else self.texts.say("chat_no_quiet")
        return self.texts.say("chat_settings", zone=rules.zone or self.zone, quiet=quiet)

    def history(self, job: Job, facts: Iterable[TapeEntry], deliveries: Mapping[str, DeliveryState]) -> str:
        """Describe the history of a job, oldest first; firing, running and delivery are separate lines."""
        lines: list[str] = []
        for entry in facts:
            if text := self._fact_text(job, entry):
                lines.append(self._history_line(job, entry.date, text))
            delivery = deliveries.get(str(entry.payload["data"].get("turn", "")))
            if delivery is not None and entry.name in ("schedule/ran", "schedule/failed"):
                lines.append("  " + self._delivery_text(job, entry.payload["data"], delivery))
        return "\n".join(lines) or self.texts.say("history_none", job=named(job))

    def _fact_text(self, job: Job, entry: TapeEntry) -> str:
        data, name = entry.payload["data"], (entry.name or "").partition("/")[2]
        values: dict[str, object] = {"by": self.who(data["by"])} if "by" in data else {}
        if "reason" in data:
            is_named = str(data["reason"]).startswith("reason_")
            values["reason"] = (
                self.reason(data["reason"], data.get("detail", "")) if is_named else _shorten(data["reason"])
            )
        if "mark" in data:
            values["instant"] = self._format_moment(job, due_of(data["mark"]))
        if name == "skipped":
            values |= {field: self._format_moment(job, moment(data[field])) for field in ("first", "last")}
        values |= {"status": data.get("status", ""), "turn": str(data.get("turn", ""))[:8]}
        if name == "fired" and "!" in data["mark"]:
            return ""  # the requester was notified
        return self.texts.say(f"h_{_SENTENCE_NAMES.get(name, name)}", **values)

    def _delivery_text(self, job: Job, data: Mapping[str, Any], delivery: DeliveryState) -> str:
        instant = self._format_moment(job, due_of(data["mark"]))
        return self.texts.say(f"h_{delivery.state}", instant=instant, reason=delivery.reason)

    def _history_line(self, job: Job, date: str, text: str) -> str:
        return self.texts.say("history_line", date=self._format_moment(job, moment(date)), what=text)

    def _format_moment(self, job: Job, instant: datetime | None) -> str:
        if instant is None:
            return "?"
        try:
            return f"{instant.astimezone(zone_named(job.zone)):%Y-%m-%d %H:%M:%S}"
        except ScheduleRefused:
            return f"{instant:%Y-%m-%d %H:%M:%S} UTC"

    def _next_times(self, job_state: JobState, count: int) -> list[datetime]:
        try:
            return next_times(job_state, self.now, count)
        except ScheduleRefused:
            return []

    def _format_times(self, job: Job, times: Sequence[datetime]) -> str:
        zone = zone_named(job.zone) if times else None
        texts = [moment_words(instant, zone, self.texts) for instant in times] if zone else []
        return "; ".join(texts) or self.texts.say("job_never_again")


def vars_of(by: Any) -> dict[str, Any]:
    """Return an actor's account as facts have it."""
    return {"channel": by.channel, "id": by.id, "name": by.name}


_SENTENCE_NAMES = {"over": "ended"}


def _shorten(text: str) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= LINE_LENGTH else f"{line[:LINE_LENGTH]}…"
