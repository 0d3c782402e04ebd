"""A model of your own, from the outside in: put around the configured one, or in its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bubbot.app.bot import PortWrappers, open_app
from bubbot.app.tapes import new_id, now
from bubbot.home import Home
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ModelTraits, TextDelta, Usage
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.tape.entry import timestamp

SETTINGS = Settings(model=ModelSettings(name="scripted"))


class Shouting:
    """Repeats the last message in capitals. It keeps nothing: the answer depends on the request alone."""

    name = "shouting"
    traits = ModelTraits(tools=False, short_prompt=True)  # so that no request it would not understand is built

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Pieces of text, then exactly one reply."""
        text = str(request.messages[-1]["content"]).upper()
        yield TextDelta(text)
        yield ModelReply(text, usage=Usage(len(request.as_bytes()) // 4, len(text) // 4), model=self.name)

    async def aclose(self) -> None:
        """Nothing to free."""


async def main(home: Home) -> None:
    """Asks the model, then asks the tape which model it was."""
    async with open_app(SETTINGS, home, hold=True, wrappers=PortWrappers(model=lambda _: Shouting())) as app:
        sender = Sender("0", "owner")
        inbound = Inbound("stdin", new_id(), "example", sender, "is anybody there?", timestamp(now()))
        result = await app.ask(inbound)
        step = next(entry for entry in result.merged_entries if entry.name == "loop.step")
        print(f"{step.payload['data']['model']}: {result.text}")


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        asyncio.run(main(Home(Path(temporary))))

# prints: shouting: IS ANYBODY THERE?
