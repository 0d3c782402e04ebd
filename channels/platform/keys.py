"""What the table of a channel may hold: each adapter names its keys, and one reader checks their values.

Values may be text, since those of the environment are. Errors name the key, the value where it is no secret, and the
fix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from bubbot.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One key as the reference describes it; `default` None where it is not set."""

    name: str
    type: str
    default: str | int | float | bool | None
    description: str


def check_keys(adapter: str, keys: Sequence[SettingKey], channel: str, names: Iterable[str]) -> None:
    """Raises `ConfigError` for the first name that is no key: a misspelt one must not pass for the default.

    `adapter` is what people call it, such as `Telegram`.
    """
    known = [key.name for key in keys]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "docs/reference/config.md lists the keys of a channel."
            raise ConfigError(f"[channels.{channel}] {name} is no key of a {adapter} channel: {hint}")


class TableReader:
    """Reads values of a table by the types of its keys. Raises `ConfigError`."""

    def __init__(self, keys: Sequence[SettingKey], channel: str, table: Mapping[str, Any]) -> None:
        self._defaults = {key.name: key.default for key in keys}
        self._channel = channel
        self._table = table

    def wrong(self, key: str, sentence: str) -> ConfigError:
        """The error for a key; the sentence begins with its verb and has no full stop."""
        return ConfigError(f"[channels.{self._channel}] {key} {sentence}.")

    def _value(self, key: str) -> Any:
        value = self._table.get(key)
        return self._defaults[key] if value is None or value == "" else value

    def text(self, key: str) -> str:
        """A text without the space around it; empty where it is not set."""
        value = self._value(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.wrong(key, f"has to be text, in quotes, and is {type(value).__name__}")
        return value.strip()

    def one_of(self, key: str, words: tuple[str, ...]) -> str:
        """One of these words."""
        value = self.text(key)
        if value not in words:
            raise self.wrong(key, f"is {value!r} and has to be one of {', '.join(words)}")
        return value

    def address(self, key: str, schemes: tuple[str, ...]) -> str:
        """A web address, or the empty text. It is not shown in errors: a proxy's has a password in it."""
        value = self.text(key)
        if not value:
            return ""
        try:
            parts = urlsplit(value)
            complete = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            complete = False
        if not complete or re.search(r"[\s{}?#]", value):
            raise self.wrong(key, f"has to be a whole web address such as {schemes[-1]}://host/path, without ? and #")
        return value

    def number(self, key: str, low: float, high: float, *, whole: bool = False) -> float:
        """A number between two others."""
        value = self._value(key)
        try:
            number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or not low <= number <= high or (whole and number != int(number)):
            raise self.wrong(key, f"is {value!r} and has to be a {'whole ' * whole}number from {low:g} to {high:g}")
        return number

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self._value(key)
        known = {True: True, False: False, "true": True, "false": False}
        word = value.strip().lower() if isinstance(value, str) else value
        if not isinstance(word, bool | str) or word not in known:
            raise self.wrong(key, f"is {value!r} and has to be true or false")
        return known[word]
