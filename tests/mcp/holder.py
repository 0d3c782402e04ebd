"""A process that connects to the place of its argument, says so, and stays connected: `python -m tests.mcp.holder JSON`."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from bubbot.features.mcp.child.values import ServerPlace
from tests.mcp.places import connected


async def main() -> None:
    """Hold the connection."""
    async with connected(msgspec.json.decode(sys.argv[1], type=ServerPlace)):
        print("connected", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
