"""Messages as lines: one JSON object each, split into pieces if it is longer than a line may be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

from bubbot.errors import ConfigError, ControlError
from bubbot.server.codec import JsonObject

CONTROL_LINE_BYTES = 2**20
"""Bytes of one line, its line feed included."""
MESSAGE_LIMIT = 256 * 2**20
"""Bytes of one message, joined."""
CONTROL_CHUNK_CHARS = 400_000
"""Characters of one piece; as JSON within JSON each is two bytes at most."""


def encode_lines(message: JsonObject) -> Iterator[bytes]:
    """Yield the lines of a message. Raise `ConfigError` if it is too large to be sent."""
    text = json.dumps(message, separators=(",", ":"))  # ASCII, so that bytes are characters and any text survives
    if len(text) < CONTROL_LINE_BYTES:
        yield text.encode() + b"\n"
        return
    if len(text) > MESSAGE_LIMIT:
        raise ConfigError(
            f"this is {len(text) // 2**20} MiB, and the running bot is handed at most {MESSAGE_LIMIT // 2**20}: "
            "stop the bot first, then run the command again"
        )
    for start in range(0, len(text), CONTROL_CHUNK_CHARS):
        name = "more" if start + CONTROL_CHUNK_CHARS < len(text) else "last"
        yield json.dumps({name: text[start : start + CONTROL_CHUNK_CHARS]}).encode() + b"\n"


async def read_message(reader: asyncio.StreamReader) -> JsonObject | None:
    """Read the next message; None at the end. The reader's limit is that of a line.

    Raises:
        ControlError: the other end sent something else.
    """
    pieces: list[str] = []
    size = 0
    while True:
        try:
            line = await reader.readline()
        except ValueError as error:
            raise ControlError(f"a line was longer than {CONTROL_LINE_BYTES} bytes") from error
        if not line.endswith(b"\n"):
            return None
        received = _object(line)
        piece = received.get("more", received.get("last"))
        if piece is None:
            if pieces:
                raise ControlError("a message was cut off in the middle")
            return received
        if not isinstance(piece, str) or (size := size + len(piece)) > MESSAGE_LIMIT:
            raise ControlError(f"a message was longer than {MESSAGE_LIMIT} bytes, or its pieces are not text")
        pieces.append(piece)
        if "last" in received:
            return _object("".join(pieces))


def _object(text: bytes | str) -> JsonObject:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ControlError("a line was not JSON") from error
    if not isinstance(value, dict):
        raise ControlError("a line was not a JSON object")
    return value
