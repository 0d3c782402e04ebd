"""Download of attachments by their reference, up to a size limit, and without sending the token."""

from __future__ import annotations

import json
from typing import Any

from bubbot.errors import FetchFailed
from bubbot.formatting import format_bytes
from bubbot.ports.channel import Attachment
from channels.discord.api import DiscordApi
from channels.discord.content import read_attachments
from channels.discord.errors import DiscordApiError, DiscordUnavailable, to_fetch_failed


async def fetch_attachment(api: DiscordApi, attachment: Attachment, limit: int) -> bytes:
    """Fetch the bytes of an attachment. Raise `FetchFailed`.

    Its URL expires after a day; then the message gives a new one.
    """
    _check_size(attachment.size, limit)
    reference = _parse_reference(attachment)
    try:
        try:
            content = await api.download(reference["url"], limit)
        except DiscordApiError as error:
            fresh = await _refresh_url(api, reference)
            if fresh in ("", reference["url"]):
                raise to_fetch_failed(error) from None
            content = await api.download(fresh, limit)
    except (DiscordApiError, DiscordUnavailable) as error:
        raise to_fetch_failed(error) from None
    if content is None:
        raise FetchFailed(f"the file is larger than {format_bytes(limit)}, the most that is taken")
    return content


def _parse_reference(attachment: Attachment) -> dict[str, str]:
    try:
        data = json.loads(attachment.reference)
        reference = {name: str(data[name]) for name in ("url", "channel", "message", "id")}
    except (ValueError, TypeError, KeyError):
        raise FetchFailed("what is known of the file does not say where it is") from None
    if not reference["url"].startswith(("https://", "http://")):
        raise FetchFailed("the file has no web address")
    return reference


async def _refresh_url(api: DiscordApi, reference: dict[str, str]) -> str:
    """Fetch the message and return the file's current URL; empty if it has none."""
    channel, message = reference["channel"], reference["message"]
    if not (channel.isdecimal() and message.isdecimal()):
        return ""
    body: Any = await api.call("GET", f"/channels/{channel}/messages/{message}")
    try:
        files = read_attachments(body, channel, message)
    except (TypeError, AttributeError):
        files = ()
    for file in files:
        fresh = _parse_reference(file)
        if fresh["id"] == reference["id"]:
            return fresh["url"]
    raise FetchFailed("the message no longer has the file")


def _check_size(size: int | None, limit: int) -> None:
    if size is not None and size > limit:
        raise FetchFailed(f"the file is {format_bytes(size)} large, and at most {format_bytes(limit)} are taken")
