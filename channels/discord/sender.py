"""What goes out: messages, files, edits, and what to do where Discord does not take them as they are."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bubbot.errors import DeliveryFailed
from bubbot.ports.channel import MessagePart, OutboundFile, Receipt
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
    delivery_failed,
)
from channels.discord.files import size_of
from channels.discord.interactions import OpenInteractions
from channels.discord.settings import DiscordSettings
from channels.discord.text import visible

log = logging.getLogger(__name__)
NO_PREVIEWS = 1 << 2
"""The flag of a message whose links are not unfolded."""
NO_MENTIONS = {"parse": [], "replied_user": False}
"""Whom a message of ours calls, whatever stands in it."""
SEARCH_PAGES = 5
SEARCH_PAGE_MESSAGES = 100
"""Messages that are looked through at once, and how often, for one of ours."""
EARLIER = timedelta(seconds=60)
_DISCORD_EPOCH = datetime(2015, 1, 1, tzinfo=UTC)
_NO_REPLY = (160002,)
"""Refusals of the reply alone: who may not read the history may not reply."""


class DiscordSender:
    """Sends, edits and finds for one bot."""

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
        self._me = ""

    async def send(self, part: MessagePart) -> Receipt:
        """Sends a part, as the answer to the interaction that it replies to where there is one. Raises `DeliveryFailed`.

        A part in which nothing can be seen needs no message; a file that is too large for Discord is named instead.
        """
        place = _place(part.chat, part.thread)
        if part.file is None and not visible(part.text):
            return Receipt()
        payload, files = self._payload(part.text), await self._uploads(part.file)
        try:
            return Receipt(await self._sent(part, place, payload, files))
        except DiscordUnavailable as error:
            raise delivery_failed(error) from None
        except DiscordApiError as error:
            # A key whose message was deleted since gives the latter: it was sent, and is not sent again.
            if error.code == UNKNOWN_MESSAGE or (error.code == EMPTY_MESSAGE and not files):
                return Receipt()
            if not (error.too_large and files):
                raise delivery_failed(error) from None
        log.warning("a file was too large for Discord: %s", files[0].name, extra={"action": "discord.too_large"})
        notice = (
            f"📎 `{files[0].name.replace('`', '')}` ({size_of(len(files[0].content))}) is too large for Discord here."
        )
        try:
            return Receipt(await self._sent(part, place, self._payload(notice), ()))
        except (DiscordApiError, DiscordUnavailable) as error:
            raise delivery_failed(error) from None

    async def edit(self, message: str, part: MessagePart) -> None:
        """Changes a message of ours. Raises `DeliveryFailed`."""
        if part.file is not None:
            raise DeliveryFailed("a message cannot be changed into a file", permanent=True)
        if not message.isdecimal():
            raise DeliveryFailed(f"there is no message {message!r} to change", permanent=True)
        place, payload = _place(part.chat, part.thread), self._payload(part.text)
        try:
            if not await self._interactions.edit(message, payload):
                await self._edited(place, message, payload)
        except (DiscordApiError, DiscordUnavailable) as error:
            raise delivery_failed(error) from None

    async def typing(self, chat: str, thread: str) -> None:
        """Shows that an answer is on its way, for ten seconds. Raises `DeliveryFailed`."""
        try:
            await self._api.call("POST", f"/channels/{_place(chat, thread)}/typing")
        except (DiscordApiError, DiscordUnavailable) as error:
            raise delivery_failed(error) from None

    async def dismiss(self, chat: str, thread: str, message: str) -> None:
        """Takes back the notice that an answer is worked on, where `message` is an interaction. Raises nothing."""
        del chat, thread  # an interaction is known by its id
        await self._interactions.dismiss(message)

    async def find(self, part: MessagePart, since: str) -> Sequence[str]:
        """See `FindsMessages.find`. Looks through at most 500 messages."""
        place = _place(part.chat, part.thread)
        try:
            self._me = self._me or str((await self._api.call("GET", "/users/@me"))["id"])
            found = await self._own(place, part, _after(since, part.reply_to))
        except (DiscordApiError, DiscordUnavailable) as error:
            raise delivery_failed(error) from None
        except (KeyError, TypeError, AttributeError):
            raise DeliveryFailed("Discord's list of messages cannot be read") from None
        return [str(number) for number in sorted(found)]

    async def _own(self, place: str, part: MessagePart, after: int) -> list[int]:
        found: list[int] = []
        for page in range(SEARCH_PAGES):
            got = await self._api.call(
                "GET", f"/channels/{place}/messages", params={"after": str(after), "limit": str(SEARCH_PAGE_MESSAGES)}
            )
            if not got:
                if not page and part.reply_to.isdecimal():
                    # Not even the message that is replied to: Discord shows nobody's to who may not read the history.
                    raise DeliveryFailed(
                        "Discord shows no message there: may the bot read the history?", permanent=True
                    )
                break
            found += [int(one["id"]) for one in got if one["author"]["id"] == self._me and _is(part, one)]
            after = max(int(one["id"]) for one in got)
            if len(got) < SEARCH_PAGE_MESSAGES:
                break
        return found

    def _payload(self, text: str) -> dict[str, Any]:
        return {"content": text, "allowed_mentions": NO_MENTIONS, "flags": self._flags}

    async def _uploads(self, file: OutboundFile | None) -> list[FileUpload]:
        if file is None:
            return []
        content = await self._blob(file.digest) if file.digest else file.text.encode(errors="replace")
        return [FileUpload(file.name, content, file.media_type)]

    async def _sent(self, part: MessagePart, place: str, payload: dict[str, Any], files: Sequence[FileUpload]) -> str:
        if files:
            payload = {**payload, "attachments": [{"id": "0", "filename": files[0].name}]}
        if part.reply_to:
            answered = await self._interactions.answer(part.reply_to, part.key, payload, files)
            if answered is not None:
                return answered
        try:
            return await self._posted(part, place, payload, files)
        except DiscordApiError as error:
            if error.code not in (MISSING_ACCESS, MISSING_PERMISSIONS):
                raise
            followed = await self._interactions.follow(place, part.key, payload, files)
            if followed is None:
                raise
            return followed

    async def _posted(self, part: MessagePart, place: str, payload: dict[str, Any], files: Sequence[FileUpload]) -> str:
        """An ordinary message; without its reply, where only that is refused."""
        path = f"/channels/{place}/messages"
        nonce = part.key or self._api.fresh_key()
        self._duplicates.sending(nonce)
        body = {**payload, "nonce": nonce, "enforce_nonce": True}
        if part.reply_to.isdecimal():
            # The message may be gone; the answer is not lost with it.
            reply = {"message_reference": {"message_id": part.reply_to, "fail_if_not_exists": False}}
            try:
                return _id(await self._api.call("POST", path, json=body | reply, files=files))
            except DiscordApiError as error:
                if not (error.code in _NO_REPLY or "reply" in error.text.lower()):
                    raise
        return _id(await self._api.call("POST", path, json=body, files=files))

    async def _edited(self, place: str, message: str, payload: dict[str, Any]) -> None:
        path = f"/channels/{place}/messages/{message}"
        try:
            await self._api.call("PATCH", path, json=payload)
        except DiscordApiError as error:
            if error.code != THREAD_ARCHIVED:
                raise
            # To send opens a thread again, to edit does not. One that is locked stays so.
            await self._api.call("PATCH", f"/channels/{place}", json={"archived": False})
            await self._api.call("PATCH", path, json=payload)


def _place(chat: str, thread: str) -> str:
    """The channel: a thread is one of its own. Raises `DeliveryFailed`."""
    place = thread or chat
    if not (place.isascii() and place.isdecimal()):
        raise DeliveryFailed(f"{place!r} is no channel of Discord", permanent=True)
    return place


def _after(since: str, reply_to: str) -> int:
    """The id after which to look: shortly before the time, and with the message that is replied to."""
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise DeliveryFailed(f"{since!r} is no time", permanent=True) from None
    moment = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EARLIER
    earliest = max(0, int((moment - _DISCORD_EPOCH) / timedelta(milliseconds=1))) << 22
    return min(earliest, int(reply_to) - 1) if reply_to.isdecimal() else earliest


def _is(part: MessagePart, message: dict[str, Any]) -> bool:
    """Whether a message says what the part says."""
    if str(message.get("content") or "").strip() != part.text.strip():
        return False
    names = [_plain(str(one.get("filename"))) for one in message.get("attachments") or []]
    return names == ([_plain(part.file.name)] if part.file is not None else [])


def _plain(name: str) -> str:
    """A file's name as far as Discord keeps it."""
    return "".join(char for char in name if char.isascii() and char.isalnum()).lower()


def _id(message: Any) -> str:
    return str(message.get("id") or "") if isinstance(message, dict) else ""
