"""What a release of a restored home ends: the original bot may have been answered, and may have acted."""

from __future__ import annotations

from bubbot.features.approvals.service import ApprovalService, Decider, continued_entry, decided_entry
from bubbot.ports.channel import Role
from bubbot.tape.entry import TapeEntry

REASON = "restored"
_RELEASE = Decider("terminal", "terminal", "", Role.OWNER, "", has_power=True, surface="release")


def end_approvals(service: ApprovalService) -> tuple[list[TapeEntry], int]:
    """Make the facts that refuse each open card and end each answer whose turn was not queued; and count them."""
    opened, decided = service.list_unanswered(), service.state.decided
    refused = [decided_entry(card, "denied", _RELEASE, "once", REASON) for card in opened]
    ended = [continued_entry(number) for number in [*(card.id for card in opened), *decided]]
    return [*refused, *ended], len(ended)
