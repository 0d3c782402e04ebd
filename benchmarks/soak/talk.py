"""JSON lines between the soak and its processes: ask one question and print the answer, and progress in between."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]


async def asked() -> AsyncIterator[Message]:
    """What this process is asked on its standard input, until that closes: then whoever started it has gone."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    try:
        while line := await reader.readline():
            yield json.loads(line)
    finally:
        transport.close()


def tell(message: Message) -> None:
    """Says something on standard output."""
    print(json.dumps(message), flush=True)
