"""What can go wrong with Discord, and what the port calls it.

Nothing here passes on a text of the HTTP library, whatever Discord says is searched for the token, and errors are
raised `from None`: what the libraries raise holds requests, with the token in their headers.
"""

from __future__ import annotations

import json
from typing import Any

from bubbot.errors import ChannelRefused, DeliveryFailed, FetchFailed

MAX_REASON_CHARS = 300
"""Characters of what Discord says."""

UNKNOWN_CHANNEL = 10003
UNKNOWN_MESSAGE = 10008
UNKNOWN_WEBHOOK = 10015
UNKNOWN_INTERACTION = 10062
ENTITY_TOO_LARGE = 40005
ALREADY_ANSWERED = 40060
MISSING_ACCESS = 50001
EMPTY_MESSAGE = 50006
NO_DIRECT = 50007
MISSING_PERMISSIONS = 50013
INVALID_WEBHOOK_TOKEN = 50027
INVALID_FORM = 50035
THREAD_ARCHIVED = 50083

UNREACHABLE_CODES = frozenset({UNKNOWN_CHANNEL, MISSING_ACCESS, NO_DIRECT})
"""What says that a chat cannot be reached any more."""
_WORDS = {
    UNKNOWN_CHANNEL: "the channel or thread is gone, or the bot was put out of its server",
    UNKNOWN_MESSAGE: "the message is gone",
    MISSING_ACCESS: "the bot may not see the channel",
    MISSING_PERMISSIONS: "the bot lacks a permission in the channel",
    NO_DIRECT: "this person takes no direct messages from the bot",
    THREAD_ARCHIVED: "the thread is archived and locked",
}
"""What a code means, where Discord's own words say less."""


class DiscordApiError(Exception):
    """Discord answered and said no.

    `status` is that of HTTP, `code` Discord's own, 0 where it names none; `text` what it says, fit for people;
    `retry_after` in seconds where it is about how often something is asked.
    """

    def __init__(self, status: int, code: int = 0, text: str = "", retry_after: float | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text
        self.retry_after = retry_after

    @property
    def too_large(self) -> bool:
        """Whether it is about the size of a file."""
        return self.status == 413 or self.code == ENTITY_TOO_LARGE

    @property
    def token_refused(self) -> bool:
        """Whether it is the bot's token that is wrong, and not that of an interaction."""
        return self.status == 401 and self.code != INVALID_WEBHOOK_TOKEN


class DiscordUnavailable(Exception):
    """No answer came, or none that can be read. The text is fit for people and names no address."""


def problem(status: int, body: Any, token: str, waits: str | None = None) -> DiscordApiError | DiscordUnavailable:
    """Reads an answer whose HTTP status is not one of success; `waits` is its header Retry-After.

    Only what has the form of the API is a refusal: a page of a proxy says nothing about what was asked.
    """
    found = _parsed(body)
    if status == 429:
        wait = _seconds(found.get("retry_after") if found else waits) or _seconds(waits) or 1.0
        return DiscordApiError(429, _code(found), "too many requests", wait)
    if status >= 500:
        return DiscordUnavailable(f"it has a fault of its own ({status})")
    if status == 413:
        return DiscordApiError(413, _code(found) or ENTITY_TOO_LARGE, "the request is too large")
    if found is None:
        return DiscordUnavailable(f"what stands before it answered with a page ({status})")
    said = " ".join(str(found.get("message") or "no reason").split())
    return DiscordApiError(status, _code(found), said.replace(token, "[token]")[:MAX_REASON_CHARS])


def refused_token(channel: str) -> ChannelRefused:
    """For a token that Discord does not take."""
    return ChannelRefused(
        f"[channels.{channel}] token was refused by Discord: reset it on the page Bot of your application at "
        f"discord.com/developers and copy it whole."
    )


def delivery_failed(error: DiscordApiError | DiscordUnavailable) -> DeliveryFailed:
    """What the port calls a failed sending, editing or finding."""
    if isinstance(error, DiscordUnavailable):
        return DeliveryFailed(f"Discord did not answer: {error}", maybe=True)
    shown = f"{error.status}/{error.code}" if error.code else f"{error.status}"
    text = f"Discord refused it ({shown}): {_WORDS.get(error.code, error.text)}"
    if error.status == 429:
        return DeliveryFailed(text, retry_after=error.retry_after if error.retry_after is not None else 1.0)
    # Those without a code are about the token or the address, which the operator can mend; what waits is then sent.
    permanent = 400 <= error.status < 500 and error.status not in (401, 408) and bool(error.code or error.status == 400)
    return DeliveryFailed(text, permanent=permanent, gone=permanent and error.code in UNREACHABLE_CODES)


def fetch_failed(error: DiscordApiError | DiscordUnavailable) -> FetchFailed:
    """What the port calls an attachment that cannot be had."""
    if isinstance(error, DiscordUnavailable):
        return FetchFailed(f"the file could not be fetched: {error}", permanent=False)
    if error.code in (UNKNOWN_MESSAGE, UNKNOWN_CHANNEL):
        return FetchFailed("the message that the file came with is gone")
    text = f"Discord does not hand out the file ({error.status}): {_WORDS.get(error.code, error.text)}"
    return FetchFailed(text, permanent=error.status not in (401, 408, 429))


def _parsed(body: Any) -> dict[str, Any] | None:
    """The body as an object of the API; a text may be one too, for proxies change the content type."""
    if isinstance(body, str | bytes):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return None
    return body if isinstance(body, dict) and ("message" in body or "code" in body) else None


def _code(found: dict[str, Any] | None) -> int:
    code = (found or {}).get("code")
    return code if isinstance(code, int) else 0


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < 10_000_000 else None
