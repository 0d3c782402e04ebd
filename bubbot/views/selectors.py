"""From entries to chat messages that any provider takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from bubbot.tape.entry import JsonObject, Kind, TapeEntry, encode, thaw
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import moment
from bubbot.texts import OUTCOME_UNKNOWN


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


@dataclass
class _Exchange:
    """A `tool_call` entry and the results found for its calls so far."""

    entry: TapeEntry
    results: dict[str, tuple[str, int]] = field(default_factory=dict)

    def call_ids(self) -> list[str]:
        return [_call_id(call, place) for place, call in enumerate(_calls(self.entry))]


def anchor_line(entry: TapeEntry) -> str:
    """How the anchor that opens the window reads."""
    return f"[Anchor created: {entry.name}]: {encode(entry.payload.get('state') or {})}"


def select(entries: Sequence[TapeEntry], style: Style) -> tuple[Shown, ...]:
    """The messages that entries stand for.

    `message` payloads as they are, a correction where it was made, tool calls with their results in call order;
    a call without a result gets one that says so, a result without a call is left out. Hidden, empty and
    unreadable messages are left out.
    """
    hidden = {
        entry.payload["data"].get("corrects")
        for entry in entries
        if entry.name == CORRECTION and entry.payload["data"].get("hide")
    }
    exchanges = _pair(entries)
    shown: list[Shown] = []
    for entry in entries:
        if entry.id in hidden or entry.erased:
            continue
        if entry.kind == Kind.TOOL_CALL:
            shown += _exchange(exchanges[entry.id])
        elif entry.kind == Kind.MESSAGE:
            shown += _message(entry, style)
        elif entry.name == CORRECTION:
            shown += _correction(entry)
    return tuple(shown)


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
    role, content = payload.get("role"), payload.get("content")
    if not content or not isinstance(content, (str, tuple)):
        return []
    if role == "system":
        role, content = "user", f"[system] {content}" if isinstance(content, str) else content
    if role not in ("user", "assistant"):
        return []
    if role == "user" and style.stamps is not None and isinstance(content, str):
        at = moment(entry.date)
        if at is not None:
            content = f"[{at.astimezone(style.stamps):%Y-%m-%d %H:%M}] {content}"
    kept = {key: thaw(value) for key, value in payload.items() if key not in ("role", "content", "tool_calls")}
    return [Shown({"role": role, "content": thaw(content), **kept}, (entry.id,))]


def _correction(entry: TapeEntry) -> list[Shown]:
    data = entry.payload["data"]
    if data.get("hide") or not isinstance(data.get("content"), str):
        return []
    return [Shown({"role": "user", "content": f"[corrects #{data.get('corrects')}] {data['content']}"}, (entry.id,))]


def _exchange(exchange: _Exchange) -> list[Shown]:
    """The assistant message with its calls, then one tool message for each call, in order."""
    calls = [_call(call, place) for place, call in enumerate(_calls(exchange.entry))]
    if not calls:
        return []
    content = exchange.entry.payload.get("content")
    text = content if isinstance(content, str) else ""
    shown = [Shown({"role": "assistant", "content": text, "tool_calls": calls}, (exchange.entry.id,))]
    for call in calls:
        text, source = exchange.results.get(call["id"], (OUTCOME_UNKNOWN, 0))
        ids = (source,) if source else ()
        shown.append(Shown({"role": "tool", "tool_call_id": call["id"], "content": text}, ids))
    return shown


def _pair(entries: Iterable[TapeEntry]) -> dict[int, _Exchange]:
    """Every `tool_call` entry with its results: by id to the newest call of that id that lacks one, and
    results without an id (imported tapes) by position to the call entry just before them."""
    exchanges: dict[int, _Exchange] = {}
    for entry in entries:
        if entry.kind == Kind.TOOL_CALL:
            exchanges[entry.id] = _Exchange(entry)
        elif entry.kind == Kind.TOOL_RESULT:
            for place, result in enumerate(_items(entry, "results")):
                _assign(exchanges, place, result, entry.id)
    return exchanges


def _assign(exchanges: dict[int, _Exchange], place: int, result: Any, source: int) -> None:
    given = result.get("tool_call_id") if hasattr(result, "get") else None
    newest_first = list(reversed(exchanges.values()))
    if given is None:
        call_ids = newest_first[0].call_ids() if newest_first else []
        if place < len(call_ids):
            newest_first[0].results.setdefault(call_ids[place], (_text(result), source))
        return
    for exchange in newest_first:
        if given in exchange.call_ids() and given not in exchange.results:
            exchange.results[given] = (_text(result), source)
            return


def _text(result: Any) -> str:
    content = result.get("content", "") if hasattr(result, "get") else result
    return content if isinstance(content, str) else encode({"content": content})


def _items(entry: TapeEntry, name: str) -> tuple[Any, ...]:
    found = entry.payload.get(name)
    return found if isinstance(found, tuple) else ()


def _calls(entry: TapeEntry) -> tuple[Any, ...]:
    return tuple(call for call in _items(entry, "calls") if hasattr(call, "get"))


def _call_id(call: Any, place: int) -> str:
    found = call.get("id")
    return found if isinstance(found, str) and found else f"call_{place}"


def _call(call: Any, place: int) -> dict[str, Any]:
    function = call.get("function")
    name = function.get("name") if hasattr(function, "get") else None
    arguments = function.get("arguments") if hasattr(function, "get") else None
    return {
        "id": _call_id(call, place),
        "type": "function",
        "function": {
            "name": name if isinstance(name, str) and name else "unknown",
            "arguments": arguments if isinstance(arguments, str) else encode(arguments or {}),
        },
    }
