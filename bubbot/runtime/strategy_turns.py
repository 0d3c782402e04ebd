"""Turns in which context strategies hand off: asked for by a command, or due after an answer, before the next message."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import md5

from msgspec import Struct

from bubbot.command import Caller
from bubbot.errors import BubbotError
from bubbot.middleware import CallNext
from bubbot.ports.channel import OWN_WORDS, Inbound, Outbound, Role
from bubbot.ports.turn import SourcedReply, Turn, TurnOutcome
from bubbot.runtime.handoffs import find_opening
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.events import TURN_START
from bubbot.tape.fork import MergeResult

log = logging.getLogger(__name__)

Accept = Callable[[Inbound, Mapping[str, Sequence[TapeEntry]]], Awaitable[bool]]


class HandoffRequest(Struct, frozen=True):
    """A handoff that is written at the end of the turn in which its command was typed.

    Attributes:
        owner: who asked for it: `human` or `agent`.
    """

    owner: str

    def describe(self, _caller: Caller) -> str:
        """Say nothing: what became of it is said when it is written."""
        return ""


class StrategyTurns:
    """Lets strategies hand off at the end of turns, and asks for turns in which they do. See `TurnSource`."""

    def __init__(self, accept: Accept, origin: str, command: str) -> None:
        """Build it.

        Args:
            accept: accepts the inbound of a turn of its own.
            origin: the origin of these turns.
            command: their text, a command that leaves a `HandoffRequest` with its turn.
        """
        self._accept = accept
        self._origin = origin
        self._command = command
        self._due: dict[str, tuple[str, Inbound]] = {}

    async def around_turn(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Let the strategy hand off if a command of the turn asks for it, or note that it wants a turn of its own."""
        outcome = await call_next(turn)
        request = turn.find_metadata(HandoffRequest)
        if request is None:
            try:
                await self._note_if_due(turn)
            except BubbotError as error:  # the answer is there, and more important
                log.warning("no turn for a handoff: %s", error, extra={"action": "context.handoff_refused"})
            return outcome
        if outcome.status != "answered":
            return outcome
        if not turn.is_typed and turn.inbounds[0].inbound.external_id != self._key(turn, await find_opening(turn)):
            return TurnOutcome("silent", "")  # the window that it was for is over
        notices = await turn.runner.hand_off(turn, request.owner)
        return TurnOutcome("answered", "\n\n".join([*([outcome.text] if outcome.text else []), *notices]))

    async def _note_if_due(self, turn: Turn) -> None:
        """Note the inbound of a turn of its own if the strategy of this turn wants one."""
        self._due.pop(turn.session, None)
        if not turn.inbounds or turn.role is Role.STRANGER or not await turn.runner.needs_handoff(turn):
            return
        if (opening := await find_opening(turn)) is not None:
            self._due[turn.session] = (turn.id, self._build_inbound(turn, opening))

    async def on_merged(self, result: MergeResult) -> None:
        """Accept what is due after the turn that was merged. It needs no second try: the next turn notes it again."""
        start = next((entry for entry in result.delta if entry.name == TURN_START), None)
        if start is None:
            return
        turn_id, inbound = self._due.pop(start.data.get("session", ""), ("", None))
        if inbound is None or turn_id != start.meta.get("turn"):
            return
        try:
            await self._accept(inbound, {})
        except BubbotError as error:
            log.warning("no turn for a handoff: %s", error, extra={"action": "context.handoff_refused"})

    def prepare(self, turn: Turn, inbound: Inbound) -> None:  # noqa: ARG002 - the port's signature
        """See `TurnSource.prepare`: it calls no tools, and is for the chat, whoever wrote last."""
        turn.role = Role.MEMBER

    def build_reply(self, turn: Turn, inbound: Inbound, outcome: TurnOutcome) -> SourcedReply:  # noqa: ARG002
        """See `TurnSource.build_reply`: a handoff is announced; that there is none is not, since nobody waits for it."""
        if outcome.status not in ("answered", "stopped"):
            return SourcedReply()
        return SourcedReply(outcome.text, Outbound(inbound.channel, inbound.chat, "", inbound.thread))

    def failure_entries(self, inbound: Inbound, reason: str) -> Mapping[str, Sequence[TapeEntry]]:  # noqa: ARG002
        """See `TurnSource.failure_entries`."""
        return {}

    def _key(self, turn: Turn, opening: TapeEntry | None) -> str:
        """Return the external id of a turn of its own: one for each window. It holds no words of people, not even a chat."""
        place = f"{turn.session} {opening.id} {opening.date}" if opening else turn.session
        return f"{self._origin}:{md5(place.encode(), usedforsecurity=False).hexdigest()}"

    def _build_inbound(self, turn: Turn, opening: TapeEntry) -> Inbound:
        """Build the inbound of a turn of its own, in the chat of this turn."""
        key, last = self._key(turn, opening), turn.inbounds[-1].inbound
        return last.follow_up(key, self._command, timestamp(turn.now()), origin=self._origin, provenance=OWN_WORDS)
