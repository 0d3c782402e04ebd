"""How the bot is, in words: the same for the shell and for chats, in the language of the bot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from bubbot.budget import TOKENS
from bubbot.errors import (
    ModelEmptyAnswer,
    ModelKeyMissing,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
    ModelUnconfigured,
)
from bubbot.gateway.activity import TurnActivity
from bubbot.gateway.health.snapshot import BudgetUsage, ChannelState, HealthSnapshot, ModelOutage
from bubbot.ports.channel import Role
from bubbot.schedule.words import length_words
from bubbot.tape.query import moment
from bubbot.texts import Texts
from bubbot.views.budget import whose_budget

UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


@dataclass(frozen=True, slots=True)
class StatusRow:
    """What one label stands for, in lines."""

    label: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HealthFormatter:
    """Puts a snapshot into words."""

    texts: Texts
    snapshot: HealthSnapshot

    def rows(self) -> Iterator[StatusRow]:
        """Everything, for whoever runs the bot."""
        say, one = self.texts.say, self.snapshot
        yield from self._bot()
        yield StatusRow(say("st_home"), (one.home,))
        yield from self._standing()
        yield from self._private()
        name = say("st_backup_is", name=one.backup.name, at=self.when(one.backup.at)) if one.backup else say("st_none")
        yield StatusRow(say("st_backup"), (name,))
        if one.pid is not None:
            yield from self._log(newest=len(one.newest))

    def in_chat(self, role: Role, *, direct: bool) -> list[str]:
        """What somebody of this role is told in a chat: members nothing; in a group nothing of other chats, of money,
        or of what the log says, for others read along."""
        if not role.at_least(Role.ADMIN):
            return []
        rows = [*self._bot(), *self._standing(), *(self._private() if direct else ()), *self._log(newest=int(direct))]
        return [line for row in rows for line in self._told(row)]

    def when(self, instant: str) -> str:
        """An instant by the clock of the deployment, and how long ago or how soon that is."""
        at, now = moment(instant), moment(self.snapshot.at)
        if at is None or now is None:
            return instant
        shown = at.astimezone(ZoneInfo(self.snapshot.zone)).strftime("%Y-%m-%d %H:%M:%S")
        seconds = int((now - at).total_seconds())
        length = length_words(abs(seconds), self.texts)
        sentence = "st_ago" if seconds >= 0 else "st_ahead"
        return self.texts.say(sentence, moment=shown, length=length)

    def channel(self, one: ChannelState) -> str:
        """How a channel is, in a sentence."""
        say, heard = self.texts.say, self.when(one.heard) if one.heard else self.texts.say("never")
        match one.state:
            case "":
                return say("channel_begins", name=one.name)
            case "refused":
                return say("channel_refused", name=one.name, note=one.note or "?")
            case "ended":
                return say("channel_ended", name=one.name)
        if one.ready and one.note:
            return say("channel_ready_but", name=one.name, note=one.note, heard=heard)
        if one.ready:
            return say("channel_ready", name=one.name, heard=heard)
        return say("channel_down", name=one.name, note=one.note or "?", heard=heard)

    def _bot(self) -> Iterator[StatusRow]:
        say, one = self.texts.say, self.snapshot
        if one.pid is not None:
            told = say("st_bot_is", version=one.version, pid=one.pid, since=self.when(one.began))
            yield StatusRow(say("st_bot"), (told,))
        if one.quarantine:
            told = say("st_quarantine_is", name=one.quarantine.name, at=self.when(one.quarantine.at))
            yield StatusRow(say("st_quarantine"), (told,))
        if one.full:
            yield StatusRow(say("st_disk"), (say("st_disk_full"),))
        if one.failing:
            yield StatusRow(say("st_models"), tuple(map(self._failing, one.failing)))

    def _failing(self, one: ModelOutage) -> str:
        since, newest = self.when(one.since), self.when(one.newest)
        return self.texts.say(
            "st_failing_is", name=one.name, since=since, why=why_failing(self.texts, one), newest=newest
        )

    def _standing(self) -> Iterator[StatusRow]:
        say, one, none = self.texts.say, self.snapshot, (self.texts.say("st_none"),)
        load = one.load
        if one.pid is not None:
            yield StatusRow(say("st_channels"), tuple(self.channel(each) for each in one.channels) or none)
            work = say("st_work_is", running=load.running, waiting=load.waiting, sessions=load.sessions)
        else:
            work = say("st_unanswered", waiting=load.waiting)
        yield StatusRow(say("st_work"), (work,))
        owed = [
            say("st_owed_is", channel=each.channel, count=each.count, oldest=self.when(each.oldest))
            for each in one.owed
            if each.count
        ]
        yield StatusRow(say("st_owed"), tuple(owed) or none)
        found = one.database
        told = say("st_no_database")
        if found is not None:
            sizes = {"size": size_words(found.size), "wal": size_words(found.wal), "free": size_words(found.free)}
            told = say(
                "st_database_is",
                entries=f"{found.entries:,}",
                size=sizes["size"],
                wal=sizes["wal"],
                free=sizes["free"],
            )
        yield StatusRow(say("st_database"), (told,))

    def _private(self) -> Iterator[StatusRow]:
        say, one, none = self.texts.say, self.snapshot, (self.texts.say("st_none"),)
        firings = [
            say("st_next_is", job=each.name or each.job[:8], session=each.session, at=self.when(each.at))
            for each in one.firings
        ]
        yield StatusRow(say("st_next"), tuple(firings) or none)
        if one.budget:
            yield StatusRow(say("st_budget"), tuple(self._budget()))

    def _budget(self) -> Iterator[str]:
        """A line for each budget and period: what was spent in money and in tokens."""
        say, together = self.texts.say, dict[tuple[str, str, bool], list[str]]()
        for one in self.snapshot.budget:
            used = self._amount(one, one.used)
            limit = one.most is not None
            told = say("st_limited", used=used, most=self._amount(one, one.most or 0.0)) if limit else ""
            together.setdefault((one.scope, one.name, one.monthly), []).append(told or say("st_unlimited", used=used))
        for (scope, name, monthly), amounts in together.items():
            whose, period = whose_budget(self.texts, scope, name), say("st_month") if monthly else say("st_today")
            yield say("st_budget_is", whose=whose, period=period, amounts=say("st_and").join(amounts))

    def _amount(self, one: BudgetUsage, value: float) -> str:
        if one.measure == TOKENS:
            return self.texts.say("usage_tokens", tokens=f"{value:,.0f}")
        shown = f"{value:,.2f}" if value >= 1 or not value else f"{value:.6f}".rstrip("0")
        whole, _, decimals = shown.partition(".")
        return self.texts.say("usage_cost", amount=f"{whole}.{decimals:0<2}", currency=self.snapshot.currency)

    def _log(self, *, newest: int) -> Iterator[StatusRow]:
        say, one = self.texts.say, self.snapshot
        lines = [say("st_log_is", errors=one.errors, warnings=one.warnings)]
        for each in reversed(one.newest[len(one.newest) - newest :] if newest else ()):
            at = self.when(each.time)
            lines.append(say("st_log_line", at=at, level=each.level, action=each.action, message=each.message))
        yield StatusRow(say("st_log"), tuple(lines))

    def _told(self, row: StatusRow) -> list[str]:
        return [self.texts.say("st_line", label=row.label, text=line) for line in row.lines]


def doing_words(texts: Texts, found: tuple[TurnActivity, float | None] | None) -> str:
    """What a turn is doing, and for how long it has been under way."""
    doing, seconds = found or (TurnActivity(), None)
    match doing.what:
        case "tool":
            told = texts.say("doing_tool", tool=doing.tool)
        case "writing":
            told = texts.say("doing_writing")
        case _:
            told = texts.say("doing_asking")
    return told if seconds is None else texts.say("doing_since", doing=told, length=length_words(int(seconds), texts))


def why_failing(texts: Texts, one: ModelOutage) -> str:
    """Say why a model does not answer: our own words, for a provider's may repeat what somebody wrote."""
    match one.kind, one.status:
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
    return texts.say("failing_otherwise", kind=one.kind)


def size_words(size: int) -> str:
    """Bytes as people read them."""
    for unit, name in UNITS:
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"
