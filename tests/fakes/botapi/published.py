"""The Bot API as it is published: what a request has to bring, and what an answer looks like.

Two judges, with the same question. `LibraryApi` takes the methods of python-telegram-bot, which are always there; it knows
names and what is required. `PublishedApi` reads a description of the whole API in JSON, as PaulSonOfLars/telegram-bot-api-spec
makes one of the official pages; it carries no licence, so it is nowhere here: the variable `BUBBOT_BOT_API_SPEC` names a copy.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import telegram

from tests.fakes.telegram_objects import WORDS

SPEC = os.environ.get("BUBBOT_BOT_API_SPEC", "")
"""The path of the description; empty if there is none."""
_LIBRARY_ONLY = re.compile("self|api_kwargs|.*_timeout")
_ARRAY = "Array of "
_PLAIN: Mapping[str, tuple[type, ...]] = {
    "String": (str,),
    "Integer": (int,),
    "Float": (int, float),
    "Boolean": (bool,),
}
_WORDS = (*WORDS, "")
_TIMES = re.compile("date|.*_date|unix_time|.*_timestamp")
_UNTOLD = frozenset({"new_chat_participant", "new_chat_member", "left_chat_participant"})
"""Fields of a message that the platform sends for bots of before 2016, and that the pages do not mention."""
DEEPEST = 6
"""Levels below which optional fields stay empty: messages are in messages."""


class Judge(Protocol):
    """Says what is wrong with a request."""

    def check_call(self, method: str, values: Mapping[str, str], files: Collection[str]) -> list[str]:
        """Return what is wrong with a request: its parameters as text, and the names of its files."""


class LibraryApi:
    """The methods of python-telegram-bot."""

    def check_call(self, method: str, values: Mapping[str, str], files: Collection[str]) -> list[str]:
        """See `Judge`."""
        known = _library_parameters(re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", method))
        if known is None:
            return [f"{method}: no such method"]
        given = {*values, *_direct(values, files)}
        unknown = [f"{method}: {name} is no parameter" for name in sorted(given - known.keys())]
        return unknown + [f"{method}: {name} is missing" for name in known if known[name] and name not in given]


@cache
def _library_parameters(name: str) -> dict[str, bool] | None:
    """Return the parameters of a method, and which are required; None if there is no such method."""
    method = getattr(telegram.Bot, name, None)
    if method is None:
        return None
    parameters = inspect.signature(method).parameters.values()
    return {each.name: each.default is each.empty for each in parameters if not _LIBRARY_ONLY.fullmatch(each.name)}


class PublishedApi:
    """The description: methods and types."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        self.methods: Mapping[str, Any] = description["methods"]
        self.types: Mapping[str, Any] = description["types"]
        self.version = str(description["version"])

    @classmethod
    def load(cls, path: str) -> PublishedApi:
        return cls(json.loads(Path(path).read_text(encoding="utf-8")))

    # Judging

    def check_call(self, method: str, values: Mapping[str, str], files: Collection[str]) -> list[str]:
        """See `Judge`."""
        if method not in self.methods:
            return [f"{method}: no such method"]
        fields = {field["name"]: field for field in self.methods[method].get("fields", ())}
        found = [
            f"{method}: {name} is no parameter" for name in sorted({*values, *_direct(values, files)} - fields.keys())
        ]
        for name, field in fields.items():
            if name in files:
                found += [] if "InputFile" in field["types"] else [f"{method}.{name}: a file"]
            elif name in values:
                found += self._check_text(field["types"], values[name], f"{method}.{name}")
            elif field["required"]:
                found.append(f"{method}: {name} is missing")
        return found

    def _check_text(self, kinds: Sequence[str], text: str, place: str) -> list[str]:
        """Check a parameter, which came as text: numbers and objects are JSON there."""
        if "String" in kinds:
            return []
        try:
            value = json.loads(text)
        except ValueError:
            return [f"{place}: {text[:40]!r} is no {' or '.join(kinds)}"]
        return self.check(kinds, value, place)

    def check_result(self, method: str, result: object) -> list[str]:
        """Return what is wrong with an answer."""
        return self.check(self.methods[method]["returns"], result, method)

    def check(self, kinds: Sequence[str], value: object, place: str) -> list[str]:
        """Return what is wrong with a value that has to be of one of these types: of the one it fits best."""
        return min((self._check_one(kind, value, place) for kind in kinds), key=len)

    def _check_one(self, kind: str, value: object, place: str) -> list[str]:
        if kind.startswith(_ARRAY):
            if not isinstance(value, list):
                return [f"{place}: {_shown(value)} is no {kind}"]
            inner = [kind.removeprefix(_ARRAY)]
            return [each for index, item in enumerate(value) for each in self.check(inner, item, f"{place}[{index}]")]
        if kind in _PLAIN:
            fits = isinstance(value, _PLAIN[kind]) and (kind == "Boolean" or not isinstance(value, bool))
            return [] if fits else [f"{place}: {_shown(value)} is no {kind}"]
        described = self.types[kind]
        if below := described.get("subtypes"):
            return self.check(below, value, place)
        if not isinstance(value, dict):
            return [f"{place}: {_shown(value)} is no {kind}"]
        return self._check_fields(described, value, place)

    def _check_fields(self, described: Mapping[str, Any], value: Mapping[str, Any], place: str) -> list[str]:
        fields = {field["name"]: field for field in described.get("fields", ())}
        found = [
            f"{place}: {described['name']} has no {name}" for name in sorted(value.keys() - fields.keys() - _UNTOLD)
        ]
        for name, field in fields.items():
            if name not in value:
                found += [f"{place}: {name} is missing"] if field["required"] else []
            elif (constant := _constant(field)) and value[name] != constant:
                found.append(f"{place}.{name}: {_shown(value[name])} is not {constant}")
            else:
                found += self.check(field["types"], value[name], f"{place}.{name}")
        return found

    # Making

    def make(self, kind: str, chance: random.Random, depth: int = 0, fixed: Mapping[str, Any] | None = None) -> Any:
        """Return a random value of a type; an object gets these fields, and some of its optional ones."""
        if kind.startswith(_ARRAY):
            return [self.make(kind.removeprefix(_ARRAY), chance, depth + 1) for _ in range(chance.choice((0, 1, 1, 2)))]
        if kind in _PLAIN:
            return _make_plain(kind, chance)
        described = self.types[kind]
        if below := described.get("subtypes"):
            plain = [each for each in below if each in _PLAIN]
            return self.make(chance.choice(plain if plain and depth > DEEPEST else below), chance, depth)
        made: dict[str, Any] = dict(fixed or {})
        fields = [field for field in described.get("fields", ()) if field["name"] not in made]
        optional = [field for field in fields if not field["required"]]
        count = 0 if depth > DEEPEST else min(chance.randrange(6 - min(depth, 5)), len(optional))
        for field in [*(field for field in fields if field["required"]), *chance.sample(optional, count)]:
            made[field["name"]] = self.make_field(field, chance, depth)
        return made

    def make_field(self, field: Mapping[str, Any], chance: random.Random, depth: int = 0) -> Any:
        """Return a random value of a described field."""
        name, kind = field["name"], chance.choice(field["types"])
        if constant := _constant(field):
            return constant
        if name in ("type", "status") and (words := re.findall(r'[“"]([a-z_]+)[”"]', field["description"])):
            return chance.choice(words)
        if kind == "Integer" and _TIMES.fullmatch(name):
            return 1_790_000_000 + chance.randrange(10**6)
        if kind == "Integer" and name in ("offset", "length", "position", "size"):
            return chance.randrange(12)
        if name == "file_id":
            return f"F{chance.randrange(10**6)}"
        value = self.make(kind, chance, depth + 1)
        if name == "photo" and value == []:  # it has at least one size
            return [self.make("PhotoSize", chance, depth + 1)]
        return value


def _direct(values: Mapping[str, str], files: Collection[str]) -> set[str]:
    """Return the files that are parameters themselves: others name `attach://FILE`."""
    return {name for name in files if not any(f"attach://{name}" in value for value in values.values())}


def _constant(field: Mapping[str, Any]) -> str:
    """Return the only value that the description allows for a field that tells types apart; empty if there is none."""
    found = re.search(r', (?:always [“"](\w+)[”"]|must be (\w+))$', field["description"])
    return (found[1] or found[2]) if found and field["name"] in ("type", "source", "status") else ""


def _make_plain(kind: str, chance: random.Random) -> object:
    match kind:
        case "Boolean":
            return True  # what is false is usually left out
        case "Integer":
            return chance.choice((chance.randrange(100), chance.randrange(2**31), chance.randrange(2**52)))
        case "Float":
            return chance.choice((0, round(chance.uniform(-90, 90), 6)))
    return chance.choice(_WORDS)


def _shown(value: object) -> str:
    return repr(value)[:60]


def make_judge() -> LibraryApi | PublishedApi:
    """Return the strictest judge there is."""
    return PublishedApi.load(SPEC) if SPEC else LibraryApi()
