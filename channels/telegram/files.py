"""Attachments: fetched by the reference that came with them, never beyond a limit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

from bubbot.errors import FetchFailed
from bubbot.ports.channel import Attachment
from channels.telegram.api import TelegramApi
from channels.telegram.errors import TelegramApiError, TelegramUnavailable, fetch_failed


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Where a self-hosted Bot API server keeps its files on this machine.

    Attributes:
        channel: the name of the channel, for errors.
        folder: the one folder that is read; None if not configured.
        home: the home of bubbot, which is never read, not even inside `folder`.
    """

    channel: str
    folder: Path | None
    home: Path


async def fetch(api: TelegramApi, attachment: Attachment, limit: int, local: LocalFiles | None) -> bytes:
    """Fetch the bytes of an attachment. Raises `FetchFailed`.

    A self-hosted server that runs with `--local` names a path on its own disk; `local` says what is read of it, None
    for Telegram's own server, which has none here.
    """
    _check_size(attachment.size, limit)
    try:
        found = await api.call("getFile", {"file_id": attachment.reference})
        path = _path(found)
        _check_size(found.get("file_size"), limit)
        if path.startswith("/") and local is not None:
            content = await asyncio.to_thread(_read, Path(path), limit, local)
        else:
            content = await api.download(path, limit)
    except (TelegramApiError, TelegramUnavailable) as error:
        raise fetch_failed(error) from None
    if content is None:
        raise FetchFailed(f"the file is larger than {_bytes(limit)}, the most that is taken")
    return content


def _path(found: Any) -> str:
    path = found.get("file_path") if isinstance(found, dict) else None
    if not isinstance(path, str) or not path:
        raise FetchFailed("Telegram does not say where the file is", permanent=False)
    return path


def _check_size(size: object, limit: int) -> None:
    if isinstance(size, int) and size > limit:
        raise FetchFailed(f"the file is {_bytes(size)} large, and at most {_bytes(limit)} are taken")


def _bytes(number: int) -> str:
    return f"{number / 1_000_000:.1f} MB" if number >= 100_000 else f"{number} bytes"


def _read(path: Path, limit: int, local: LocalFiles) -> bytes | None:
    if local.folder is None:
        raise FetchFailed(
            "the Bot API server keeps the file on its own disk, and the operator has not named the folder "
            f"([channels.{local.channel}] file_folder)"
        )
    try:
        folder, real = local.folder.resolve(strict=True), path.resolve(strict=True)
        if not real.is_relative_to(folder) or real.is_relative_to(local.home.resolve()):
            raise FetchFailed("the Bot API server names a path outside of its folder")
        with _opened(folder, real.relative_to(folder).parts) as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise FetchFailed(
            f"the Bot API server keeps the file on its own disk, which cannot be read here ({error.strerror})"
        ) from None
    return None if len(content) > limit else content


def _opened(folder: Path, parts: Sequence[str]) -> BinaryIO:
    """Open a file below a folder part by part, so that no link put there meanwhile leads out of it."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for place, part in enumerate(parts):
            last = place == len(parts) - 1
            flags = os.O_RDONLY | os.O_NOFOLLOW | (os.O_NONBLOCK if last else os.O_DIRECTORY)
            below = os.open(part, flags, dir_fd=at)
            os.close(at)
            at = below
        if not S_ISREG(os.fstat(at).st_mode):
            raise FetchFailed("the Bot API server names a path that is no file")
        return os.fdopen(at, "rb")
    except BaseException:
        os.close(at)
        raise
