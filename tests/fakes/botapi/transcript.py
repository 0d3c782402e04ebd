"""What people in each chat saw, as text for pages and for failing tests."""

from __future__ import annotations

import time
from collections.abc import Iterable

from tests.fakes.botapi.world import Chat, Happening, World


def transcript(world: World, *, times: bool = True) -> str:
    """All chats, in the order in which they began. Edits in a row are one line with the last text.

    Typing is shown once until the one who types has spoken. Times are UTC; without them two runs can be compared.
    """
    parts = []
    for key in dict.fromkeys(one.chat for one in world.happenings):
        chat = world.chats[key]
        lines = _lines(chat, [one for one in world.happenings if one.chat == key], times=times)
        parts.append("\n".join([f"== {chat.name()} ({_kind(chat)}) ==", *lines]))
    return "\n\n".join(parts) + "\n" if parts else ""


def _kind(chat: Chat) -> str:
    return "forum" if chat.is_forum else chat.kind


def _lines(chat: Chat, happenings: Iterable[Happening], *, times: bool) -> list[str]:
    shown: list[tuple[Happening, str]] = []
    edits = 0
    typing: set[str] = set()
    for one in happenings:
        if one.what == "typing" and one.who in typing:
            continue
        same = bool(shown) and one.what == shown[-1][0].what == "edit" and one.message == shown[-1][0].message
        edits = edits + 1 if same else 1
        if same:
            shown.pop()
        typing = typing | {one.who} if one.what == "typing" else typing - {one.who}
        shown.append((one, _line(one, edits) + _topic(chat, one)))
    stamp = "%H:%M:%S " if times else ""
    return [time.strftime(stamp, time.gmtime(one.time)) + line.replace("\n", "\n    ") for one, line in shown]


def _topic(chat: Chat, one: Happening) -> str:
    thread = chat.messages.get(one.message or 0, {}).get("message_thread_id")
    topic = chat.topics.get(thread) if thread and one.what in ("message", "edit") else None
    return f"  [in {topic.name}]" if topic else ""


def _line(one: Happening, edits: int) -> str:
    match one.what:
        case "message":
            return f"{one.who} #{one.message}: {one.text}"
        case "edit":
            count = f" {edits} times" if edits > 1 else ""
            return f"{one.who} edited #{one.message}{count}: {one.text}"
        case "delete":
            return f"#{one.message} of {one.who} was deleted: {one.text}"
        case "reaction":
            return f"{one.who} to #{one.message}: {one.text}"
        case "typing":
            return f"{one.who} {one.text}"
    return f"-- {one.who}: {one.text}"
