"""Translation of Telegram's updates into events of the port. Pure: no I/O, and nothing is raised."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bubbot.formatting import clean, clean_json, read_language
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
from channels.platform.json_values import (
    Raw,
    find_object,
    require_number,
    require_object,
    require_objects,
    require_text,
)
from channels.telegram.content import (
    chat_name,
    describe_buttons,
    describe_content,
    describe_forward,
    is_service,
    name_unreadable,
    person_name,
    read_attachments,
)
from channels.telegram.inbound_text import TelegramBotUser, Utf16Text, annotate_text, parse_text
from channels.telegram.rich import read_rich_message

PAID_REACTION = "⭐"


def read_update(channel: str, me: TelegramBotUser, raw: Any, now: str = "") -> ChannelEvent | None:
    """Translate one update; return None if it does not concern the bot (somebody joined, a message was pinned).

    An unreadable update becomes `UnparsedUpdate`, with the update as JSON. The external id is made of the bot's id and
    the update's, so it is the same if the update comes again. `now` is the time of a press, which Telegram does not tell.
    """
    number = raw.get("update_id") if isinstance(raw, Mapping) else None
    if not isinstance(number, int) or isinstance(number, bool):
        return make_unparsed(channel, me, _encode(raw), "an update without a number")
    try:
        return _read_event(channel, me, f"{me.id}:{number}", clean_json(raw), now)
    except Exception as error:  # noqa: BLE001 - the form is Telegram's: what cannot be read is kept, whatever the error
        reason = clean(f"update {number} cannot be read ({type(error).__name__}: {str(error)[:200]})")
        return UnparsedUpdate(channel, f"{me.id}:u{number}", _chat_of(raw), _encode(raw), reason, _sender_of(raw))


def _encode(raw: Any) -> bytes:
    """Return an update as JSON; nothing of one that is nested too deeply for that."""
    try:
        return json.dumps(raw).encode()
    except RecursionError:
        return b""


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


def _read_event(channel: str, me: TelegramBotUser, external_id: str, raw: Raw, now: str) -> ChannelEvent | None:
    if message := find_object(raw, "message") or find_object(raw, "channel_post"):
        if new := message.get("migrate_to_chat_id"):
            return ChatMigration(channel, external_id, _chat_id(message), _format_id(new), _time(message["date"]))
        return _TelegramMessageReader(channel, me, message).inbound(external_id)
    if message := find_object(raw, "edited_message") or find_object(raw, "edited_channel_post"):
        # A live location is an edit every few seconds, and not a message.
        is_live = "live_period" in (find_object(message, "location") or {})
        return None if is_live else _TelegramMessageReader(channel, me, message).edit(external_id)
    if query := find_object(raw, "callback_query"):
        return _press(channel, me, query, now)
    if reaction := find_object(raw, "message_reaction"):
        return _reaction(channel, external_id, reaction)
    if change := find_object(raw, "my_chat_member"):
        return _added(channel, external_id, change)
    return None


def _added(channel: str, external_id: str, change: Raw) -> BotAdded | None:
    """Return the event of the bot joining a group; None for any other change of its membership."""
    was_there = change["old_chat_member"]["status"] not in ("left", "kicked")
    is_there = change["new_chat_member"]["status"] in ("member", "administrator")
    if was_there or not is_there or change["chat"]["type"] not in ("group", "supergroup"):
        return None
    return BotAdded(
        channel,
        external_id,
        _chat_id(change),
        _user_sender(change["from"]),
        _time(change["date"]),
        chat_title=_title(change["chat"]),
    )


def _format_id(value: object) -> str:
    return str(require_number(value))


def _chat_id(raw: Raw) -> str:
    return _format_id(raw["chat"]["id"])


def _title(chat: Raw) -> str:
    return require_text(chat.get("title"))


def _time(value: object) -> str:
    return datetime.fromtimestamp(require_number(value), UTC).isoformat()


class _TelegramMessageReader:
    """A reader of one message."""

    def __init__(self, channel: str, me: TelegramBotUser, message: Raw) -> None:
        self._channel = channel
        self._me = me
        self._message = message
        self._direct = message["chat"]["type"] == "private"
        text, entities = _read_text(message)
        self._parsed_text = parse_text(text, entities, me, is_direct=self._direct)
        is_forwarded = message.get("forward_origin") is not None
        # A command in a forwarded message was for somebody else.
        words = annotate_text(text, entities) if is_forwarded else self._parsed_text.text
        self._text = _add_notes(message, words)

    def inbound(self, external_id: str) -> Inbound | None:
        message = self._message
        sender = _sender(message)
        if is_service(message) or sender.id == str(self._me.id):  # our own messages are on the tape already
            return None
        files = read_attachments(message)
        quote = _quote(message, self._me)
        is_addressed = self._direct or self._parsed_text.is_addressed or (quote is not None and quote.own)
        if not (self._text or files) and not is_addressed:
            return None
        return Inbound(
            self._channel,
            external_id,
            _chat_id(message),
            sender,
            self._text if self._text or files else name_unreadable(message),
            _time(message["date"]),
            thread=_thread(message),
            reply_to=quote.message if quote else "",
            attachments=files,
            message=_format_id(message["message_id"]),
            direct=self._direct,
            addressed=is_addressed,
            quote=quote,
            group=require_text(message.get("media_group_id")),
            provenance=_provenance(message, self._me),
            chat_title=_title(message["chat"]),
        )

    def edit(self, external_id: str) -> Edit | None:
        message = self._message
        sender = _sender(message)
        if not (self._text or read_attachments(message)) or is_service(message) or sender.id == str(self._me.id):
            return None
        time = _time(message.get("edit_date") or message["date"])
        return Edit(
            self._channel, external_id, _chat_id(message), _format_id(message["message_id"]), sender,
            self._text, time, _thread(message), provenance=_provenance(message, self._me),
        )  # fmt: skip


def _read_text(message: Raw) -> tuple[str, Sequence[Raw]]:
    """Return the text or caption of a message, with its entities."""
    rich = find_object(message, "rich_message")
    if rich and (found := read_rich_message(rich)).text:
        return found.text, found.entities
    if text := require_text(message.get("text")):
        return text, require_objects(message.get("entities"))
    return require_text(message.get("caption")), require_objects(message.get("caption_entities"))


def _add_notes(message: Raw, text: str, *, is_own: bool = False) -> str:
    """Put the author of a forward above the text; below it the content in words, and the buttons unless `is_own`."""
    buttons = "" if is_own else describe_buttons(message)
    return "\n".join(filter(None, (describe_forward(message), text, describe_content(message), buttons)))


def _provenance(message: Raw, me: TelegramBotUser) -> str:
    """Return `world` for a message that was forwarded, or that another bot wrote for its sender."""
    via_bot = find_object(message, "via_bot")
    is_from_bot = via_bot is not None and via_bot["id"] != me.id
    is_foreign = message.get("forward_origin") is not None or message.get("is_automatic_forward") or is_from_bot
    return FOREIGN_WORDS if is_foreign else OWN_WORDS


def _thread(message: Raw) -> str:
    """Return the forum topic's id. Replies in ordinary groups have a thread id, too, which means nothing to people."""
    thread = message.get("message_thread_id")
    return _format_id(thread) if thread and message.get("is_topic_message") else ""


