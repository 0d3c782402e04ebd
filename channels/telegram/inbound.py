"""From an update, as Telegram sends it, to what the port calls it. Pure: no I/O, and nothing is raised."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from telegram import (
    Chat,
    ExternalReplyInfo,
    Message,
    MessageOriginChannel,
    MessageOriginChat,
    MessageOriginHiddenUser,
    MessageOriginUser,
    MessageReactionUpdated,
    ReactionType,
    ReactionTypeCustomEmoji,
    ReactionTypeEmoji,
    Update,
    User,
)

from bubbot.ports.channel import ChannelEvent, ChatMigration, Edit, Inbound, Quote, Reaction, Sender, UnparsedUpdate
from channels.telegram.content import attachments, text_of, words
from channels.telegram.inbound_text import TelegramBotUser, said

PAID = "⭐"
_HALF = re.compile("[\ud800-\udfff]")


def read_update(channel: str, me: TelegramBotUser, raw: Any) -> ChannelEvent | None:
    """The event of one update; None for what does not concern us (somebody joined, a message was pinned).

    What cannot be read is `UnparsedUpdate`, with the update as JSON. The external id is the bot's and the update's, so it
    is the same when the update comes again.
    """
    # Half a surrogate pair is legal JSON and no text; a unit for a unit, so that offsets stay right.
    raw = _whole(raw)
    number = raw.get("update_id") if isinstance(raw, Mapping) else None
    if not isinstance(number, int) or isinstance(number, bool):
        return unparsed(channel, me, json.dumps(raw).encode(), "an update without a number")
    try:
        return _read(channel, me, f"{me.id}:{number}", raw)
    except Exception as error:  # noqa: BLE001 - the library raises anything for a form it does not know
        reason = f"update {number} cannot be read ({type(error).__name__}: {str(error)[:200]})"
        content = json.dumps(raw).encode()
        return UnparsedUpdate(channel, f"{me.id}:u{number}", _chat_of(raw), content, reason, _sender_of(raw))


def unparsed(channel: str, me: TelegramBotUser, raw: bytes, reason: str) -> UnparsedUpdate:
    """For what has no number: its content is its id."""
    return UnparsedUpdate(channel, f"{me.id}:u{hashlib.sha256(raw).hexdigest()[:32]}", "", raw, reason)


def _whole(value: Any) -> Any:
    """The value with every half of a surrogate pair replaced."""
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(_HALF.sub("\N{REPLACEMENT CHARACTER}", text)) if _HALF.search(text) else value


def _chat_of(raw: Mapping[str, Any]) -> str:
    """The chat's id where it can be found, so that what was not read is at least kept in its place."""
    for kind, content in raw.items():
        if kind != "update_id" and isinstance(content, Mapping) and isinstance(content.get("chat"), Mapping):
            return str(content["chat"].get("id", ""))
    return ""


def _sender_of(raw: Mapping[str, Any]) -> str:
    """The numeric id of who sent an update, if it can be found."""
    for content in raw.values():
        for name in ("sender_chat", "from", "user", "actor_chat") if isinstance(content, Mapping) else ():
            who = content.get(name)
            number = who.get("id") if isinstance(who, Mapping) else None
            if isinstance(number, int) and not isinstance(number, bool):
                return str(number)
    return ""


def _read(channel: str, me: TelegramBotUser, external_id: str, raw: dict[str, Any]) -> ChannelEvent | None:
    update = Update.de_json(raw)
    if update.message_reaction:
        return _reaction(channel, external_id, update.message_reaction)
    if message := update.message or update.channel_post:
        if message.migrate_to_chat_id:
            chat, to = _id(message.chat.id), _id(message.migrate_to_chat_id)
            return ChatMigration(channel, external_id, chat, to, message.date.isoformat())
        return _TelegramMessageReader(channel, me, message).inbound(external_id)
    if message := update.edited_message or update.edited_channel_post:
        shown = raw.get("edited_message") or raw.get("edited_channel_post") or {}
        # A live location is an edit every few seconds, and nothing that somebody said.
        is_live = "live_period" in (shown.get("location") or {})
        return None if is_live else _TelegramMessageReader(channel, me, message).edit(external_id)
    return None


def _id(value: object) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"an id is a {type(value).__name__}")
    return str(value)


