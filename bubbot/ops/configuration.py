"""Single settings: read one, change one in the file, and write nothing that does not load."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bubbot.app.own_features import settings_schema
from bubbot.app.settings import load_with_missing_secrets
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.ops.onboarding.changes import PendingEdits, apply_edits, new_secrets
from bubbot.ops.onboarding.edit import Table, Value, parse_toml, remove_key, set_key
from bubbot.ops.onboarding.existing import read_existing
from bubbot.ops.onboarding.verify import close_channel, make_channel
from bubbot.ops.onboarding.write import write
from bubbot.ports.settings import SettingValue, format_setting
from bubbot.settings.channels import split_channel_settings
from bubbot.settings.environment import ENVIRONMENT_PREFIX, SECRET_KEY, read_variables
from bubbot.settings.loader import Settings

HIDDEN = "[secret]"
"""What is printed in place of a secret."""


class ConfigEditor:
    """Reads and changes the settings of a home.

    Args:
        config: the file, if not the one in the home.
        now: returns the time for the names of backups.
    """

    def __init__(self, home: Home, config: Path | None, *, now: Callable[[], str], new_id: Callable[[], str]) -> None:
        self._home = home
        self._now = now
        self._new_id = new_id
        self.existing = read_existing(home, config)

    def list_values(self, *, all_settings: bool = False) -> list[SettingValue]:
        """List the settings that are not the default, or all, in the order of the reference."""
        return [
            value
            for value in (self._setting(table, key, item) for table, key, item in _leaves(self.existing.settings))
            if all_settings or value.origin != "default"
        ]

    def read(self, name: str) -> SettingValue:
        """Return one setting. Raises `ConfigError` if there is none of this name."""
        table, key = parse_key(name)
        found = next((item for item in _leaves(self.existing.settings) if item[:2] == (table, key)), None)
        if found is None:
            self._refuse_unknown(table, key)
            return SettingValue(name, None, "default")
        return self._setting(*found)

    def set(self, name: str, text: str) -> None:
        """Write a typed setting. Raise `ConfigError` and change nothing if it does not load."""
        table, key = parse_key(name)
        if is_secret(table, key):
            raise ConfigError(
                f"{format_setting((*table, key))} is a secret, and other users can read command lines: type `bubbot config "
                f"set {name} -`, which asks for it."
            )
        refusal: ConfigError | None = None
        for value in _readings(text):
            try:
                settings = self._check(set_key(self._text, table, key, value))
            except ConfigError as error:
                refusal = error
                continue
            self._write_line(set_key(self._text, table, key, _normal_form(settings, table, key, value)))
            return
        assert refusal is not None, "a text has a reading"
        raise refusal

    def set_secret(self, name: str, secret: str) -> list[Path]:
        """Write a secret to its own file, name that file in the setting, and return the backups."""
        table, key = parse_key(name)
        edits = PendingEdits()
        edits.set_secret(table, key, secret)
        return self._write(apply_edits(self.existing, edits, self._home), new_secrets(edits, self._home))

    def unset(self, name: str) -> None:
        """Remove a setting from the file, so that its default applies. Raise `ConfigError` if the file does not set it."""
        table, key = parse_key(name)
        text = remove_key(remove_key(self._text, table, key), table, f"{key}_file") if self._text else ""
        if text == self._text:
            raise ConfigError(
                f"{self.existing.path} does not set {format_setting((*table, key))}: nothing was changed."
            )
        self._write_line(text)

    def replace(self, text: str) -> list[Path]:
        """Write the whole file; return the backups."""
        parse_file(text, self.existing.path)
        return self._write(text)

    def find_override(self, name: str) -> str:
        """Return the environment variable that overrides the file; empty if none does."""
        variable = ENVIRONMENT_PREFIX + name.replace(".", "__").replace("-", "_").upper()
        return next((each for each in read_variables() if each.upper() == variable), "")

    @property
    def _text(self) -> str:
        return self.existing.base_text

    def _setting(self, table: Table, key: str, value: Any) -> SettingValue:
        name = ".".join((*table, key))
        if self.find_override(name):
            origin = "environment"
        else:
            written = {key, f"{key}_file"} & set(self.existing.read_value(*table) or {})
            origin = "file" if written else "default"
        return SettingValue(name, HIDDEN if value is not None and is_secret(table, key) else value, origin)

    def _refuse_unknown(self, table: Table, key: str) -> None:
        """Raise the loader's `ConfigError` if a setting does not exist; return if it is only unset."""
        try:
            self._check(set_key(self._text, table, key, ""))
        except ConfigError as error:
            if "is not a " in str(error):
                raise
            if "must be a section" in str(error):
                name = ".".join((*table, key))
                raise ConfigError(f"[{name}] is a section: name one of its settings, as in {name}.KEY.") from None

    def _check(self, text: str) -> Settings:
        """Return the settings of a text. Raises `ConfigError` if it does not load, or if an adapter refuses its keys."""
        path = self.existing.path
        # The loader reads files, and takes relative paths from the folder of the file.
        folder = path.parent if path.parent.is_dir() else None
        try:
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=folder, prefix=f".{path.name}.") as candidate:
                candidate.write(text)
                candidate.flush()
                return self._load(Path(candidate.name))
        except OSError as error:
            raise ConfigError(f"{path} cannot be written ({error.strerror or error}): nothing was changed.") from error

    def _load(self, candidate: Path) -> Settings:
        missing = {secret.setting for secret in self.existing.settings.missing_secrets}
        try:
            settings = load_with_missing_secrets(home=self._home.path, config=candidate)
            if any(secret.setting not in missing for secret in settings.missing_secrets):
                settings.require_secrets()
            known = {section.name for section in self.existing.settings.unowned_sections}
            if unowned := [each for each in settings.unowned_sections if each.name not in known]:
                raise ConfigError("\n".join(map(str, unowned)))
            settings.bot.read_persona()
            settings.check_server()
            for name, table in settings.channels.items():
                if table.get("token"):
                    close_channel(make_channel(name, table, self._home.path, self._now, self._new_id))
                else:
                    split_channel_settings(name, table)
        except ConfigError as error:
            message = str(error).replace(str(candidate), str(self.existing.path))
            raise ConfigError(f"{message}\nNothing was changed.") from None
        return settings

    def _write_line(self, text: str) -> None:
        """Write a text with one changed line, without a backup: the caller reports the old value."""
        for path in self._write(text):
            path.unlink()

    def _write(self, text: str, secrets: Mapping[Path, str] | None = None) -> list[Path]:
        return write(
            self._home,
            self.existing,
            text,
            secrets or {},
            stamp=self._now(),
            check=lambda path: _ignore(self._load(path)),
        )


