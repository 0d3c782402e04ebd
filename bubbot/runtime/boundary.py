"""The turn boundary: how a failed turn ends, as a fact and as a text for people."""

from __future__ import annotations

import logging

from bubbot.errors import BubbotError, ModelCallDenied, ModelUnconfigured
from bubbot.ports.text import clean
from bubbot.ports.turn import Turn
from bubbot.runtime.loop import LoopResult
from bubbot.runtime.metering import record_denial
from bubbot.tape import entry as make

log = logging.getLogger(__name__)


async def record_failure(turn: Turn, error: Exception) -> LoopResult:
    """Record the error on the turn's tape, and build the text that people get."""
    if isinstance(error, ModelCallDenied):
        return LoopResult("failed", await record_denial(turn, error))
    if isinstance(error, BubbotError):
        await turn.tape.append([make.error(error.kind, clean(str(error)))])
        log.warning("turn failed: %s", error, extra={"action": "turn.failed", "kind": error.kind})
        unconfigured = isinstance(error, ModelUnconfigured)
        return LoopResult(
            "failed",
            turn.texts.add_trace(str(error), turn.id) if unconfigured else turn.texts.format_failure(error, turn.id),
        )
    log.error("turn failed", exc_info=error, extra={"action": "turn.failed"})
    await turn.tape.append([make.error("internal", clean(f"{type(error).__name__}: {error}"))])
    defect = turn.texts.say("defect", name=type(error).__name__)
    return LoopResult("failed", turn.texts.add_trace(turn.texts.say("failed", reason=defect), turn.id))
