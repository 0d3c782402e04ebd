"""Download of attachments by their reference, up to a limit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

from msgspec import Struct

from bubbot.errors import FetchFailed
from bubbot.formatting import format_bytes
from bubbot.ports.channel import Attachment
from channels.telegram.api import TelegramApi
from channels.telegram.errors import TelegramApiError, TelegramUnavailable, make_fetch_error


class LocalFiles(Struct, frozen=True):
    """The folder in which a self-hosted Bot API server keeps its files on this machine.

    Attributes:
        folder: the only readable folder; None if not configured.
        home: bubbot's home, never readable, not even inside `folder`.
    """

    channel: str
    folder: Path | None
    home: Path


async def fetch_attachment(
    api: TelegramApi, attachment: Attachment, limit: int, local_files: LocalFiles | None
) -> bytes:
    """Fetch the bytes of an attachment.

    Args:
        limit: the largest size in bytes.
        local_files: the files of a self-hosted server, which names paths on its own disk if it runs with `--local`; None
            for Telegram's own server, which has none here.

    Raises:
        FetchFailed: the file is too large or cannot be read.
    """
    _check_size(attachment.size, limit)
    try:
        file = await api.call("getFile", {"file_id": attachment.reference})
        path = _read_path(file)
        _check_size(file.get("file_size"), limit)
        if path.startswith("/") and local_files is not None:
            content = await asyncio.to_thread(read_local_file, Path(path), limit, local_files)
        else:
            content = await api.download(path, limit)
    except (TelegramApiError, TelegramUnavailable) as error:
        raise make_fetch_error(error) from None
    if content is None:
        raise FetchFailed(f"the file is larger than {format_bytes(limit)}, the most that is taken")
    return content


def _read_path(file: Any) -> str:
    path = file.get("file_path") if isinstance(file, dict) else None
    if not isinstance(path, str) or not path:
        raise FetchFailed("Telegram does not say where the file is", permanent=False)
    return path


def _check_size(size: object, limit: int) -> None:
    if isinstance(size, int) and size > limit:
        raise FetchFailed(f"the file is {format_bytes(size)} large, and at most {format_bytes(limit)} are taken")


def read_local_file(path: Path, limit: int, local: LocalFiles) -> bytes | None:
    """Return what a file holds; None if it is larger than `limit` bytes."""
    if local.folder is None:
        raise FetchFailed(
            "the Bot API server keeps the file on its own disk, and the operator has not named the folder "
            f"([channels.{local.channel}] file_folder)"
        )
    try:
        folder, real = local.folder.resolve(strict=True), path.resolve(strict=True)
        if not real.is_relative_to(folder) or real.is_relative_to(local.home.resolve()):
            raise FetchFailed("the Bot API server names a path outside of its folder")
        with _open_below(folder, real.relative_to(folder).parts) as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise FetchFailed(
            f"the Bot API server keeps the file on its own disk, which cannot be read here ({error.strerror})"
        ) from None
    return None if len(content) > limit else content


@contextmanager
def _open_below(folder: Path, parts: Sequence[str]) -> Iterator[BinaryIO]:
    """Open a file below a folder part by part, so that no link created meanwhile leads out of it."""
    with ExitStack() as opened:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        opened.callback(os.close, fd)
        for index, part in enumerate(parts):
            is_last = index == len(parts) - 1
            flags = os.O_RDONLY | os.O_NOFOLLOW | (os.O_NONBLOCK if is_last else os.O_DIRECTORY)
            fd = os.open(part, flags, dir_fd=fd)
            opened.callback(os.close, fd)
        if not S_ISREG(os.fstat(fd).st_mode):
            raise FetchFailed("the Bot API server names a path that is not a file")
        yield opened.enter_context(os.fdopen(fd, "rb", closefd=False))
