"""The line by which a terminal is told of a home in quarantine."""

from __future__ import annotations

from contextlib import suppress

from bubbot.cli.session_names import service
from bubbot.cli.setup import CommandSetup
from bubbot.errors import StoreError
from bubbot.quarantine import HOME_TAPE, Quarantine
from bubbot.texts import Texts
from bubbot.views.quarantine import RestoreFact
from bubbot.wiring.app import open_tapes


async def quarantine_line(made: CommandSetup) -> str:
    """What to tell whoever begins to talk; empty where the home is in none. Reads only, also beside a running bot."""
    restored = await read_quarantine(made)
    if restored is None:
        return ""
    texts = Texts(made.settings.bot.language)
    return texts.say("quarantined", name=restored.backup, at=restored.created[:19].replace("T", " "))


async def read_quarantine(made: CommandSetup) -> RestoreFact | None:
    """Read the backup that a home in quarantine was restored from; None for any other home."""
    with suppress(StoreError):  # there is no database yet, or the command itself is told what is wrong with it
        async with open_tapes(made.home) as (store, _):
            return await Quarantine(service(store, HOME_TAPE)).standing()
    return None
