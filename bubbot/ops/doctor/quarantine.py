"""Whether the home waits for its release from quarantine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from bubbot.errors import StoreError
from bubbot.home import Home
from bubbot.ops.doctor.finding import Finding, quoted
from bubbot.ops.doctor.stuck import never
from bubbot.quarantine import HOME_TAPE, Quarantine
from bubbot.stores.sqlite.store import open_readonly
from bubbot.tape.service import TapeService
from bubbot.views.quarantine import RestoreFact


def check_quarantine(home: Home) -> Iterator[Finding]:
    """A restored bot is deaf to everybody outside until somebody says that the other one is gone."""
    try:
        restored = asyncio.run(_standing(home))
    except StoreError:
        return  # told with the database
    if restored is not None:
        cause = (
            f"The home was restored from {restored.backup}, of {restored.created[:19]} UTC, and is in quarantine: no channel "
            "runs and no job fires. Where the bot that it was made from is gone for good, release it."
        )
        fix = f"bubbot restore --release --home {quoted(home.path)}"
        yield Finding("home.quarantine", "warning", cause, fix)


async def _standing(home: Home) -> RestoreFact | None:
    store = await open_readonly(home.database)
    try:
        return await Quarantine(TapeService(store, HOME_TAPE, now=never, new_id=str, session="")).standing()
    finally:
        await store.aclose()
