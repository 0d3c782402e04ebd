"""A tool of your own: the model may call it, and people type it as a comma command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from msgspec import Meta

from bubbot.app.bot import PortWrappers, open_app
from bubbot.app.tapes import new_id, now
from bubbot.arguments.fields import Args
from bubbot.errors import ToolRetry
from bubbot.home import Home
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.turn import Turn
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.tape.entry import timestamp
from bubbot.tool import tool

SETTINGS = Settings(model=ModelSettings(name="scripted"))


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


async def main(home: Home) -> None:
    """Types the command twice: wrong, then right."""
    async with open_app(SETTINGS, home, hold=True, wrappers=PortWrappers(tools=[dice])) as app:
        for text in (",dice one", ",dice 6"):
            inbound = Inbound("stdin", new_id(), "example", Sender("0", "owner"), text, timestamp(now()))
            print((await app.ask(inbound)).text)


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        asyncio.run(main(Home(Path(temporary))))

# prints: 3.5 on average
