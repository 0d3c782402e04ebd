"""What a release of a restored home ends: the original bot may have been answered, and may have acted."""

from __future__ import annotations

import os
from datetime import datetime

from bubbot.command import TERMINAL
from bubbot.features.approvals.decider import Decider, decided_key
from bubbot.features.approvals.service import ApprovalService, continued_entry
from bubbot.features.approvals.settings import ApprovalSettings
from bubbot.features.approvals.state import APPROVALS_TAPE
from bubbot.ports.channel import Role
from bubbot.shell_command import CommandContext
from bubbot.tape.entry import TapeEntry

REASON = "restored"
_RELEASE = Decider(TERMINAL, TERMINAL, "", Role.OWNER, "", has_power=True, surface="release")


async def end_open_work(context: CommandContext, _at: datetime) -> tuple[str, list[TapeEntry], int]:
    """Return the tape and the facts that refuse each open card and end each answer whose turn was not queued, and their number."""
    service = ApprovalService(context.open_tape, context.now, os.urandom, ApprovalSettings())
    await service.load()
    opened = [card.fact for card in service.list_unanswered()]
    refused = [_RELEASE.decide(card, "denied", reason=REASON).to_entry(key=decided_key(card.id)) for card in opened]
    answered = [each.decided.fact.id for each in service.state.decided]
    ended = [continued_entry(number) for number in [*(card.id for card in opened), *answered]]
    return APPROVALS_TAPE, [*refused, *ended], len(ended)
