"""Errors of Telegram, and their translation into those of the port.

The address of every request contains the token. So no error has a text of the HTTP library, the token is replaced in Telegram's
descriptions, and errors are raised `from None`.
"""

from __future__ import annotations

import json
from typing import Any

from telegram.error import TelegramError

from bubbot.errors import ChannelRefused, DeliveryFailed, FetchFailed

MAX_REASON_CHARS = 300
"""Characters of Telegram's description."""


class TelegramApiError(TelegramError):
    """Telegram, or a proxy in front of it, refused a call.

    Attributes:
        description: the reason, without the token.
        is_api_answer: the Bot API answered, not a proxy.
        retry_after: seconds to wait; None if not stated.
        migrate_to: the chat's new id; empty if not stated.
    """

    def __init__(
        self,
        code: int,
        description: str,
        *,
        is_api_answer: bool = True,
        retry_after: float | None = None,
        migrate_to: str = "",
    ) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.is_api_answer = is_api_answer
        self.retry_after = retry_after
        self.migrate_to = migrate_to

    def mentions(self, *words: str) -> bool:
        """Return true if the description contains one of `words`, which are in lower case."""
        return any(word in self.description.lower() for word in words)


class TelegramUnavailable(Exception):
    """No answer came, or an unreadable one. The text is written for people and contains no address."""


def parse_refusal(code: int, payload: bytes, token: str) -> TelegramApiError:
    """Read an answer whose HTTP status is not a success."""
    try:
        body = json.loads(payload)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict) or "description" not in body:
        return TelegramApiError(code, "an answer that is not one of the Bot API", is_api_answer=False)
    field = body.get("parameters")
    parameters: dict[str, Any] = field if isinstance(field, dict) else {}
    wait, new_chat = parameters.get("retry_after"), parameters.get("migrate_to_chat_id")
    return TelegramApiError(
        code,
        str(body["description"]).replace(token, "[token]")[:MAX_REASON_CHARS],
        retry_after=float(wait) if isinstance(wait, int | float) else None,
        migrate_to=str(new_chat) if isinstance(new_chat, int) else "",
    )


def is_token_refusal(error: TelegramApiError) -> bool:
    """Return true if the token is wrong: no such bot (404), or a revoked token (401)."""
    return error.is_api_answer and error.code in (401, 404)


def make_token_error(channel: str, error: TelegramApiError, *, self_hosted: bool) -> ChannelRefused:
    """Build the error for a token that Telegram does not accept."""
    server = ", and see that base_url is right" if self_hosted else ""
    return ChannelRefused(
        f"[channels.{channel}] token was refused by Telegram ({error.code}): copy it again from @BotFather{server}."
    )


def describe_second_poller(channel: str) -> str:
    """Describe the problem if 409 keeps coming."""
    return (
        f"[channels.{channel}] token is used by a second program, which asks Telegram for the same messages (409): stop "
        "the other program, or create a bot of its own for it."
    )


def describe_stray_webhook(channel: str) -> str:
    """Describe the problem if a webhook comes back after its removal."""
    return (
        f"[channels.{channel}] token is used by a second program, which sets a webhook (409, again after it was "
        'removed): stop the other one, or set mode = "webhook" here.'
    )


def make_webhook_error(channel: str, error: TelegramApiError) -> ChannelRefused:
    """Build the error for a `webhook_url` that Telegram does not accept."""
    return ChannelRefused(f"[channels.{channel}] webhook_url was refused by Telegram: {error.description}")


def make_delivery_error(error: TelegramApiError | TelegramUnavailable) -> DeliveryFailed:
    """Translate a failed sending or editing into the port's error."""
    if isinstance(error, TelegramUnavailable):
        return DeliveryFailed(f"Telegram did not answer: {error}", maybe=True)
    text = f"Telegram refused it ({error.code}): {error.description}"
    if error.code == 429:
        return DeliveryFailed(text, retry_after=error.retry_after if error.retry_after is not None else 1.0)
    # 401 and 404 concern the token, which the operator can fix; pending messages are then sent.
    permanent = 400 <= error.code < 500 and error.code not in (401, 404, 408, 409)
    is_unreachable = error.code == 403 or error.mentions(
        "chat not found", "chat was deleted", "group chat was deactivated", "user is deactivated"
    )
    return DeliveryFailed(text, permanent=permanent, gone=permanent and is_unreachable)


def make_fetch_error(error: TelegramApiError | TelegramUnavailable) -> FetchFailed:
    """Translate a failed download of an attachment into the port's error."""
    if isinstance(error, TelegramUnavailable):
        return FetchFailed(f"the file could not be fetched: {error}", permanent=False)
    if error.mentions("file is too big"):
        return FetchFailed("the file is larger than the 20 MB that Telegram hands out to bots")
    text = f"Telegram does not hand out the file ({error.code}): {error.description}"
    return FetchFailed(text, permanent=error.code < 500 and error.code != 429)
