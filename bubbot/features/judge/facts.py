"""The facts about judgements; they stand on the tape of what they judge."""

from __future__ import annotations

from bubbot.ports.judgements import Judgement
from bubbot.tape.fact import Fact

FACTS: tuple[type[Fact], ...] = (Judgement,)
COPIES = Judgement.EVENTS
"""A rationale may quote what is judged: it goes if that is erased."""
