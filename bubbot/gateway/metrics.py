"""Metrics for Prometheus: counted at each event, or read from a snapshot on request.

No label holds a person, a chat or anything else of unlimited variety. Only a process that serves metrics loads this.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from bubbot.gateway.activity import ActivityTracker
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.health.snapshot import HealthSnapshot
from bubbot.gateway.outbound import DeliveryOutcome
from bubbot.ports.health import MetricSample, MetricSpec
from bubbot.ports.model import NANOS_PER_USD
from bubbot.ports.usage import CallSettled, SettlesCalls
from bubbot.tape.query import parse_moment

log = logging.getLogger(__name__)

TURN_OUTCOMES = ("answered", "silent", "failed", "stopped", "too_old")
DELIVERY_OUTCOMES: tuple[DeliveryOutcome, ...] = ("sent", "retried", "failed")
MAX_MODEL_LABELS = 50
"""Models with their own series; providers may have any number."""
OTHER_LABEL = "other"
TURN_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CHANNEL = ("channel",)
BOT_METRICS = (
    MetricSpec("bubbot_info", "Which version runs.", labels=("version",)),
    MetricSpec("bubbot_start_time_seconds", "When the bot began, in Unix time."),
    MetricSpec("bubbot_store_commits", "Transactions of the database.", "counter"),
    MetricSpec("bubbot_quarantine", "Whether a restored home waits for its release."),
    MetricSpec("bubbot_channel_ready", "Whether the channel receives.", labels=_CHANNEL),
    MetricSpec(
        "bubbot_channel_last_heard_timestamp_seconds",
        "When its platform last gave a sign of life, in Unix time.",
        labels=_CHANNEL,
    ),
    MetricSpec("bubbot_open_deliveries", "Messages that are not delivered.", labels=_CHANNEL),
    MetricSpec("bubbot_oldest_open_delivery_seconds", "Age of the oldest of them.", labels=_CHANNEL),
    MetricSpec("bubbot_messages_waiting", "Messages that wait for a turn."),
    MetricSpec("bubbot_turns_running", "Turns under way."),
    MetricSpec("bubbot_sessions", "Conversations in memory."),
    MetricSpec("bubbot_log_records", "Warnings and errors that were logged.", "counter", ("level",)),
)
DISK_METRICS = (
    MetricSpec("bubbot_database_bytes", "Size of the database."),
    MetricSpec("bubbot_database_wal_bytes", "Size of its write-ahead log."),
    MetricSpec("bubbot_disk_free_bytes", "What the disk of the home has left."),
    MetricSpec("bubbot_entries", "Entries over all tapes."),
    MetricSpec("bubbot_newest_backup_timestamp_seconds", "When the newest backup was made, in Unix time."),
)
"""Metrics read from a snapshot, in the order of the page; those of features come between the two lists."""


@dataclass
class _MetricsReading:
    snapshot: HealthSnapshot | None = None
    commits: int = 0


class Metrics:
    """Counts from its creation on, over all bots that it is attached to, in its own registry.

    `features`: the metrics that features declare. A metric whose name is taken is skipped with a warning.
    """

    def __init__(self, features: Iterable[MetricSpec] = ()) -> None:
        self._registry = CollectorRegistry()
        self._reading = _MetricsReading()
        self._channels: set[str] = set()
        self._models: set[str] = set()
        count = partial(Counter, registry=self._registry)
        self._accepted = count("bubbot_messages_accepted", "Messages made durable.", ["channel"])
        self._turns = count("bubbot_turns", "Turns that are recorded, by how they ended.", ["channel", "outcome"])
        self._parts = count("bubbot_deliveries", "Parts of messages, by what became of them.", ["channel", "outcome"])
        self._calls = count("bubbot_model_calls", "Model calls that are over.", ["model", "outcome"])
        self._tokens = count("bubbot_model_tokens", "Tokens that models read and wrote.", ["model", "direction"])
        self._cost = count("bubbot_model_cost_dollars", "What model calls cost, where that is known.", ["model"])
        self._seconds = Histogram(
            "bubbot_turn_duration_seconds",
            "How long turns took that people began.",
            ["channel"],
            buckets=TURN_SECONDS,
            registry=self._registry,
        )
        self._lag = Histogram(
            "bubbot_event_loop_lag_seconds",
            "How late the event loop was, sampled.",
            buckets=LAG_SECONDS,
            registry=self._registry,
        )
        ProcessCollector(registry=self._registry)
        names = {metric.name for metric in self._registry.collect()}
        names |= {spec.name for spec in (*BOT_METRICS, *DISK_METRICS)}
        declared: dict[str, MetricSpec] = {}
        for spec in features:
            if spec.name.removesuffix("_total") in names or spec.name in declared:
                log.warning("metric left out, its name is taken: %s", spec.name, extra={"action": "metrics.taken"})
            else:
                declared[spec.name] = spec
        self._registry.register(_SnapshotCollector(self._reading, declared))

    def attach(
        self, channel_runtimes: Iterable[ChannelRuntime], activity: ActivityTracker, calls: SettlesCalls | None
    ) -> None:
        """Count the events of these from now on. Every series begins at zero, so that the first event is visible."""
        for channel_runtime in channel_runtimes:
            name = channel_runtime.channel.name
            self._channels.add(name)
            accepted = self._accepted.labels(channel=name)
            channel_runtime.inbox.on_accepted = accepted.inc
            channel_runtime.deliverer.on_delivery = partial(self._count_delivery, name)
            self._seconds.labels(channel=name)
            for outcome in TURN_OUTCOMES:
                self._turns.labels(channel=name, outcome=outcome)
            for result in DELIVERY_OUTCOMES:
                self._parts.labels(channel=name, outcome=result)
        activity.on_turn_ended = self._count_turn
        if calls is not None:
            calls.on_call_settled = self._count_call

    def record_lag(self, seconds: float) -> None:
        """Record by how many seconds the event loop was late."""
        self._lag.observe(max(0.0, seconds))

    def render(self, snapshot: HealthSnapshot, commits: int) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        self._reading.snapshot, self._reading.commits = snapshot, commits
        return generate_latest(self._registry)

    def _count_delivery(self, channel: str, outcome: DeliveryOutcome) -> None:
        self._parts.labels(channel=channel, outcome=outcome).inc()

    def _count_turn(self, session: str, status: str, seconds: float | None) -> None:
        name = session.partition(":")[0]
        channel = name if name in self._channels else OTHER_LABEL
        self._turns.labels(channel=channel, outcome=status if status in TURN_OUTCOMES else OTHER_LABEL).inc()
        if seconds is not None:
            self._seconds.labels(channel=channel).observe(seconds)

    def _count_call(self, call: CallSettled) -> None:
        is_listed = call.model in self._models or len(self._models) < MAX_MODEL_LABELS
        model = call.model if is_listed else OTHER_LABEL
        self._models.add(model)
        self._calls.labels(model=model, outcome=call.status).inc()
        self._tokens.labels(model=model, direction="input").inc(call.input_tokens)
        self._tokens.labels(model=model, direction="output").inc(call.output_tokens)
        self._cost.labels(model=model).inc((call.nano or 0) / NANOS_PER_USD)


class _SnapshotCollector(Collector):
    """The values of a snapshot, by their metrics."""

    def __init__(self, reading: _MetricsReading, declared: Mapping[str, MetricSpec]) -> None:
        self._reading = reading
        self._declared = declared

    def describe(self) -> Iterable[Metric]:
        """Return nothing: counted metrics have other names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics except those without labels and without a value."""
        snapshot = self._reading.snapshot
        if snapshot is None:
            return
        samples: dict[str, list[MetricSample]] = {}
        reported = (sample for report in snapshot.reports for sample in report.samples if sample.name in self._declared)
        for sample in (*_samples(snapshot, self._reading.commits), *reported):
            samples.setdefault(sample.name, []).append(sample)
        for spec in (*BOT_METRICS, *self._declared.values(), *DISK_METRICS):
            if spec.labels or spec.name in samples:
                family_class = CounterMetricFamily if spec.type == "counter" else GaugeMetricFamily
                family = family_class(spec.name, spec.help, labels=spec.labels)
                for sample in samples.get(spec.name, ()):
                    family.add_metric(sample.labels, sample.value)
                yield family


def _samples(snapshot: HealthSnapshot, commits: int) -> Iterator[MetricSample]:
    yield MetricSample("bubbot_info", 1.0, (snapshot.version,))
    yield MetricSample("bubbot_start_time_seconds", _unix(snapshot.began))
    yield MetricSample("bubbot_store_commits", commits)
    yield MetricSample("bubbot_quarantine", snapshot.quarantine is not None)
    for channel in snapshot.channels:
        yield MetricSample("bubbot_channel_ready", channel.is_receiving, (channel.name,))
        if channel.heard:
            yield MetricSample("bubbot_channel_last_heard_timestamp_seconds", _unix(channel.heard), (channel.name,))
    for pending in snapshot.owed:
        age = _unix(snapshot.at) - _unix(pending.oldest) if pending.oldest else 0.0
        yield MetricSample("bubbot_open_deliveries", pending.count, (pending.channel,))
        yield MetricSample("bubbot_oldest_open_delivery_seconds", max(0.0, age), (pending.channel,))
    load = snapshot.load
    yield MetricSample("bubbot_messages_waiting", load.waiting)
    yield MetricSample("bubbot_turns_running", load.running)
    yield MetricSample("bubbot_sessions", load.sessions)
    yield MetricSample("bubbot_log_records", snapshot.warnings, ("warning",))
    yield MetricSample("bubbot_log_records", snapshot.errors, ("error",))
    database = snapshot.database
    if database is not None:
        yield MetricSample("bubbot_database_bytes", database.size)
        yield MetricSample("bubbot_database_wal_bytes", database.wal)
        yield MetricSample("bubbot_disk_free_bytes", database.free)
        yield MetricSample("bubbot_entries", database.entries)
    if snapshot.backup is not None:
        yield MetricSample("bubbot_newest_backup_timestamp_seconds", _unix(snapshot.backup.at))


def _unix(instant: str) -> float:
    time = parse_moment(instant)
    return time.timestamp() if time else 0.0
