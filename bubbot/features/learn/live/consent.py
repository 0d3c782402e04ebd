"""Consent before a request leaves for the proxy: everybody whose words it may hold has to allow training."""

from __future__ import annotations

from collections import OrderedDict

from bubbot.feature import OpenCopy
from bubbot.features.learn.episodes import Reason
from bubbot.features.learn.people import ConsentCheck
from bubbot.middleware import ModelCall
from bubbot.ports.people import AsksConsent
from bubbot.runtime.rerun import SpeakerFinder
from bubbot.runtime.turns import TurnRecord
from bubbot.tape.entry import event
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.fork import ForkedTape

MAX_CHATS = 100
"""Chats of which it stays known who spoke where; others are read again."""


class LiveConsent:
    """Asks for each request of a running turn. It reads each chat once, and then what is new."""

    def __init__(self, consents: AsksConsent, open_copy: OpenCopy) -> None:
        self._consents = consents
        self._open_copy = open_copy
        self._chats: OrderedDict[str, tuple[int, SpeakerFinder]] = OrderedDict()

    async def check(self, call: ModelCall) -> Reason | None:
        """Return why a request may not be sent; None if it may."""
        turn = call.turn
        speakers = await self._find_speakers(turn.tape)
        # The step as it will be recorded: what it shows counts before it is sent.
        step = event(STEP_EVENT, dict(call.step)).with_id(await turn.tape.head())
        check = ConsentCheck(speakers, self._consents, "training")
        return await check(TurnRecord.of([*turn.tape.delta, step]))

    async def _find_speakers(self, tape: ForkedTape) -> SpeakerFinder:
        """Return the finder for the tape of a turn."""
        if not tape.base:
            return SpeakerFinder(tape)
        base, speakers = self._chats.pop(tape.name, (0, None))
        if speakers is None or base > tape.base:  # the chat began anew
            speakers = SpeakerFinder(await self._open_copy(tape.name))
        await speakers.find_before(tape.base)
        self._chats[tape.name] = tape.base, speakers
        if len(self._chats) > MAX_CHATS:
            self._chats.popitem(last=False)
        return speakers.go_on(tape)
