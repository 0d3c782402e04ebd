"""Sending of messages, files and edits, with fallbacks for parts that Telegram refuses."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import structs
from telegram import InputFile

from bubbot.errors import DeliveryFailed
from bubbot.ports.channel import ButtonSet, MessagePart, OutboundFile, Receipt
from channels.platform.labels import shorten_label
from channels.telegram.api import TelegramApi
from channels.telegram.errors import TelegramApiError, TelegramUnavailable, make_delivery_error
from channels.telegram.settings import TelegramSettings
from channels.telegram.text import strip_markup

PHOTO_MEDIA_TYPES = frozenset({"image/jpeg", "image/png", "image/webp"})
MAX_PHOTO_BYTES = 10_000_000
"""Bytes of an image sent as a photo; larger ones are sent as files."""
MAX_BUTTONS = 100
"""Buttons of one message."""
MAX_LABEL_CHARS = 64
"""Characters of a label; Telegram takes more, but shows no more of it on a phone."""
MAX_SHORT_LABEL_CHARS = 18
"""Characters of a label that leaves room for a second one beside it on a phone."""
_TRIES = 7
"""More than there are ways to change a refused part."""


class TelegramSender:
    """The sender of one bot's messages and edits. It remembers which chats moved, as long as it lives."""

    def __init__(self, api: TelegramApi, settings: TelegramSettings, blob: Callable[[str], Awaitable[bytes]]) -> None:
        self._api = api
        self._previews = settings.link_previews
        self._blob = blob
        self._moved: dict[str, str] = {}

    async def send(self, part: MessagePart) -> Receipt:
        """Send a part. Raises `DeliveryFailed`."""
        chat = part.chat
        if chat in self._moved:
            part = structs.replace(part, chat=self._moved[chat], reply_to="")  # messages have other ids there
        content = await self._read_content(part.file) if part.file else b""
        as_photo = (
            part.file is not None and part.file.media_type in PHOTO_MEDIA_TYPES and len(content) <= MAX_PHOTO_BYTES
        )
        for _ in range(_TRIES):
            try:
                receipt = _make_receipt(await self._post(part, content, as_photo=as_photo))
                return receipt if part.chat == chat else structs.replace(receipt, chat=part.chat)
            except TelegramUnavailable as error:
                raise make_delivery_error(error) from None
            except TelegramApiError as error:
                if as_photo and error.code == 400 and error.mentions("photo", "image"):
                    as_photo = False
                elif (fallback := self._make_fallback(part, error)) is not None:
                    part = fallback
                else:
                    raise make_delivery_error(error) from None
        raise DeliveryFailed("Telegram refused it in every form", permanent=True)

    async def edit(self, message: str, part: MessagePart) -> None:
        """Edit a message of the bot. Raises `DeliveryFailed`."""
        if part.file is not None:
            raise DeliveryFailed("a message cannot be changed into a file", permanent=True)
        try:
            await self._edit_once(message, part)
        except TelegramApiError as error:
            if not (_is_about_markup(error) and part.markup):
                raise self._make_edit_error(error) from None
        except TelegramUnavailable as error:
            raise make_delivery_error(error) from None
        else:
            return
        try:
            await self._edit_once(message, strip_markup(part))
        except (TelegramApiError, TelegramUnavailable) as error:
            raise self._make_edit_error(error) from None

    async def typing(self, chat: str, thread: str) -> None:
        """Show that an answer is on its way. Raises `DeliveryFailed`."""
        try:
            await self._api.call("sendChatAction", {**self._target(chat, thread), "action": "typing"})
        except (TelegramApiError, TelegramUnavailable) as error:
            raise make_delivery_error(error) from None

    async def _read_content(self, file: OutboundFile) -> bytes:
        return await self._blob(file.digest) if file.digest else file.text.encode(errors="replace")

    async def _post(self, part: MessagePart, content: bytes, *, as_photo: bool) -> Any:
        parameters = self._target(part.chat, part.thread)
        if part.reply_to.isdecimal():
            # The message may be gone; the answer must not be lost with it.
            parameters["reply_parameters"] = {"message_id": int(part.reply_to), "allow_sending_without_reply": True}
        entities = part.markup.get("entities")
        if part.file is None:
            return await self._api.call("sendMessage", {**parameters, **self._text(part)})
        if part.text:
            parameters["caption"] = part.text
            if entities:
                parameters["caption_entities"] = to_plain_json(entities)
        field, method = ("photo", "sendPhoto") if as_photo else ("document", "sendDocument")
        parameters[field] = InputFile(content, filename=part.file.name)
        return await self._api.call(method, parameters, upload=True)

    def _text(self, part: MessagePart) -> dict[str, Any]:
        parameters: dict[str, Any] = {"text": part.text}
        if entities := part.markup.get("entities"):
            parameters["entities"] = to_plain_json(entities)
        if part.buttons is not None:
            parameters["reply_markup"] = make_keyboard(part.buttons)
        if part.has_no_link_previews or not self._previews:
            parameters["link_preview_options"] = {"is_disabled": True}
        return parameters

    def _target(self, chat: str, thread: str) -> dict[str, Any]:
        target: dict[str, Any] = {"chat_id": self._moved.get(chat, chat)}
        return {**target, "message_thread_id": int(thread)} if thread.isdecimal() else target

    def _make_fallback(self, part: MessagePart, error: TelegramApiError) -> MessagePart | None:
        """Change a part so that Telegram might accept it after this refusal; return None if nothing can be changed."""
        if error.migrate_to:
            if error.migrate_to == part.chat:
                return None
            self._moved[part.chat] = error.migrate_to
            return structs.replace(part, chat=error.migrate_to, reply_to="")  # messages have other ids there
        if error.code != 400:
            return None
        if part.thread and error.mentions("thread not found", "topic_closed", "topic_deleted", "topic closed"):
            return structs.replace(part, thread="")
        if part.markup and _is_about_markup(error):
            return strip_markup(part)
        if part.buttons is not None and error.mentions("button", "keyboard", "reply markup"):
            return structs.replace(part, buttons=None)  # the text says how to do the same
        return None

    async def _edit_once(self, message: str, part: MessagePart) -> None:
        if not message.isdecimal():
            raise DeliveryFailed(f"there is no message {message!r} to change", permanent=True)
        target = {"chat_id": part.chat, "message_id": int(message)}
        try:
            await self._api.call("editMessageText", {**target, **self._text(part)})
        except TelegramApiError as error:
            if not (error.code == 400 and error.mentions("not modified")):
                raise

    def _make_edit_error(self, error: TelegramApiError | TelegramUnavailable) -> DeliveryFailed:
        if isinstance(error, TelegramApiError) and error.migrate_to:
            # Messages of the moved chat have new ids: the old id names nothing any more.
            return DeliveryFailed("the chat moved, and its old messages cannot be changed", permanent=True)
        return make_delivery_error(error)


