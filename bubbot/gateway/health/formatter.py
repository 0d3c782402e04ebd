"""The bot's health in words: the same for the shell and for chats, in the language of the bot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from bubbot.errors import (
    ModelEmptyAnswer,
    ModelKeyMissing,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
    ModelUnconfigured,
)
from bubbot.gateway.activity import TurnActivity
from bubbot.gateway.health.snapshot import ChannelState, HealthSnapshot
from bubbot.ports.channel import Role
from bubbot.ports.health import BudgetUsage, FeatureProblem, ModelOutage
from bubbot.ports.text import format_bytes
from bubbot.ports.usage import TOKENS, Currency, budget_owner_text
from bubbot.tape.query import parse_moment
from bubbot.texts import Texts
from bubbot.texts.lengths import format_length


@dataclass(frozen=True, slots=True)
class StatusRow:
    """A label and the lines it stands for."""

    label: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HealthFormatter:
    """Puts a snapshot into words."""

    texts: Texts
    snapshot: HealthSnapshot

    def rows(self) -> Iterator[StatusRow]:
        """Yield everything, for the operator."""
        say, snapshot = self.texts.say, self.snapshot
        yield from self._bot()
        yield StatusRow(say("st_home"), (snapshot.home,))
        yield from self._operation()
        yield from self._private()
        name = (
            say("st_backup_is", name=snapshot.backup.name, at=self.format_time(snapshot.backup.at))
            if snapshot.backup
            else say("st_none")
        )
        yield StatusRow(say("st_backup"), (name,))
        if snapshot.pid is not None:
            yield from self._log(newest=len(snapshot.newest))

    def in_chat(self, role: Role, *, direct: bool) -> list[str]:
        """Return the lines for a reader with this role in a chat.

        Members get nothing. A group gets nothing about other chats, money or the log, as others read along.
        """
        if not role.at_least(Role.ADMIN):
            return []
        rows = [*self._bot(), *self._operation(), *(self._private() if direct else ()), *self._log(newest=int(direct))]
        return [line for row in rows for line in self._format_lines(row)]

    def format_time(self, instant: str) -> str:
        """Format an instant by the deployment's time zone, with how long ago or how soon it is."""
        at, now = parse_moment(instant), parse_moment(self.snapshot.at)
        if at is None or now is None:
            return instant
        clock_time = at.astimezone(ZoneInfo(self.snapshot.zone)).strftime("%Y-%m-%d %H:%M:%S")
        seconds = int((now - at).total_seconds())
        length = format_length(abs(seconds), self.texts)
        sentence = "st_ago" if seconds >= 0 else "st_ahead"
        return self.texts.say(sentence, moment=clock_time, length=length)

    def describe_channel(self, state: ChannelState) -> str:
        """Describe a channel's state in a sentence."""
        say, heard = self.texts.say, self.format_time(state.heard) if state.heard else self.texts.say("never")
        match state.state:
            case "":
                return say("channel_begins", name=state.name)
            case "refused":
                return say("channel_refused", name=state.name, note=state.note or "?")
            case "ended":
                return say("channel_ended", name=state.name)
        if state.ready and state.note:
            return say("channel_ready_but", name=state.name, note=state.note, heard=heard)
        if state.ready:
            return say("channel_ready", name=state.name, heard=heard)
        return say("channel_down", name=state.name, note=state.note or "?", heard=heard)

    def _bot(self) -> Iterator[StatusRow]:
        say, snapshot = self.texts.say, self.snapshot
        if snapshot.pid is not None:
            text = say("st_bot_is", version=snapshot.version, pid=snapshot.pid, since=self.format_time(snapshot.began))
            yield StatusRow(say("st_bot"), (text,))
        if snapshot.quarantine:
            text = say("st_quarantine_is", name=snapshot.quarantine.name, at=self.format_time(snapshot.quarantine.at))
            yield StatusRow(say("st_quarantine"), (text,))
        if snapshot.full:
            yield StatusRow(say("st_disk"), (say("st_disk_full"),))
        if snapshot.failing:
            yield StatusRow(say("st_models"), tuple(map(self._failing, snapshot.failing)))

    def describe_feature(self, problem: FeatureProblem) -> str:
        """Describe in a sentence what is wrong with an installed feature."""
        if problem.is_left_out:
            return self.texts.say("st_feature_left_out", name=problem.name, reason=problem.reason)
        at = self.format_time(problem.at)
        return self.texts.say("st_feature_failed", name=problem.name, reason=problem.reason, at=at)

    def _failing(self, outage: ModelOutage) -> str:
        since, newest = self.format_time(outage.since), self.format_time(outage.newest)
        return self.texts.say(
            "st_failing_is", name=outage.name, since=since, why=explain_outage(self.texts, outage), newest=newest
        )

    def _operation(self) -> Iterator[StatusRow]:
        say, snapshot, nothing = self.texts.say, self.snapshot, (self.texts.say("st_none"),)
        load = snapshot.load
        if snapshot.pid is not None:
            yield StatusRow(
                say("st_channels"), tuple(self.describe_channel(channel) for channel in snapshot.channels) or nothing
            )
            work = say("st_work_is", running=load.running, waiting=load.waiting, sessions=load.sessions)
        else:
            work = say("st_unanswered", waiting=load.waiting)
        yield StatusRow(say("st_work"), (work,))
        undelivered = [
            say("st_owed_is", channel=pending.channel, count=pending.count, oldest=self.format_time(pending.oldest))
            for pending in snapshot.owed
            if pending.count
        ]
        yield StatusRow(say("st_owed"), tuple(undelivered) or nothing)
        database = snapshot.database
        text = say("st_no_database")
        if database is not None:
            sizes = {
                "size": format_bytes(database.size),
                "wal": format_bytes(database.wal),
                "free": format_bytes(database.free),
            }
            text = say(
                "st_database_is",
                entries=f"{database.entries:,}",
                size=sizes["size"],
                wal=sizes["wal"],
                free=sizes["free"],
            )
        yield StatusRow(say("st_database"), (text,))

    def _private(self) -> Iterator[StatusRow]:
        say, snapshot, nothing = self.texts.say, self.snapshot, (self.texts.say("st_none"),)
        firings = [
            say("st_next_is", job=firing.name or firing.job[:8], session=firing.session, at=self.format_time(firing.at))
            for firing in snapshot.firings
        ]
        yield StatusRow(say("st_next"), tuple(firings) or nothing)
        if snapshot.features:
            yield StatusRow(say("st_features"), tuple(map(self.describe_feature, snapshot.features)))
        if snapshot.budget:
            yield StatusRow(say("st_budget"), tuple(self._budget()))

    def _budget(self) -> Iterator[str]:
        """Yield a line for each budget and period: what was spent in money and in tokens."""
        say, by_budget = self.texts.say, dict[tuple[str, str, bool], list[str]]()
        for usage in self.snapshot.budget:
            used = self._amount(usage, usage.used)
            limit = usage.most is not None
            limited = say("st_limited", used=used, most=self._amount(usage, usage.most or 0.0)) if limit else ""
            by_budget.setdefault((usage.scope, usage.name, usage.is_monthly), []).append(
                limited or say("st_unlimited", used=used)
            )
        for (scope, name, monthly), amounts in by_budget.items():
            whose, period = budget_owner_text(self.texts, scope, name), say("st_month") if monthly else say("st_today")
            yield say("st_budget_is", whose=whose, period=period, amounts=say("st_and").join(amounts))

    def _amount(self, usage: BudgetUsage, value: float) -> str:
        if usage.measure == TOKENS:
            return self.texts.say("usage_tokens", tokens=f"{value:,.0f}")
        return Currency(self.snapshot.currency).format_amount(self.texts, value)

    def _log(self, *, newest: int) -> Iterator[StatusRow]:
        say, snapshot = self.texts.say, self.snapshot
        lines = [say("st_log_is", errors=snapshot.errors, warnings=snapshot.warnings)]
        for warning in reversed(snapshot.newest[len(snapshot.newest) - newest :] if newest else ()):
            at = self.format_time(warning.time)
            lines.append(say("st_log_line", at=at, level=warning.level, action=warning.action, message=warning.message))
        yield StatusRow(say("st_log"), tuple(lines))

    def _format_lines(self, row: StatusRow) -> list[str]:
        return [self.texts.say("st_line", label=row.label, text=line) for line in row.lines]


