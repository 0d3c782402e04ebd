"""Errors of Discord, and their translation to the port's errors.

No error text comes from the HTTP library, the token is removed from Discord's own texts, and errors are raised
`from None`: the libraries' exceptions hold requests, with the token in their headers.
"""

from __future__ import annotations

import json
from typing import Any

from bubbot.errors import ChannelRefused, DeliveryFailed, FetchFailed

MAX_REASON_CHARS = 300
"""Characters kept of Discord's error message."""

UNKNOWN_CHANNEL = 10003
UNKNOWN_MESSAGE = 10008
UNKNOWN_WEBHOOK = 10015
UNKNOWN_INTERACTION = 10062
ENTITY_TOO_LARGE = 40005
ALREADY_ACKNOWLEDGED = 40060
MISSING_ACCESS = 50001
EMPTY_MESSAGE = 50006
CANNOT_SEND_DIRECT = 50007
MISSING_PERMISSIONS = 50013
INVALID_WEBHOOK_TOKEN = 50027
THREAD_ARCHIVED = 50083

UNREACHABLE_CODES = frozenset({UNKNOWN_CHANNEL, MISSING_ACCESS, CANNOT_SEND_DIRECT})
"""Codes of a chat that can no longer be reached."""
_REASONS = {
    UNKNOWN_CHANNEL: "the channel or thread is gone, or the bot was put out of its server",
    UNKNOWN_MESSAGE: "the message is gone",
    MISSING_ACCESS: "the bot may not see the channel",
    MISSING_PERMISSIONS: "the bot lacks a permission in the channel",
    CANNOT_SEND_DIRECT: "this person takes no direct messages from the bot",
    THREAD_ARCHIVED: "the thread is archived and locked",
}
"""Meanings of codes for which Discord's own message says less."""


class DiscordApiError(Exception):
    """Discord refused a request.

    Attributes:
        code: Discord's own error code; 0 if it gives none.
        text: Discord's message, safe to show.
        retry_after: seconds to wait if a rate limit was hit; None otherwise.
    """

    def __init__(self, status: int, code: int = 0, text: str = "", retry_after: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text
        self.retry_after = retry_after

    @property
    def is_too_large(self) -> bool:
        """True if a file was too large."""
        return self.status == 413 or self.code == ENTITY_TOO_LARGE

    @property
    def is_token_refused(self) -> bool:
        """True if the bot's token is wrong, rather than an interaction's."""
        return self.status == 401 and self.code != INVALID_WEBHOOK_TOKEN


class DiscordUnavailable(Exception):
    """No readable response came. The text is safe to show and contains no address."""


def parse_error_response(
    status: int, body: Any, token: str, retry_after: str | None = None
) -> DiscordApiError | DiscordUnavailable:
    """Translate a response with an error status to an exception.

    Only a body in the API's form is a refusal: a proxy's page says nothing about the request.

    Args:
        body: JSON or text.
        token: the bot's token, removed from the text.
    """
    data = _parse(body)
    if status == 429:
        wait = retry_after_seconds(data.get("retry_after") if data else None, retry_after)
        return DiscordApiError(429, _code(data), "too many requests", wait)
    if status >= 500:
        return DiscordUnavailable(f"it has an internal error ({status})")
    if status == 413:
        return DiscordApiError(413, _code(data) or ENTITY_TOO_LARGE, "the request is too large")
    if data is None:
        return DiscordUnavailable(f"what stands before it answered with a page ({status})")
    text = " ".join(str(data.get("message") or "no reason").split())
    return DiscordApiError(status, _code(data), text.replace(token, "[token]")[:MAX_REASON_CHARS])


def retry_after_seconds(value: object, header: str | None) -> float:
    """Return the seconds to wait after a 429: those of the body, else of the header, else one.

    Values that are not finite numbers, or longer than months, are ignored.
    """
    return _seconds(value) or _seconds(header) or 1.0


def token_refused_error(channel: str) -> ChannelRefused:
    """Return the error for a token that Discord refuses."""
    return ChannelRefused(
        f"[channels.{channel}] token was refused by Discord: reset it on the page Bot of your application at "
        f"discord.com/developers and copy it whole."
    )


def to_delivery_failed(error: DiscordApiError | DiscordUnavailable) -> DeliveryFailed:
    """Translate a failed send, edit or search to the port's error."""
    if isinstance(error, DiscordUnavailable):
        return DeliveryFailed(f"Discord did not answer: {error}", maybe=True)
    codes = f"{error.status}/{error.code}" if error.code else f"{error.status}"
    text = f"Discord refused it ({codes}): {_REASONS.get(error.code, error.text)}"
    if error.status == 429:
        return DeliveryFailed(text, retry_after=error.retry_after if error.retry_after is not None else 1.0)
    # Refusals without a code concern the token or the address; once the operator fixes that, waiting messages are sent.
    permanent = 400 <= error.status < 500 and error.status not in (401, 408) and bool(error.code or error.status == 400)
    return DeliveryFailed(text, permanent=permanent, gone=permanent and error.code in UNREACHABLE_CODES)


def to_fetch_failed(error: DiscordApiError | DiscordUnavailable) -> FetchFailed:
    """Translate a failed download of an attachment to the port's error."""
    if isinstance(error, DiscordUnavailable):
        return FetchFailed(f"the file could not be fetched: {error}", permanent=False)
    if error.code in (UNKNOWN_MESSAGE, UNKNOWN_CHANNEL):
        return FetchFailed("the message that the file came with is gone")
    text = f"Discord does not hand out the file ({error.status}): {_REASONS.get(error.code, error.text)}"
    return FetchFailed(text, permanent=error.status not in (401, 408, 429))


def _parse(body: Any) -> dict[str, Any] | None:
    """Return the body as an object of the API, also from text, since proxies change the content type."""
    if isinstance(body, str | bytes):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return None
    return body if isinstance(body, dict) and ("message" in body or "code" in body) else None


def _code(data: dict[str, Any] | None) -> int:
    code = (data or {}).get("code")
    return code if isinstance(code, int) else 0


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < 10_000_000 else None
