"""Settings that were renamed. The old name still works; a warning gives the new one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from bubbot.ports.settings import Keys, format_setting
from bubbot.settings.sources import SourcedValue

CHANNEL_KEYS = MappingProxyType({"called": "trigger_names", "always": "respond_to_all", "listen": "record_only"})
"""The new key of each old one in the tables of channels, and of guilds within them."""


class RenamedSetting(Struct, frozen=True):
    """A setting that is written under its old name.

    Attributes:
        old: its path as written.
        new: its path today.
        origin: the file, variable or credential.
        value: its value.
    """

    old: Keys
    new: Keys
    origin: str
    value: Any

    def __str__(self) -> str:
        return f"{self.origin}: {format_setting(self.old)} is now called {self.new[-1]}; the old name still works."


def rename_keys(
    leaves: dict[Keys, SourcedValue], renamed_keys: Mapping[str, Mapping[str, str]], problems: list[str]
) -> tuple[dict[Keys, SourcedValue], list[RenamedSetting]]:
    """Put the values of one source under today's names.

    Args:
        leaves: the values by path.
        renamed_keys: the new key of each old one, by section; those of channels are known here.
        problems: receives a sentence for each setting that is there under both names.

    Returns:
        The values, and the settings under old names.
    """
    renamed: list[RenamedSetting] = []
    current: dict[Keys, SourcedValue] = {}
    for path, written in leaves.items():
        leaf = SourcedValue(_parse_servers(path, written.value), written.origin)
        found = list(_renames_within(path, leaf, {**renamed_keys, "channels": CHANNEL_KEYS}))
        renamed += found
        problems += [
            f"{leaf.origin}: {format_setting(one.old)} and {one.new[-1]} are both set: keep {one.new[-1]}."
            for one in found
            if one.new in leaves or (len(one.old) > len(path) and _holds(leaf.value, one.new[len(path) :]))
        ]
        new = found[0].new if found and found[0].old == path else path
        current[new] = SourcedValue(_with_new_keys(path, leaf.value), leaf.origin)
    return current, renamed


def _renames_within(
    path: Keys, leaf: SourcedValue, renamed_keys: Mapping[str, Mapping[str, str]]
) -> Iterator[RenamedSetting]:
    """Yield the old names in a path, or in the tables of Discord servers at it."""
    new = renamed_keys.get(path[0], {}).get(path[-1])
    if new is not None and len(path) == (3 if path[0] == "channels" else 2):
        yield RenamedSetting(path, (*path[:-1], new), leaf.origin, leaf.value)
    for server, table in _server_tables(path, leaf.value):
        for key in filter(CHANNEL_KEYS.__contains__, table):
            old = (*path, server, key)
            yield RenamedSetting(old, (*old[:-1], CHANNEL_KEYS[key]), leaf.origin, table[key])


def _server_tables(path: Keys, value: object) -> list[tuple[str, Mapping[str, object]]]:
    if len(path) != 3 or path[0] != "channels" or path[2] != "guilds" or not isinstance(value, Mapping):
        return []
    return [(str(server), table) for server, table in value.items() if isinstance(table, Mapping)]


def _parse_servers(path: Keys, value: object) -> object:
    """Return the tables of servers that a variable holds as JSON; any other value as it is."""
    if len(path) == 3 and path[2] == "guilds" and isinstance(value, str) and value.strip().startswith("{"):
        with suppress(ValueError, RecursionError):  # what reads the setting reports it
            return json.loads(value)
    return value


def _with_new_keys(path: Keys, value: object) -> object:
    tables = _server_tables(path, value)
    if not tables or not isinstance(value, Mapping):
        return value
    new = {server: {CHANNEL_KEYS.get(key, key): item for key, item in table.items()} for server, table in tables}
    return {server: new.get(str(server), table) for server, table in value.items()}


def _holds(value: object, path: Keys) -> bool:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True
