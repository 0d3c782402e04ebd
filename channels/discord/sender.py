"""Sending of messages, files and edits, with fallbacks if Discord does not accept them unchanged."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from bubbot.errors import DeliveryFailed
from bubbot.formatting import format_bytes
from bubbot.ports.channel import ButtonSet, MessagePart, OutboundFile, Receipt
from channels.discord.api import DiscordApi, FileUpload
from channels.discord.duplicates import DuplicateMonitor
from channels.discord.errors import (
    EMPTY_MESSAGE,
    MISSING_ACCESS,
    MISSING_PERMISSIONS,
    THREAD_ARCHIVED,
    UNKNOWN_MESSAGE,
    DiscordApiError,
    DiscordUnavailable,
    to_delivery_failed,
)
from channels.discord.interactions import OpenInteractions
from channels.discord.own_messages import PAGE_MESSAGES, OwnMessages
from channels.discord.settings import DiscordSettings
from channels.markdown.marked_text import is_visible
from channels.platform.labels import shorten_label

log = logging.getLogger(__name__)
NO_PREVIEWS = 1 << 2
"""The message flag that suppresses link previews."""
NO_MENTIONS = {"parse": [], "replied_user": False}
"""The allowed mentions of every message: none, whatever its text."""
ACTION_ROW, BUTTON_COMPONENT = 1, 2
"""Types of components."""
SECONDARY_STYLE = 2
"""The style of a grey button."""
MAX_ROWS, MAX_ROW_BUTTONS, MAX_LABEL_CHARS = 5, 5, 80
SEARCH_PAGES = 5
"""Pages of a channel's messages that one search reads at most."""
MAX_LISTED_CHANNELS = 100
"""Channels whose own messages are kept after a search."""
MAX_NOTED_PARTS = 1_000
"""Parts sent since the search after which they are kept no longer."""
SEARCH_MARGIN = timedelta(seconds=60)
_DISCORD_EPOCH = datetime(2015, 1, 1, tzinfo=UTC)
_REPLY_REFUSED_CODES = (160002,)
"""Codes that refuse only the reply: without permission to read the history the bot may not reply."""


