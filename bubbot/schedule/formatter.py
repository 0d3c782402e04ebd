"""Jobs as people read them, in the language of the chat."""

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
    """Puts jobs into words. `zone` is the deployment's."""

    texts: Texts
    now: datetime
    zone: str

    def made(self, sentence: str, job: Job, changes: JobChanges) -> str:
        """What is answered when a job was made or changed: its schedule in words, its zone, the next three times."""
        told = self.texts.say(
            sentence, job=named(job), words=self.words(job), next=self._times(job, changes.next_of(job))
        )
        quiet = quiet_of(changes.state, job.target.session, self.zone)
        first = changes.next_of(job, 1)
        if quiet is not None and first and not job.urgent and quiet.until(first[0]) is not None:
            told += self.texts.say("job_quiet", quiet=quiet_text((quiet.start, quiet.end)))
        return told

    def words(self, job: Job) -> str:
        """When it comes."""
        try:
            when, zone = rule_of(job)
        except ScheduleRefused:
            return job.when
        return in_words(when, zone, self.texts)

    def line(self, standing: JobState, session: str) -> str:
        """A job in one line; where it belongs to another chat than this one, the line says so."""
        job = standing.job
        told = self.texts.say(
            "jobs_line",
            job=named(job),
            state=self.state(standing),
            words=self.words(job),
            next=self._times(job, self._next(standing, 1)),
            what=what_words(job, self.texts),
        )
        return told if job.session == session else told + self.texts.say("jobs_elsewhere", session=job.session)

    def listed(self, jobs: Sequence[JobState], session: str) -> str:
        """All of them."""
        return "\n".join(self.line(one, session) for one in jobs) or self.texts.say("jobs_none")

    def shown(self, standing: JobState) -> str:
        """Everything about one job."""
        job, say = standing.job, self.texts.say
        none = say("no_limit")
        until = moment(job.until) if job.until else None
        lines = [
            f"{named(job)}: {self.state(standing)}",
            say("show_what", what=say(f"do_{job.do}", text=job.text)),
            say("show_when", words=self.words(job), when=job.when),
            say("show_next", next=self._times(job, self._next(standing, 3))),
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
        """Whether it is on, and if not, why."""
        reason = self.reason(standing.reason, standing.detail) if standing.reason else ""
        return self.texts.say(f"state_{standing.status}", **({"reason": reason} if reason else {}))

    def reason(self, name: str, detail: str = "") -> str:
        """A reason by the name of its sentence."""
        return self.texts.say(name, detail=detail)

    def who(self, by: Mapping[str, Any]) -> str:
        """Somebody, by the shown name and the id that counts."""
        if by["id"] == TERMINAL:
            return self.texts.say("by_terminal")
        if not by["id"]:
            return self.texts.say("by_bot")
        account = f"{by['channel']}:{by['id']}"
        return f"{by['name']} ({account})" if by["name"] else account

    def chat(self, state: ScheduleState, session: str) -> str:
        """The rules of a chat."""
        rules = state.chats.get(session, ChatRules())
        quiet = quiet_text(rules.quiet) if rules.quiet else self.texts.say("chat_no_quiet")
        return self.texts.say("chat_settings", zone=rules.zone or self.zone, quiet=quiet)

    def history(self, job: Job, facts: Iterable[TapeEntry], deliveries: Mapping[str, DeliveryState]) -> str:
        """What happened with a job, oldest first: firing, running and delivery are told apart."""
        lines: list[str] = []
        for entry in facts:
            if told := self._fact(job, entry):
                lines.append(self._dated(job, entry.date, told))
            delivery = deliveries.get(str(entry.payload["data"].get("turn", "")))
            if delivery is not None and entry.name in ("schedule/ran", "schedule/failed"):
                lines.append("  " + self._delivered(job, entry.payload["data"], delivery))
        return "\n".join(lines) or self.texts.say("history_none", job=named(job))

    def _fact(self, job: Job, entry: TapeEntry) -> str:
        data, name = entry.payload["data"], (entry.name or "").partition("/")[2]
        values: dict[str, object] = {"by": self.who(data["by"])} if "by" in data else {}
        if "reason" in data:
            known = str(data["reason"]).startswith("reason_")
            values["reason"] = self.reason(data["reason"], data.get("detail", "")) if known else _short(data["reason"])
        if "mark" in data:
            values["instant"] = self._moment(job, due_of(data["mark"]))
        if name == "skipped":
            values |= {one: self._moment(job, moment(data[one])) for one in ("first", "last")}
        values |= {"status": data.get("status", ""), "turn": str(data.get("turn", ""))[:8]}
        if name == "fired" and "!" in data["mark"]:
            return ""  # who asked for it was told
        return self.texts.say(f"h_{_TOLD.get(name, name)}", **values)

    def _delivered(self, job: Job, data: Mapping[str, Any], delivery: DeliveryState) -> str:
        instant = self._moment(job, due_of(data["mark"]))
        return self.texts.say(f"h_{delivery.state}", instant=instant, reason=delivery.reason)

    def _dated(self, job: Job, date: str, what: str) -> str:
        return self.texts.say("history_line", date=self._moment(job, moment(date)), what=what)

    def _moment(self, job: Job, instant: datetime | None) -> str:
        if instant is None:
            return "?"
        try:
            return f"{instant.astimezone(zone_named(job.zone)):%Y-%m-%d %H:%M:%S}"
        except ScheduleRefused:
            return f"{instant:%Y-%m-%d %H:%M:%S} UTC"

    def _next(self, standing: JobState, count: int) -> list[datetime]:
        try:
            return next_times(standing, self.now, count)
        except ScheduleRefused:
            return []

    def _times(self, job: Job, times: Sequence[datetime]) -> str:
        zone = zone_named(job.zone) if times else None
        told = [moment_words(one, zone, self.texts) for one in times] if zone else []
        return "; ".join(told) or self.texts.say("job_never_again")


def vars_of(by: Any) -> dict[str, Any]:
    """Somebody's account as it stands in facts."""
    return {"channel": by.channel, "id": by.id, "name": by.name}


_TOLD = {"over": "ended"}


def _short(text: str) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= LINE_LENGTH else f"{line[:LINE_LENGTH]}…"