def make_keyboard(buttons: ButtonSet) -> dict[str, Any]:
    """Build an inline keyboard: two short labels in a row, a longer one alone; labels are cut, their data never is."""
    rows: list[list[dict[str, str]]] = []
    for index, button in enumerate(buttons.buttons[:MAX_BUTTONS]):
        key = {"text": shorten_label(button.label, MAX_LABEL_CHARS), "callback_data": buttons.button_id(index)}
        is_short = len(key["text"]) <= MAX_SHORT_LABEL_CHARS
        if rows and is_short and len(rows[-1]) == 1 and len(rows[-1][0]["text"]) <= MAX_SHORT_LABEL_CHARS:
            rows[-1].append(key)
        else:
            rows.append([key])
    return {"inline_keyboard": rows}


def to_plain_json(value: Any) -> Any:
    """Convert a value to lists and dicts: values from the tape are frozen and have other types."""
    return json.loads(json.dumps(value, default=_thaw))


def _thaw(value: Any) -> Any:
    return dict(value) if hasattr(value, "keys") else list(value)


def _make_receipt(result: Any) -> Receipt:
    number = result.get("message_id") if isinstance(result, dict) else None
    return Receipt(str(number) if number is not None else "")


def _is_about_markup(error: TelegramApiError) -> bool:
    return error.code == 400 and error.mentions("entit")
