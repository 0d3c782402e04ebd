"""Setting keys of a channel: each adapter declares its keys, and one reader checks their values.

Values may be text because environment variables are. Errors name the key, the fix, and the value if it is not a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bubbot.errors import ConfigError
from bubbot.ports.text import did_you_mean


@dataclass(frozen=True, slots=True)
class SettingKey:
    """One key as the reference describes it.

    Attributes:
        name: the key as the operator writes it.
        type: the values it takes, in words.
        default: the value if the key is not set; None if it has no default.
        description: a sentence for the reference.
    """

    name: str
    type: str
    default: str | int | float | bool | None
    description: str


def check_keys(adapter: str, keys: Sequence[SettingKey], channel: str, names: Iterable[str]) -> None:
    """Reject names that are not keys, so that a misspelt key does not silently mean the default.

    Args:
        adapter: the platform's name for people, such as `Telegram`.
        keys: the keys that the adapter declares.
        channel: the configured name of the channel, for the error.
        names: the keys in the channel's table.

    Raises:
        ConfigError: for the first unknown name, with the closest key.
    """
    key_names = [key.name for key in keys]
    for name in names:
        if name not in key_names:
            hint = did_you_mean(name, key_names) or "docs/reference/config.md lists the keys of a channel."
            raise ConfigError(f"[channels.{channel}] {name} is no key of a {adapter} channel: {hint}")


class TableReader:
    """A reader that checks the values of a channel's table by type. Its methods raise `ConfigError`."""

    def __init__(self, keys: Sequence[SettingKey], channel: str, table: Mapping[str, Any]) -> None:
        self._defaults = {key.name: key.default for key in keys}
        self._channel = channel
        self._table = table

    def make_error(self, key: str, sentence: str) -> ConfigError:
        """Build the error for a key; `sentence` begins with its verb and has no full stop."""
        return ConfigError(f"[channels.{self._channel}] {key} {sentence}.")

    def _value(self, key: str) -> Any:
        value = self._table.get(key)
        return self._defaults[key] if value is None or value == "" else value

    def read_text(self, key: str) -> str:
        """Read a text without surrounding white space; empty if not set."""
        value = self._value(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.make_error(key, f"has to be text, in quotes, and is {type(value).__name__}")
        return value.strip()

    def read_choice(self, key: str, choices: tuple[str, ...]) -> str:
        """Read a text that must be one of `choices`."""
        value = self.read_text(key)
        if value not in choices:
            raise self.make_error(key, f"is {value!r} and has to be one of {', '.join(choices)}")
        return value

    def read_url(self, key: str, schemes: tuple[str, ...]) -> str:
        """Read a web address; empty if not set. Errors leave it out: a proxy's address contains a password."""
        value = self.read_text(key)
        if not value:
            return ""
        try:
            parts = urlsplit(value)
            complete = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        except ValueError:
            complete = False
        if not complete or re.search(r"[\s{}?#]", value):
            raise self.make_error(
                key, f"has to be a whole web address such as {schemes[-1]}://host/path, without ? and #"
            )
        return value

    def read_number(self, key: str, low: float, high: float, *, is_integer: bool = False) -> float:
        """Read a number from `low` to `high`, both included."""
        value = self._value(key)
        try:
            number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or not low <= number <= high or (is_integer and number != int(number)):
            raise self.make_error(
                key, f"is {value!r} and has to be a {'whole ' * is_integer}number from {low:g} to {high:g}"
            )
        return number

    def read_boolean(self, key: str) -> bool:
        """Read a boolean."""
        value = self._value(key)
        meanings = {True: True, False: False, "true": True, "false": False}
        word = value.strip().lower() if isinstance(value, str) else value
        if not isinstance(word, bool | str) or word not in meanings:
            raise self.make_error(key, f"is {value!r} and has to be true or false")
        return meanings[word]
