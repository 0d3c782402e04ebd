"""Random objects of Telegram, made from the classes of python-telegram-bot: what the library knows is what can come."""

from __future__ import annotations

import datetime as dtm
import inspect
import random
import types
import typing
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import telegram

MOMENT = 1_790_000_000
WORDS = (
    "tea",
    "漢字",
    "👩‍👩‍👧 family",
    "a [b] <c>",
    "two\nlines",
    "/new",
    "@bubbot_bot",
    ",help",
    "\u202eabc",
    "x" * 200,
)
DEEPEST = 5
"""Levels below which optional fields stay empty: messages are in messages."""
_UNUSED = frozenset({"self", "api_kwargs", "args", "kwargs"})
_NOT_SENT = frozenset({"correct_option_id"})
"""Arguments that the library keeps for older programs and that exclude newer ones."""
_VARIED = frozenset({"type", "source", "status"})
"""Arguments by which a class of the Bot API says which of several it is."""


class Objects:
    """Makes objects as the Bot API sends them.

    Args:
        seed: the same one makes the same objects.
        fill: how many of the optional fields have a value, from 0 to 1.
    """

    def __init__(self, seed: int, fill: float = 0.3) -> None:
        self._random = random.Random(seed)
        self._fill = fill

    def make(self, kind: type[telegram.TelegramObject], depth: int = 0, **fixed: Any) -> telegram.TelegramObject:
        """Return an object of a class, or of one of its kinds."""
        kinds = variants(kind)
        chosen = self._random.choice(kinds) if kinds else kind
        values = dict(fixed)
        for name, (hint, is_required) in arguments(chosen).items():
            if name in values or name in _NOT_SENT:
                continue
            if is_required or (depth < DEEPEST and self._random.random() < self._fill / (depth + 1)):
                value = self.value(hint, name, depth)
                if value is not None:
                    values[name] = value
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._build(chosen, values, depth)

    def _build(
        self, kind: type[telegram.TelegramObject], values: dict[str, Any], depth: int
    ) -> telegram.TelegramObject:
        """Build the object, with the arguments that the library requires though they have a default."""
        try:
            return kind(**values)
        except TypeError as error:
            name = str(error).partition("`")[2].partition("`")[0]
            if name in values or name not in arguments(kind):
                raise
            return self._build(kind, {**values, name: self.value(arguments(kind)[name][0], name, depth)}, depth)

    def json(self, kind: type[telegram.TelegramObject], **fixed: Any) -> dict[str, Any]:
        """Return an object as JSON."""
        return self.make(kind, **fixed).to_dict()

    def value(self, hint: Any, name: str, depth: int = 0) -> Any:
        """Return a value of a type; `name` is that of its field."""
        origin, inner = typing.get_origin(hint), typing.get_args(hint)
        if origin in (types.UnionType, typing.Union):
            choices = [one for one in inner if one is not type(None)]
            return self.value(self._random.choice(choices), name, depth)
        if origin is not None and issubclass(origin, Sequence):
            return [self.value(inner[0], name, depth + 1) for _ in range(self._random.randint(1, 2))]
        if isinstance(hint, type) and issubclass(hint, telegram.TelegramObject):
            return self.make(hint, depth + 1)
        match hint:
            case dtm.datetime:
                return dtm.datetime.fromtimestamp(MOMENT + self._random.randrange(10**6), dtm.UTC)
            case dtm.timedelta:
                return dtm.timedelta(seconds=self._random.randrange(1, 10**5))
        return self._plain(hint, name)

    def _plain(self, hint: Any, name: str) -> Any:
        if hint is bool:
            return self._random.random() < 0.5
        if hint is int:
            return (
                self._random.randrange(1, 8)
                if name in ("offset", "length", "position")
                else self._random.randrange(1, 10**9)
            )
        if hint is float:
            return round(self._random.uniform(-90, 90), 4)
        return self._random.choice(WORDS)


def as_json(value: Any) -> Any:
    """Return the value of a field as the Bot API writes it."""
    if isinstance(value, telegram.TelegramObject):
        return value.to_dict()
    if isinstance(value, dtm.datetime):
        return int(value.timestamp())
    if isinstance(value, dtm.timedelta):
        return int(value.total_seconds())
    return [as_json(item) for item in value] if isinstance(value, list) else value


def _arguments(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Return the type of each argument of a class, and whether it is required."""
    hints = typing.get_type_hints(kind.__init__, {**vars(telegram), "dtm": dtm, "Sequence": Sequence})
    parameters = inspect.signature(kind.__init__).parameters.values()
    return {
        each.name: (hints.get(each.name, str), each.default is each.empty)
        for each in parameters
        if each.name not in _UNUSED
    }


def _variants(kind: Any) -> tuple[type[telegram.TelegramObject], ...]:
    """Return the kinds of a class that the Bot API tells apart by a field; none for any other class."""
    below = [each for each in kind.__subclasses__() if each.__module__.startswith("telegram.")]
    if not below or (_VARIED.isdisjoint(_arguments(kind)) and _arguments(kind)):
        return ()
    return tuple(leaf for each in below for leaf in (_variants(each) or (each,)))


arguments: Callable[[Any], dict[str, tuple[Any, bool]]] = cache(_arguments)
variants: Callable[[Any], tuple[type[telegram.TelegramObject], ...]] = cache(_variants)