def _user_sender(user: Raw) -> Sender:
    language = read_language(user.get("language_code"))
    return Sender(_format_id(user["id"]), person_name(user), bool(user.get("is_bot")), language=language)


def _chat_sender(chat: Raw) -> Sender:
    return Sender(_format_id(chat["id"]), chat_name(chat))


def _sender(message: Raw) -> Sender:
    """Return the sender. Telegram gives a channel, or an anonymous admin, a stand-in as user."""
    if chat := find_object(message, "sender_chat"):
        return _chat_sender(chat)
    user = find_object(message, "from")
    return _user_sender(user) if user else _chat_sender(message["chat"])


def _quote(message: Raw, me: TelegramBotUser) -> Quote | None:
    replied = find_object(message, "reply_to_message")
    # In a topic everything replies to the opening notice; that is not a reply.
    if replied and "forum_topic_created" not in replied:
        author = find_object(replied, "from")
        is_own = author is not None and author["id"] == me.id
        text = _selected_text(message, *_read_text(replied))
        replied = _narrow(message, replied)
        return Quote(
            _format_id(replied["message_id"]),
            _sender(replied),
            _add_notes(replied, text, is_own=is_own),
            read_attachments(replied),
            own=is_own,
            provenance=_provenance(replied, me),
        )
    if external := find_object(message, "external_reply"):
        text = _add_notes(external, _selected_text(message, "", ()))
        # Its message id belongs to another chat.
        sender = _original_sender(require_object(external["origin"]))
        return Quote("", sender, text, read_attachments(external), provenance=FOREIGN_WORDS)
    if story := find_object(message, "reply_to_story"):
        sender = _chat_sender(require_object(story["chat"]))
        return Quote("", sender, describe_content({"story": story}), provenance=FOREIGN_WORDS)
    return None


