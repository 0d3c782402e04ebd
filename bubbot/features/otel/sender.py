"""One request to a receiver, over HTTP."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from bubbot.errors import TraceReceiverFailed
from bubbot.tape.handle import Clock

if TYPE_CHECKING:
    import aiohttp

MAX_ANSWER_BYTES = 64_000
MAX_RETRY_AFTER_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class HttpSender:
    """Sends requests to one receiver.

    Attributes:
        session: keeps the connection.
        url: of the receiver.
        headers: for the receiver.
        now: the clock, for a receiver that names a time.
        setting: the setting with the address, for errors.
    """

    session: aiohttp.ClientSession
    url: str
    headers: Mapping[str, str]
    now: Clock
    setting: str = "[otel] endpoint"

    async def post(self, body: bytes, headers: Mapping[str, str]) -> bytes:
        """Send one request and return the answer. Raise `TraceReceiverFailed` if it was not taken."""
        from aiohttp import ClientError

        try:
            # Not redirected: the headers are for this receiver.
            async with self.session.post(
                self.url, data=body, headers={**headers, **self.headers}, allow_redirects=False
            ) as response:
                answer = await response.content.read(MAX_ANSWER_BYTES)
                if response.status // 100 == 2 and response.content_type != "text/html":
                    return answer
                if response.status // 100 == 2:  # of another service: it has taken nothing
                    raise TraceReceiverFailed(f"a web page answers: {self.setting} names no such receiver")
                wait = parse_retry_after(response.headers.get("retry-after", ""), self.now())
                answered = f"it answers {response.status} {response.reason or ''}".strip()
                raise TraceReceiverFailed(answered, status=response.status, retry_after=wait, answer=answer)
        except TimeoutError:
            raise TraceReceiverFailed("it gave no answer in time") from None
        except (ClientError, OSError, ValueError) as error:
            raise TraceReceiverFailed(f"it cannot be reached ({type(error).__name__})") from error


class SpanSender(HttpSender):
    """Sends spans to a receiver of OTLP."""

    async def send(self, body: bytes) -> bytes:
        """Send one request and return the answer. Raise `TraceReceiverFailed` if it was not taken."""
        packed = await asyncio.to_thread(gzip.compress, body, 5)
        return await self.post(packed, {"content-type": "application/x-protobuf", "content-encoding": "gzip"})


def parse_retry_after(text: str, now: datetime) -> float | None:
    """Return the seconds of a `Retry-After`, which has a number of them or a date."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, OverflowError):
            return None
        seconds = (moment.replace(tzinfo=moment.tzinfo or UTC) - now).total_seconds()
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS) if seconds == seconds else None  # noqa: PLR0124 - not a number
