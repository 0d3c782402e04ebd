"""The bot's health as one value, built from a running bot, or from its database alone if none runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from bubbot.errors import ScheduleRefused
from bubbot.features.budget.budget import COST, TOKENS, BudgetLimits
from bubbot.features.budget.state import BOT_SCOPE, ZERO_SPENT, FailingModel, SpentTotal, TotalKey
from bubbot.features.schedule.cron import format_instant
from bubbot.features.schedule.plan import next_times
from bubbot.features.schedule.state import ScheduleState
from bubbot.log import LoggedWarning
from bubbot.ports.model import NANOS_PER_USD
from bubbot.ports.outbox import OutboxMessage
from bubbot.runtime.app import RuntimeLoad
from bubbot.tape.handle import Clock

ChannelStatus = Literal["", "running", "refused", "ended"]
"""The state of a channel; empty before it was started."""
MAX_FIRINGS = 5
"""Number of next firings to report."""
MAX_NEAR_BUDGETS = 5
"""Budgets near their limit to report, besides that of the whole bot."""


@dataclass(frozen=True, slots=True)
class ChannelState:
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
        """True if people who write there are heard."""
        return self.state == "running" and self.ready


@dataclass(frozen=True, slots=True)
class PendingDeliveries:
    """The undelivered messages of a channel, and when the oldest was merged, ISO 8601."""

    channel: str
    count: int
    oldest: str = ""


@dataclass(frozen=True, slots=True)
class NextFiring:
    """The next firing of a job."""

    job: str
    name: str
    session: str
    at: str


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """The amount spent of a budget in a day or month.

    Attributes:
        scope: the kind of budget.
        name: whose budget of that kind it is.
        period: `2026-11-22` or `2026-11`.
        measure: `cost`, in the currency of `[budget]`, or `tokens`.
        used: the amount spent.
        most: the limit; None if there is none.
    """

    scope: str
    name: str
    period: str
    measure: str
    used: float
    most: float | None = None

    @property
    def is_monthly(self) -> bool:
        """True for a month, false for a day."""
        return len(self.period) == 7


@dataclass(frozen=True, slots=True)
class ModelOutage:
    """A model that does not answer.

    Attributes:
        name: that of the model.
        since: when it first did not answer, ISO 8601.
        newest: when it was last asked, ISO 8601.
        kind: that of the error.
        status: the HTTP status that its provider sent; None if there was none.
    """

    name: str
    since: str
    newest: str
    kind: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
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


@dataclass(frozen=True, slots=True)
class BackupStatus:
    """A backup's name, and when it was made, ISO 8601."""

    name: str
    at: str


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """The bot's health at one time. All times are ISO 8601 in UTC.

    Attributes:
        version: that of the program.
        home: the path of the home.
        zone: the time zone of the deployment.
        at: when the snapshot was taken.
        currency: that of `[budget]`.
        pid: None if no bot runs: then there are no channels and no errors.
        began: when the bot started; empty if none runs.
        channels: the configured channels.
        load: the turns; if no bot runs, the messages that nobody has answered.
        owed: undelivered messages, by channel.
        firings: the next firings, the soonest first.
        budget: what was spent.
        database: None if it was not measured.
        backup: the newest backup.
        warnings: warnings logged.
        errors: errors logged.
        newest: the newest of both.
        quarantine: the backup the home was restored from, while nothing is sent to anybody outside.
        failing: models that have not answered since a call failed.
        full: the bot waits for disk space for its database: nothing is accepted, acknowledged or sent.
    """

    version: str
    home: str
    zone: str
    at: str
    currency: str = "USD"
    pid: int | None = None
    began: str = ""
    channels: tuple[ChannelState, ...] = ()
    load: RuntimeLoad = RuntimeLoad()  # noqa: RUF009 - frozen
    owed: tuple[PendingDeliveries, ...] = ()
    firings: tuple[NextFiring, ...] = ()
    budget: tuple[BudgetUsage, ...] = ()
    database: DatabaseStatus | None = None
    backup: BackupStatus | None = None
    warnings: int = 0
    errors: int = 0
    newest: tuple[LoggedWarning, ...] = ()
    quarantine: BackupStatus | None = None
    failing: tuple[ModelOutage, ...] = ()
    full: bool = False

    @property
    def is_healthy(self) -> bool:
        """True if a bot runs, hears all its channels, gets answers from its models and has room to write.

        In quarantine it hears nobody.
        """
        hears = (
            self.pid is not None and self.quarantine is None and all(channel.is_receiving for channel in self.channels)
        )
        return hears and not self.failing and not self.full


