"""The health of the export, for status and metrics."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlsplit

from msgspec import Struct, field

from bubbot.ports.health import FeatureHealth, HealthContext, HealthRow, MetricSample, MetricSpec, Outage
from bubbot.tape.entry import timestamp

OTEL_METRICS = (
    MetricSpec("bubbot_otel_spans_sent", "Spans that the receiver of traces has taken.", "counter"),
    MetricSpec("bubbot_otel_spans_rejected", "Spans that it will never take.", "counter"),
    MetricSpec("bubbot_otel_requests_failed", "Requests to it that failed; their spans are sent again.", "counter"),
    MetricSpec("bubbot_otel_entries_behind", "Entries that wait to be looked at for spans."),
    MetricSpec("bubbot_otel_labels_sent", "Judgements that Phoenix has taken.", "counter"),
    MetricSpec("bubbot_otel_labels_rejected", "Judgements that it will never take.", "counter"),
)


class ExportState(Struct):
    """The health of the export.

    Attributes:
        sent: spans that were taken.
        rejected: spans that the receiver will never take: by its answers, and those of turns that it refuses.
        failures: requests that failed.
        behind: entries after the checkpoint, as of the last look.
        is_begun: true once the export runs; it never does in quarantine.
        outage: of the requests with spans.
        refused: turns that it refused one after the other; 0 since it took one.
        refusal: why it refused the newest of them.
        refused_since: when it refused the first.
        position: up to which all spans were sent.
        takes_labels: true once the receiver of judgements was found to be Phoenix.
        is_other: true if it was found to be something else.
        labels_sent: judgements that it has taken.
        labels_rejected: those that it will never take.
        labels_waiting: those whose span it does not have yet.
        labels_outage: of the requests with judgements.
    """

    sent: int = 0
    rejected: int = 0
    failures: int = 0
    behind: int = 0
    is_begun: bool = False
    outage: Outage = field(default_factory=Outage)
    refused: int = 0
    refusal: str = ""
    refused_since: str = ""
    position: int = 0
    takes_labels: bool = False
    is_other: bool = False
    labels_sent: int = 0
    labels_rejected: int = 0
    labels_waiting: int = 0
    labels_outage: Outage = field(default_factory=Outage)

    def note_refusal(self, turns: int, reason: str, now: datetime) -> bool:
        """Note turns that it will never take; return true if the cause is a new one."""
        if not self.refused:
            self.refused_since = timestamp(now)
        is_new, self.refusal = reason != self.refusal, reason
        self.refused += turns
        return is_new

    def report(self, context: HealthContext, url: str) -> FeatureHealth:
        """Report it; `url` is the receiver, empty if nothing is sent."""
        values = (self.sent, self.rejected, self.failures, self.behind, self.labels_sent, self.labels_rejected)
        samples = tuple(MetricSample(spec.name, value) for spec, value in zip(OTEL_METRICS, values, strict=True))
        if not url:
            return FeatureHealth(name="otel", samples=samples)
        say = context.texts.say
        host = urlsplit(url).netloc
        lines = [
            say("st_traces_is", host=host, spans=self.sent, entries=self.behind)
            if self.is_begun
            else say("st_traces_idle", host=host)
        ]
        if self.rejected:
            lines.append(say("st_traces_rejected", spans=self.rejected))
        if self.outage.error:
            since = context.format_time(self.outage.since)
            lines.append(say("st_traces_failing", since=since, reason=self.outage.error))
        if self.refused:
            since = context.format_time(self.refused_since)
            lines.append(say("st_traces_refused", since=since, turns=self.refused, reason=self.refusal))
        counts = {"labels": self.labels_sent, "waiting": self.labels_waiting, "missing": self.labels_rejected}
        if any(counts.values()):
            lines.append(say("st_traces_labels", **counts))
        if self.labels_outage.error:
            since = context.format_time(self.labels_outage.since)
            lines.append(say("st_traces_labels_failing", since=since, reason=self.labels_outage.error))
        is_trouble = bool(self.outage.error or self.refused or self.labels_outage.error)
        row = HealthRow(say("st_traces"), tuple(lines), is_trouble=is_trouble)
        return FeatureHealth(name="otel", rows=(row,), samples=samples)
