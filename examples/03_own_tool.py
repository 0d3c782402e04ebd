"""A tool of your own: the model may call it, and people type it as a comma command."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryDirectory
from typing import Annotated

from msgspec import Meta

from bubbot import Args, ToolRetry, Turn, open_bot
from bubbot.tool import tool

SETTINGS = {"model": {"name": "scripted"}}


class DiceArgs(Args, frozen=True):
    """What the model is told to give; wrong arguments come back to it as a sentence."""

    sides: Annotated[int, Meta(description="how many sides the dice has")]


@tool("dice.fair", commands=("dice",))
async def dice(turn: Turn, args: DiceArgs) -> str:
    """Says what a fair dice with so many sides shows on average."""  # the docstring is what the model reads
    if args.sides < 2:
        raise ToolRetry("sides has to be 2 or more")
    await turn.tape.append_event("dice/asked", {"sides": args.sides})  # merged with the turn, or not at all
    return f"{(args.sides + 1) / 2:g} on average"


async def main(folder: str) -> None:
    """Types the command twice: wrong, then right."""
    async with open_bot(folder, SETTINGS, tools=[dice]) as bot:
        for text in (",dice one", ",dice 6"):
            print((await bot.say(text)).text)


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        asyncio.run(main(temporary))

# prints: 3.5 on average
