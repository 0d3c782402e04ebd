"""Interrupted attempts at a sub-task: only those at the same order, in the turns that were interrupted."""

from __future__ import annotations

from bubbot.features.agents.record import AttemptsView, find_cut_off, find_finished
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.service import TapeService


def started(fork: str, order: str = "dig", turn: str = "t") -> TapeEntry:
    order_data = {"name": "task", "order": order, "depth": 1, "tools": [], "steps": 5, "tokens": 100, "mode": "delta"}
    return event("agent/started", {"fork": fork, **order_data}, turn=turn)


def ended(fork: str, order: str = "dig", turn: str = "t", status: str = "answered") -> TapeEntry:
    result = {"entries": [], "result": "", "steps": 1, "tools": [], "usage": {"input_tokens": 0, "output_tokens": 0}}
    data = {"fork": fork, "name": "task", "order": order, "status": status, "merged": False, **result}
    return event("agent/ended", data, turn=turn)


async def test_attempts_at_the_same_order_are_found_and_told_apart(tape: TapeService) -> None:
    others = [entry for number in range(500) for entry in (started(f"old {number}", "other"), ended("x", "dig", "u"))]
    await tape.append([started("forgotten"), *others])
    await tape.append([ended("other order", "fill"), ended("other turn", turn="another"), ended("in u", turn="u")])
    await tape.append([started("cut"), started("a"), ended("a"), started("b"), ended("b"), started("failed")])
    await tape.append([ended("failed", status="failed"), started("cut off last"), ended("discarded")])
    attempts = await tape.read(AttemptsView("dig", {"t"}))
    forks = ["cut", "a", "b", "failed", "cut off last", "discarded"]
    assert [attempt.fact.fork for attempt in attempts] == forks
    answered = set[str]()
    for found in ("a", "b", "discarded"):  # each answers one order, the oldest first
        finished = find_finished(attempts, answered)
        assert finished is not None
        assert finished.fact.fork == found
        answered.add(found)
    assert find_finished(attempts, answered) is None
    for found in ("cut off last", "failed", "cut"):  # the newest first
        cut_off = find_cut_off(attempts, answered)
        assert cut_off is not None
        assert cut_off.fact.fork == found
        answered.add(found)
    assert find_cut_off(attempts, answered) is None
