"""Attachments: fetched by the reference that came with them, never beyond a limit."""

from __future__ import annotations

import asyncio
from pathlib import Path
from stat import S_ISREG
from typing import Any

from bubbot.channel import Attachment
from bubbot.errors import FetchFailed
from channels.telegram_api import Api
from channels.telegram_errors import Refusal, Unreachable, fetch_failed


async def fetch(api: Api, attachment: Attachment, limit: int, *, self_hosted: bool) -> bytes:
    """The bytes of an attachment. Raises `FetchFailed`.

    A self-hosted server that runs with `--local` names a path on its own disk; it is read where it can be.
    """
    _check_size(attachment.size, limit)
    try:
        found = await api.call("getFile", {"file_id": attachment.reference})
        path = _path(found)
        _check_size(found.get("file_size"), limit)
        if path.startswith("/") and self_hosted:
            content = await asyncio.to_thread(_read, Path(path), limit)
        else:
            content = await api.download(path, limit)
    except (Refusal, Unreachable) as error:
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


def _read(path: Path, limit: int) -> bytes | None:
    try:
        if not S_ISREG(path.lstat().st_mode):
            raise FetchFailed("the Bot API server names a path that is no file")
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise FetchFailed(
            f"the Bot API server keeps the file on its own disk, which cannot be read here ({error.strerror})"
        ) from None
    return None if len(content) > limit else content
