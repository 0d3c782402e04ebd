"""The quarantine of a home that was made of a backup: the bot it was made from may have gone on meanwhile.

Until it is released the home has no outside channels and keeps no time. The facts are on the tape `bubbot/home`.
"""

from __future__ import annotations

from bubbot.tape import erasure
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.service import TapeService
from bubbot.views.quarantine import RELEASED, RESTORED, QuarantineView, RestoreFact

HOME_TAPE = erasure.HOME_TAPE
"""The system's tape that says what became of the home itself."""


class Quarantine:
    """Knows whether a home is in quarantine."""

    def __init__(self, tape: TapeService) -> None:
        self._tape = tape

    async def begin(self, backup: str, *, created: str, head: str, bubbot: str) -> None:
        """The fact that the home was made of a backup of this name, by which its deployment head is known."""
        await self._tape.append(
            [event(RESTORED, {"backup": backup, "created": created, "head": head, "bubbot": bubbot})]
        )

    async def standing(self) -> RestoreFact | None:
        """The restore that was not released yet; None where there is none."""
        return await self._tape.read(QuarantineView())


def released(*, deliver: bool, intents: int, inbounds: int, jobs: int) -> TapeEntry:
    """The fact that a quarantine has ended; the numbers say how much of each was ended with it."""
    return event(RELEASED, {"deliver": deliver, "intents": intents, "inbounds": inbounds, "jobs": jobs})
