"""What people allow, as the facts on the access tape say."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import Any, ClassVar

import msgspec

from bubbot.features.people.facts import Consent
from bubbot.ports.people import Account, Purpose
from bubbot.tape.fact import Cited, Current, FactState
from bubbot.tape.projection import checkpoint_model, project_facts


class ConsentState(FactState):
    """The newest answer of each account for each purpose, given and withdrawn ones.

    Erase all facts of a person together, or a consent would outlive its withdrawal.
    """

    FACTS: ClassVar = (Consent,)
    answers: Current[Consent] = msgspec.field(default_factory=Current)

    def find_answer(self, accounts: tuple[Account, ...], purpose: Purpose) -> Cited[Consent] | None:
        """Return the newest answer of a person with these accounts; None if the person never answered."""
        found = [self.answers.find((*account, purpose)) for account in accounts]
        return max((answer for answer in found if answer), key=lambda answer: answer.id, default=None)

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, _fact: Consent, cited: Cited[Any], /) -> None:
        self.answers.put(cited)  # a withdrawal stays: it counts against an older yes of another account


CONSENT_PROJECTION = project_facts(ConsentState, name="consent", version=1, tapes="bubbot/access", interval=500)

CHECKPOINTS = {CONSENT_PROJECTION.checkpoint_name: checkpoint_model(ConsentState)}