class DiscordSender:
    """The sending half of one bot: sends, edits and finds messages."""

    def __init__(
        self,
        api: DiscordApi,
        settings: DiscordSettings,
        blob: Callable[[str], Awaitable[bytes]],
        interactions: OpenInteractions,
        duplicates: DuplicateMonitor,
    ) -> None:
        self._api = api
        self._flags = 0 if settings.link_previews else NO_PREVIEWS
        self._blob = blob
        self._interactions = interactions
        self._duplicates = duplicates
        self._own_id = ""
        self._own: OrderedDict[str, OwnMessages] = OrderedDict()

    async def send(self, part: MessagePart) -> Receipt:
        """Send a part; as the response to an interaction if it replies to one. Raise `DeliveryFailed`.

        A part without visible content is not sent; instead of a file that is too large, a notice names it.
        """
        channel_id = _channel_id(part.chat, part.thread)
        if part.file is None and not is_visible(part.text):
            return Receipt()
        if own := self._own.get(channel_id):
            own.note_sent(part)
            if own.sent_count > MAX_NOTED_PARTS:  # it is read anew if something is searched for
                del self._own[channel_id]
        payload, files = self._payload(part, part.text), await self._uploads(part.file)
        try:
            return Receipt(await self._send_payload(part, channel_id, payload, files))
        except DiscordUnavailable as error:
            raise to_delivery_failed(error) from None
        except DiscordApiError as error:
            # A key whose message was deleted since gives UNKNOWN_MESSAGE: it was sent, and is not sent again.
            if error.code == UNKNOWN_MESSAGE or (error.code == EMPTY_MESSAGE and not files):
                return Receipt()
            if not (error.is_too_large and files):
                raise to_delivery_failed(error) from None
        log.warning("file too large for discord: %s", files[0].name, extra={"action": "discord.too_large"})
        notice = f"📎 `{files[0].name.replace('`', '')}` ({format_bytes(len(files[0].content))}) is too large for Discord here."
        try:
            return Receipt(
                await self._send_payload(
                    part, channel_id, self._payload(structs.replace(part, buttons=None), notice), ()
                )
            )
        except (DiscordApiError, DiscordUnavailable) as error:
            raise to_delivery_failed(error) from None

    async def edit(self, message: str, part: MessagePart) -> None:
        """Edit a message of the bot. Raise `DeliveryFailed`."""
        if part.file is not None:
            raise DeliveryFailed("a message cannot be changed into a file", permanent=True)
        if not message.isdecimal():
            raise DeliveryFailed(f"there is no message {message!r} to change", permanent=True)
        channel_id, payload = _channel_id(part.chat, part.thread), self._payload(part, part.text)
        payload.setdefault("components", [])  # an edit without them would keep the old buttons
        try:
            if not await self._interactions.edit(message, payload):
                await self._edit_in_channel(channel_id, message, payload)
        except (DiscordApiError, DiscordUnavailable) as error:
            raise to_delivery_failed(error) from None

    async def typing(self, chat: str, thread: str) -> None:
        """Show the typing indicator for ten seconds. Raise `DeliveryFailed`."""
        try:
            await self._api.call("POST", f"/channels/{_channel_id(chat, thread)}/typing")
        except (DiscordApiError, DiscordUnavailable) as error:
            raise to_delivery_failed(error) from None

    async def dismiss(self, chat: str, thread: str, message: str) -> None:
        """Remove the "thinking" notice if `message` is an interaction. Raises nothing."""
        del chat, thread  # the id identifies the interaction
        await self._interactions.dismiss(message)

    async def find(self, part: MessagePart, since: str) -> Sequence[str]:
        """Find own messages, see `FindsMessages.find`. Read at most 500 further messages; what was read serves every part."""
        channel_id = _channel_id(part.chat, part.thread)
        start = _search_start(since, part.reply_to)
        try:
            self._own_id = self._own_id or str((await self._api.call("GET", "/users/@me"))["id"])
            own = self._listed(channel_id, start)
            await self._read_on(channel_id, own, part)
        except (DiscordApiError, DiscordUnavailable) as error:
            raise to_delivery_failed(error) from None
        except (KeyError, TypeError, AttributeError, ValueError):
            raise DeliveryFailed("Discord's list of messages cannot be read") from None
        if own.is_empty and part.reply_to.isdecimal():
            # Even the replied message is missing: Discord lists none if the bot may not read the history.
            raise DeliveryFailed("Discord shows no message there: may the bot read the history?", permanent=True)
        return own.find(part, start)

    def _listed(self, channel_id: str, start: int) -> OwnMessages:
        """Return the list of a channel from `start` on; begin a new one if the cached one begins later or ends before."""
        own = self._own.pop(channel_id, None)
        if own is None or not own.reaches(start):
            own = OwnMessages(start)
        self._own[channel_id] = own
        while len(self._own) > MAX_LISTED_CHANNELS:
            self._own.popitem(last=False)
        return own

    async def _read_on(self, channel_id: str, own: OwnMessages, part: MessagePart) -> None:
        """Read further pages until the list has the part, or ends."""
        for _ in range(SEARCH_PAGES if own.must_read(part) else 0):
            params = {"after": str(own.end), "limit": str(PAGE_MESSAGES)}
            own.add_page(await self._api.call("GET", f"/channels/{channel_id}/messages", params=params), self._own_id)
            if own.is_complete:
                break

    def _payload(self, part: MessagePart, text: str) -> dict[str, Any]:
        flags = NO_PREVIEWS if part.has_no_link_previews else self._flags
        payload = {"content": text, "allowed_mentions": NO_MENTIONS, "flags": flags}
        return payload if part.buttons is None else {**payload, "components": make_components(part.buttons)}

    async def _uploads(self, file: OutboundFile | None) -> list[FileUpload]:
        if file is None:
            return []
        content = await self._blob(file.digest) if file.digest else file.text.encode(errors="replace")
        return [FileUpload(file.name, content, file.media_type)]

    async def _send_payload(
        self, part: MessagePart, channel_id: str, payload: dict[str, Any], files: Sequence[FileUpload]
    ) -> str:
        if files:
            payload = {**payload, "attachments": [{"id": "0", "filename": files[0].name}]}
        if part.reply_to:
            response_id = await self._interactions.answer(part.reply_to, part.key, payload, files)
            if response_id is not None:
                return response_id
        try:
            return await self._post(part, channel_id, payload, files)
        except DiscordApiError as error:
            if error.code not in (MISSING_ACCESS, MISSING_PERMISSIONS):
                raise
            follow_up_id = await self._interactions.follow_up(channel_id, part.key, payload, files)
            if follow_up_id is None:
                raise
            return follow_up_id

    async def _post(
        self, part: MessagePart, channel_id: str, payload: dict[str, Any], files: Sequence[FileUpload]
    ) -> str:
        """Post an ordinary message; without the reply if Discord refuses only that."""
        path = f"/channels/{channel_id}/messages"
        nonce = part.key or self._api.new_nonce()
        self._duplicates.record_nonce(nonce)
        body = {**payload, "nonce": nonce, "enforce_nonce": True}
        if part.reply_to.isdecimal():
            # If the replied message was deleted, the answer is still sent.
            reply = {"message_reference": {"message_id": part.reply_to, "fail_if_not_exists": False}}
            try:
                return _id(await self._api.call("POST", path, json=body | reply, files=files))
            except DiscordApiError as error:
                if not (error.code in _REPLY_REFUSED_CODES or "reply" in error.text.lower()):
                    raise
        return _id(await self._api.call("POST", path, json=body, files=files))

    async def _edit_in_channel(self, channel_id: str, message: str, payload: dict[str, Any]) -> None:
        path = f"/channels/{channel_id}/messages/{message}"
        try:
            await self._api.call("PATCH", path, json=payload)
        except DiscordApiError as error:
            if error.code != THREAD_ARCHIVED:
                raise
            # Sending unarchives a thread, editing does not. A locked thread stays archived.
            await self._api.call("PATCH", f"/channels/{channel_id}", json={"archived": False})
            await self._api.call("PATCH", path, json=payload)


