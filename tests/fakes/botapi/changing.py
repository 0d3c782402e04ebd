"""The methods that change or answer what is there: edits, deletions, reactions, buttons."""

from __future__ import annotations

from tests.fakes.botapi import messages
from tests.fakes.botapi.errors import Json, Refusal, bad
from tests.fakes.botapi.hearing import tell
from tests.fakes.botapi.params import Params
from tests.fakes.botapi.reach import Site, body_caption, body_text, count, find_chat, keyboard, writable
from tests.fakes.botapi.sending import Method
from tests.fakes.botapi.world import Bot, Chat

TWO_DAYS = 48 * 3600
NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same as a current content "
    "and reply markup of the message"
)
EMOJI = frozenset(
    [
        "👍",
        "👎",
        "❤",
        "🔥",
        "🥰",
        "👏",
        "😁",
        "🤔",
        "🤯",
        "😱",
        "🤬",
        "😢",
        "🎉",
        "🤩",
        "🤮",
        "💩",
        "🙏",
        "👌",
        "🕊",
        "🤡",
        "🥱",
        "🥴",
        "😍",
        "🐳",
        "💯",
        "🤣",
        "⚡",
        "🏆",
        "💔",
        "🤨",
        "😐",
        "👀",
        "🤝",
        "✍",
        "🫡",
        "👨\u200d💻",
        "🆒",
    ]
)
"""Those of the platform's list that bots use; others are refused, as it refuses what is not on its list."""


def _own(site: Site, bot: Bot, params: Params) -> tuple[Chat, Json]:
    """The bot's message that is to be edited."""
    chat = writable(site, bot, params)
    number = params.number("message_id")
    if number <= 0:
        raise bad("message identifier is not specified")
    message = chat.messages.get(number)
    if message is None:
        raise bad("message to edit not found")
    if message.get("from", {}).get("id") != bot.user.id and chat.kind != "channel":
        raise bad("message can't be edited")
    return chat, message


def _edited(site: Site, bot: Bot, chat: Chat, old: Json, new: Json) -> Json:
    if {**old, "edit_date": 0} == {**new, "edit_date": 0}:
        raise bad(NOT_MODIFIED)
    count(site, bot, chat)
    changed = {**new, "edit_date": site.world.clock.seconds()}
    chat.messages[old["message_id"]] = changed
    chat.edits[old["message_id"]] = chat.edits.get(old["message_id"], 0) + 1
    site.world.happened(chat, "edit", messages.speaker(changed), messages.described(changed), old["message_id"])
    tell(site.world, chat, changed, edited=True)
    return changed


def _without(message: Json, *fields: str) -> Json:
    return {key: value for key, value in message.items() if key not in fields}


def edit_text(site: Site, bot: Bot, params: Params) -> Json:
    chat, old = _own(site, bot, params)
    content = {**body_text(params), **keyboard(params)}
    if "text" not in old:
        raise bad("there is no text in the message to edit")
    return _edited(site, bot, chat, old, {**_without(old, "text", "entities", "reply_markup"), **content})


def edit_caption(site: Site, bot: Bot, params: Params) -> Json:
    chat, old = _own(site, bot, params)
    content = {**body_caption(params), **keyboard(params)}
    if "text" in old:
        raise bad("there is no caption in the message to edit")
    return _edited(site, bot, chat, old, {**_without(old, "caption", "caption_entities", "reply_markup"), **content})


def edit_markup(site: Site, bot: Bot, params: Params) -> Json:
    chat, old = _own(site, bot, params)
    return _edited(site, bot, chat, old, {**_without(old, "reply_markup"), **keyboard(params)})


def _delete(site: Site, bot: Bot, chat: Chat, number: int) -> None:
    message = chat.messages.get(number)
    if message is None:
        raise bad("message to delete not found")
    mine = message.get("from", {}).get("id") == bot.user.id
    admin = chat.is_admin(bot.user.id)
    old = site.world.clock.seconds() - message["date"] > TWO_DAYS
    if not (admin or (not old and (mine or chat.kind == "private"))):
        raise bad("message can't be deleted for everyone" if mine else "message can't be deleted")
    del chat.messages[number]
    site.world.happened(chat, "delete", messages.speaker(message), messages.described(message), number)


def delete_message(site: Site, bot: Bot, params: Params) -> bool:
    chat = writable(site, bot, params)
    number = params.number("message_id")
    if number <= 0:
        raise bad("message identifier is not specified")
    _delete(site, bot, chat, number)
    return True


def delete_messages(site: Site, bot: Bot, params: Params) -> bool:
    """Those of the list that can be deleted; the others are passed over."""
    chat = writable(site, bot, params)
    numbers = params.decoded("message_ids", list, "can't parse message identifiers JSON object")
    if not numbers or len(numbers) > 100:
        raise bad("too many message identifiers specified" if numbers else "message identifiers are not specified")
    for number in numbers:
        if int(number) in chat.messages:
            _delete(site, bot, chat, int(number))
    return True


def set_reaction(site: Site, bot: Bot, params: Params) -> bool:
    chat = writable(site, bot, params)
    message = chat.messages.get(params.number("message_id"))
    if message is None:
        raise bad("message to react not found")
    given = params.decoded("reaction", list, "can't parse reaction types JSON object") or []
    if len(given) > 1:
        raise bad("REACTIONS_TOO_MANY")
    if any(one.get("type") != "emoji" or one.get("emoji", "").strip("\ufe0f") not in EMOJI for one in given):
        raise bad("REACTION_INVALID")
    chat.reactions[message["message_id"], bot.user.id] = given
    shown = given[0]["emoji"] if given else "took the reaction back"
    site.world.happened(chat, "reaction", bot.user.name(), shown, message["message_id"])
    return True


def answer_callback(site: Site, bot: Bot, params: Params) -> bool:
    query = params.text("callback_query_id")
    asked = site.world.callbacks.pop(query, None)
    if asked is None or site.world.clock.now() - asked.time > 60:
        raise bad("query is too old and response timeout expired or query ID is invalid")
    if len(params.text("text")) > 200:
        raise bad("MESSAGE_TOO_LONG")
    if text := params.text("text"):
        site.world.happened(asked.chat, "service", bot.user.name(), f"to {asked.person.name()} alone: {text}")
    return True


def leave_chat(site: Site, bot: Bot, params: Params) -> bool:
    """The bot goes out of a group."""
    chat = find_chat(site, bot, params)
    if chat.member(bot.user.id) in ("left", "kicked"):
        raise Refusal(403, "Forbidden: bot is not a member of the group chat")
    chat.status[bot.user.id] = "left"
    site.world.changed.set()
    return True


CHANGING: dict[str, Method] = {
    "editmessagetext": edit_text,
    "editmessagecaption": edit_caption,
    "editmessagereplymarkup": edit_markup,
    "deletemessage": delete_message,
    "deletemessages": delete_messages,
    "setmessagereaction": set_reaction,
    "answercallbackquery": answer_callback,
    "leavechat": leave_chat,
}
