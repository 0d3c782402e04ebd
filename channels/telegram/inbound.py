"""Translation of Telegram's updates into events of the port. Pure: no I/O, and nothing is raised."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from telegram import (
    CallbackQuery,
    Chat,
    ChatMember,
    ChatMemberUpdated,
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

from bubbot.ports.channel import (
    FOREIGN_WORDS,
    OWN_WORDS,
    BotAdded,
    ButtonPress,
    ChannelEvent,
    ChatMigration,
    Edit,
    Inbound,
    Quote,
    Reaction,
    Sender,
    UnparsedUpdate,
)
from bubbot.ports.text import clean_json
from channels.telegram.content import describe_content, read_attachments, require_text
from channels.telegram.inbound_text import TelegramBotUser, parse_text

PAID_REACTION = "⭐"


def read_update(channel: str, me: TelegramBotUser, raw: Any, now: str = "") -> ChannelEvent | None:
    """Translate one update; return None if it does not concern us (somebody joined, a message was pinned).

    An unreadable update becomes `UnparsedUpdate`, with the update as JSON. The external id is made of the bot's id and
    the update's, so it is the same if the update comes again. `now` is the time of a press, which Telegram does not tell.
    """
    raw = clean_json(raw)
    number = raw.get("update_id") if isinstance(raw, Mapping) else None
    if not isinstance(number, int) or isinstance(number, bool):
        return make_unparsed(channel, me, json.dumps(raw).encode(), "an update without a number")
    try:
        return _read_event(channel, me, f"{me.id}:{number}", raw, now)
    except Exception as error:  # noqa: BLE001 - the library raises anything for a form it does not know
        reason = f"update {number} cannot be read ({type(error).__name__}: {str(error)[:200]})"
        content = json.dumps(raw).encode()
        return UnparsedUpdate(channel, f"{me.id}:u{number}", _chat_of(raw), content, reason, _sender_of(raw))


def make_unparsed(channel: str, me: TelegramBotUser, raw: bytes, reason: str) -> UnparsedUpdate:
    """Make the event for an update without a number; a digest of its content is its id."""
    return UnparsedUpdate(channel, f"{me.id}:u{hashlib.sha256(raw).hexdigest()[:32]}", "", raw, reason)


def _chat_of(raw: Mapping[str, Any]) -> str:
    """Find the chat's id, so that an unreadable update is at least stored with its chat; empty if there is none."""
    for kind, content in raw.items():
        if kind != "update_id" and isinstance(content, Mapping) and isinstance(content.get("chat"), Mapping):
            return str(content["chat"].get("id", ""))
    return ""


def _sender_of(raw: Mapping[str, Any]) -> str:
    """Find the numeric id of the update's sender; empty if there is none."""
    for content in raw.values():
        for name in ("sender_chat", "from", "user", "actor_chat") if isinstance(content, Mapping) else ():
            sender = content.get(name)
            number = sender.get("id") if isinstance(sender, Mapping) else None
            if isinstance(number, int) and not isinstance(number, bool):
                return str(number)
    return ""


def _read_event(
    channel: str, me: TelegramBotUser, external_id: str, raw: dict[str, Any], now: str
) -> ChannelEvent | None:
    update = Update.de_json(raw)
    if update.callback_query:
        return _press(channel, me, update.callback_query, now)
    if update.message_reaction:
        return _reaction(channel, external_id, update.message_reaction)
    if change := update.my_chat_member:
        return _added(channel, external_id, change)
    if message := update.message or update.channel_post:
        if message.migrate_to_chat_id:
            old, new = _format_id(message.chat.id), _format_id(message.migrate_to_chat_id)
            return ChatMigration(channel, external_id, old, new, message.date.isoformat())
        return _TelegramMessageReader(channel, me, message).inbound(external_id)
    if message := update.edited_message or update.edited_channel_post:
        content = raw.get("edited_message") or raw.get("edited_channel_post") or {}
        # A live location is an edit every few seconds, and not a message.
        is_live = "live_period" in (content.get("location") or {})
        return None if is_live else _TelegramMessageReader(channel, me, message).edit(external_id)
    return None


def _added(channel: str, external_id: str, change: ChatMemberUpdated) -> BotAdded | None:
    """Return the event of a bot that comes into a group; None for any other change of what it is in a chat."""
    was_there = change.old_chat_member.status not in (ChatMember.LEFT, ChatMember.BANNED)
    is_there = change.new_chat_member.status in (ChatMember.MEMBER, ChatMember.ADMINISTRATOR)
    if was_there or not is_there or change.chat.type not in (Chat.GROUP, Chat.SUPERGROUP):
        return None
    chat, time = _format_id(change.chat.id), change.date.isoformat()
    return BotAdded(channel, external_id, chat, _user_sender(change.from_user), time)


def _format_id(value: object) -> str:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"an id is a {type(value).__name__}")
    return str(value)


