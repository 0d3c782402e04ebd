"""What a home holds of a configuration already: the text, what it says, and what it comes to with the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.ops.onboarding.edit import parsed
from bubbot.settings.loader import Settings, load_with_missing_secrets


@dataclass(frozen=True, slots=True)
class ExistingConfig:
    """`text`: of `path` as it stands, None where there is none. `data`: what it says.

    `settings`: that with the environment; secrets whose files cannot be used are left out of it.
    """

    path: Path
    text: str | None
    data: Mapping[str, Any]
    settings: Settings

    @property
    def basis(self) -> str:
        """The text that is changed: the file there is, or the example with every setting."""
        return example() if self.text is None else self.text

    def written(self, *path: str) -> Any:
        """What the file says at this path; None where it says nothing."""
        node: Any = self.data
        for part in path:
            node = node.get(part) if isinstance(node, Mapping) else None
        return node

    def meant(self, *path: str) -> Any:
        """The same; where the file is there and says nothing, the default of a setting that has one."""
        if (found := self.written(*path)) is not None or self.text is None or len(path) != 2:
            return found
        return getattr(getattr(Settings(), path[0], None), path[1], None)

    def channel(self, kind: str) -> str:
        """The name of the channel of this kind: the one called so, else the first, else it is called so."""
        names = [name for name, table in self.settings.channels.items() if table.get("kind", name) == kind]
        return kind if kind in names or not names else names[0]


def read_present(home: Home, config: Path | None) -> ExistingConfig:
    """Reads what there is. Raises `ConfigError` for a file or a folder that cannot be used, or holds what is unknown."""
    path = config or home.config
    check_home(home)
    _check_place(path)
    there = os.path.lexists(path)
    settings = load_with_missing_secrets(home=home.path, config=config if there else None)
    # Read anew and unchanged: what is not changed stays byte for byte, line ends and mark of the encoding included.
    text = path.read_bytes().decode() if there else None
    return ExistingConfig(path, text, parsed(text) if text is not None else {}, settings)


def example() -> str:
    """The example configuration: every setting with its default, as comments."""
    return files("bubbot.ops.onboarding").joinpath("config.example.toml").read_text(encoding="utf-8")


def check_home(home: Home) -> None:
    """Raises `ConfigError` where the home cannot be used or made; makes nothing that stays."""
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