class _TelegramMessageReader:
    """Reads one message."""

    def __init__(self, channel: str, me: TelegramBotUser, message: Message) -> None:
        self._channel = channel
        self._me = me
        self._message = message
        self._direct = message.chat.type == Chat.PRIVATE
        self._said = said(
            message.text or message.caption or "",
            message.entities or message.caption_entities,
            me,
            direct=self._direct,
        )
        self._text = "\n".join(part for part in (self._said.text, words(message)) if part)

    def inbound(self, external_id: str) -> Inbound | None:
        message = self._message
        files = attachments(message)
        sender = _sender(message)
        # Without content it is a notice of Telegram's; and what we said ourselves is on the tape.
        if not (self._text or files) or sender.id == str(self._me.id):
            return None
        quote = _quote(message, self._me)
        return Inbound(
            self._channel,
            external_id,
            _id(message.chat.id),
            sender,
            self._text,
            message.date.isoformat(),
            thread=_thread(message),
            reply_to=quote.message if quote else "",
            attachments=files,
            message=_id(message.message_id),
            direct=self._direct,
            addressed=self._direct or self._said.called or _answers(message, self._me),
            quote=quote,
            group=text_of(message.media_group_id or ""),
        )

    def edit(self, external_id: str) -> Edit | None:
        message = self._message
        sender = _sender(message)
        if not (self._text or attachments(message)) or sender.id == str(self._me.id):
            return None
        time = (message.edit_date or message.date).isoformat()
        return Edit(
            self._channel, external_id, _id(message.chat.id), _id(message.message_id), sender, self._text, time,
            _thread(message),
        )  # fmt: skip


def _thread(message: Message) -> str:
    """The forum topic. Replies in ordinary groups have a thread id as well, which means nothing to people."""
    return _id(message.message_thread_id) if message.is_topic_message and message.message_thread_id else ""


def _person(user: User) -> Sender:
    return Sender(_id(user.id), text_of(user.full_name), bool(user.is_bot))


def _chat(chat: Chat) -> Sender:
    return Sender(_id(chat.id), text_of(chat.title or chat.effective_name or ""))


def _sender(message: Message) -> Sender:
    """Who wrote it. A channel, or an admin who hides behind the group, comes with a stand-in as its user."""
    if message.sender_chat:
        return _chat(message.sender_chat)
    return _person(message.from_user) if message.from_user else _chat(message.chat)


def _replied(message: Message) -> Message | None:
    """The message replied to. In a topic everything replies to the notice that opened it; that is no reply."""
    replied = message.reply_to_message
    return None if replied is None or replied.forum_topic_created else replied


def _answers(message: Message, me: TelegramBotUser) -> bool:
    """Whether it is a reply to something we said."""
    replied = _replied(message)
    return bool(replied and replied.from_user and replied.from_user.id == me.id)


def _quote(message: Message, me: TelegramBotUser) -> Quote | None:
    chosen = message.quote.text if message.quote else ""
    if replied := _replied(message):
        text = replied.text or replied.caption or ""
        text = "\n".join(part for part in (chosen or text, words(replied)) if part)
        return Quote(_id(replied.message_id), _sender(replied), text, attachments(replied), own=_answers(message, me))
    if elsewhere := message.external_reply:
        text = "\n".join(part for part in (chosen, words(elsewhere)) if part)
        # Its message id counts in another chat.
        return Quote("", _origin(elsewhere), text, attachments(elsewhere))
    return None


def _origin(elsewhere: ExternalReplyInfo) -> Sender:
    match elsewhere.origin:
        case MessageOriginUser(sender_user=user):
            return _person(user)
        case MessageOriginChat(sender_chat=chat):
            return _chat(chat)
        case MessageOriginChannel(chat=chat):
            return _chat(chat)
        case MessageOriginHiddenUser(sender_user_name=name):
            return Sender("", text_of(name))
    return Sender("")


def _reaction(channel: str, external_id: str, changed: MessageReactionUpdated) -> Reaction | None:
    who = _person(changed.user) if changed.user else _chat(changed.actor_chat) if changed.actor_chat else None
    if who is None:
        return None
    emojis = tuple(_emoji(one) for one in changed.new_reaction)
    return Reaction(
        channel, external_id, _id(changed.chat.id), _id(changed.message_id), who, emojis, changed.date.isoformat()
    )


def _emoji(reaction: ReactionType) -> str:
    match reaction:
        case ReactionTypeEmoji(emoji=emoji):
            return str(emoji)
        case ReactionTypeCustomEmoji(custom_emoji_id=number):
            return f"custom:{number}"
    return PAID
