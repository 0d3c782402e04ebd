"""Files for channels that can only show text: saved under the home folder, with a line that names the path."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path, PurePath

from bubbot.errors import DeliveryFailed
from bubbot.ports.channel import ChannelOptions, MessagePart, Outbound, OutboundFile

MAX_STEM_BYTES = 150
"""Bytes of a saved file's name before its digest: a file system takes 255 for all of it."""


def make_parts(outbound: Outbound) -> Sequence[MessagePart]:
    """Make one part for the text, however long, and one for each file."""
    text = [MessagePart(outbound.chat, outbound.text, outbound.thread, outbound.reply_to)]
    files = [MessagePart(outbound.chat, "", outbound.thread, outbound.reply_to, file=file) for file in outbound.files]
    return [*(text if outbound.text or not files else ()), *files]


async def save_file(options: ChannelOptions, file: OutboundFile) -> str:
    """Save a file under `exports/` and return a line that names its path. The same file twice is one file.

    Raises:
        DeliveryFailed: the file could not be written, or (`permanent`) its bytes are gone.
    """
    data = await options.read_blob(file.digest) if file.digest else file.text.encode()
    try:
        path = await asyncio.to_thread(_write, options.home / "exports", file.name, data)
    except OSError as error:
        raise DeliveryFailed(f"the file {file.name} could not be saved ({error.strerror})") from error
    return f"The file {file.name} is saved as {path}"


def _write(folder: Path, name: str, data: bytes) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    plain = PurePath("".join(char if char.isalnum() or char in "-_. " else "_" for char in name).strip(". "))
    stem = plain.stem.encode()[:MAX_STEM_BYTES].decode(errors="ignore")
    path = folder / f"{stem or 'file'}-{sha256(data).hexdigest()[:8]}{plain.suffix[:12]}"
    part = path.with_name(f"{path.name}.{os.getpid()}.part")  # two chats may save the same file at once
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_bytes(data)
    part.replace(path)
    return path
