"""The bot's health as one value, built from a running bot, or from its database alone if none runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from bubbot.log import LoggedWarning
from bubbot.ports.health import FeatureHealth, FeatureProblem, RuntimeLoad
from bubbot.ports.outbox import OutboxMessage

ChannelStatus = Literal["", "running", "refused", "ended"]
"""The state of a channel; empty before it was started."""
DiskProblem = Literal["", "full", "read-only"]
"""The reason why the database cannot be written; empty if it can."""


class ChannelState(Struct, frozen=True, forbid_unknown_fields=True):
    """A configured channel.

    Attributes:
        name: its name in the settings.
        state: empty before it was started.
        ready: it receives messages. A channel that does not report its health is ready while it runs.
        heard: see `ChannelHealth`.
        note: see `ChannelHealth`.
    """

    name: str
    state: ChannelStatus
    ready: bool
    heard: str = ""
    note: str = ""

    @property
    def is_receiving(self) -> bool:
        """True if the bot receives messages there."""
        return self.state == "running" and self.ready


class PendingDeliveries(Struct, frozen=True, forbid_unknown_fields=True):
    """The undelivered messages of a channel, and when the oldest was merged, ISO 8601."""

    channel: str
    count: int
    oldest: str = ""


class DatabaseStatus(Struct, frozen=True, forbid_unknown_fields=True):
    """The size of the database.

    Attributes:
        entries: entries over all tapes.
        size: bytes of the database.
        wal: bytes of its write-ahead log.
        free: bytes left on the disk of the home.
    """

    entries: int
    size: int
    wal: int
    free: int


class BackupStatus(Struct, frozen=True, forbid_unknown_fields=True):
    """A backup's name, and when it was made, ISO 8601."""

    name: str
    at: str


class HealthSnapshot(Struct, frozen=True, forbid_unknown_fields=True):
    """The bot's health at one time. All times are ISO 8601 in UTC.

    Attributes:
        version: that of the program.
        home: the path of the home.
        zone: the time zone of the deployment.
        at: when the snapshot was taken.
        pid: None if no bot runs: then there are no channels and no errors.
        began: when the bot started; empty if none runs.
        channels: the configured channels.
        outcomes: how the newest turns ended, the newest last.
        load: the turns; if no bot runs, the messages that nobody has answered.
        owed: undelivered messages, by channel.
        database: None if it was not measured.
        backup: the newest backup.
        warnings: warnings logged.
        errors: errors logged.
        newest: the newest of both.
        quarantine: the backup the home was restored from, while nothing is sent to anybody outside.
        features: what is wrong with the features of installed packages. The bot is healthy without them.
        full: the bot waits for disk space for its database: nothing is accepted, acknowledged or sent.
        readonly: it waits because that disk is mounted read-only.
        replaced: the database was removed or replaced under the bot: nothing is accepted, acknowledged or sent.
        reports: what its features report.
        loading: the models that are still loading; their first answers wait for that.
    """

    version: str
    home: str
    zone: str
    at: str
    pid: int | None = None
    began: str = ""
    channels: tuple[ChannelState, ...] = ()
    outcomes: tuple[str, ...] = ()
    load: RuntimeLoad = RuntimeLoad()
    owed: tuple[PendingDeliveries, ...] = ()
    database: DatabaseStatus | None = None
    backup: BackupStatus | None = None
    warnings: int = 0
    errors: int = 0
    newest: tuple[LoggedWarning, ...] = ()
    quarantine: BackupStatus | None = None
    features: tuple[FeatureProblem, ...] = ()
    full: bool = False
    readonly: bool = False
    replaced: bool = False
    reports: tuple[FeatureHealth, ...] = ()
    loading: tuple[str, ...] = ()

    @property
    def failed_turns(self) -> int:
        """The number of failed turns since the last one that succeeded."""
        return next(
            (count for count, outcome in enumerate(reversed(self.outcomes)) if outcome != "failed"), len(self.outcomes)
        )

    @property
    def is_healthy(self) -> bool:
        """True if a bot runs, receives on all channels, can write, and no feature reports a trouble.

        In quarantine it receives nothing.
        """
        hears = (
            self.pid is not None and self.quarantine is None and all(channel.is_receiving for channel in self.channels)
        )
        return hears and not any(report.trouble for report in self.reports) and self.can_write

    @property
    def can_write(self) -> bool:
        """True if the disk has room and the database was not removed or replaced."""
        return not self.full and not self.replaced


def pending_deliveries(channel: str, messages: Iterable[OutboxMessage]) -> PendingDeliveries:
    """Count the open messages of a channel."""
    dates = [message.date for message in messages if message.parts]
    return PendingDeliveries(channel, len(dates), min(dates, default=""))


def as_json(snapshot: HealthSnapshot) -> dict[str, Any]:
    """Return the object for programs, without unknown values."""
    result: dict[str, Any] = {"running": snapshot.pid is not None, "healthy": snapshot.is_healthy}
    own, reports = msgspec.to_builtins(snapshot), snapshot.reports
    del own["reports"]
    before: dict[str, list[Mapping[str, Any]]] = {
        "pid": [report.basis for report in reports],
        "database": [report.data for report in reports],
        "full": [report.faults for report in reports],
    }
    for name, value in own.items():
        for values in before.get(name, ()):
            result |= {key: values[key] for key in values if key not in result and key not in own}
        result[name] = value
    return {name: value for name, value in result.items() if value not in (None, "")}
