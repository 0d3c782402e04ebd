"""The keys of recorded sessions, in a file of the home that only its owner can read.

They are secrets, so they stand on no tape; and a session outlives a restart, so they do: without its key a reward that is owed could
not be sent any more.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from bubbot.errors import ConfigError

KEYS_FILE = "learn_keys.json"


class RlKeys:
    """The keys by the proxy's ids of sessions, and by chats those that may be used again."""

    def __init__(self, home: Path) -> None:
        self._path = home / KEYS_FILE
        self._keys: dict[str, str] | None = None

    def find(self, name: str) -> str:
        """Return a key; empty if there is none, or the file cannot be read."""
        return self._read().get(name, "")

    def change(self, *, put: dict[str, str] | None = None, drop: tuple[str, ...] = ()) -> None:
        """Put keys and drop others; durable when it returns. Raise `ConfigError` if the file cannot be written."""
        keys = {name: key for name, key in {**self._read(), **(put or {})}.items() if name not in drop}
        if keys == self._keys:
            return
        part = self._path.with_name(f"{KEYS_FILE}.part")
        try:
            part.unlink(missing_ok=True)
            file = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(file, "w") as writer:
                json.dump(keys, writer)
                writer.flush()
                os.fsync(writer.fileno())
            part.replace(self._path)
        except OSError as error:
            raise ConfigError(
                f"{self._path}, the keys of recorded sessions, cannot be written ({error.strerror})"
            ) from error
        self._keys = keys

    def _read(self) -> dict[str, str]:
        if self._keys is None:
            try:
                found = json.loads(self._path.read_text())
            except (OSError, ValueError):  # a lost key ends its session, which the proxy drops by itself
                found = {}
            self._keys = {str(name): str(key) for name, key in found.items()} if isinstance(found, dict) else {}
        return self._keys
