"""A folder as a channel: a file that is put into it is a message, an answer is a file.

A folder, because it has what a platform needs to lose and double nothing, and needs no account: it keeps a message
until it is acknowledged, and takes a message under a key only once. It is a Maildir of plain text:

    PATH/new        messages, written elsewhere on the same disk (PATH/tmp, say) and renamed into here
    PATH/cur        messages that were taken
    PATH/out/UID    a Maildir of the answers to the user with this number; whoever reads one moves it from new to cur

A message is from the owner of its file: a number that the operating system vouches for, and all that `owners` and
`members` need. A name that begins with a dot, and what is no regular file, is left alone.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from bubbot.errors import ChannelError, ConfigError, DeliveryFailed
from bubbot.ports.channel import (
    ChannelOptions,
    Inbound,
    MessagePart,
    Outbound,
    Receipt,
    Receive,
    Sender,
    UnparsedUpdate,
)

KEYS = ("path", "interval")
LIMIT = 64 * 1024
"""Bytes of a message; of what is longer the beginning is kept."""


class Letterbox:
    """See `Channel`. Settings: `path`, a folder; `interval`, seconds between two looks into it."""

    def __init__(self, options: ChannelOptions, path: Path, interval: float) -> None:
        self.name = options.name
        self._options = options
        self._path = path
        self._interval = interval

    async def run(self, receive: Receive) -> None:
        """Looks into the folder until cancelled. A message stays in `new` until it is durable on the other side."""
        try:
            await asyncio.to_thread(_make, self._path)
            while True:
                for name in await asyncio.to_thread(_waiting, self._path / "new"):
                    if (event := await asyncio.to_thread(self._event, name)) is not None:
                        await receive(event)
                        await asyncio.to_thread(_acknowledge, self._path, name)
                await asyncio.sleep(self._interval)
        except OSError as error:  # a disk that is not there now may be there later: it is run again
            raise ChannelError(f"{error.filename or self._path} cannot be used ({error.strerror})") from error

    def parts(self, outbound: Outbound) -> Sequence[MessagePart]:
        """A file takes any length: one part for the text, and one for each file."""
        whole = MessagePart(outbound.chat, outbound.text, outbound.thread, outbound.reply_to)
        files = [
            MessagePart(outbound.chat, "", outbound.thread, outbound.reply_to, file=file) for file in outbound.files
        ]
        return [*([whole] if outbound.text or not files else []), *files]

    async def send(self, part: MessagePart) -> Receipt:
        """Writes a file whose name begins with the part's key: a part that was written before is not written again."""
        key = part.key or self._options.new_id()  # a notice has none: nothing is owed, so it is not repeated
        name, data = f"{part.reply_to}.md", part.text.encode()
        if part.file is not None:
            name = part.file.name
            data = await self._options.read_blob(part.file.digest) if part.file.digest else part.file.text.encode()
        try:
            return Receipt(await asyncio.to_thread(_write, self._path / "out" / part.chat, key, name, data))
        except OSError as error:
            raise DeliveryFailed(f"the answer cannot be written ({error.strerror})") from error

    def _event(self, name: str) -> Inbound | UnparsedUpdate | None:
        """What a file says; None where it was taken back meanwhile."""
        path, raw, text, problem = self._path / "new" / name, b"", "", ""
        try:
            found = path.lstat()
            with open(path, "rb", opener=_careful) as file:
                found, raw = os.fstat(file.fileno()), file.read(LIMIT + 1)
            text = raw.decode() if len(raw) <= LIMIT else ""
        except FileNotFoundError:
            return None
        except PermissionError:
            problem = "it may not be read"
        except UnicodeDecodeError as error:
            problem = f"it is not valid UTF-8 (byte {error.start + 1})"
        if not text.strip() or not name.isprintable():
            problem = problem or (f"it is longer than {LIMIT} bytes" if raw[LIMIT:] else "it has no text, or no name")
        # A later file of the same name is another message. The id is a key, and keys tell nothing about people.
        external_id = sha256(os.fsencode(f"{found.st_mtime_ns} {name}")).hexdigest()[:32]
        person = str(found.st_uid)
        if problem:
            return UnparsedUpdate(self.name, external_id, person, raw, f"a file is no message: {problem}")
        return Inbound(self.name, external_id, person, Sender(person), text, self._time(found), message=name)

    def _time(self, found: os.stat_result) -> str:
        try:
            return datetime.fromtimestamp(found.st_mtime, UTC).isoformat()
        except (ValueError, OverflowError, OSError):  # a date that no calendar has
            return self._options.now()


def _careful(path: str, flags: int) -> int:
    """A link in the folder must not have us read what its maker may not read."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _make(folder: Path) -> None:
    for name in ("tmp", "new", "cur"):
        (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)


def _waiting(folder: Path) -> list[str]:
    """The names of the messages, oldest first."""
    files: list[tuple[int, str]] = []
    with os.scandir(folder) as found:
        for one in found:
            with suppress(FileNotFoundError):  # taken back meanwhile
                if not one.name.startswith(".") and one.is_file(follow_symlinks=False):
                    files.append((one.stat(follow_symlinks=False).st_mtime_ns, one.name))
    return [name for _, name in sorted(files)]


def _acknowledge(folder: Path, name: str) -> None:
    with suppress(FileNotFoundError):  # taken away meanwhile; it is durable all the same
        (folder / "new" / name).replace(folder / "cur" / name)


def _write(folder: Path, key: str, name: str, data: bytes) -> str:
    """Writes a file whole or not at all, and onto the disk; gives its name."""
    _make(folder)
    for known in (*(folder / "new").iterdir(), *(folder / "cur").iterdir()):
        if known.name.startswith(f"{key}."):
            return known.name
    plain = "".join(char if char.isascii() and (char.isalnum() or char in "-_.") else "_" for char in name)
    draft, target = folder / "tmp" / key, folder / "new" / f"{key}.{plain[-80:]}"
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(target)
    entry = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(entry)
    finally:
        os.close(entry)
    return target.name


def create(options: ChannelOptions) -> Letterbox:
    """The factory of the entry point. Raises `ConfigError` with a sentence that names the key."""
    where = f"[channels.{options.name}]"
    if unknown := sorted(options.settings.keys() - set(KEYS)):
        raise ConfigError(f"{where} {unknown[0]} is not a key of a letterbox: there are {' and '.join(KEYS)}.")
    path, interval = options.settings.get("path"), options.settings.get("interval", 0.5)
    if not isinstance(path, str) or not Path(path).is_absolute():
        raise ConfigError(f"{where} path is {path!r}, but must be a whole path such as '/srv/letters'.")
    try:
        seconds = float(interval)  # a value of the environment is text
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0.01 <= seconds <= 60:
        raise ConfigError(f"{where} interval is {interval!r}, but must be a number from 0.01 to 60.")
    return Letterbox(options, Path(path), seconds)
