"""The keys of recorded sessions, in a file of the home that only its owner can read.

They are secrets, so they stand on no tape; and a session outlives a restart, so they do: without its key a reward that is owed could
not be sent any more.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from threading import Lock

from bubbot.errors import ConfigError
from bubbot.new_files import replace_file

KEYS_FILE = "learn_keys.json"
SESSION, CHAT = "rl ", "chat "
"""What the names of keys begin with."""


def name_session(rl: str) -> str:
    """Return the name of the key of a session, by the proxy's id of it."""
    return f"{SESSION}{rl}"


def name_chat(url: str, chat: str) -> str:
    """Return the name of the key that a chat may use again at a proxy. It does not say which chat that is: an erasure reaches tapes."""
    return CHAT + sha256(f"{url} {chat}".encode()).hexdigest()


class RlKeys:
    """The keys by the proxy's ids of sessions, and by chats those that may be used again."""

    def __init__(self, home: Path) -> None:
        self._path = home / KEYS_FILE
        self._keys: dict[str, str] | None = None
        self._lock = Lock()

    def find(self, name: str) -> str:
        """Return a key; empty if there is none, or the file cannot be read."""
        return self._read().get(name, "")

    def list_sessions(self) -> dict[str, str]:
        """Return the keys of sessions by the proxy's ids of them."""
        return {name.removeprefix(SESSION): key for name, key in self._read().items() if name.startswith(SESSION)}

    def change(self, *, put: dict[str, str] | None = None, drop: tuple[str, ...] = ()) -> None:
        """Put keys and drop others; durable when it returns. Raise `ConfigError` if the file cannot be written."""
        with self._lock:  # chats begin and end in threads of their own
            keys = {name: key for name, key in {**self._read(), **(put or {})}.items() if name not in drop}
            if keys == self._keys:
                return
            try:
                replace_file(self._path, json.dumps(keys).encode())
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
