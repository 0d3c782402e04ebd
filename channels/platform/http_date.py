"""The time that a platform's server reports."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime


def parse_http_date(header: str) -> str:
    """Convert a `Date` header to ISO 8601 in UTC; return an empty text if it is missing or malformed."""
    try:
        return parsedate_to_datetime(header).astimezone(UTC).isoformat()
    except (TypeError, ValueError, OverflowError):
        return ""
