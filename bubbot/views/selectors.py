"""From entries to chat messages that any provider takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from bubbot.tape.entry import JsonObject, Kind, TapeEntry, encode, thaw
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import moment
from bubbot.views.pairing import PairedCall, paired

NO_TEXT = "[no text]"
"""Stands for a message of blanks, which providers refuse."""


@dataclass(frozen=True, slots=True)
class Style:
    """How messages are written.

    `stamps` is the zone of the time put before each user message, None for none; `first_assistant`: whether the
    conversation may open with an assistant message; `bootstrap`: whether `session/start` is worth a line.
    """

    stamps: tzinfo | None = None
    first_assistant: bool = True
    bootstrap: bool = True


@dataclass(frozen=True, slots=True)
class Shown:
    """A chat message and the ids of the entries it was made of."""

    message: JsonObject
    ids: tuple[int, ...]


def anchor_line(entry: TapeEntry) -> str:
    """How the anchor that opens the window reads."""
    return f"[Anchor created: {entry.name}]: {encode(entry.payload.get('state') or {})}"


def select(entries: Sequence[TapeEntry], style: Style) -> tuple[Shown, ...]:
    """The messages that entries stand for.

    `message` payloads as they are, a correction where it was made, tool calls with their results in call order;
    a call without a result gets one that says so, a result without a call is left out. Hidden, empty and
    unreadable messages are left out.
    """
    hidden = {data["corrects"] for data in map(correction_of, entries) if data and data.get("hide")}
    exchanges = paired(entries, hidden)
    shown: list[Shown] = []
    for entry in entries:
        if entry.id in hidden or entry.erased:
            continue
        if entry.kind == Kind.TOOL_CALL:
            shown += _exchange(entry, exchanges[entry.id])
        elif entry.kind == Kind.MESSAGE:
            shown += _message(entry, style)
        elif correction := correction_of(entry):
            shown += _correction(entry.id, correction)
    return tuple(shown)


def correction_of(entry: TapeEntry) -> JsonObject | None:
    """What a correction says; None for other entries, and where it names no entry (imports)."""
    if entry.kind != Kind.EVENT or entry.name != CORRECTION:
        return None
    data = entry.payload.get("data")
    return data if isinstance(data, Mapping) and type(data.get("corrects")) is int else None


def opened(opening: TapeEntry | None, shown: tuple[Shown, ...], style: Style) -> tuple[Shown, ...]:
    """Puts the opening anchor's line in front: as an assistant message, or within the first user message."""
    if opening is None:
        if style.first_assistant or not shown or shown[0].message["role"] == "user":
            return shown
        return (Shown({"role": "user", "content": "[The conversation goes on]"}, ()), *shown)
    line = anchor_line(opening)
    if style.first_assistant:
        return (Shown({"role": "assistant", "content": line}, (opening.id,)), *shown)
    first = shown[0] if shown else None
    if first is None or first.message["role"] != "user" or not isinstance(first.message["content"], str):
        return (Shown({"role": "user", "content": line}, (opening.id,)), *shown)
    joined = {**first.message, "content": f"{line}\n\n{first.message['content']}"}
    return (Shown(joined, (opening.id, *first.ids)), *shown[1:])


def _message(entry: TapeEntry, style: Style) -> list[Shown]:
    payload = entry.payload
    role, content = payload.get("role"), _content(payload.get("content"))
    if role == "system":
        role, content = "user", f"[system] {content}" if content and isinstance(content, str) else content
    if role not in ("user", "assistant"):
        return []
    if isinstance(content, str) and not content.strip():
        content = NO_TEXT if content and role == "user" else None
    if not content:
        return []
    if role == "user" and style.stamps is not None and isinstance(content, str):
        at = moment(entry.date)
        if at is not None:
            content = f"[{at.astimezone(style.stamps):%Y-%m-%d %H:%M}] {content}"
    kept = {key: thaw(value) for key, value in payload.items() if key not in ("role", "content", "tool_calls")}
    return [Shown({"role": role, "content": content, **kept}, (entry.id,))]


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


def _correction(entry_id: int, data: JsonObject) -> list[Shown]:
    if data.get("hide") or not isinstance(data.get("content"), str):
        return []
    return [Shown({"role": "user", "content": f"[corrects #{data['corrects']}] {data['content']}"}, (entry_id,))]


def _exchange(entry: TapeEntry, calls: Sequence[PairedCall]) -> list[Shown]:
    """The assistant message with its calls, then one tool message for each call, in order."""
    if not calls:
        return []
    content = entry.payload.get("content")
    text = content if isinstance(content, str) else ""
    replay = {"replay": thaw(entry.payload["replay"])} if "replay" in entry.payload else {}
    asked = {"role": "assistant", "content": text, "tool_calls": [call.as_json() for call in calls], **replay}
    shown = [Shown(asked, (entry.id,))]
    for call in calls:
        ids = (call.source,) if call.source else ()
        shown.append(Shown({"role": "tool", "tool_call_id": call.id, "content": call.result}, ids))
    return shown