def make_components(buttons: ButtonSet) -> list[dict[str, Any]]:
    """Build the rows of buttons; labels are cut to what Discord takes, their ids never are."""
    keys = [
        {
            "type": BUTTON_COMPONENT,
            "style": SECONDARY_STYLE,
            "label": shorten_label(button.label, MAX_LABEL_CHARS),
            "custom_id": buttons.button_id(index),
        }
        for index, button in enumerate(buttons.buttons[: MAX_ROWS * MAX_ROW_BUTTONS])
    ]
    return [
        {"type": ACTION_ROW, "components": keys[start : start + MAX_ROW_BUTTONS]}
        for start in range(0, len(keys), MAX_ROW_BUTTONS)
    ]


def _channel_id(chat: str, thread: str) -> str:
    """Return the channel id, which is the thread's if there is one. Raise `DeliveryFailed`."""
    channel_id = thread or chat
    if not (channel_id.isascii() and channel_id.isdecimal()):
        raise DeliveryFailed(f"{channel_id!r} is not a Discord channel", permanent=True)
    return channel_id


def _search_start(since: str, reply_to: str) -> int:
    """Return the id to search after: shortly before `since`, and before the replied message."""
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise DeliveryFailed(f"{since!r} is not a time", permanent=True) from None
    moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - SEARCH_MARGIN
    earliest = max(0, int((moment - _DISCORD_EPOCH) / timedelta(milliseconds=1))) << 22
    return min(earliest, int(reply_to) - 1) if reply_to.isdecimal() else earliest


def _id(message: Any) -> str:
    return str(message.get("id") or "") if isinstance(message, dict) else ""