def describe_activity(texts: Texts, current: tuple[TurnActivity, float | None] | None) -> str:
    """Describe the activity of a turn, and for how long it has been under way."""
    activity, seconds = current or (TurnActivity(), None)
    match activity.phase:
        case "tool":
            text = texts.say("doing_tool", tool=activity.tool)
        case "writing":
            text = texts.say("doing_writing")
        case _:
            text = texts.say("doing_asking")
    return text if seconds is None else texts.say("doing_since", doing=text, length=format_length(int(seconds), texts))


def explain_outage(texts: Texts, outage: ModelOutage) -> str:
    """Say why a model does not answer, in our own words: a provider's may repeat what somebody wrote."""
    match outage.kind, outage.status:
        case ModelUnconfigured.kind, _:
            return texts.say("failing_unconfigured")
        case ModelKeyMissing.kind, _:
            return texts.say("failing_no_key")
        case ModelRefused.kind, 401 | 403:
            return texts.say("failing_key")
        case ModelRefused.kind, 402 | 429:
            return texts.say("failing_no_credit")
        case ModelRefused.kind, None:
            return texts.say("failing_refused")
        case ModelRefused.kind, status:
            return texts.say("failing_refused_status", status=status)
        case ModelRateLimited.kind, _:
            return texts.say("failing_rate")
        case ModelEmptyAnswer.kind, _:
            return texts.say("failing_empty")
        case ModelUnavailable.kind, int(status):
            return texts.say("failing_status", status=status)
        case ModelUnavailable.kind, _:
            return texts.say("failing_unavailable")
    return texts.say("failing_otherwise", kind=outage.kind)
