"""Run the handoff of a context strategy, in a turn of its own, and the question whether one is due.

Both run in bounded time, with ports that end with them, as a preparation does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from bubbot.errors import EntryInvalid, StrategyFailed
from bubbot.formatting import clean
from bubbot.ports.turn import Turn
from bubbot.runtime.context.ports import MAX_HANDOFF_CALLS, StrategyPorts, StrategySources
from bubbot.runtime.context.strategy import ContextStrategy, HandoffInput, StrategyHandoff
from bubbot.runtime.preparation import MAX_FACT_BYTES, describe_error, run_in_time
from bubbot.tape.entry import TapeEntry, canonical
from bubbot.tape.provenance import track_reads
from bubbot.tape.query import OpeningAnchor, TapeQuery

log = logging.getLogger(__name__)

HANDOFF_SECONDS = 1_800.0
"""The time limit of a handoff."""
HANDOFF_PREFIX = "auto_handoff/"
"""The name of its anchor: this, then that of the strategy."""
_CONTRACT = ("phase", "summary", "next_steps", "source_ids")


async def find_opening(turn: Turn) -> TapeEntry | None:
    """Return the anchor that opened the window of a turn."""
    found = (await turn.tape.fetch([TapeQuery(turn.tape.name, OpeningAnchor(), missing="empty")]))[0]
    return found[0] if found else None


async def ask_if_due(
    turn: Turn, strategy: ContextStrategy, source: HandoffInput, sources: StrategySources, seconds: float
) -> bool:
    """Ask a strategy whether it wants a turn of its own. It may read, and asks no model.

    Raises:
        StrategyFailed: it raised, took too long, or returned something else.
        StoreError: the store failed.
    """
    if strategy.is_due is None:
        return False
    ports = StrategyPorts(turn, strategy.name, sources, _given(source), max_calls=0, task="question")
    is_due = await run_in_time(strategy, "is_due", partial(strategy.is_due, ports, source), ports, seconds)
    if not isinstance(is_due, bool):
        raise StrategyFailed(strategy.name, f"is_due: it returned a {type(is_due).__name__}")
    return is_due


async def run_handoff(
    turn: Turn, strategy: ContextStrategy, source: HandoffInput, sources: StrategySources, owner: str
) -> str | None:
    """Let a strategy hand off, and open the window that begins with what it returns.

    Args:
        owner: who asked for it: `human` or `agent`.

    Returns:
        What people are told; None if there was nothing to hand off.

    Raises:
        StrategyFailed: it raised, took too long, or returned what cannot be stored; no window was opened.
        StoreError: the store failed.
    """
    if strategy.hand_off is None:
        return None
    ports = StrategyPorts(turn, strategy.name, sources, _given(source), max_calls=MAX_HANDOFF_CALLS, task="handoff")
    with track_reads(turn.tape.raise_source):  # also without the model it is made of what it reads
        call = partial(strategy.hand_off, ports, source)
        found = await run_in_time(strategy, "hand_off", call, ports, HANDOFF_SECONDS)
    if found is None:
        return None
    if not isinstance(found, StrategyHandoff):
        raise StrategyFailed(strategy.name, f"hand_off: it returned a {type(found).__name__}")
    turn.tape.raise_source(ports.source)
    try:
        state = _build_state(found, ports, source, owner)
        anchor = await turn.tape.handoff(f"{HANDOFF_PREFIX}{strategy.name}", state, recalls=found.recalls)
    except (EntryInvalid, TypeError, ValueError, RecursionError) as error:
        raise describe_error(strategy, "hand_off", error) from error
    try:
        return clean(found.describe(anchor.id))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a package is third-party code, and its window is open
        log.warning("a handoff is not announced: %s", error, extra={"action": "context.handoff_silent"})
        return ""


def _given(source: HandoffInput) -> list[TapeEntry]:
    return [] if source.opening is None else [source.opening]


def _build_state(found: StrategyHandoff, ports: StrategyPorts, source: HandoffInput, owner: str) -> Mapping[str, Any]:
    """Build the state of the anchor. Raise `ValueError` or `TypeError` if it cites what the strategy was not shown."""
    if not isinstance(found.state, Mapping):
        raise TypeError(f"its state is a {type(found.state).__name__}, not an object")
    for cited in found.state.get("source_ids", ()):
        if not ports.has_shown(cited):
            raise ValueError(f"its state cites {cited!r}, which it was not given")
    if not ports.knows(found.recalls):
        raise ValueError("it recalls entries that it was not given")
    state: dict[str, Any] = {key: found.state[key] for key in _CONTRACT if key in found.state}
    state["owner"] = owner
    if source.opening is not None:
        state["parents"] = [source.opening.id]
    state |= {key: value for key, value in found.state.items() if key not in (*_CONTRACT, "owner", "parents")}
    if (size := len(canonical(state).encode())) > MAX_FACT_BYTES:
        raise ValueError(f"its state has {size} bytes; {MAX_FACT_BYTES} are allowed")
    return state
