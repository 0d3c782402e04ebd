"""Consent: whose words a turn has, and whether they allow what an export is for."""

from __future__ import annotations

from bubbot.features.learn.episodes import Reason
from bubbot.ports.people import Account, AsksConsent, Purpose
from bubbot.runtime.rerun import SpeakerFinder
from bubbot.runtime.turns import TurnRecord


class ConsentCheck:
    """Asks for each turn whether everybody whose words it may have allows a purpose. See `IsAllowed`.

    Each person is asked once: an export has one answer.
    """

    def __init__(self, speakers: SpeakerFinder, consents: AsksConsent, purpose: Purpose) -> None:
        self._speakers, self._consents, self._purpose = speakers, consents, purpose
        self._answers: dict[Account, bool] = {}

    async def __call__(self, turn: TurnRecord) -> Reason | None:
        """Return why a turn may not be used; None if it may."""
        people = await self._speakers.find(turn)
        if people is None:
            return "unknown people"
        for account in people - self._answers.keys():
            self._answers[account] = await self._consents.has_consented(account, self._purpose)
        return None if all(self._answers[account] for account in people) else "consent"