class _TelegramMessageReader:
    """A reader of one message."""

    def __init__(self, channel: str, me: TelegramBotUser, message: Message) -> None:
        self._channel = channel
        self._me = me
        self._message = message
        self._direct = message.chat.type == Chat.PRIVATE
        self._parsed_text = parse_text(
            message.text or message.caption or "",
            message.entities or message.caption_entities,
            me,
            is_direct=self._direct,
        )
        self._text = "\n".join(part for part in (self._parsed_text.text, describe_content(message)) if part)

    def inbound(self, external_id: str) -> Inbound | None:
        message = self._message
        files = read_attachments(message)
        sender = _sender(message)
        # A message without content is a notice from Telegram; our own messages are on the tape already.
        if not (self._text or files) or sender.id == str(self._me.id):
            return None
        quote = _quote(message, self._me)
        return Inbound(
            self._channel,
            external_id,
            _format_id(message.chat.id),
            sender,
            self._text,
            message.date.isoformat(),
            thread=_thread(message),
            reply_to=quote.message if quote else "",
            attachments=files,
            message=_format_id(message.message_id),
            direct=self._direct,
            addressed=self._direct or self._parsed_text.is_addressed or _is_reply_to_bot(message, self._me),
            quote=quote,
            group=require_text(message.media_group_id or ""),
            provenance=_provenance(message, self._me),
        )

    def edit(self, external_id: str) -> Edit | None:
        message = self._message
        sender = _sender(message)
        if not (self._text or read_attachments(message)) or sender.id == str(self._me.id):
            return None
        time = (message.edit_date or message.date).isoformat()
        return Edit(
            self._channel, external_id, _format_id(message.chat.id), _format_id(message.message_id), sender,
            self._text, time, _thread(message), provenance=_provenance(message, self._me),
        )  # fmt: skip


def _provenance(message: Message, me: TelegramBotUser) -> str:
    """Return `world` for a message that was forwarded, or that another bot wrote for its sender."""
    is_from_bot = message.via_bot is not None and message.via_bot.id != me.id
    is_foreign = message.forward_origin is not None or message.is_automatic_forward or is_from_bot
    return FOREIGN_WORDS if is_foreign else OWN_WORDS


def _thread(message: Message) -> str:
    """Return the forum topic's id. Replies in ordinary groups have a thread id, too, which means nothing to people."""
    return _format_id(message.message_thread_id) if message.is_topic_message and message.message_thread_id else ""


def _user_sender(user: User) -> Sender:
    return Sender(_format_id(user.id), require_text(user.full_name), bool(user.is_bot))


def _chat_sender(chat: Chat) -> Sender:
    return Sender(_format_id(chat.id), require_text(chat.title or chat.effective_name or ""))


def _sender(message: Message) -> Sender:
    """Return the sender. Telegram gives a channel, or an anonymous admin, a stand-in as user."""
    if message.sender_chat:
        return _chat_sender(message.sender_chat)
    return _user_sender(message.from_user) if message.from_user else _chat_sender(message.chat)


def _replied_message(message: Message) -> Message | None:
    """Return the message replied to. In a topic everything replies to the opening notice; that is not a reply."""
    replied = message.reply_to_message
    return None if replied is None or replied.forum_topic_created else replied


def _is_reply_to_bot(message: Message, me: TelegramBotUser) -> bool:
    """Return true if the message replies to one of ours."""
    replied = _replied_message(message)
    return bool(replied and replied.from_user and replied.from_user.id == me.id)


def _quote(message: Message, me: TelegramBotUser) -> Quote | None:
    selection = message.quote.text if message.quote else ""
    if replied := _replied_message(message):
        text = replied.text or replied.caption or ""
        text = "\n".join(part for part in (selection or text, describe_content(replied)) if part)
        return Quote(
            _format_id(replied.message_id),
            _sender(replied),
            text,
            read_attachments(replied),
            own=_is_reply_to_bot(message, me),
            provenance=_provenance(replied, me),
        )
    if external := message.external_reply:
        text = "\n".join(part for part in (selection, describe_content(external)) if part)
        # Its message id belongs to another chat.
        return Quote("", _original_sender(external), text, read_attachments(external), provenance=FOREIGN_WORDS)
    return None


def _original_sender(external: ExternalReplyInfo) -> Sender:
    match external.origin:
        case MessageOriginUser(sender_user=user):
            return _user_sender(user)
        case MessageOriginChat(sender_chat=chat):
            return _chat_sender(chat)
        case MessageOriginChannel(chat=chat):
            return _chat_sender(chat)
        case MessageOriginHiddenUser(sender_user_name=name):
            return Sender("", require_text(name))
    return Sender("")


def _reaction(channel: str, external_id: str, update: MessageReactionUpdated) -> Reaction | None:
    sender = (
        _user_sender(update.user) if update.user else _chat_sender(update.actor_chat) if update.actor_chat else None
    )
    if sender is None:
        return None
    emojis = tuple(_format_emoji(reaction) for reaction in update.new_reaction)
    return Reaction(
        channel,
        external_id,
        _format_id(update.chat.id),
        _format_id(update.message_id),
        sender,
        emojis,
        update.date.isoformat(),
    )


PRESS_MARK = ":c"
"""Between the bot's id and the id of a callback query, in the external id of a press."""


def _press(channel: str, me: TelegramBotUser, query: CallbackQuery, now: str) -> ButtonPress | None:
    message = query.message  # inaccessible after 48 hours, but its chat and id are still there
    if message is None or query.data is None:  # a message sent by an inline query, or a game: the bot has neither
        return None
    return ButtonPress(
        channel,
        f"{me.id}{PRESS_MARK}{require_text(query.id)}",
        _format_id(message.chat.id),
        _format_id(message.message_id),
        _user_sender(query.from_user),
        require_text(query.data),
        now,
        thread=_thread(message) if isinstance(message, Message) else "",
        direct=message.chat.type == Chat.PRIVATE,
    )


def query_id(press: ButtonPress) -> str:
    """Return Telegram's id of the callback query, which has to be answered."""
    return press.external_id.partition(PRESS_MARK)[2]


def _format_emoji(reaction: ReactionType) -> str:
    match reaction:
        case ReactionTypeEmoji(emoji=emoji):
            return str(emoji)
        case ReactionTypeCustomEmoji(custom_emoji_id=number):
            return f"custom:{number}"
    return PAID_REACTION
