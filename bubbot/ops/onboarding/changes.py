"""The results of the answers: single values of the configuration, and secrets in their own files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bubbot.home import Home
from bubbot.ops.onboarding.edit import Table, Value, remove_key, set_key
from bubbot.ops.onboarding.existing import ExistingConfig

SECRETS = "secrets"
"""The folder for secrets in a home."""


@dataclass(frozen=True, slots=True)
class PendingSecret:
    """A secret to write to its own file.

    Attributes:
        key: the key of its setting; `key` with `_file` appended names the file.
    """

    table: Table
    key: str
    text: str = field(repr=False)
    file: str


@dataclass(slots=True)
class PendingEdits:
    """The edits collected while `init` asks; nothing is written before the end."""

    values: dict[tuple[Table, str], Value] = field(default_factory=dict)
    secrets: list[PendingSecret] = field(default_factory=list)

    def set_value(self, table: Table, key: str, value: Value) -> None:
        self.values[table, key] = value

    def set_secret(self, table: Table, key: str, text: str) -> None:
        """Put a secret into its own file; a second one replaces the first."""
        self.secrets = [secret for secret in self.secrets if (secret.table, secret.key) != (table, key)]
        self.secrets.append(PendingSecret(table, key, text, f"{table[-1]}-{key.replace('_', '-')}"))

    def sets_secret(self, table: Table, key: str) -> bool:
        """Return true if the edits set this secret."""
        return any((secret.table, secret.key) == (table, key) for secret in self.secrets)


def secret_path(home: Home, secret: PendingSecret) -> Path:
    """Return the path of a secret's file."""
    return home.path / SECRETS / secret.file


def apply_edits(existing: ExistingConfig, changes: PendingEdits, home: Home) -> str:
    """Apply the changes to the text of the configuration; leave unchanged values alone. Raises `ConfigError`."""
    text = existing.base_text
    for (table, key), value in changes.values.items():
        if existing.read_effective_value(*table, key) != value:
            text = set_key(text, table, key, value)
    for secret in changes.secrets:
        text = _with_secret(text, existing, secret, secret_path(home, secret))
    return text


def _with_secret(text: str, existing: ExistingConfig, secret: PendingSecret, file: Path) -> str:
    key = f"{secret.key}_file"
    current = existing.read_value(*secret.table, key)
    folder = existing.path.parent.absolute()
    if isinstance(current, str) and (folder / Path(current).expanduser()) == file.absolute():
        return text
    # A relative path within the configuration's folder stays valid if the folder moves.
    is_inside = file.absolute().is_relative_to(folder)
    reference = str(file.absolute().relative_to(folder) if is_inside else file.absolute())
    # The removal comes second: it would take the section along if the secret is its only key.
    return remove_key(set_key(text, secret.table, key, reference), secret.table, secret.key)


def new_secrets(changes: PendingEdits, home: Home) -> Mapping[Path, str]:
    """Return the secrets to write by file, without those already there."""
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
