"""The reaction to a request that is longer than the model's context: a new window, and one more try."""

from __future__ import annotations

from bubbot.errors import ModelOverflow
from bubbot.ports.text import clean
from bubbot.ports.turn import Turn
from bubbot.tape.anchor import OVERFLOW_HANDOFF
from bubbot.tape.handle import spans_of


async def overflow_handoff(turn: Turn, error: ModelOverflow) -> None:
    """Open a new window that keeps the messages the turn answers, and make it durable."""
    state = {"reason": "context_length_exceeded", "error": clean(str(error))}
    await turn.tape.handoff(OVERFLOW_HANDOFF, state, recalls=spans_of(turn.message_ids))
    await turn.tape.save()
