"""Content of a Telegram message besides its text: files as attachments, everything else in words.

Each field of a message is one of four: the frame of a message, a service notice that is set aside, content, or unknown.
A message of unknown content is still a message: `name_unreadable` says what it has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from bubbot.ports.channel import Attachment, AttachmentKind
from channels.platform.json_values import (
    Raw,
    find_object,
    require_number,
    require_object,
    require_objects,
    require_text,
)
from channels.platform.labels import clean_note_name
from channels.telegram.inbound_text import annotate_text
from channels.telegram.rich import find_rich_files

FRAME_FIELDS = frozenset({
    "author_signature", "business_connection_id", "caption", "caption_entities", "chat", "date", "direct_messages_topic",
    "edit_date", "effect_id", "entities", "external_reply", "forward_origin", "from", "guest_bot_caller_chat",
    "guest_bot_caller_user", "guest_query_id", "has_media_spoiler", "has_protected_content", "is_automatic_forward",
    "is_from_offline", "is_paid_post", "is_topic_message", "link_preview_options", "media_group_id", "message_id",
    "message_thread_id", "paid_star_count", "quote", "reply_markup", "reply_to_checklist_task_id", "reply_to_message",
    "reply_to_poll_option_id", "reply_to_story", "sender_boost_count", "sender_business_bot", "sender_chat", "sender_tag",
    "show_caption_above_media", "suggested_post_info", "text", "via_bot",
})  # fmt: skip
"""Fields that are no content of their own: who, when, where, in reply to what, how it looks; and the text."""
_MEMBERS = "who is in the chat and what it is called: people see it, and nobody says it to anyone"
_SETTING = "a setting of the chat or of the bot"
_CHANGE = "a change of an older message, which is no message"
_CALL = "a call, which bots cannot join"
_TOPIC = "the life of a topic; messages in it name it"
_TRADE = "trade in posts, boosts and giveaways, which this bot has no part in"
SERVICE_FIELDS: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(
        ("new_chat_members", "left_chat_member", "new_chat_title", "new_chat_photo", "delete_chat_photo",
         "group_chat_created", "supergroup_chat_created", "channel_chat_created", "chat_owner_left", "chat_owner_changed",
         "migrate_from_chat_id"),
        _MEMBERS,
    )
    | {"migrate_to_chat_id": "an event of its own: the chat has another id"}
    | dict.fromkeys(
        ("message_auto_delete_timer_changed", "chat_background_set", "connected_website", "write_access_allowed",
         "managed_bot_created", "direct_message_price_changed", "paid_message_price_changed"),
        _SETTING,
    )
    | dict.fromkeys(
        ("pinned_message", "checklist_tasks_done", "checklist_tasks_added", "poll_option_added", "poll_option_deleted"),
        _CHANGE,
    )
    | {"proximity_alert_triggered": "two live locations came near; no person sent it"}
    | dict.fromkeys(
        ("video_chat_scheduled", "video_chat_started", "video_chat_ended", "video_chat_participants_invited"), _CALL
    )
    | dict.fromkeys(
        ("forum_topic_created", "forum_topic_edited", "forum_topic_closed", "forum_topic_reopened",
         "general_forum_topic_hidden", "general_forum_topic_unhidden"),
        _TOPIC,
    )
    | dict.fromkeys(
        ("boost_added", "giveaway_created", "giveaway_completed", "suggested_post_approved",
         "suggested_post_approval_failed", "suggested_post_declined", "suggested_post_paid", "suggested_post_refunded"),
        _TRADE,
    )
)  # fmt: skip
"""Fields of service notices, each with the reason for setting it aside: a message with one gets no answer."""

_FILES: tuple[tuple[str, AttachmentKind, str], ...] = (
    ("animation", "video", "video/mp4"),
    ("audio", "audio", "audio/mpeg"),
    ("document", "file", ""),
    ("video", "video", "video/mp4"),
    ("video_note", "video", "video/mp4"),
    ("voice", "voice", "audio/ogg"),
)
"""Fields with a file: name, kind, and media type if Telegram does not name one."""
_KINDS: dict[str, AttachmentKind] = {"image": "image", "audio": "audio", "video": "video"}
_FILE_FIELDS = frozenset({"photo", "sticker", "live_photo", *(name for name, _, _ in _FILES)})
_NESTED_FIELDS = frozenset({"game", "paid_media", "poll", "rich_message"})
"""Fields whose content has files of its own."""


def read_attachments(content: Raw) -> tuple[Attachment, ...]:
    """Return the files of a message, or of a reply's original, in the order of their fields."""
    found = () if _FILE_FIELDS.isdisjoint(content) else tuple(_attachments(content))
    if _NESTED_FIELDS.isdisjoint(content):
        return found
    return (*found, *(file for nested in _nested(content) for file in _attachments(nested)))


