"""From entries to chat messages that any provider takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from bubbot.tape.entry import JsonObject, Kind, TapeEntry, canonical, encode, thaw
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import moment
from bubbot.views.attachments import IMAGE_BYTES, is_attached, limited, shown_images, worded
from bubbot.views.pairing import PairedCall, paired
from bubbot.views.quoting import INDENT, indented, label, people_text, quoted, shown_name

ANCHOR_NAME_LIMIT = 200
"""Characters of an anchor's name in its line."""
OWN = "own"
"""The key that says of a text part that the bot wrote it, not the person."""
_PAIRED = (Kind.TOOL_CALL, Kind.TOOL_RESULT)
NO_TEXT = "[no text]"
"""Stands for a message of blanks, which providers refuse."""
CONTINUES_MESSAGE = "[The conversation goes on]"
"""Stands where a provider wants a user message and nobody wrote one."""


@dataclass(frozen=True, slots=True)
class MessageStyle:
    """How messages are written.

    `stamps` is the zone of the time put before each user message, None for none; `first_assistant`: whether the
    conversation may open with an assistant message; `bootstrap`: whether `session/start` is worth a line.
    `images`: how many of the newest images are shown as images, 0 for a model that cannot see; `image_bytes`: how
    large they may be together.
    """

    stamps: tzinfo | None = None
    first_assistant: bool = True
    bootstrap: bool = True
    images: int = 0
    image_bytes: int = IMAGE_BYTES


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """A chat message and the ids of the entries it was made of. `text` is the message as canonical JSON in bytes:
    written once, for it is needed in every step."""

    message: JsonObject
    ids: tuple[int, ...]
    text: bytes = field(init=False, repr=False, compare=False)
    nested: bool = field(init=False, repr=False, compare=False)
    """Whether the message holds more than texts."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", canonical(self.message).encode())
        object.__setattr__(self, "nested", any(type(value) is not str for value in self.message.values()))


def anchor_line(entry: TapeEntry) -> str:
    """How the anchor that opens the window reads."""
    state = indented(encode(entry.payload.get("state") or {}))
    return f"[Anchor created: {label(entry.name or '', ANCHOR_NAME_LIMIT)}]: {state}"


def select(entries: Sequence[TapeEntry], style: MessageStyle) -> tuple[ContextMessage, ...]:
    """The messages that entries stand for.

    `message` payloads as they are, a correction where it was made, tool calls with their results in call order;
    a call without a result gets one that says so, a result without a call is left out. Hidden, empty and
    unreadable messages are left out.
    """
    entries, stamps = tuple(entries), style.stamps
    if not entries:
        return ()
    kept = entries[0].made  # goes with the window
    known: _SelectedMessages | None = kept.get(("selected", stamps))
    found = known.continued(entries, stamps) if known else None
    found = kept["selected", stamps] = found or _selected(entries, stamps)
    return _seen(found.shown, style)


@dataclass(frozen=True, slots=True)
class _SelectedMessages:
    """The messages of entries, kept with the first one: `after` are the others. Most windows go on with plain messages,
    which change nothing of what stands before them."""

    after: tuple[TapeEntry, ...]
    hidden: frozenset[int]
    shown: tuple[ContextMessage, ...]

    def continued(self, entries: tuple[TapeEntry, ...], stamps: tzinfo | None) -> _SelectedMessages | None:
        """The messages of these entries, if they are the same ones and plain messages; None where all is to be read."""
        size = 1 + len(self.after)
        rest = entries[size:]
        if entries[1:size] != self.after or any(entry.kind in _PAIRED or correction_of(entry) for entry in rest):
            return None
        said = [
            entry for entry in rest if entry.kind == Kind.MESSAGE and entry.id not in self.hidden and is_shown(entry)
        ]
        more = [one for entry in said if not entry.erased for one in _said(entry, stamps)]
        return _SelectedMessages(entries[1:], self.hidden, (*self.shown, *more))


def _selected(entries: tuple[TapeEntry, ...], stamps: tzinfo | None) -> _SelectedMessages:
    corrections = {entry.id: data for entry in entries if (data := correction_of(entry))}
    hidden = frozenset(
        [data["corrects"] for data in corrections.values() if data.get("hide")]
        + [entry.id for entry in entries if not is_shown(entry)]
    )
    exchanges = paired(entries, hidden)
    shown: list[ContextMessage] = []
    for entry in entries:
        if entry.id in hidden or entry.erased:
            continue
        if entry.kind == Kind.TOOL_CALL:
            shown += _exchange(entry, exchanges[entry.id])
        elif entry.kind == Kind.MESSAGE:
            shown += _said(entry, stamps)
        elif entry.id in corrections:
            shown += _correction(entry, corrections[entry.id])
    return _SelectedMessages(entries[1:], hidden, tuple(shown))


def _said(entry: TapeEntry, stamps: tzinfo | None) -> list[ContextMessage]:
    """As `_message`, kept with the entry."""
    found: list[ContextMessage] | None = entry.made.get(("message", stamps))
    if found is None:
        found = entry.made["message", stamps] = _message(entry, stamps)
    return found


def _seen(shown: tuple[ContextMessage, ...], style: MessageStyle) -> tuple[ContextMessage, ...]:
    """The newest images as references that become images, all others in words."""
    if all(type(one.message["content"]) is str for one in shown):
        return shown
    messages = [one.message for one in shown]
    places = shown_images(messages, style.images, style.image_bytes) if style.images else frozenset()
    seen: list[ContextMessage] = []
    for place, one in enumerate(shown):
        message = limited(one.message, place, places, sees=style.images > 0)
        seen.append(one if message is one.message else ContextMessage(message, one.ids))
    return tuple(seen)


def is_shown(entry: TapeEntry) -> bool:
    """Return false for an entry whose meta keeps it out of every context."""
    return entry.meta.get("context") is not False


def correction_of(entry: TapeEntry) -> JsonObject | None:
    """What a correction says; None for other entries, and where it names no entry (imports)."""
    if entry.kind != Kind.EVENT or entry.name != CORRECTION:
        return None
    data = entry.payload.get("data")
    return data if isinstance(data, Mapping) and type(data.get("corrects")) is int else None


def opened(
    opening: TapeEntry | None, shown: tuple[ContextMessage, ...], style: MessageStyle
) -> tuple[ContextMessage, ...]:
    """Puts the opening anchor's line in front: as an assistant message, or within the first user message."""
    if opening is None:
        if style.first_assistant or not shown or shown[0].message["role"] == "user":
            return shown
        return (ContextMessage({"role": "user", "content": CONTINUES_MESSAGE}, ()), *shown)
    line = anchor_line(opening)
    if style.first_assistant:
        return (ContextMessage({"role": "assistant", "content": line}, (opening.id,)), *shown)
    first = shown[0] if shown else None
    if first is None or first.message["role"] != "user" or not isinstance(first.message["content"], str):
        return (ContextMessage({"role": "user", "content": line}, (opening.id,)), *shown)
    joined = {**first.message, "content": f"{line}\n\n{first.message['content']}"}
    return (ContextMessage(joined, (opening.id, *first.ids)), *shown[1:])


