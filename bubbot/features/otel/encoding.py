"""Spans as an OTLP request: the one file that imports OpenTelemetry."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from bubbot.features.otel.names import SCHEMA_URL, SCOPE
from bubbot.features.otel.spans import SpanData
from bubbot.packages import requirements_command


def otel_is_installed() -> bool:
    """Return true if the extra `otel` is installed; import nothing of it."""
    try:
        return all(find_spec(f"opentelemetry.{name}") for name in ("sdk", "exporter.otlp.proto.common"))
    except ModuleNotFoundError:
        return False


def format_install_command() -> str:
    """Format the command that installs the extra into the environment of this bot, in the locked versions."""
    return requirements_command(__file__)


def encode_turn(spans: Sequence[SpanData], service: str, version: str) -> bytes:
    """Encode the spans of a turn as the body of a request.

    Args:
        service: the name of the bot at the receiver.
        version: that of bubbot.
    """
    # Imported here: a bot that sends nothing loads nothing of them.
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

    def context(trace: bytes, span: bytes) -> SpanContext:
        sampled = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(int.from_bytes(trace), int.from_bytes(span), is_remote=False, trace_flags=sampled)

    # Built from these values alone: `Resource.create` would add what the environment says.
    resource = Resource({"service.name": service, "service.version": version}, SCHEMA_URL)
    scope = InstrumentationScope(SCOPE, version, SCHEMA_URL)
    readable = [
        ReadableSpan(
            name=span.name,
            context=context(span.trace, span.id),
            parent=context(span.trace, span.parent) if span.parent else None,
            resource=resource,
            attributes=span.attributes,
            links=[Link(context(*link)) for link in span.links],
            kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
            instrumentation_scope=scope,
            status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error or None),
            start_time=span.start,
            end_time=span.end,
        )
        for span in spans
    ]
    body: bytes = encode_spans(readable).SerializeToString()
    return body


def read_rejected(body: bytes) -> int:
    """Return how many spans a receiver says, in its answer to a request, that it has not taken."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    try:
        return int(ExportTraceServiceResponse.FromString(body).partial_success.rejected_spans)
    except DecodeError:  # a receiver that answers something else has taken them all, as its status says
        return 0
