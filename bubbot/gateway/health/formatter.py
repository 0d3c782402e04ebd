"""The bot's health in words for the shell and for chats, in the language of the bot."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from bubbot.formatting import format_bytes
from bubbot.gateway.activity import TurnActivity
from bubbot.gateway.health.snapshot import ChannelState, HealthSnapshot
from bubbot.ports.channel import Role
from bubbot.ports.health import FeatureProblem, HealthContext, HealthRow
from bubbot.texts import Texts
from bubbot.texts.lengths import format_length


class HealthFormatter(Struct, frozen=True):
    """Puts a snapshot into words."""

    texts: Texts
    snapshot: HealthSnapshot

    @property
    def context(self) -> HealthContext:
        """The context for describing health: texts, time and zone."""
        return HealthContext(self.texts, self.snapshot.at, self.snapshot.zone)

    def rows(self) -> Iterator[HealthRow]:
        """Yield all rows, for the operator."""
        say, snapshot = self.texts.say, self.snapshot
        yield from self._bot()
        yield self._row("st_home", snapshot.home)
        yield from self._operation()
        yield from self._features(is_trouble=False)
        yield from self._problems()
        name = say("st_none")
        if snapshot.backup:
            name = say("st_backup_is", name=snapshot.backup.name, at=self.format_time(snapshot.backup.at))
        yield self._row("st_backup", name)
        if snapshot.pid is not None:
            yield from self._log(newest=len(snapshot.newest))

    def in_chat(self, role: Role, *, direct: bool) -> list[str]:
        """Return the lines for a reader with this role in a chat.

        A group learns nothing about other chats, money, the machine or the log, since others read along.
        """
        features = [*self._features(is_trouble=False), *self._problems()]
        rows = [*self._bot(), *self._operation(), *features, *self._log(newest=int(direct))]
        return [
            self.texts.say("st_line", label=row.label, text=line)
            for row in rows
            if role.at_least(row.role) and (direct or row.in_groups)
            for line in row.lines
        ]

    def format_time(self, instant: str) -> str:
        return self.context.format_time(instant)

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

    def _row(self, label: str, *lines: str, in_groups: bool = True) -> HealthRow:
        """Make a row about the bot as a whole. Groups may read it unless it is about the machine."""
        return HealthRow(self.texts.say(label), lines, in_groups=in_groups)

    def _features(self, *, is_trouble: bool) -> Iterator[HealthRow]:
        return (row for report in self.snapshot.reports for row in report.rows if row.is_trouble is is_trouble)

    def _bot(self) -> Iterator[HealthRow]:
        say, snapshot = self.texts.say, self.snapshot
        if snapshot.pid is not None:
            text = say("st_bot_is", version=snapshot.version, pid=snapshot.pid, since=self.format_time(snapshot.began))
            yield self._row("st_bot", text, in_groups=False)
        if snapshot.quarantine:
            text = say("st_quarantine_is", name=snapshot.quarantine.name, at=self.format_time(snapshot.quarantine.at))
            yield self._row("st_quarantine", text)
        if snapshot.full:
            yield self._row("st_disk", say("st_disk_readonly" if snapshot.readonly else "st_disk_full"))
        if snapshot.replaced:
            yield self._row("st_database", say("st_replaced"))
        if snapshot.loading:
            yield self._row("st_models", *(say("st_loading_is", name=name) for name in snapshot.loading))
        yield from self._features(is_trouble=True)

    def describe_feature(self, problem: FeatureProblem) -> str:
        """Describe the problem of an installed feature in a sentence."""
        if problem.is_left_out:
            return self.texts.say("st_feature_left_out", name=problem.name, reason=problem.reason)
        at = self.format_time(problem.at)
        return self.texts.say("st_feature_failed", name=problem.name, reason=problem.reason, at=at)

    def _problems(self) -> Iterator[HealthRow]:
        if problems := self.snapshot.features:
            yield HealthRow(self.texts.say("st_features"), tuple(map(self.describe_feature, problems)))

    def _operation(self) -> Iterator[HealthRow]:
        say, snapshot, nothing = self.texts.say, self.snapshot, (self.texts.say("st_none"),)
        load = snapshot.load
        if snapshot.pid is not None:
            yield self._row(
                "st_channels", *(map(self.describe_channel, snapshot.channels) if snapshot.channels else nothing)
            )
            work = say("st_work_is", running=load.running, waiting=load.waiting, sessions=load.sessions)
        else:
            work = say("st_unanswered", waiting=load.waiting)
        yield self._row("st_work", work)
        undelivered = [
            say("st_owed_is", channel=pending.channel, count=pending.count, oldest=self.format_time(pending.oldest))
            for pending in snapshot.owed
            if pending.count
        ]
        yield self._row("st_owed", *(undelivered or nothing))
        database = snapshot.database
        text = say("st_no_database")
        if database is not None:
            sizes = {
                "size": self.texts.format_number(format_bytes(database.size)),
                "wal": self.texts.format_number(format_bytes(database.wal)),
                "free": self.texts.format_number(format_bytes(database.free)),
            }
            text = say(
                "st_database_is",
                entries=self.texts.format_number(f"{database.entries:,}"),
                size=sizes["size"],
                wal=sizes["wal"],
                free=sizes["free"],
            )
        yield self._row("st_database", text, in_groups=False)

    def _log(self, *, newest: int) -> Iterator[HealthRow]:
        say, snapshot = self.texts.say, self.snapshot
        lines = [say("st_log_is", errors=snapshot.errors, warnings=snapshot.warnings)]
        for warning in reversed(snapshot.newest[len(snapshot.newest) - newest :] if newest else ()):
            at = self.format_time(warning.time)
            lines.append(say("st_log_line", at=at, level=warning.level, action=warning.action, message=warning.message))
        yield self._row("st_log", *lines)


def describe_activity(texts: Texts, current: tuple[TurnActivity, float | None] | None) -> str:
    """Describe the activity of a turn and how long it has been running."""
    activity, seconds = current or (TurnActivity(), None)
    match activity.phase:
        case "tool":
            text = texts.say("doing_tool", tool=activity.tool)
        case "writing":
            text = texts.say("doing_writing")
        case _:
            text = texts.say("doing_asking")
    return text if seconds is None else texts.say("doing_since", doing=text, length=format_length(int(seconds), texts))
