"""Tool calls with their results, in the form that any provider takes."""

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
    """A call as a provider takes it, and its result. `id` is unique in its context; `source` the result's entry."""

    id: str
    name: str
    arguments: str
    result: str = OUTCOME_UNKNOWN
    source: int = 0

    def as_json(self) -> dict[str, Any]:
        """The call in the assistant's message."""
        return {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": self.arguments}}


def paired(entries: Iterable[TapeEntry], hidden: AbstractSet[int]) -> dict[int, list[PairedCall]]:
    """The calls of every `tool_call` entry with their results, by entry id.

    A result goes to the newest entry with a call of its id that lacks one, to the first such call there; a
    result without an id (imported tapes) by its position to the call entry just before it. Results in `hidden`
    entries are replaced by a word that says so.
    """
    table = _CallTable()
    for entry in entries:
        if entry.kind == Kind.TOOL_CALL:
            table.ask(entry)
        elif entry.kind == Kind.TOOL_RESULT:
            for place, result in enumerate(_items(entry, "results")):
                table.answer(place, result, HIDDEN_RESULT if entry.id in hidden else _text(result), entry.id)
    return table.exchanges


class _CallTable:
    """The calls met so far; `_waiting` those without a result, by the id on the tape, newest entry last."""

    def __init__(self) -> None:
        self.exchanges: dict[int, list[PairedCall]] = {}
        self._newest: list[PairedCall] = []
        self._waiting: dict[str, list[list[PairedCall]]] = {}
        self._ids: set[str] = set()

    def ask(self, entry: TapeEntry) -> None:
        own: dict[str, list[PairedCall]] = {}
        self._newest = self.exchanges[entry.id] = []
        if (asked := entry.made.get("calls")) is None:
            asked = entry.made["calls"] = _asked(entry)
        for place, given, name, arguments in asked:
            made = PairedCall(self._unique(given, f"{entry.id}_{place}"), name, arguments)
            self._newest.append(made)
            if _is_id(given):
                own.setdefault(given, []).append(made)
        for given, calls in own.items():
            self._waiting.setdefault(given, []).append(calls)

    def answer(self, place: int, result: Any, text: str, source: int) -> None:
        given = result.get("tool_call_id") if isinstance(result, Mapping) else None
        found = self._by_id(given) if _is_id(given) else self._by_place(place)
        if found is not None:
            found.result, found.source = text, source

    def _by_id(self, given: str) -> PairedCall | None:
        groups = self._waiting.get(given, [])
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

    def _unique(self, given: Any, place: str) -> str:
        """The id on the tape; where there is none, or a context has it already, one made of its place."""
        found = given if _is_id(given) else f"call_{place}"
        while found in self._ids:
            found = f"{found}_{place}"
        self._ids.add(found)
        return found


def _asked(entry: TapeEntry) -> list[tuple[int, Any, str, str]]:
    """The calls of an entry: place, id, name, arguments."""
    calls = enumerate(_items(entry, "calls"))
    return [(place, call.get("id"), *_function(call)) for place, call in calls if isinstance(call, Mapping)]


def _is_id(given: Any) -> TypeGuard[str]:
    return isinstance(given, str) and bool(given)


def _items(entry: TapeEntry, name: str) -> tuple[Any, ...]:
    found = entry.payload.get(name)
    return found if isinstance(found, tuple) else ()


def _function(call: Mapping[str, Any]) -> tuple[str, str]:
    """Name and arguments as providers take them: a plain word, and the text of a JSON object."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        return "unknown", "{}"
    name = function.get("name")
    plain = _NO_NAME.sub("_", name)[:_NAME_LENGTH] if isinstance(name, str) else ""
    return plain or "unknown", _arguments(function.get("arguments"))


def _arguments(given: Any) -> str:
    if isinstance(given, Mapping):
        return encode(given)
    if not isinstance(given, str) or not given.strip():
        return "{}"
    try:
        fits = isinstance(json.loads(given), dict)
    except (ValueError, RecursionError):
        fits = False
    return given if fits else encode({"not_json": given})


def _text(result: Any) -> str:
    content = result.get("content", result) if isinstance(result, Mapping) else result
    if isinstance(content, str):
        return content
    return encode(content) if isinstance(content, Mapping) else encode({"content": content})
