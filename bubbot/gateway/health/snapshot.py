"""How the bot is: one value, made from what a running bot has, or from its database alone where none runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from bubbot.budget import COST, TOKENS, BudgetLimits
from bubbot.errors import ScheduleRefused
from bubbot.log import LoggedWarning
from bubbot.ports.model import NANO
from bubbot.runtime.app import RuntimeLoad
from bubbot.schedule.cron import instant_text
from bubbot.schedule.plan import next_times
from bubbot.tape.handle import Clock
from bubbot.views.budget import BOT_SCOPE, ZERO_SPENT, FailingModel, SpentTotal, TotalKey
from bubbot.views.outbox import OutboxMessage
from bubbot.views.schedule import ScheduleState

State = Literal["", "running", "refused", "ended"]
"""What became of a channel; empty before it was begun with."""
FIRINGS = 5
"""The next firings that are told."""
NEAR = 5
"""Budgets beside that of the whole bot that are told, where they are near their limit."""


@dataclass(frozen=True, slots=True)
class ChannelState:
    """A configured channel. `state` is empty before it was begun with; `ready`, `heard` and `note`: see `ChannelHealth`. Of a
    channel that does not report, running is ready."""

    name: str
    state: State
    ready: bool
    heard: str = ""
    note: str = ""

    @property
    def fine(self) -> bool:
        """Whether people who write there are heard."""
        return self.state == "running" and self.ready


@dataclass(frozen=True, slots=True)
class PendingDeliveries:
    """What has not been delivered on a channel: how many messages, and when the oldest was merged, ISO 8601."""

    channel: str
    count: int
    oldest: str = ""


@dataclass(frozen=True, slots=True)
class NextFiring:
    """When a job comes next."""

    job: str
    name: str
    session: str
    at: str


@dataclass(frozen=True, slots=True)
class BudgetUsage:
    """What of a budget was spent in a day or month: `measure` is `cost`, in the currency of `[budget]`, or `tokens`;
    `most` is None where nothing limits it."""

    scope: str
    name: str
    period: str
    measure: str
    used: float
    most: float | None = None

    @property
    def monthly(self) -> bool:
        """Whether it is a month's, not a day's."""
        return len(self.period) == 7


@dataclass(frozen=True, slots=True)
class ModelOutage:
    """A model that does not answer: since when and when it was asked last (ISO 8601), the kind of the error, and the
    status of HTTP that its provider sent."""

    name: str
    since: str
    newest: str
    kind: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """Sizes in bytes; `free` is what the disk of the home has left; `entries` over all tapes."""

    entries: int
    size: int
    wal: int
    free: int


@dataclass(frozen=True, slots=True)
class BackupStatus:
    """A backup: its name, and when it was made, ISO 8601."""

    name: str
    at: str


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """How the bot is at `at`, ISO 8601 in UTC as all times here. `pid` is None where no bot runs: then there are no
    channels and no errors, and `load` counts the messages that nobody has answered. `backup` is the newest;
    `quarantine` that of which the home was made, while nothing is sent to anybody outside; `failing` the models that
    have not answered since a call failed."""

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
    """Whether the bot waits for room on the disk of its database: nothing is accepted, acknowledged or sent."""

    @property
    def healthy(self) -> bool:
        """Whether a bot runs, hears all its channels, gets answers from its models and has room to write; in quarantine
        it hears nobody."""
        hears = self.pid is not None and self.quarantine is None and all(one.fine for one in self.channels)
        return hears and not self.failing and not self.full


def owed_by(channel: str, intents: Iterable[OutboxMessage]) -> PendingDeliveries:
    """What a channel's open intents amount to."""
    dates = [one.date for one in intents if one.parts]
    return PendingDeliveries(channel, len(dates), min(dates, default=""))


def failing_models(failing: Mapping[str, FailingModel], used: Collection[str], at: str) -> tuple[ModelOutage, ...]:
    """Return the models that do not answer, as far as that still matters at `at`.

    A model that no setting names (`used`) any more counts for a day after it was asked last: somebody may have left it.
    """
    day_ago = (datetime.fromisoformat(at) - timedelta(days=1)).astimezone(UTC)
    return tuple(
        ModelOutage(*one)
        for name, one in sorted(failing.items())
        if name in used or datetime.fromisoformat(one.newest) > day_ago
    )


def next_firings(state: ScheduleState, now: Clock) -> tuple[NextFiring, ...]:
    """The next firings of all jobs, the soonest first."""
    found: list[NextFiring] = []
    for standing in state.jobs.values():
        try:
            times = next_times(standing, now(), 1)
        except ScheduleRefused:  # written by a newer version; the job itself says so
            continue
        job = standing.job
        found += [NextFiring(job.id, job.name, job.session, instant_text(one)) for one in times]
    return tuple(sorted(found, key=lambda one: one.at)[:FIRINGS])


def used_of(
    spent: Mapping[TotalKey, SpentTotal], plan: BudgetLimits, today: str, dollar: float = 1.0
) -> tuple[BudgetUsage, ...]:
    """What the whole bot has spent today and this month, and the budgets of others that are nearly used up. `dollar`:
    what a US dollar is in the currency of `[budget]`."""
    whole = [
        one for period in (today, today[:7]) for one in _used(spent, plan, TotalKey(BOT_SCOPE, "", period), dollar)
    ]
    others = [
        one
        for key in spent
        if key.scope != BOT_SCOPE and key.period in (today, today[:7])
        for one in _used(spent, plan, key, dollar)
        if one.most is not None and one.used >= plan.warn_at * one.most
    ]
    near = sorted(others, key=lambda one: one.used / one.most if one.most else 1.0, reverse=True)
    return (*whole, *near[:NEAR])


def _used(
    spent: Mapping[TotalKey, SpentTotal], plan: BudgetLimits, key: TotalKey, dollar: float
) -> Iterator[BudgetUsage]:
    total, limit = spent.get(key, ZERO_SPENT), plan.limit(key.scope, key.name)
    for measure, used, unit in ((COST, total.nano / NANO, dollar), (TOKENS, float(total.tokens), 1.0)):
        most = limit.of(key.period, measure) if limit else None
        yield BudgetUsage(*key, measure, used * unit, None if most is None else float(most * unit))


def as_json(snapshot: HealthSnapshot) -> dict[str, Any]:
    """The object that programs read; what is not known is left out."""
    found = {name: value for name, value in asdict(snapshot).items() if value not in (None, "")}
    return {"running": snapshot.pid is not None, "healthy": snapshot.healthy, **found}