def answerable(shown: tuple[ContextMessage, ...]) -> tuple[ContextMessage, ...]:
    """Put a user message at the end if the last word is the assistant's, or if there is none."""
    if shown and shown[-1].message["role"] != "assistant":
        return shown
    return (*shown, ContextMessage({"role": "user", "content": CONTINUES_MESSAGE}, ()))


def _message(entry: TapeEntry, stamps: tzinfo | None) -> list[ContextMessage]:
    payload = entry.payload
    role, content = payload.get("role"), _content(payload.get("content"))
    is_ours = role == "system" or entry.meta.get("origin") == "system"
    if role == "system":
        role, content = "user", f"[system] {content}" if content and isinstance(content, str) else content
    if role not in ("user", "assistant"):
        return []
    if isinstance(content, str) and not content.strip():
        content, is_ours = NO_TEXT if content and role == "user" else None, True
    if not content:
        return []
    if role == "user":
        content = _plain(content) if is_ours else _peoples(content)
        content = _headed(_head(entry, stamps), content, INDENT if entry.meta.get("group") else "")
    elif isinstance(content, list):
        content = _plain(content)
    kept = {key: thaw(value) for key, value in payload.items() if key not in ("role", "content", "tool_calls")}
    return [ContextMessage({"role": role, "content": content, **kept}, (entry.id,))]


