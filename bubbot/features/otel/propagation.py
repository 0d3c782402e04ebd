"""The trace context of W3C: what a server of models is told of the span that calls it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from bubbot.features.otel.spans import trace_id
from bubbot.hosts import is_nearby
from bubbot.ports.model import CallHeaders

TRACEPARENT = "traceparent"


def make_call_headers(turn: str, span: str, reach: Literal["off", "near", "all"]) -> CallHeaders:
    """Return what finds the headers of calls in a step.

    Args:
        turn: the id of the turn, by which its trace is known.
        span: of the step, 16 hex digits.
        reach: see `[otel] traceparent`.
    """
    headers = {TRACEPARENT: f"00-{trace_id(turn).hex()}-{span}-01"}

    def find(host: str) -> Mapping[str, str]:
        return headers if reach == "all" or (reach == "near" and is_nearby(host)) else {}

    return find
