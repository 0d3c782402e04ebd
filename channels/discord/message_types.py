"""Discord's types of messages and the fields of a message: what each is read as, or why it is not read."""

from __future__ import annotations

from collections.abc import Mapping

DEFAULT_MESSAGE, REPLY_MESSAGE, SLASH_COMMAND_MESSAGE, CONTEXT_MENU_MESSAGE = 0, 19, 20, 23
USER_MESSAGE_TYPES = frozenset({DEFAULT_MESSAGE, REPLY_MESSAGE, SLASH_COMMAND_MESSAGE, CONTEXT_MENU_MESSAGE})
"""Types of messages that people and programs write."""

_CHANGE = "Discord reports a change of the group chat or of the server"
_MEMBERS = "Discord reports who comes, goes or is called"
_BOOST = "Discord reports a payment for the server"
_DISCOVERY = "Discord tells the administrators of a server about its listing"
_STAGE = "Discord reports what happens on a stage, which people hear"
_ALARM = "Discord tells the moderators of a server about its safety"
SET_ASIDE_TYPES: Mapping[int, str] = {
    1: _MEMBERS, 2: _MEMBERS, 3: _MEMBERS, 7: _MEMBERS,
    4: _CHANGE, 5: _CHANGE, 12: _CHANGE, 63: _CHANGE,
    6: "the pinned message came before",
    8: _BOOST, 9: _BOOST, 10: _BOOST, 11: _BOOST, 25: _BOOST, 32: _BOOST, 44: _BOOST,
    13: "Discord reports what happens in a voice channel", 55: "Discord reports what happens in a voice channel",
    14: _DISCOVERY, 15: _DISCOVERY, 16: _DISCOVERY, 17: _DISCOVERY, 22: _DISCOVERY,
    18: "the first message of the thread comes in the thread",
    21: "it repeats the message that the thread was opened on",
    24: "it is for moderators: a rule blocked the message",
    26: "Discord offers a person something to buy",
    27: _STAGE, 28: _STAGE, 29: _STAGE, 30: _STAGE, 31: _STAGE,
    36: _ALARM, 37: _ALARM, 38: _ALARM, 39: _ALARM,
    46: "Discord reports the end of a poll, which everybody sees below it",
}  # fmt: skip
"""Types of messages that Discord writes itself, and nobody says, with the reason why they are not read."""

CONTENT_FIELDS = frozenset({
    "activity", "application", "attachments", "call", "components", "content", "embeds", "interaction", "interaction_metadata",
    "message_reference", "message_snapshots", "poll", "purchase_notification", "referenced_message",
    "role_subscription_data", "shared_client_theme", "sticker_items", "stickers",
})  # fmt: skip
"""Fields that show something to people; each is read into text, files or the quote."""
_ABOUT = "it says who wrote the message, when and where"
_OWN_EVENT = "its changes are events of their own"
OTHER_FIELDS: Mapping[str, str] = {
    "id": _ABOUT, "channel_id": _ABOUT, "guild_id": _ABOUT, "author": _ABOUT, "member": _ABOUT, "timestamp": _ABOUT,
    "edited_timestamp": _ABOUT, "type": _ABOUT, "channel_type": _ABOUT, "webhook_id": _ABOUT, "application_id": _ABOUT,
    "lobby_member": _ABOUT,
    "mentions": "names for the ids in the text", "mention_roles": "names for the ids in the text",
    "mention_channels": "names for the ids in the text", "mention_everyone": "the text says it",
    "resolved": "names for the ids in a menu",
    "flags": "how clients show the message", "tts": "how clients show the message", "nonce": "a mark of the sender's client",
    "position": "where it stands in its thread",
    "reactions": _OWN_EVENT, "pinned": _OWN_EVENT, "pinned_at": _OWN_EVENT, "thread": _OWN_EVENT,
}  # fmt: skip
"""Fields that show nothing that was said, with the reason."""
