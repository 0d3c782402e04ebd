"""The port for health: the reports of features and of the whole bot."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol
from zoneinfo import ZoneInfo

from msgspec import Struct, field, structs

from bubbot.ports.channel import Role
from bubbot.tape.entry import timestamp
from bubbot.tape.query import parse_moment
from bubbot.texts import Texts
from bubbot.texts.lengths import format_length

_METRIC_NAME = re.compile(r"[a-z][a-z0-9_]*")


class RuntimeLoad(Struct, frozen=True, forbid_unknown_fields=True):
    """The work of a bot at one moment.

    Attributes:
        waiting: messages that wait for a turn.
        running: turns under way.
        sessions: sessions in memory.
    """

    waiting: int = 0
    running: int = 0
    sessions: int = 0


class HealthReport(Protocol):
    """Reports the health of the whole bot to a sender."""

    async def __call__(self, role: Role, *, direct: bool, own: int = 0, texts: Texts | None = None) -> Sequence[str]:
        """Return lines for a sender with this role.

        Args:
            direct: nobody else reads along.
            own: running turns that only ask for this report.
            texts: in the sender's language; None: the bot's.
        """
        ...


class HealthContext(Struct, frozen=True):
    """The context of a report.

    Attributes:
        texts: the sentences, in the reader's language.
        at: the time of the report, ISO 8601 in UTC.
        zone: the time zone of the deployment.
        role: the reader's role; rows that it may not read need not be computed.
        chats: the names of chats by session, for a reader who may see all of them.
        people: the names of people by account.
    """

    texts: Texts
    at: str
    zone: str
    role: Role = Role.OWNER
    chats: Mapping[str, str] = field(default_factory=dict)
    people: Mapping[str, str] = field(default_factory=dict)

    def format_time(self, instant: str) -> str:
        """Format an instant in the deployment's time zone, with the time since or until then."""
        time, now = parse_moment(instant), parse_moment(self.at)
        if time is None or now is None:
            return instant
        clock_time = time.astimezone(ZoneInfo(self.zone)).strftime("%Y-%m-%d %H:%M:%S")
        seconds = int((now - time).total_seconds())
        length = format_length(abs(seconds), self.texts)
        sentence = "st_ago" if seconds >= 0 else "st_ahead"
        return self.texts.say(sentence, moment=clock_time, length=length)


class Outage(Struct):
    """Why requests of one kind are not taken.

    Attributes:
        error: why the last one failed; empty since one was taken.
        since: when they began to fail.
    """

    error: str = ""
    since: str = ""

    def begin(self, error: str, now: datetime) -> bool:
        """Note why nothing is taken; return true if it went well before."""
        is_first, self.error = not self.error, error
        if is_first:
            self.since = timestamp(now)
        return is_first

    def end(self) -> bool:
        """Note that they are taken; return true if they were not before."""
        was_out, self.error, self.since = bool(self.error), "", ""
        return was_out


class HealthRow(Struct, frozen=True, forbid_unknown_fields=True):
    """A label and the lines it stands for.

    Attributes:
        label: the label, in the reader's language.
        lines: the lines, in the reader's language.
        role: the least role that reads them in chats; the shell shows all.
        in_groups: they are also for groups, where members read along.
        is_trouble: they stand near the top.
    """

    label: str
    lines: tuple[str, ...]
    role: Role = Role.ADMIN
    in_groups: bool = False
    is_trouble: bool = False


class FeatureProblem(Struct, frozen=True, forbid_unknown_fields=True):
    """What is wrong with the feature of an installed package.

    Attributes:
        name: that of the feature.
        reason: in English, as its code or bubbot said it.
        at: when that was, ISO 8601; empty if it follows from what is installed.
        is_left_out: the bot goes on without the feature; otherwise one call of its code failed.
    """

    name: str
    reason: str
    at: str = ""
    is_left_out: bool = False


class MetricSpec(Struct, frozen=True):
    """A metric that a feature declares. Its name is unique in the bot, so it begins with `bubbot_` and the feature's name.

    Attributes:
        name: small letters, digits and underscores; collectors append `_total` to a counter's name.
        help: its meaning, in a sentence.
        type: a gauge goes up and down, a counter only up while the process runs.
        labels: the names of its labels. No label may hold a person, a chat, or anything else of unlimited variety.
    """

    name: str
    help: str
    type: Literal["gauge", "counter"] = "gauge"
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` for a name that collectors do not accept."""
        for name in (self.name, *self.labels):
            if not _METRIC_NAME.fullmatch(name):
                raise ValueError(f"{name!r} cannot name a metric or label: use small letters, digits and underscores")


class MetricSample(Struct, frozen=True, forbid_unknown_fields=True):
    """A value of a declared metric; `labels` are the values of its labels, in order."""

    name: str
    value: float
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Convert the value to a float, its form on the socket. Raise `TypeError` if it is not a number."""
        structs.force_setattr(self, "value", float(self.value))


class FeatureHealth(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a feature reports of its health. All values can be written as JSON.

    Attributes:
        name: that of the feature.
        trouble: what is wrong, in a sentence in the reader's language; empty if the feature is healthy.
        rows: lines for people.
        basis: what the values of `bubbot status --json` go by, such as a currency.
        data: the values themselves, by keys that no other feature uses.
        faults: values that are empty while the feature is healthy.
        samples: values of the metrics that the feature declares.
    """

    name: str
    trouble: str = ""
    rows: tuple[HealthRow, ...] = ()
    basis: Mapping[str, Any] = {}
    data: Mapping[str, Any] = {}
    faults: Mapping[str, Any] = {}
    samples: tuple[MetricSample, ...] = ()