def _head(entry: TapeEntry, stamps: tzinfo | None) -> str:
    """When a message was written, by whom where several people write, and what it replies to."""
    at = moment(entry.date) if stamps is not None else None
    head = f"[{at.astimezone(stamps):%Y-%m-%d %H:%M}] " if at is not None else ""
    if entry.meta.get("group") and isinstance(sender := entry.meta.get("sender"), Mapping):
        head += f"{_name(sender)}: "
    if isinstance(quote := entry.meta.get("quote"), Mapping) and isinstance(sender := quote.get("sender"), Mapping):
        who = "you" if quote.get("own") else _name(sender)
        head += f"[in reply to {who}: {quoted(str(quote.get('text', '')))}] "
    return head


def _name(sender: Mapping[str, Any]) -> str:
    """A shown name on one line, with the id: the name proves nothing."""
    return f"{shown_name(str(sender.get('name', '')))} (#{shown_name(str(sender.get('id', '')))})".strip()


def _peoples(content: str | list[Any]) -> str | list[Any]:
    """Write what people said as words of theirs; what the bot wrote between them stays."""
    if isinstance(content, str):
        return people_text(content)
    said = [
        {**part, "text": people_text(part["text"])} if part["type"] == "text" and not part.get(OWN) else part
        for part in content
    ]
    return _plain(said)


def _plain(content: str | list[Any]) -> str | list[Any]:
    """Write the content as providers take it: files in words, no marks of ours at the parts, texts alone as one."""
    if isinstance(content, str):
        return content
    parts = [{key: value for key, value in part.items() if key != OWN} for part in content]
    return worded(parts) if any(is_attached(part) for part in parts) else parts


def _headed(head: str, content: str | list[Any], indent: str) -> str | list[Any]:
    """The content with its head before the first text. `indent` stands before the further lines, so that among
    several people none of them looks like another one's."""
    if isinstance(content, str):
        return f"{head}{indented(content, indent)}" if indent else f"{head}{content}"
    opening = [{"type": "text", "text": head.rstrip()}] if head else []
    if not indent:
        return [*opening, *content]
    if head and content[0]["type"] == "text":  # one part: a speaker's words begin no part of their own
        opening, content = [{"type": "text", "text": head + indented(content[0]["text"], indent)}], content[1:]
    further = [
        {**part, "text": indent + indented(part["text"], indent)} if part["type"] == "text" else part
        for part in content
    ]
    return [*opening, *further]


def _content(given: Any) -> str | list[Any] | None:
    """Text, or the content parts that can be read; None where there is neither."""
    if isinstance(given, str):
        return given
    if not isinstance(given, tuple):
        return None
    parts = [part for part in given if isinstance(part, Mapping) and isinstance(part.get("type"), str)]
    return [thaw(part) for part in parts if part["type"] != "text" or _filled(part.get("text"))]


def _filled(text: Any) -> bool:
    return isinstance(text, str) and bool(text.strip())


def _correction(entry: TapeEntry, data: JsonObject) -> list[ContextMessage]:
    """The correction with its author, if the tape names one."""
    if data.get("hide") or not isinstance(data.get("content"), str):
        return []
    author = f", by {_name(sender)}" if isinstance(sender := entry.meta.get("sender"), Mapping) else ""
    content = f"[corrects #{data['corrects']}{author}] {people_text(data['content'], INDENT)}"
    return [ContextMessage({"role": "user", "content": content}, (entry.id,))]


def _exchange(entry: TapeEntry, calls: Sequence[PairedCall]) -> list[ContextMessage]:
    """The assistant message with its calls, then one tool message for each call, in order."""
    if not calls:
        return []
    known, made = entry.made.get("exchange", ((), ()))
    if known != calls:
        made = _made_of(entry, calls)
        entry.made["exchange"] = calls, made
    return list(made)


def _made_of(entry: TapeEntry, calls: Sequence[PairedCall]) -> list[ContextMessage]:
    content = entry.payload.get("content")
    text = content if isinstance(content, str) else ""
    replay = {"replay": thaw(entry.payload["replay"])} if "replay" in entry.payload else {}
    asked = {"role": "assistant", "content": text, "tool_calls": [call.as_json() for call in calls], **replay}
    shown = [ContextMessage(asked, (entry.id,))]
    for call in calls:
        ids = (call.source,) if call.source else ()
        shown.append(ContextMessage({"role": "tool", "tool_call_id": call.id, "content": call.result}, ids))
    return shown