def _nested(content: Raw) -> Iterator[Raw]:
    """Yield the parts of a content that may have files, each in the form of a message."""
    if rich := find_object(content, "rich_message"):
        yield from find_rich_files(rich["blocks"])
    if paid := find_object(content, "paid_media"):
        yield from require_objects(paid["paid_media"])
    if game := find_object(content, "game"):
        yield game
    if poll := find_object(content, "poll"):
        yield from _poll_media(poll)


def _poll_media(poll: Raw) -> Iterator[Raw]:
    holders = (poll, {"media": poll.get("explanation_media")}, *require_objects(poll["options"]))
    yield from (media for holder in holders if (media := find_object(holder, "media")))


def _attachments(content: Raw) -> Iterator[Attachment]:
    photo = require_objects(content.get("photo"))
    if photo:
        largest = max(photo, key=_area)
        yield Attachment(_file_id(largest), "", "image/jpeg", _size(largest), "image")
    if (sticker := find_object(content, "sticker")) and _is_still(sticker):
        note = f"sticker {require_text(sticker.get('emoji'))}".strip()
        yield Attachment(_file_id(sticker), "", "image/webp", _size(sticker), "image", note)
    if (live := find_object(content, "live_photo")) and not photo:  # usually its still picture comes as a photo, too
        yield _make_attachment(live, "video", "video/mp4")
    for name, kind, media_type in _FILES:
        file = find_object(content, name)
        # An animation comes a second time as a document, for clients that do not support animations.
        if file and not (name == "document" and content.get("animation")):
            yield _make_attachment(file, kind, media_type)


def _make_attachment(file: Raw, kind: AttachmentKind, media_type: str) -> Attachment:
    name = require_text(file.get("file_name") or file.get("title"))
    media_type = require_text(file.get("mime_type")) or media_type
    if kind == "file":
        kind = _KINDS.get(media_type.partition("/")[0], "file")
    seconds = file.get("duration")
    note = f"{seconds} s" if isinstance(seconds, int) and not isinstance(seconds, bool) and seconds > 0 else ""
    return Attachment(_file_id(file), name, media_type, _size(file), kind, note)


def _file_id(file: Raw) -> str:
    if found := require_text(file["file_id"]):
        return found
    raise ValueError("a file without an id")


def _area(photo: Raw) -> int:
    return require_number(photo["width"]) * require_number(photo["height"])


def _is_still(sticker: Raw) -> bool:
    return not (sticker.get("is_animated") or sticker.get("is_video"))


def _size(file: Raw) -> int | None:
    size = file.get("file_size")
    return None if size is None else require_number(size)


def is_service(message: Raw) -> bool:
    """Return true for a service notice, which is set aside."""
    return not SERVICE_FIELDS.keys().isdisjoint(message)


def name_unreadable(message: Raw) -> str:
    """Return the note for a message of which nothing can be read, with the names of its fields."""
    names = sorted(name for name in message if name not in FRAME_FIELDS and re.fullmatch("[a-z_]{1,64}", name))
    what = f": {', '.join(name.replace('_', ' ') for name in names)}" if names else ""
    return f"[unsupported message{what}]"


def describe_content(content: Raw) -> str:
    """Describe the content of a message that is neither text nor file, as a person reads it; empty if there is none."""
    if _DESCRIBERS.keys().isdisjoint(content):
        return ""
    fields = ((find_object(content, name), describe) for name, describe in _DESCRIBERS.items() if name in content)
    return "\n".join(filter(None, (describe(field, content) for field, describe in fields if field)))


