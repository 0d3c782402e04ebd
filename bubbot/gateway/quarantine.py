"""The quarantine of a home restored from a backup: the original bot may have kept running.

Until its release the home has no outside channels and runs no schedules. The facts are on the tape `bubbot/home`.
"""

from __future__ import annotations

from msgspec import UNSET

from bubbot.errors import StoreError
from bubbot.gateway.facts import HomeReleased, HomeRestored
from bubbot.gateway.quarantine_view import QuarantineView
from bubbot.ports.checks import Check, Finding, HomeReader, shell_quote
from bubbot.tape.entry import TapeEntry
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.fact import Cited
from bubbot.tape.service import TapeService


class Quarantine:
    """The record of a home's restores and releases."""

    def __init__(self, tape: TapeService) -> None:
        self._tape = tape

    async def record_restore(self, backup: str, *, created: str, head: str, bubbot: str, lost: str = "") -> None:
        """Record that the home was restored from the backup with this name and deployment head.

        `lost`: it was restored from its own damaged database; the text names the damage.
        """
        fact = HomeRestored(backup=backup, created=created, head=head, bubbot=bubbot, lost=lost or UNSET)
        await self._tape.append([fact.to_entry()])

    async def current_restore(self) -> Cited[HomeRestored] | None:
        """Return the restore that is not released yet, if any."""
        return await self._tape.read(QuarantineView())


async def check_quarantine(home: HomeReader) -> list[Finding]:
    """Report a restored home that waits for its release: until then its bot receives nothing."""
    try:
        async with home.open_tape(HOME_TAPE) as tape:
            restored = await Quarantine(tape).current_restore()
    except StoreError:
        return []  # the check of the database reports it
    if restored is None:
        return []
    cause = (
        f"The home was restored from {restored.fact.backup}, of {restored.fact.created[:19]} UTC, and is in quarantine: no channel "
        "runs and no job fires. If the original bot will never run again, release it."
    )
    fix = f"bubbot restore --release --home {shell_quote(home.home)}"
    return [Finding("home.quarantine", "warning", cause, fix)]


QUARANTINE_CHECKS = (Check("the quarantine", check_quarantine, reads_tapes=True, needs_settings=False),)


def release_entry(*, deliver: bool, intents: int, inbounds: int, jobs: int, approvals: int = 0) -> TapeEntry:
    """Make the fact that a quarantine has ended; the numbers count the items that ended with it."""
    return HomeReleased(deliver=deliver, intents=intents, inbounds=inbounds, jobs=jobs, approvals=approvals).to_entry()
