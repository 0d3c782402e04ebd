"""The quarantine of a home that was restored from a backup, until its release."""

from __future__ import annotations

from msgspec import Struct

from bubbot.gateway.facts import HomeReleased, HomeRestored
from bubbot.tape.entry import Kind
from bubbot.tape.fact import Cited
from bubbot.tape.query import TapeQuery
from bubbot.tape.view import QueryAnswers


class QuarantineView(Struct, frozen=True):
    """The restore that is not released yet, if any."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Query the newest fact by one indexed look-up."""
        return (
            TapeQuery(
                tape, kinds=(Kind.EVENT,), names=(*HomeRestored.EVENTS, *HomeReleased.EVENTS), newest=True, limit=1
            ),
        )

    def fold(self, answers: QueryAnswers) -> Cited[HomeRestored] | None:
        for entry in answers[0]:
            if entry.name in HomeRestored.EVENTS:
                return Cited.of(HomeRestored, entry)
        return None
