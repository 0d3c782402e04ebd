"""Attachments: fetched by the reference that came with them, never beyond a limit, and without the token."""

from __future__ import annotations

import json
from typing import Any

from bubbot.errors import FetchFailed
from bubbot.ports.channel import Attachment
from channels.discord.api import DiscordApi
from channels.discord.errors import DiscordApiError, DiscordUnavailable, fetch_failed


async def fetch(api: DiscordApi, attachment: Attachment, limit: int) -> bytes:
    """The bytes of an attachment. Raises `FetchFailed`.

    Its address ends after a day: then the message is asked for a new one.
    """
    _check_size(attachment.size, limit)
    reference = _reference(attachment)
    try:
        try:
            content = await api.download(reference["url"], limit)
        except DiscordApiError as error:
            fresh = await _asked_again(api, reference)
            if fresh in ("", reference["url"]):
                raise fetch_failed(error) from None
            content = await api.download(fresh, limit)
    except (DiscordApiError, DiscordUnavailable) as error:
        raise fetch_failed(error) from None
    if content is None:
        raise FetchFailed(f"the file is larger than {size_of(limit)}, the most that is taken")
    return content


def size_of(number: int) -> str:
    """A number of bytes for people."""
    return f"{number / 1_000_000:.1f} MB" if number >= 100_000 else f"{number} bytes"


def _reference(attachment: Attachment) -> dict[str, str]:
    try:
        found = json.loads(attachment.reference)
        reference = {name: str(found[name]) for name in ("url", "channel", "message", "id")}
    except (ValueError, TypeError, KeyError):
        raise FetchFailed("what is known of the file does not say where it is") from None
    if not reference["url"].startswith(("https://", "http://")):
        raise FetchFailed("the file has no web address")
    return reference


async def _asked_again(api: DiscordApi, reference: dict[str, str]) -> str:
    """A new address, as the message gives it now; empty where it gives none."""
    channel, message = reference["channel"], reference["message"]
    if not (channel.isdecimal() and message.isdecimal()):
        return ""
    found: Any = await api.call("GET", f"/channels/{channel}/messages/{message}")
    files = found.get("attachments") if isinstance(found, dict) else None
    for one in files if isinstance(files, list) else ():
        if isinstance(one, dict) and str(one.get("id")) == reference["id"]:
            return str(one.get("url") or "")
    raise FetchFailed("the message no longer has the file")


def _check_size(size: int | None, limit: int) -> None:
    if size is not None and size > limit:
        raise FetchFailed(f"the file is {size_of(size)} large, and at most {size_of(limit)} are taken")
