"""The source of the turns with which a chat goes on after an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from bubbot.command import TERMINAL
from bubbot.ports.channel import Inbound, Outbound, Role
from bubbot.ports.turn import SourcedReply, Turn, TurnOutcome
from bubbot.tape.entry import TapeEntry


class ApprovalTurns:
    """Sets the role of such a turn, and where its answer goes. See `TurnSource`.

    `role_of` returns a person's current role.
    """

    def __init__(self, role_of: Callable[[Inbound], Role]) -> None:
        self._role_of = role_of

    def prepare(self, turn: Turn, inbound: Inbound) -> None:
        """Let the turn run in the role that its person has now. What was stored is read when it begins."""
        turn.role = Role.OWNER if inbound.sender.id == TERMINAL else self._role_of(inbound)
        turn.cause = inbound.external_id

    def build_reply(self, turn: Turn, inbound: Inbound, outcome: TurnOutcome) -> SourcedReply:  # noqa: ARG002 - the port's
        """Send the answer to the chat in which the calls came up."""
        return SourcedReply(outcome.text, Outbound(inbound.channel, inbound.chat, "", inbound.thread))

    def failure_entries(self, inbound: Inbound, reason: str) -> Mapping[str, Sequence[TapeEntry]]:  # noqa: ARG002
        """Return nothing: the failure is on the tape of the chat."""
        return {}