def pending_deliveries(channel: str, messages: Iterable[OutboxMessage]) -> PendingDeliveries:
    """Sum up the open messages of a channel."""
    dates = [message.date for message in messages if message.parts]
    return PendingDeliveries(channel, len(dates), min(dates, default=""))


def failing_models(
    failing: Mapping[str, FailingModel], configured: Collection[str], at: str
) -> tuple[ModelOutage, ...]:
    """Return the models that do not answer, if that still matters at `at`.

    A model that no setting names (`configured`) any more counts for a day after it was last asked: somebody may have left it.
    """
    day_ago = (datetime.fromisoformat(at) - timedelta(days=1)).astimezone(UTC)
    return tuple(
        ModelOutage(*model)
        for name, model in sorted(failing.items())
        if name in configured or datetime.fromisoformat(model.newest) > day_ago
    )


def next_firings(state: ScheduleState, now: Clock) -> tuple[NextFiring, ...]:
    """Return the next firings of all jobs, the soonest first."""
    firings: list[NextFiring] = []
    for job_state in state.jobs.values():
        try:
            times = next_times(job_state, now(), 1)
        except ScheduleRefused:  # written by a newer version; the job's own status says so
            continue
        job = job_state.job
        firings += [NextFiring(job.id, job.name, job.session, format_instant(time)) for time in times]
    return tuple(sorted(firings, key=lambda firing: firing.at)[:MAX_FIRINGS])


def budget_usage(
    spent: Mapping[TotalKey, SpentTotal], limits: BudgetLimits, today: str, usd_rate: float = 1.0
) -> tuple[BudgetUsage, ...]:
    """Return what the whole bot has spent today and this month, and other budgets that are nearly used up.

    Args:
        spent: the totals.
        limits: the limits.
        today: `2026-11-22`.
        usd_rate: the price of a US dollar in the currency of `[budget]`.
    """
    bot = [
        usage
        for period in (today, today[:7])
        for usage in _used(spent, limits, TotalKey(BOT_SCOPE, "", period), usd_rate)
    ]
    others = [
        usage
        for key in spent
        if key.scope != BOT_SCOPE and key.period in (today, today[:7])
        for usage in _used(spent, limits, key, usd_rate)
        if usage.most is not None and usage.used >= limits.warn_at * usage.most
    ]
    near = sorted(others, key=lambda usage: usage.used / usage.most if usage.most else 1.0, reverse=True)
    return (*bot, *near[:MAX_NEAR_BUDGETS])


def _used(
    spent: Mapping[TotalKey, SpentTotal], plan: BudgetLimits, key: TotalKey, dollar: float
) -> Iterator[BudgetUsage]:
    total, limit = spent.get(key, ZERO_SPENT), plan.find_limit(key.scope, key.name)
    for measure, used, unit in ((COST, total.cost_nanousd / NANOS_PER_USD, dollar), (TOKENS, float(total.tokens), 1.0)):
        ceiling = limit.limit_for(key.period, measure) if limit else None
        yield BudgetUsage(*key, measure, used * unit, None if ceiling is None else float(ceiling * unit))


def as_json(snapshot: HealthSnapshot) -> dict[str, Any]:
    """Return the object that programs read; unknown values are left out."""
    values = {name: value for name, value in asdict(snapshot).items() if value not in (None, "")}
    return {"running": snapshot.pid is not None, "healthy": snapshot.is_healthy, **values}