def describe_buttons(message: Raw) -> str:
    """Describe the buttons below a message, with the addresses that they open; empty if there are none."""
    markup = find_object(message, "reply_markup")
    rows = markup["inline_keyboard"] if markup else []
    buttons = (_format_button(button) for row in rows for button in require_objects(row))
    return "\n".join(f"[button {button}]" for button in buttons)


def _format_button(button: Raw) -> str:
    label, address = clean_note_name(require_text(button["text"])), require_text(button.get("url"))
    return f"{label} ({_one_line(address)})" if address else label


def describe_forward(message: Raw) -> str:
    """Name the author of a forwarded message; empty for any other message."""
    origin = find_object(message, "forward_origin")
    if origin is None:
        return ""
    person = find_object(origin, "sender_user")
    chat = find_object(origin, "sender_chat") or find_object(origin, "chat")
    name = person_name(person) if person else chat_name(chat) if chat else require_text(origin.get("sender_user_name"))
    names = [clean_note_name(each) for each in (name, require_text(origin.get("author_signature")))]
    return f"[forwarded from {', '.join(filter(None, names))}]" if any(names) else "[forwarded]"


def person_name(person: Raw) -> str:
    """Return the name of a user, or of a contact."""
    first, last = require_text(person.get("first_name")), require_text(person.get("last_name"))
    return f"{first} {last}" if last else first


def chat_name(chat: Raw) -> str:
    """Return the title of a group or channel, and the name of the person in any other chat."""
    return require_text(chat.get("title")) or person_name(chat)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _words(content: Raw, name: str) -> str:
    """Return a text with what its entities show."""
    entities = content.get(f"{name}_entities") or content.get("entities")
    return annotate_text(require_text(content.get(name)), require_objects(entities))


def _note(*parts: str) -> str:
    return f"[{', '.join(filter(None, parts))}]"


def _sticker(sticker: Raw, _: Raw) -> str:
    return "" if _is_still(sticker) else f"[sticker {require_text(sticker.get('emoji'))}".strip() + "]"


def _venue(venue: Raw, _: Raw) -> str:
    title, address = require_text(venue["title"]), require_text(venue["address"])
    return f"[venue {title}, {address}, {_coordinates(require_object(venue['location']))}]"


def _location(location: Raw, content: Raw) -> str:
    return "" if "venue" in content else f"[location {_coordinates(location)}]"  # a venue has a location, too


def _contact(contact: Raw, _: Raw) -> str:
    return f"[contact {person_name(contact)}, {require_text(contact['phone_number'])}]"


def _poll(poll: Raw, _: Raw) -> str:
    title = "quiz" if poll.get("type") == "quiz" else "poll"
    state = ", closed" if poll.get("is_closed") else ""
    options = []
    for option in require_objects(poll["options"]):
        votes = option.get("voter_count") or 0
        count = f" ({require_number(votes)} vote{'' if votes == 1 else 's'})" if votes else ""
        options.append(f"- {_words(option, 'text')}{count}")
    beside = [describe_content(media) or _address(media) for media in _poll_media(poll)]
    lines = [f"[{title} {_words(poll, 'question')}{state}]", _words(poll, "description"), *options]
    return "\n".join(filter(None, [*lines, _words(poll, "explanation"), *beside]))


def _address(media: Raw) -> str:
    link = find_object(media, "link")
    return _one_line(require_text(link["url"])) if link else ""


def _dice(dice: Raw, _: Raw) -> str:
    return f"[dice {require_text(dice['emoji'])} {require_number(dice['value'])}]"


def _checklist(checklist: Raw, _: Raw) -> str:
    tasks = [f"- {_box(task)} {_words(task, 'text')}" for task in require_objects(checklist["tasks"])]
    return "\n".join([f"[checklist {_words(checklist, 'title')}]", *tasks])


def _box(task: Raw) -> str:
    return "[x]" if task.get("completion_date") else "[ ]"


def _game(game: Raw, _: Raw) -> str:
    words = _words(game, "text") or require_text(game.get("description"))
    return _note(f"game {require_text(game['title'])}", words)


def _invoice(invoice: Raw, _: Raw) -> str:
    title, description = require_text(invoice["title"]), require_text(invoice["description"])
    return _note(f"invoice {title}", description, _amount(invoice))


def _payment(payment: Raw, _: Raw) -> str:
    return _note("payment", _amount(payment))


