"""What goes from the access tape beside what names a forgotten person: the rest of their cards and grants."""

from __future__ import annotations

from collections.abc import Sequence, Set

from bubbot.features.approvals.facts import (
    AnswerRejected,
    ApprovalContinued,
    ApprovalDecided,
    ApprovalOpened,
    GrantRevoked,
)
from bubbot.features.approvals.state import APPROVALS_TAPE
from bubbot.ports.forgetting import ForgottenPerson, Restatement
from bubbot.tape.entry import TapeEntry
from bubbot.tape.fact import models_of

_OF_CARDS = models_of(ApprovalOpened, ApprovalDecided, ApprovalContinued, AnswerRejected)


def restate_approvals(
    _tape: str, entries: Sequence[TapeEntry], _person: ForgottenPerson, erased: Set[int]
) -> Restatement:
    """Erase all facts of a card that lost one, and the grant of an erased revocation, which would hold again."""
    cards = {entry.data["id"] for entry in entries if entry.id in erased and entry.name in _OF_CARDS}
    gone = {entry.id for entry in entries if entry.name in _OF_CARDS and entry.data["id"] in cards}
    gone |= {
        GrantRevoked.of(entry).grant for entry in entries if entry.id in erased and entry.name in GrantRevoked.EVENTS
    }
    return Restatement(frozenset(gone - erased))


FORGETTING = {APPROVALS_TAPE: restate_approvals}
