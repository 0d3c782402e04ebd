"""A whole bot for one question: the inbox, a turn on its fork, the merge, and the answer."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryDirectory

from bubbot import open_bot

SETTINGS = {"model": {"name": "scripted"}}  # repeats what it is told; needs no key


async def main(folder: str) -> None:
    """Asks, and shows what the turn left on the tape."""
    async with open_bot(folder, SETTINGS) as bot:
        result = await bot.say("Hello", chat="example")
        for entry in result.merged_entries:
            print(entry.id, entry.kind, entry.name or "")
        print(f"{result.status}: {result.text}")


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        asyncio.run(main(temporary))

# prints: answered: You said: Hello
