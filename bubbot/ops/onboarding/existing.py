"""The existing configuration of a home: its text, its values, and the settings together with the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgspec import Struct

from bubbot.app.settings import load_with_missing_secrets
from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.ops.onboarding.edit import parse_toml
from bubbot.settings.loader import Settings

NEW_FILE = """\
# The settings of this bot that differ from the defaults. `bubbot config set KEY VALUE` changes one, `bubbot config list --all`
# shows all, and docs/reference/config.md explains them.
"""
"""The beginning of a new configuration."""


class ExistingConfig(Struct, frozen=True):
    """The existing configuration.

    Attributes:
        path: the file, which may not exist yet.
        text: its text; None if there is no file.
        settings: the settings with the environment, without secrets whose files cannot be used.
    """

    path: Path
    text: str | None
    data: Mapping[str, Any]
    settings: Settings

    @property
    def base_text(self) -> str:
        """The text to edit: the file, or the beginning of a new one, which holds only what differs from the defaults."""
        return NEW_FILE if self.text is None else self.text

    def read_value(self, *path: str) -> Any:
        """Look up a value in the file; None if the file does not set it."""
        node: Any = self.data
        for part in path:
            node = node.get(part) if isinstance(node, Mapping) else None
        return node

    def read_effective_value(self, *path: str) -> Any:
        """Look up a value in the file, or the default of a setting that the file leaves out."""
        if (value := self.read_value(*path)) is not None or len(path) != 2:
            return value
        return getattr(getattr(Settings(), path[0], None), path[1], None)

    def find_channel(self, kind: str) -> str:
        """Choose the channel of this kind: the one named like it, else the first, else a new one named like it."""
        names = [name for name, table in self.settings.channels.items() if table.get("kind", name) == kind]
        return kind if kind in names or not names else names[0]


def read_existing(home: Home, config: Path | None) -> ExistingConfig:
    """Read the existing configuration. Raises `ConfigError` for unusable files or folders, and unknown keys."""
    path = config or home.config
    check_home(home)
    _check_place(path)
    exists = os.path.lexists(path)
    settings = load_with_missing_secrets(home=home.path, config=config if exists else None)
    # Read the raw text again: unchanged parts stay byte for byte, line ends and byte order mark included.
    text = path.read_bytes().decode() if exists else None
    return ExistingConfig(path, text, parse_toml(text) if text is not None else {}, settings)


def read_example() -> str:
    """Read the example configuration: every setting with its default, as comments."""
    return files("bubbot.ops.onboarding").joinpath("config.example.toml").read_text(encoding="utf-8")


def check_home(home: Home) -> None:
    """Raise `ConfigError` if the home cannot be used or made; leave no folder behind."""
    missing = [folder for folder in (home.path, *home.path.parents) if not os.path.lexists(folder)]
    try:
        home.ensure()
    finally:
        for folder in missing:
            try:
                folder.rmdir()
            except OSError:
                break


def _check_place(path: Path) -> None:
    if path.is_symlink():
        raise ConfigError(f"{path} is a link: name the file it leads to, --config {path.resolve()}.")
    if path.parent.exists() and not path.parent.is_dir():
        raise ConfigError(f"{path.parent} is a file, not a folder: name another file with --config.")