def _narrow(message: Raw, replied: Raw) -> Raw:
    """Reduce a checklist or poll to the task or option that the message replies to, if it names one."""
    for reply, name, parts, key in (
        ("reply_to_checklist_task_id", "checklist", "tasks", "id"),
        ("reply_to_poll_option_id", "poll", "options", "persistent_id"),
    ):
        if reply in message and (whole := find_object(replied, name)):
            chosen = [part for part in require_objects(whole[parts]) if part.get(key) == message[reply]]
            replied = {**replied, name: {**whole, parts: chosen or whole[parts]}}
    return replied


def _selected_text(message: Raw, text: str, entities: Sequence[Raw]) -> str:
    """Return the part of the quoted text that the sender has chosen; all of it if none."""
    selection = find_object(message, "quote")
    if selection is None:
        return annotate_text(text, entities)
    chosen, start = require_text(selection["text"]), require_number(selection.get("position", 0))
    end = start + len(Utf16Text(chosen))
    # The quoted message has all entities, the part has only some kinds of them; but the message may have changed since.
    if text and annotate_text(text, (), start, end) == chosen:
        return annotate_text(text, entities, start, end)
    return annotate_text(chosen, require_objects(selection.get("entities")))


def _original_sender(origin: Raw) -> Sender:
    match origin["type"]:
        case "user":
            return _user_sender(origin["sender_user"])
        case "chat":
            return _chat_sender(origin["sender_chat"])
        case "channel":
            return _chat_sender(origin["chat"])
        case "hidden_user":
            return Sender("", require_text(origin["sender_user_name"]))
    return Sender("")


def _reaction(channel: str, external_id: str, change: Raw) -> Reaction | None:
    user, chat = find_object(change, "user"), find_object(change, "actor_chat")
    sender = _user_sender(user) if user else _chat_sender(chat) if chat else None
    if sender is None:
        return None
    return Reaction(
        channel,
        external_id,
        _chat_id(change),
        _format_id(change["message_id"]),
        sender,
        tuple(_format_emoji(reaction) for reaction in require_objects(change["new_reaction"])),
        _time(change["date"]),
    )


PRESS_MARK = ":c"
"""Between the bot's id and the id of a callback query, in the external id of a press."""


def _press(channel: str, me: TelegramBotUser, query: Raw, now: str) -> ButtonPress | None:
    message = find_object(query, "message")  # inaccessible after 48 hours, but its chat and id are still there
    data = query.get("data")
    if message is None or data is None:  # a message sent by an inline query, or a game: the bot has neither
        return None
    return ButtonPress(
        channel,
        f"{me.id}{PRESS_MARK}{require_text(query['id'])}",
        _chat_id(message),
        _format_id(message["message_id"]),
        _user_sender(query["from"]),
        require_text(data),
        now,
        thread=_thread(message),
        direct=message["chat"]["type"] == "private",
    )


def query_id(press: ButtonPress) -> str:
    """Return Telegram's id of the callback query, which has to be answered."""
    return press.external_id.partition(PRESS_MARK)[2]


def _format_emoji(reaction: Raw) -> str:
    match reaction["type"]:
        case "emoji":
            return require_text(reaction["emoji"])
        case "custom_emoji":
            return f"custom:{require_text(reaction['custom_emoji_id'])}"
    return PAID_REACTION
