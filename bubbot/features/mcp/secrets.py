"""The values of headers and variables of servers, in a file of the home that only its owner can read. They stand on no tape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock

import msgspec
from msgspec import Struct

from bubbot import log
from bubbot.errors import ConfigError
from bubbot.new_files import replace_file

SECRETS_FILE = "mcp_secrets.json"


class ServerSecrets(Struct, frozen=True):
    """The secrets of one server.

    Attributes:
        headers: by their names.
        env: the values of variables, by their names.
    """

    headers: Mapping[str, str] = {}
    env: Mapping[str, str] = {}

    @property
    def values(self) -> Iterator[str]:
        """The texts to hide: all values, and the last word of each header, which is the secret of `Bearer …`."""
        yield from (*self.headers.values(), *self.env.values())
        yield from (value.rpartition(" ")[2] for value in self.headers.values())


class McpSecrets:
    """The secrets by servers. The log hides what was read or written here."""

    def __init__(self, home: Path) -> None:
        self._path = home / SECRETS_FILE
        self._lock = Lock()

    def find(self, server: str) -> ServerSecrets:
        """Return the secrets of a server; empty ones if there are none.

        Raises:
            ConfigError: the file cannot be read.
        """
        return self._read().get(server, ServerSecrets())

    def put(self, server: str, secrets: ServerSecrets | None) -> None:
        """Put the secrets of a server, or drop them; durable when it returns.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        with self._lock:
            kept = {name: each for name, each in self._read().items() if name != server}
            if secrets is not None and (secrets.headers or secrets.env):
                kept[server] = secrets
            _hide(kept)
            try:
                replace_file(self._path, json.dumps(msgspec.to_builtins(kept)).encode())
            except OSError as error:
                raise ConfigError(
                    f"{self._path}, the secrets of servers, cannot be written ({error.strerror})"
                ) from error

    def _read(self) -> dict[str, ServerSecrets]:
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=dict[str, ServerSecrets])
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(f"{self._path}, the secrets of servers, cannot be read ({error.strerror})") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self._path}, the secrets of servers, is damaged: remove it, and add the servers again with their headers and variables"
            ) from error
        _hide(found)
        return found


def _hide(secrets: Mapping[str, ServerSecrets]) -> None:
    log.hide(tuple([value for each in secrets.values() for value in each.values]))
