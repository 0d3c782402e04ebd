"""The methods that put a message into a chat."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.fakes.botapi import messages
from tests.fakes.botapi.errors import Json, bad
from tests.fakes.botapi.hearing import tell
from tests.fakes.botapi.messages import FOLDERS, poll_options, post, said
from tests.fakes.botapi.params import Params, Upload
from tests.fakes.botapi.reach import Place, Site, body_caption, body_text, count, keyboard, place, writable
from tests.fakes.botapi.world import Bot, File

Method = Callable[[Site, Bot, Params], object]
UPLOAD_LIMIT, PHOTO_LIMIT = 50 * 1024 * 1024, 10 * 1024 * 1024
ACTIONS = frozenset(
    [
        "typing",
        "upload_photo",
        "record_video",
        "upload_video",
        "record_voice",
        "upload_voice",
        "record_audio",
        "upload_audio",
        "upload_document",
        "choose_sticker",
        "find_location",
        "record_video_note",
        "upload_video_note",
    ]
)


def put(site: Site, bot: Bot, where: Place, content: Json) -> Json:
    """A message of a bot: into the chat, into the transcript, and to the other bots that hear it."""
    chat = where.chat
    sender = None if chat.kind == "channel" else bot.user
    message = post(site.world, chat, sender, content, reply_to=where.reply_to, quote=where.quote, thread=where.thread)
    said(site.world, chat, message)
    if chat.kind == "channel":
        site.world.changed.set()  # the bot that posts gets no update of it, and channels have one bot here
    else:
        tell(site.world, chat, message)
    return message


def send_message(site: Site, bot: Bot, params: Params) -> Json:
    where = place(site, bot, params)
    content = {**body_text(params), **keyboard(params)}
    count(site, bot, where.chat)
    return put(site, bot, where, content)


def _upload(site: Site, kind: str, upload: Upload) -> File:
    if not upload.content:
        raise bad("file must be non-empty")
    if kind == "photo" and len(upload.content) > PHOTO_LIMIT:
        raise bad("file is too big")
    return site.world.add_file(FOLDERS[kind], upload.content, name=upload.name, mime=upload.mime)


def _given_file(site: Site, kind: str, params: Params, name: str, value: str) -> File:
    """A file that was uploaded under the name, is attached under another, or is on the platform already."""
    attached = value.removeprefix("attach://") if value.startswith("attach://") else name
    if attached in params.files:
        return _upload(site, kind, params.files[attached])
    if not value:
        raise bad(f"there is no {kind.replace('_', ' ')} in the request")
    if value.startswith(("http://", "https://")):
        raise bad("failed to get HTTP URL content")
    if value not in site.world.files:
        raise bad("wrong file identifier/HTTP URL specified")
    return site.world.files[value]


def send_file(kind: str) -> Method:
    """The method that sends a file of a kind."""

    def send(site: Site, bot: Bot, params: Params) -> Json:
        where = place(site, bot, params)
        file = _given_file(site, kind, params, kind, params.text(kind))
        content: Json = {kind: messages.media(site.world, kind, file)}
        if kind not in ("sticker", "video_note"):
            content |= body_caption(params)
        content |= keyboard(params)
        count(site, bot, where.chat)
        return put(site, bot, where, content)

    return send


def send_media_group(site: Site, bot: Bot, params: Params) -> list[Json]:
    where = place(site, bot, params)
    given = params.decoded("media", list, "can't parse media JSON object")
    if not given or not 2 <= len(given) <= 10:
        raise bad("group send failed: an album has 2 to 10 items")
    album = str(13_500_000_000_000_000 + next(site.world.numbers))
    contents = []
    for one in given:
        kind = one.get("type", "")
        if kind not in ("photo", "video", "document", "audio"):
            raise bad("can't parse InputMedia: type must be one of photo, video, document, audio")
        file = _given_file(site, kind, params, "", str(one.get("media", "")))
        own = {key: value if isinstance(value, str) else json.dumps(value) for key, value in one.items()}
        shown = {kind: messages.media(site.world, kind, file), **body_caption(Params(own))}
        contents.append({"media_group_id": album, **shown})
    for _ in contents:
        count(site, bot, where.chat)
    return [put(site, bot, where, content) for content in contents]


def send_location(site: Site, bot: Bot, params: Params) -> Json:
    where = place(site, bot, params)
    try:
        latitude, longitude = float(params.text("latitude")), float(params.text("longitude"))
    except ValueError as error:
        raise bad("wrong latitude or longitude specified") from error
    count(site, bot, where.chat)
    return put(site, bot, where, {"location": {"latitude": latitude, "longitude": longitude}})


def send_poll(site: Site, bot: Bot, params: Params) -> Json:
    where = place(site, bot, params)
    options = params.decoded("options", list, "can't parse options JSON object") or []
    texts = [one if isinstance(one, str) else str(one.get("text", "")) for one in options]
    if not params.text("question") or not 1 <= len(texts) <= 12 or not all(texts):
        raise bad("poll must have a question and 1 to 12 options")
    poll: Json = {"id": str(5_100_000_000 + next(site.world.numbers)), "question": params.text("question")}
    poll |= {"options": poll_options(texts), "total_voter_count": 0, "is_closed": False, "is_anonymous": True}
    poll |= {"type": "regular", "allows_multiple_answers": False, "allows_revoting": True, "members_only": False}
    count(site, bot, where.chat)
    return put(site, bot, where, {"poll": poll})


def send_chat_action(site: Site, bot: Bot, params: Params) -> bool:
    chat = writable(site, bot, params)
    if params.text("action").lower() not in ACTIONS:
        raise bad("wrong parameter action in request")
    thread = params.number("message_thread_id")
    if thread and thread not in chat.topics:
        raise bad("message thread not found")
    site.world.happened(chat, "typing", bot.user.name(), f"is {_doing(params.text('action').lower())}…", thread or None)
    return True


def _doing(action: str) -> str:
    verb, _, what = action.partition("_")
    verb = verb.removesuffix("e") if verb != "typing" else "typ"
    verb = f"{verb.removesuffix('ing')}ing" if verb != "typ" else "typing"
    return f"{verb} a {what.replace('_', ' ')}" if what else verb


SENDING: dict[str, Method] = {
    "sendmessage": send_message,
    "sendmediagroup": send_media_group,
    "sendlocation": send_location,
    "sendpoll": send_poll,
    "sendchataction": send_chat_action,
    **{f"send{kind.replace('_', '')}": send_file(kind) for kind in FOLDERS},
}
