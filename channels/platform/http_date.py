"""The time that a platform's server says it is."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime


def iso(header: str) -> str:
    """The header `Date` of an answer as ISO 8601 in UTC; empty where it is missing or cannot be read."""
    try:
        return parsedate_to_datetime(header).astimezone(UTC).isoformat()
    except (TypeError, ValueError, OverflowError):
        return ""
