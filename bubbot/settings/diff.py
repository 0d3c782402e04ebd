"""Differences between two settings, key by key: those a reload applies, and those of the next start."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from pydantic import SecretStr

from bubbot.ports.settings import nested_sections
from bubbot.settings.loader import Settings

RESTART_REQUIRED = frozenset(
    {
        "bot.timezone",
        "bot.language",
        "bot.turns_at_once",
        "store.kind",
        "store.address",
        "store.url",
        "http",
        "health",
        "server",
        "trace",
        "log.format",
    }
)
"""Keys, and entire sections of bubbot itself, that are read once, at the start; features declare theirs. A reload applies all others."""
MAX_SHOWN_VALUE = 200
"""Characters of a value in a fact; a longer one (a persona) is cut."""

Flat: TypeAlias = Mapping[str, Any]
"""Values by `section.key`; keys that are not set are missing."""


class SettingsDiff(Struct, frozen=True):
    """The keys that differ: a reload applies those of `reloadable`, the next start those of `restart_required`."""

    reloadable: tuple[str, ...]
    restart_required: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.reloadable or self.restart_required)


def compare(old: Settings, new: Settings, fixed: Collection[str] = ()) -> SettingsDiff:
    """Compare two settings; the keys are in alphabetical order.

    Args:
        old: the settings before.
        new: the settings after.
        fixed: sections of installed features that take effect at the next start only.
    """
    fixed = _list_fixed(old, fixed)
    before, after = dict(_leaves(old)), dict(_leaves(new))
    before, after = dict(_defaults_missing_in(old, new)) | before, dict(_defaults_missing_in(new, old)) | after
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return SettingsDiff(
        tuple(key for key in keys if not is_restart_required(key, fixed)),
        tuple(key for key in keys if is_restart_required(key, fixed)),
    )


def _defaults_missing_in(settings: Settings, other: Settings) -> Iterator[tuple[str, Any]]:
    """Yield the defaults of sections that only the other settings have: those of an installed feature."""
    for section in type(other).model_fields.keys() - type(settings).model_fields.keys():
        yield from _nested_leaves(dict(type(getattr(other, section))()), section)


def _list_fixed(settings: Settings, fixed: Collection[str]) -> frozenset[str]:
    """Add the sections that say themselves that they are read once, at the start."""
    return frozenset(fixed) | {
        name for name, section in nested_sections(type(settings)).items() if section.needs_restart
    }


def is_restart_required(key: str, fixed: Collection[str] = ()) -> bool:
    """Return true if a key takes effect at the next start only."""
    section = key.partition(".")[0]
    return key in RESTART_REQUIRED or section in RESTART_REQUIRED or section in fixed


def apply_reloadable(old: Settings, new: Settings, fixed: Collection[str] = ()) -> Settings:
    """Return the new settings, except those that take effect at the next start."""
    fixed = _list_fixed(old, fixed)
    retained: dict[str, Any] = {section: getattr(old, section) for section in fixed if hasattr(old, section)}
    for name in RESTART_REQUIRED:
        section, _, key = name.partition(".")
        if not key:
            retained[section] = getattr(old, section)
        else:
            before = retained.get(section) or getattr(new, section)
            retained[section] = before.model_copy(update={key: getattr(getattr(old, section), key)})
    return new.model_copy(update=retained)


def redacted_values(settings: Settings) -> Flat:
    """Return every value that is not the default, as facts store it: no secrets, lists and long texts cut."""
    defaults, secrets = dict(_leaves(type(settings)())), settings.secrets()
    return {key: _redact(value, secrets) for key, value in sorted(_leaves(settings)) if defaults.get(key) != value}


def _leaves(settings: Settings) -> Iterator[tuple[str, Any]]:
    for section in type(settings).model_fields:
        value = getattr(settings, section)
        yield from _nested_leaves(value if isinstance(value, Mapping) else _fields_of(value), section)


def _fields_of(section: Any) -> dict[str, Any]:
    """Return the values of a section by key, with the tables that people name directly in it."""
    kind = type(section)
    values = {key: getattr(section, key) for key in kind.model_fields}
    return values | values.pop(kind.table_field) if getattr(kind, "table_field", "") else values


def _nested_leaves(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        inner = f"{path}.{key}"
        if isinstance(value, Mapping):
            yield from _nested_leaves(value, inner)
        elif hasattr(type(value), "model_fields"):
            yield from _nested_leaves(_fields_of(value), inner)
        elif value is not None:
            yield inner, value


def _redact(value: Any, secrets: Sequence[str]) -> Any:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_redact(item, secrets) for item in value]
    if isinstance(value, SecretStr) or any(secret in str(value) for secret in secrets if secret):
        return "[secret]"
    text = str(value)
    return text if len(text) <= MAX_SHOWN_VALUE else f"{text[:MAX_SHOWN_VALUE]}…"
