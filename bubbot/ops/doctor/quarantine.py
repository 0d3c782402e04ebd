"""The quarantine of a restored home."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from bubbot.app.stores import open_home_store
from bubbot.errors import StoreError
from bubbot.gateway.quarantine import Quarantine
from bubbot.gateway.quarantine_view import RestoreFact
from bubbot.home import Home
from bubbot.ops.doctor.finding import Finding, shell_quote
from bubbot.ops.doctor.stuck import unused_clock
from bubbot.settings.sections import DEFAULT_STORE, StoreSettings
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.service import TapeService


def check_quarantine(home: Home, *, store: StoreSettings = DEFAULT_STORE) -> Iterator[Finding]:
    """Report a restored home that waits for its release: until then its bot receives nothing."""
    try:
        fact = asyncio.run(_read_quarantine(home, store))
    except StoreError:
        return  # the check of the database reports it
    if fact is not None:
        cause = (
            f"The home was restored from {fact.backup}, of {fact.created[:19]} UTC, and is in quarantine: no channel "
            "runs and no job fires. If the original bot will never run again, release it."
        )
        fix = f"bubbot restore --release --home {shell_quote(home.path)}"
        yield Finding("home.quarantine", "warning", cause, fix)


async def _read_quarantine(home: Home, store_settings: StoreSettings) -> RestoreFact | None:
    store = await open_home_store(store_settings, home, now=unused_clock, readonly=True)
    try:
        return await Quarantine(
            TapeService(store, HOME_TAPE, now=unused_clock, new_id=str, session="")
        ).current_restore()
    finally:
        await store.aclose()
