"""The trace context of W3C: what a server of models is told of the span that calls it."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Literal

from bubbot.features.otel.spans import trace_id
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
        return headers if reach == "all" or (reach == "near" and is_near(host)) else {}

    return find


def is_near(host: str) -> bool:
    """Return true for this machine and for a private address. Any other name may belong to anybody."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_private or address.is_link_local