def _refund(payment: Raw, _: Raw) -> str:
    return _note("refunded payment", _amount(payment))


def _amount(payment: Raw) -> str:
    amount, currency = require_number(payment["total_amount"]), require_text(payment["currency"])
    return f"{amount} stars" if currency == "XTR" else f"{amount} of the smallest unit of {currency}"


def _paid_media(paid: Raw, _: Raw) -> str:
    return f"[paid media for {require_number(paid['star_count'])} stars]"


def _story(story: Raw, _: Raw) -> str:
    return f"[story of {clean_note_name(chat_name(require_object(story['chat'])))}]"


def _giveaway(giveaway: Raw, _: Raw) -> str:
    chats = ", ".join(clean_note_name(chat_name(chat)) for chat in require_objects(giveaway["chats"]))
    ends = datetime.fromtimestamp(require_number(giveaway["winners_selection_date"]), UTC)
    winners = f"{require_number(giveaway['winner_count'])} winners"
    return _note(f"giveaway of {chats}", *_prize(giveaway), winners, f"ends {ends:%Y-%m-%d %H:%M} UTC")


def _giveaway_winners(giveaway: Raw, _: Raw) -> str:
    chat = clean_note_name(chat_name(require_object(giveaway["chat"])))
    names = (clean_note_name(person_name(winner)) for winner in require_objects(giveaway["winners"]))
    return _note(f"winners of a giveaway of {chat}", *_prize(giveaway), ", ".join(names))


def _prize(giveaway: Raw) -> Iterator[str]:
    yield require_text(giveaway.get("prize_description"))
    if stars := giveaway.get("prize_star_count"):
        yield f"{require_number(stars)} stars"
    if months := giveaway.get("premium_subscription_month_count"):
        yield f"{require_number(months)} months of Telegram Premium"


def _gift(info: Raw, _: Raw) -> str:
    gift = require_object(info["gift"])
    emoji = require_text(require_object(gift["sticker"]).get("emoji"))
    return _note(f"gift {emoji}".strip(), f"{require_number(gift['star_count'])} stars", _words(info, "text"))


def _gift_upgrade(info: Raw, content: Raw) -> str:
    return _gift(info, content).replace("[gift", "[paid upgrade of a gift", 1)


def _unique_gift(info: Raw, _: Raw) -> str:
    gift = require_object(info["gift"])
    return f"[gift {require_text(gift['base_name'])} #{require_number(gift['number'])}]"


def _users_shared(shared: Raw, _: Raw) -> str:
    people = require_objects(shared["users"])
    names = (clean_note_name(person_name(person)) or str(require_number(person["user_id"])) for person in people)
    return f"[shared people {', '.join(names)}]"


def _chat_shared(shared: Raw, _: Raw) -> str:
    return f"[shared chat {clean_note_name(chat_name(shared)) or require_number(shared['chat_id'])}]"


def _web_app_data(data: Raw, _: Raw) -> str:
    return f"[data of the button {clean_note_name(require_text(data['button_text']))}]\n{require_text(data['data'])}"


def _passport(_: Raw, __: Raw) -> str:
    return "[documents of Telegram Passport, encrypted]"


_DESCRIBERS: Mapping[str, Callable[[Raw, Raw], str]] = MappingProxyType({
    "sticker": _sticker, "venue": _venue, "location": _location, "contact": _contact, "poll": _poll, "dice": _dice,
    "checklist": _checklist, "game": _game, "giveaway": _giveaway, "giveaway_winners": _giveaway_winners,
    "invoice": _invoice, "paid_media": _paid_media, "story": _story, "gift": _gift, "gift_upgrade_sent": _gift_upgrade,
    "unique_gift": _unique_gift, "successful_payment": _payment, "refunded_payment": _refund,
    "users_shared": _users_shared, "chat_shared": _chat_shared, "web_app_data": _web_app_data, "passport_data": _passport,
})  # fmt: skip
"""Fields that are described in words: each function gets the field and the message around it."""


def _coordinates(location: Raw) -> str:
    values = location["latitude"], location["longitude"]
    if not all(isinstance(value, int | float) for value in values):
        raise TypeError("coordinates that are not numbers")
    return f"{values[0]}, {values[1]}"
