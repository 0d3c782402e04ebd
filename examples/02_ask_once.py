"""A whole bot for one question: the inbox, a turn on its fork, the merge, and the answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from bubbot.app.bot import open_app
from bubbot.app.tapes import new_id, now
from bubbot.home import Home
from bubbot.ports.channel import Inbound, Sender
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.tape.entry import timestamp

SETTINGS = Settings(model=ModelSettings(name="scripted"))  # repeats what it is told; needs no key


async def main(home: Home) -> None:
    """Asks, and shows what the turn left on the tape."""
    async with open_app(SETTINGS, home, hold=True) as app:  # hold: answers are not printed by the bot itself
        sender = Sender("0", "owner")
        inbound = Inbound("stdin", new_id(), "example", sender, "Hello", timestamp(now()))
        result = await app.ask(inbound)
        for entry in result.merged_entries:
            print(entry.id, entry.kind, entry.name or "")
        print(f"{result.status}: {result.text}")


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        asyncio.run(main(Home(Path(temporary))))

# prints: answered: You said: Hello
