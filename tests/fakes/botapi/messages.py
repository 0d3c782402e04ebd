"""Building and keeping messages, as bots see them: from people and from bots alike."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fakes.botapi.errors import Json
from tests.fakes.botapi.text import words_of
from tests.fakes.botapi.world import Chat, File, User, World

PHOTO, DOCUMENT, VOICE, AUDIO, VIDEO, NOTE, STICKER = (
    "photo", "document", "voice", "audio", "video", "video_note", "sticker",
)  # fmt: skip
FOLDERS = {
    PHOTO: "photos", DOCUMENT: "documents", VOICE: "voice", AUDIO: "music", VIDEO: "videos", NOTE: "video_notes",
    STICKER: "stickers", "animation": "animations",
}  # fmt: skip
MIMES = {
    VOICE: "audio/ogg", AUDIO: "audio/mpeg", VIDEO: "video/mp4", "animation": "video/mp4",
    DOCUMENT: "application/octet-stream",
}  # fmt: skip


def _file(file: File) -> Json:
    return {"file_id": file.id, "file_unique_id": file.unique_id, "file_size": file.size}


def media(world: World, kind: str, file: File) -> object:
    """The value of a message's field for a file: an object, or for a photo its sizes, the largest last."""
    shown = _file(file)
    match kind:
        case "photo":
            small = world.add_file("thumbnails", file.content[:1024])
            return [{**_file(small), "width": 90, "height": 67}, {**shown, "width": 1280, "height": 960}]
        case "voice":
            return {**shown, "duration": 3, "mime_type": file.mime or MIMES[VOICE]}
        case "video_note":
            return {**shown, "duration": 3, "length": 240}
        case "sticker":
            flags = {"type": "regular", "is_animated": False, "is_video": False}
            return {**shown, "width": 512, "height": 512, **flags, "emoji": "👍", "set_name": "Animals"}
    named = {**shown, "mime_type": file.mime or MIMES.get(kind, MIMES[DOCUMENT])}
    if file.name:
        named["file_name"] = file.name
    if kind == "audio":
        return {**named, "duration": 180, "title": "Song", "performer": "Band"}
    if kind in ("video", "animation"):
        return {**named, "width": 640, "height": 480, "duration": 3}
    return named


def without_reply(message: Json) -> Json:
    """As it stands within another message: it shows no further reply."""
    return {key: value for key, value in message.items() if key not in ("reply_to_message", "quote", "external_reply")}


def post(
    world: World,
    chat: Chat,
    sender: User | None,
    content: Json,
    *,
    reply_to: Json | None = None,
    quote: Json | None = None,
    thread: int | None = None,
) -> Json:
    """Puts a message into a chat and returns it as bots see it. Without a sender the chat itself speaks."""
    message: Json = {"message_id": world.next_message(chat)}
    if sender is not None:
        message["from"] = sender.json()
    else:
        message["sender_chat"] = chat.json()
    message |= {"chat": chat.json(), "date": world.clock.seconds()}
    if thread is not None:
        message |= {"message_thread_id": thread, "is_topic_message": True}
        reply_to = reply_to or chat.messages.get(thread)
    if reply_to is not None:
        message["reply_to_message"] = without_reply(reply_to)
    if quote is not None:
        message["quote"] = quote
    message |= content
    chat.messages[message["message_id"]] = message
    if sender is not None and sender.is_bot:
        chat.last_bot = sender.id
    return message


def described(message: Json) -> str:
    """A message in one line of words, for the transcript."""
    words = [f"[{kind}{_name(message[kind])}]" for kind in FOLDERS if kind in message]
    words += [f"[{kind}]" for kind in ("location", "contact") if kind in message]
    if "poll" in message:
        words.append(f"[poll: {message['poll']['question']}]")
    words.append(words_of(message))
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    words += [f"[{' | '.join(key['text'] for key in row)}]" for row in rows]
    return " ".join(word for word in words if word)


def _name(value: object) -> str:
    name = value.get("file_name", "") if isinstance(value, dict) else ""
    return f" {name}" if name else ""


def speaker(message: Json) -> str:
    """Who is shown above a message."""
    sender: Json = message.get("from") or message.get("sender_chat") or {}
    shown = [sender.get("first_name", sender.get("title", "?")), sender.get("last_name", "")]
    return " ".join(part for part in shown if part)


def said(world: World, chat: Chat, message: Json) -> None:
    """Writes a message into the transcript."""
    answered = message.get("reply_to_message", {})
    words = described(message)
    if answered and "forum_topic_created" not in answered:
        words = f"(to {speaker(answered)}: {_short((message.get('quote') or {}).get('text') or described(answered))}) {words}"
    world.happened(chat, "message", speaker(message), words, message["message_id"])


def _short(text: str) -> str:
    line = " ".join(text.split())
    return f"“{line[:40]}…”" if len(line) > 41 else f"“{line}”"


def poll_options(options: Sequence[str]) -> list[Json]:
    """The options of a new poll."""
    return [{"persistent_id": f"{place}", "text": text, "voter_count": 0} for place, text in enumerate(options)]
