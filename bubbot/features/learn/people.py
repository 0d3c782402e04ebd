"""Consent: whose words a turn has, and whether they allow what an export is for."""

from __future__ import annotations

from bubbot.features.learn.episodes import Reason
from bubbot.ports.people import AsksConsent, Purpose
from bubbot.runtime.rerun import SpeakerFinder
from bubbot.runtime.turns import TurnRecord


class ConsentCheck:
    """Asks for each turn whether everybody whose words it may have allows a purpose. See `IsAllowed`."""

    def __init__(self, speakers: SpeakerFinder, consents: AsksConsent, purpose: Purpose) -> None:
        self._speakers, self._consents, self._purpose = speakers, consents, purpose

    async def __call__(self, turn: TurnRecord) -> Reason | None:
        """Return why a turn may not be used; None if it may."""
        people = await self._speakers.find(turn)
        if people is None:
            return "unknown people"
        allowed = [await self._consents.has_consented(account, self._purpose) for account in sorted(people)]
        return None if all(allowed) else "consent"
