"""Tool calls with their results in a form that all providers accept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeGuard

from bubbot.tape.entry import Kind, TapeEntry, encode
from bubbot.texts import OUTCOME_UNKNOWN

HIDDEN_RESULT = "[this result was removed]"

_NAME_LENGTH = 64
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")


@dataclass
class PairedCall:
    """A call in a provider's form with its result. `id` is unique in its context; `source` is the result's entry."""

    id: str
    name: str
    arguments: str
    result: str = OUTCOME_UNKNOWN
    source: int = 0

    def as_json(self) -> dict[str, Any]:
        """Build the call for the assistant's message."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def pair_calls(entries: Iterable[TapeEntry], hidden: AbstractSet[int]) -> dict[int, list[PairedCall]]:
    """Match the calls of every `tool_call` entry with their results; return them by entry id.

    A result belongs to the first open call of its id in the newest entry that has one; a result without an id (imported
    tapes) to the call at its position in the entry before it. A note replaces results in `hidden` entries.
    """
    table = _CallTable()
    for entry in entries:
        if entry.kind == Kind.TOOL_CALL:
            table.ask(entry)
        elif entry.kind == Kind.TOOL_RESULT:
            for place, result in enumerate(_items(entry, "results")):
                table.answer(place, result, HIDDEN_RESULT if entry.id in hidden else _text(result), entry.id)
    return table.exchanges


def count_results(entries: Iterable[TapeEntry]) -> int:
    return sum(len(_items(entry, "results")) for entry in entries if entry.kind == Kind.TOOL_RESULT)


class _CallTable:
    """The calls so far; `_waiting` has those without a result by their id on the tape, newest entry last."""

    def __init__(self) -> None:
        self.exchanges: dict[int, list[PairedCall]] = {}
        self._newest: list[PairedCall] = []
        self._waiting: dict[str, list[list[PairedCall]]] = {}
        self._ids: set[str] = set()

    def ask(self, entry: TapeEntry) -> None:
        own: dict[str, list[PairedCall]] = {}
        self._newest = self.exchanges[entry.id] = []
        if (calls_read := entry.cache.get("calls")) is None:
            calls_read = entry.cache["calls"] = _parse_calls(entry)
        for place, call_id, name, arguments in calls_read:
            call = PairedCall(self._unique_id(call_id, f"{entry.id}_{place}"), name, arguments)
            self._newest.append(call)
            if _is_id(call_id):
                own.setdefault(call_id, []).append(call)
        for call_id, calls in own.items():
            self._waiting.setdefault(call_id, []).append(calls)

    def answer(self, place: int, result: Any, text: str, source: int) -> None:
        call_id = result.get("tool_call_id") if isinstance(result, Mapping) else None
        call = self._by_id(call_id) if _is_id(call_id) else self._by_place(place)
        if call is not None:
            call.result, call.source = text, source

    def _by_id(self, call_id: str) -> PairedCall | None:
        groups = self._waiting.get(call_id, [])
        while groups:
            lacking = [call for call in groups[-1] if not call.source]
            if lacking:
                return lacking[0]
            groups.pop()
        return None

    def _by_place(self, place: int) -> PairedCall | None:
        lacking = [call for call in self._newest if not call.source]
        if place < len(self._newest) and self._newest[place] in lacking:
            return self._newest[place]
        return lacking[0] if lacking else None

    def _unique_id(self, call_id: Any, place: str) -> str:
        """Return the id on the tape, or one made from its position if it is missing or used already."""
        unique_id = call_id if _is_id(call_id) else f"call_{place}"
        while unique_id in self._ids:
            unique_id = f"{unique_id}_{place}"
        self._ids.add(unique_id)
        return unique_id


def _parse_calls(entry: TapeEntry) -> list[tuple[int, Any, str, str]]:
    """Return the calls of an entry: position, id, name, arguments."""
    calls = enumerate(_items(entry, "calls"))
    return [(place, call.get("id"), *_function(call)) for place, call in calls if isinstance(call, Mapping)]


def _is_id(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value)


def _items(entry: TapeEntry, name: str) -> tuple[Any, ...]:
    value = entry.payload.get(name)
    return value if isinstance(value, tuple) else ()


def _function(call: Mapping[str, Any]) -> tuple[str, str]:
    """Return name and arguments as providers accept them: a plain word and a JSON object as text."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        return "unknown", "{}"
    name = function.get("name")
    plain = _NO_NAME.sub("_", name)[:_NAME_LENGTH] if isinstance(name, str) else ""
    return plain or "unknown", _arguments(function.get("arguments"))


def _arguments(arguments: Any) -> str:
    if isinstance(arguments, Mapping):
        return encode(arguments)
    if not isinstance(arguments, str) or not arguments.strip():
        return "{}"
    try:
        fits = isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        fits = False
    return arguments if fits else encode({"not_json": arguments})


def _text(result: Any) -> str:
    content = result.get("content", result) if isinstance(result, Mapping) else result
    if isinstance(content, str):
        return content
    return encode(content) if isinstance(content, Mapping) else encode({"content": content})
