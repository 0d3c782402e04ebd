"""What the answers come to: single values of the configuration, and secrets in files of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bubbot.home import Home
from bubbot.ops.onboarding.edit import Table, Value, with_value, without
from bubbot.ops.onboarding.existing import ExistingConfig

SECRETS = "secrets"
"""The folder of a home for secrets."""


@dataclass(frozen=True, slots=True)
class PendingSecret:
    """A secret for `table`: `key` with `_file` behind it names its file, which is called `file`."""

    table: Table
    key: str
    text: str = field(repr=False)
    file: str


@dataclass(slots=True)
class PendingEdits:
    """Collected while questions are answered; nothing is written before the end."""

    values: dict[tuple[Table, str], Value] = field(default_factory=dict)
    secrets: list[PendingSecret] = field(default_factory=list)

    def set(self, table: Table, key: str, value: Value) -> None:
        """Sets a value."""
        self.values[table, key] = value

    def keep(self, table: Table, key: str, text: str) -> None:
        """Puts a secret into a file of its own; a second one takes the place of the first."""
        self.secrets = [one for one in self.secrets if (one.table, one.key) != (table, key)]
        self.secrets.append(PendingSecret(table, key, text, f"{table[-1]}-{key.replace('_', '-')}"))

    def sets_secret(self, table: Table, key: str) -> bool:
        """Return true if this secret is among the changes."""
        return any((one.table, one.key) == (table, key) for one in self.secrets)


def secret_path(home: Home, secret: PendingSecret) -> Path:
    """Where a secret goes."""
    return home.path / SECRETS / secret.file


def text_after(present: ExistingConfig, changes: PendingEdits, home: Home) -> str:
    """The text of the configuration with the changes in it; unchanged values are not touched. Raises `ConfigError`."""
    text = present.basis
    for (table, key), value in changes.values.items():
        if present.meant(*table, key) != value:
            text = with_value(text, table, key, value)
    for secret in changes.secrets:
        text = _with_secret(text, present, secret, secret_path(home, secret))
    return text


def _with_secret(text: str, present: ExistingConfig, secret: PendingSecret, file: Path) -> str:
    key = f"{secret.key}_file"
    before = present.written(*secret.table, key)
    here = present.path.parent.absolute()
    if isinstance(before, str) and (here / Path(before).expanduser()) == file.absolute():
        return text
    # A path within the folder of the configuration goes with it, wherever that is moved.
    inside = file.absolute().is_relative_to(here)
    named = str(file.absolute().relative_to(here) if inside else file.absolute())
    return with_value(without(text, secret.table, secret.key), secret.table, key, named)


def new_secrets(changes: PendingEdits, home: Home) -> Mapping[Path, str]:
    """The secrets to write by file, without those that stand there already."""
    return {
        path: secret.text
        for secret in changes.secrets
        if _content(path := secret_path(home, secret)) != f"{secret.text}\n".encode()
    }


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError:
        return b""


def differs(present: ExistingConfig, text: str, secrets: Mapping[Path, str]) -> Sequence[Path]:
    """The files that have to be written."""
    config = [present.path] if text != present.text else []
    return [*secrets, *config]
