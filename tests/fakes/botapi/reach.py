"""Whether a bot may speak in a chat, and what its message answers."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.fakes.botapi.errors import Json, bad, forbidden
from tests.fakes.botapi.limits import FloodControl
from tests.fakes.botapi.markup import parse
from tests.fakes.botapi.params import Params
from tests.fakes.botapi.text import CAPTION_LIMIT, TEXT_LIMIT, check, find, strip, units, words_of
from tests.fakes.botapi.world import Bot, Chat, World


@dataclass(frozen=True, slots=True)
class Site:
    """What the methods work on."""

    world: World
    flood: FloodControl


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message goes: the chat, the topic, and what it answers."""

    chat: Chat
    thread: int | None = None
    reply_to: Json | None = None
    quote: Json | None = None
    extras: Json = field(default_factory=dict)


def find_chat(site: Site, bot: Bot, params: Params) -> Chat:
    """The chat of `chat_id`, where the bot is or was."""
    given = params.text("chat_id")
    if not given:
        raise bad("chat_id is empty")
    chat = site.world.find_chat(bot, given)
    if chat is None or (chat.kind != "private" and not chat.username and bot.user.id not in chat.status):
        raise bad("chat not found")
    return chat


def writable(site: Site, bot: Bot, params: Params) -> Chat:
    """The chat of `chat_id`, if the bot may write there now."""
    chat = find_chat(site, bot, params)
    if chat.upgraded_to is not None:
        raise bad("group chat was upgraded to a supergroup chat", migrate_to_chat_id=chat.upgraded_to)
    if chat.blocked:
        raise forbidden("bot was blocked by the user")
    status = chat.member(bot.user.id)
    if chat.kind != "private" and status == "kicked":
        raise forbidden(f"bot was kicked from the {chat.kind} chat")
    if chat.kind != "private" and status == "left":
        raise forbidden(f"bot is not a member of the {chat.kind} chat")
    if chat.kind == "channel" and not chat.is_admin(bot.user.id):
        raise bad("need administrator rights in the channel chat")
    return chat


def count(site: Site, bot: Bot, chat: Chat) -> None:
    """Flood control for one message or edit."""
    site.flood.check(bot.user.id, chat.id, site.world.clock.now(), group=chat.kind in ("group", "supergroup"))


def place(site: Site, bot: Bot, params: Params) -> Place:
    """Reads where a message goes."""
    chat = writable(site, bot, params)
    thread = params.number("message_thread_id") or None
    if thread is not None:
        if thread not in chat.topics:
            raise bad("message thread not found")
        if chat.topics[thread].closed and not chat.is_admin(bot.user.id):
            raise bad("TOPIC_CLOSED")
    reply_to, quote = _answered(chat, params)
    if thread is None and reply_to is not None and reply_to.get("is_topic_message"):
        thread = reply_to["message_thread_id"]
    return Place(chat, thread, reply_to, quote)


def _answered(chat: Chat, params: Params) -> tuple[Json | None, Json | None]:
    given = params.decoded("reply_parameters", dict, "can't parse reply parameters JSON object") or {}
    number = given.get("message_id") or params.number("reply_to_message_id")
    if not number:
        return None, None
    lenient = given.get("allow_sending_without_reply") is True or params.flag("allow_sending_without_reply")
    answered = chat.messages.get(int(number)) if str(number).lstrip("-").isdigit() else None
    if answered is None:
        if lenient:
            return None, None
        raise bad("message to be replied not found")
    quoted = given.get("quote")
    if not quoted:
        return answered, None
    words, _ = parse(quoted, given.get("quote_parse_mode") or "")
    whole = words_of(answered)
    if words not in whole:
        raise bad("QUOTE_TEXT_INVALID")
    return answered, {"text": words, "position": units(whole[: whole.index(words)]), "is_manual": True}


def marked_text(params: Params, name: str, entities: str, mode: str = "parse_mode") -> tuple[str, list[Json]]:
    """A text with its entities, from a parse mode or from a list (the list wins), stripped and with what is found."""
    given = params.decoded(entities, list, "can't parse entities: can't parse entities JSON object")
    if given:
        text, marked = params.text(name), check(params.text(name), given)
    else:
        text, marked = parse(params.text(name), params.text(mode))
    text, marked = strip(text, marked)
    return text, find(text, marked)


def body_text(params: Params) -> Json:
    """`text` and its entities, as the fields of a message."""
    if not params.text("text"):
        raise bad("message text is empty")
    text, entities = marked_text(params, "text", "entities")
    if not text:
        raise bad("text must be non-empty")
    if units(text) > TEXT_LIMIT:
        raise bad("message is too long")
    return {"text": text, **({"entities": entities} if entities else {})}


def body_caption(params: Params) -> Json:
    """`caption` and its entities; nothing where there is none."""
    caption, entities = marked_text(params, "caption", "caption_entities")
    if units(caption) > CAPTION_LIMIT:
        raise bad("message caption is too long")
    shown: Json = {"caption": caption} if caption else {}
    return {**shown, "caption_entities": entities} if caption and entities else shown


def keyboard(params: Params) -> Json:
    """`reply_markup`: an inline keyboard stays with the message, other kinds are taken and not shown."""
    markup = params.decoded("reply_markup", dict, "object expected as reply markup")
    if not markup or "inline_keyboard" not in markup:
        return {}
    for row in markup["inline_keyboard"]:
        for button in row:
            if not isinstance(button, dict) or not button.get("text"):
                raise bad("can't parse inline keyboard button: text buttons are unallowed in the inline keyboard")
            if len(str(button.get("callback_data", "")).encode()) > 64:
                raise bad("BUTTON_DATA_INVALID")
    return {"reply_markup": {"inline_keyboard": markup["inline_keyboard"]}}
