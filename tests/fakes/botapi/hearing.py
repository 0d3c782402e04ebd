"""Which bot hears what: privacy mode of groups, channels, other bots. After "Privacy mode" of the official pages."""

from __future__ import annotations

from tests.fakes.botapi.errors import Json
from tests.fakes.botapi.text import piece, words_of
from tests.fakes.botapi.world import Bot, Chat, World

SERVICE = frozenset(
    [
        "new_chat_members",
        "left_chat_member",
        "new_chat_title",
        "forum_topic_created",
        "forum_topic_closed",
        "forum_topic_reopened",
        "migrate_to_chat_id",
        "migrate_from_chat_id",
        "pinned_message",
        "group_chat_created",
    ]
)


def _entities(message: Json) -> list[tuple[Json, str]]:
    text = words_of(message)
    marked: list[Json] = message.get("entities") or message.get("caption_entities") or []
    return [(one, piece(text, one)) for one in marked]


def _commands(message: Json) -> list[str]:
    return [covered for one, covered in _entities(message) if one["type"] == "bot_command"]


def names(bot: Bot, message: Json) -> bool:
    """Whether a message names the bot: a mention, a text mention, or a command with its name."""
    own = f"@{bot.user.username}".lower()
    for one, covered in _entities(message):
        if one["type"] == "mention" and covered.lower() == own:
            return True
        if one["type"] == "text_mention" and one["user"]["id"] == bot.user.id:
            return True
        if one["type"] == "bot_command" and covered.lower().endswith(own):
            return True
    return False


def _answers(bot: Bot, chat: Chat, message: Json) -> bool:
    answered = message.get("reply_to_message", {})
    if "forum_topic_created" in answered:
        return False
    own: bool = answered.get("from", {}).get("id") == bot.user.id
    return own or bot.user.id in chat.addressed.get(answered.get("message_id", 0), set())


def _bare_command(bot: Bot, chat: Chat, bots: list[Bot], message: Json) -> bool:
    """A command without a name goes to the bot that spoke last, or to all while none has spoken."""
    if not any("@" not in command for command in _commands(message)):
        return False
    others = len(bots) > 1 and chat.last_bot is not None
    return not others or chat.last_bot == bot.user.id


def hears(world: World, bot: Bot, chat: Chat, message: Json) -> bool:
    """Whether a bot gets an update for a message in a chat it is in."""
    sender = message.get("from", {})
    if sender.get("id") == bot.user.id:
        return False
    if chat.kind in ("private", "channel"):
        return True
    service = not SERVICE.isdisjoint(message)
    named, answers = names(bot, message), _answers(bot, chat, message)
    if sender.get("is_bot") and not service:
        return _hears_bot(world, bot, chat, message, answers=answers)
    bare = _bare_command(bot, chat, world.bots_in(chat), message)
    addressed = named or answers or bare
    if addressed:
        chat.addressed.setdefault(message["message_id"], set()).add(bot.user.id)
    return addressed or service or not bot.privacy or chat.is_admin(bot.user.id)


def _hears_bot(world: World, bot: Bot, chat: Chat, message: Json, *, answers: bool) -> bool:
    own = f"@{bot.user.username}".lower()
    to_it = answers or any(command.lower().endswith(own) for command in _commands(message))
    speaker = next((one for one in world.bots.values() if one.user.id == message["from"]["id"]), None)
    if to_it:
        return bot.hears_bots or (speaker is not None and speaker.hears_bots)
    return bot.hears_bots and (not bot.privacy or chat.is_admin(bot.user.id))


def tell(world: World, chat: Chat, message: Json, *, edited: bool = False) -> None:
    """Gives a message, or its edit, to all bots that hear it."""
    kind = "channel_post" if chat.kind == "channel" else "message"
    for bot in world.bots_in(chat):
        if hears(world, bot, chat, message):
            bot.queue.push(f"edited_{kind}" if edited else kind, message)
    world.changed.set()