def _ignore(_: object) -> None:
    """Return nothing."""


def parse_key(name: str) -> tuple[Table, str]:
    """Split a name such as `tools.shell.enabled` into its table and its key. Raises `ConfigError`."""
    *table, key = name.split(".")
    if not table or not all(table) or not key:
        raise ConfigError(
            f"{name!r} names no setting: write SECTION.KEY, such as bot.name or channels.telegram.groups."
        )
    return tuple(table), key


def parse_file(text: str, path: Path) -> Mapping[str, Any]:
    """Parse the text of a configuration. Raises `ConfigError` if it is not TOML."""
    try:
        return parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: this is not TOML ({error}): nothing was changed.") from None


def is_secret(table: Table, key: str) -> bool:
    if table[0] == "channels":
        return SECRET_KEY.search(key) is not None and not key.endswith("_file")
    return settings_schema().is_secret((*table, key))


def _readings(text: str) -> Iterator[Value]:
    """Yield the readings of a typed text: a value of TOML, a list, or the text itself."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError, RecursionError, ValueError):
        value = None
    if isinstance(value, bool | int | float | str) or (
        isinstance(value, list) and all(isinstance(item, str | int) for item in value)
    ):
        yield value
    yield text


def _normal_form(settings: Settings, table: Table, key: str, value: Value) -> Value:
    """Return a value as its type is written: `yes` for a switch is true, `1,2` for a list of ids a list."""
    if not isinstance(value, str):
        return value
    found = next((item for *path, item in _leaves(settings) if path == [table, key]), value)
    if isinstance(found, bool | int | float):
        return found
    if isinstance(found, Sequence) and not isinstance(found, str) and all(isinstance(one, str | int) for one in found):
        return [int(one) if isinstance(one, str) and one.lstrip("-").isdecimal() else one for one in found]
    return value


def _leaves(settings: Settings) -> Iterator[tuple[Table, str, Any]]:
    """Yield every setting with its table, its key and its value."""
    for section in type(settings).model_fields:
        if section != "channels":
            yield from _section_leaves((section,), getattr(settings, section))
    for name, raw in settings.channels.items():
        try:
            common, others = split_channel_settings(name, raw)
        except ConfigError:
            continue
        yield from _section_leaves(("channels", name), common)
        for key, value in others.items():
            yield ("channels", name), key, value


def _section_leaves(table: Table, section: Any) -> Iterator[tuple[Table, str, Any]]:
    for key in type(section).model_fields:
        value = getattr(section, key)
        if hasattr(type(value), "model_fields"):
            yield from _section_leaves((*table, key), value)
        elif isinstance(value, Mapping):
            for name, inner in value.items():
                if hasattr(type(inner), "model_fields"):
                    yield from _section_leaves((*table, key, name), inner)
        else:
            yield table, key, value if isinstance(value, bool | int | float | str | list | None) else str(value)
