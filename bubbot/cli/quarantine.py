"""The notice that a terminal shows for a home in quarantine."""

from __future__ import annotations

from contextlib import suppress

from bubbot.app.tapes import open_tapes, tape_service
from bubbot.cli.setup import CommandSetup
from bubbot.errors import StoreError
from bubbot.gateway.facts import HomeRestored
from bubbot.gateway.quarantine import Quarantine
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.fact import Cited
from bubbot.texts import Texts


async def read_quarantine_notice(setup: CommandSetup) -> str:
    """Read the notice for a home in quarantine; empty for other homes. It is safe while the bot runs."""
    restored = await read_quarantine(setup)
    if restored is None:
        return ""
    texts = Texts(setup.settings.bot.language)
    return texts.say("quarantined", name=restored.fact.backup, at=restored.fact.created[:19].replace("T", " "))


async def read_quarantine(setup: CommandSetup) -> Cited[HomeRestored] | None:
    """Read the backup from which a home in quarantine was restored; None for other homes."""
    with suppress(StoreError):  # no database exists yet, or the command itself reports its fault
        async with open_tapes(setup.home, setup.settings.store) as (store, _):
            return await Quarantine(tape_service(store, HOME_TAPE)).current_restore()
    return None
