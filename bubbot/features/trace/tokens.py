"""Tokens of people who may look: signed, not stored. Nobody can read one from the home or make one without its key.

The key is a file of the home that only its user can read, and no backup holds it: tokens do not work on a restored copy.
A new key ends all tokens; a person's own ends when it expires, or when the person has no role any more.
"""

from __future__ import annotations

import os
import stat
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from hmac import compare_digest, digest
from pathlib import Path

from msgspec import Struct

from bubbot.errors import ConfigError
from bubbot.features.trace.checks import KEY_FILE

KEY_BYTES = 32
_PURPOSE = b"bubbot trace token 1\0"


class TokenHolder(Struct, frozen=True):
    """Who has a token.

    Attributes:
        person: the account, such as `telegram:42`.
        seconds: for how long it is valid.
    """

    person: str
    seconds: int


class TraceTokens:
    """Makes and checks the tokens of one key. `now`: seconds since 1970."""

    def __init__(self, key: bytes, now: Callable[[], float]) -> None:
        self._key = key
        self._now = now

    def issue(self, person: str, seconds: int) -> str:
        """Make a token for a person."""
        text = f"{_encode(person.encode())}.{int(self._now()) + seconds:x}"
        return f"{text}.{self._sign(text)}"

    def read(self, token: str) -> TokenHolder | None:
        """Return who has a token; None if it was not made with this key, or if it has expired."""
        text, _, signature = token.rpartition(".")
        if not compare_digest(signature.encode(errors="replace"), self._sign(text).encode()):
            return None
        person, _, expiry = text.partition(".")
        seconds = int(expiry, 16) - int(self._now())
        return TokenHolder(urlsafe_b64decode(f"{person}==").decode(), seconds) if seconds > 0 else None

    def _sign(self, text: str) -> str:
        return _encode(digest(self._key, _PURPOSE + text.encode(errors="replace"), sha256))


def _encode(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def read_key(home: Path, random: Callable[[int], bytes]) -> bytes:
    """Read the key of a home; make it first if there is none. Raise `ConfigError` if others can read it."""
    path = home / KEY_FILE
    fix = f"remove {path}: the next start makes another one, and tokens have to be given again"
    if not os.path.lexists(path):
        _make_key(path, random)
    file = _open(path, os.O_RDONLY)
    try:
        status = os.fstat(file)
        key = os.read(file, KEY_BYTES + 1) if stat.S_ISREG(status.st_mode) else b""
    finally:
        os.close(file)
    if status.st_mode & 0o077 or status.st_uid != os.getuid():
        raise ConfigError(f"{path} can be read by others, who could make tokens: {fix}")
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{path} has not {KEY_BYTES} bytes: {fix}")
    return key


def _make_key(path: Path, random: Callable[[int], bytes]) -> None:
    """Make the key, unless another process is first.

    It is there whole or not at all: with half a key, as a power cut would leave it, no bot would start.
    """
    part = path.with_name(f"{path.name}.{random(8).hex()}")
    file = _open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    try:
        try:
            os.write(file, random(KEY_BYTES))
            os.fsync(file)
        finally:
            os.close(file)
        with suppress(FileExistsError):
            os.link(part, path)
    except OSError as error:
        raise ConfigError(
            f"{path}, the key of the trace page's tokens, cannot be written ({error.strerror})"
        ) from error
    finally:
        part.unlink()


def forget_key(home: Path) -> None:
    """Remove the key of a home: all tokens end."""
    (home / KEY_FILE).unlink(missing_ok=True)


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise
    except OSError as error:
        raise ConfigError(f"{path}, the key of the trace page's tokens, cannot be used ({error.strerror})") from error
