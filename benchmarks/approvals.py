"""What a decision about a call costs among many grants, and what an answer costs: `python -m benchmarks.approvals`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

from bubbot.features.approvals.decision import CallFacts, Place, decide
from bubbot.features.approvals.events import GRANTED
from bubbot.features.approvals.state import ApprovalState
from bubbot.ports.channel import Role
from bubbot.ports.tool import Effect, GrantKind, GrantTarget
from bubbot.tape.entry import TapeEntry, event

DEPTH = 8
"""Folders between a call and the one that a grant names."""


def grant_entry(number: int) -> TapeEntry:
    """Make the fact of a grant for a folder of its own."""
    data = {
        "tool": "file.send",
        "kind": "folder",
        "value": f"/srv/{number}",
        "approval": "22222",
        "by": "1",
        "channel": "telegram",
    }
    return replace(event(GRANTED, data), date="2026-11-24T00:00:00+00:00").with_id(number)


def measure(work: Callable[[], object], rounds: int) -> float:
    """Return microseconds of one round."""
    started = time.perf_counter()
    for _ in range(rounds):
        work()
    return (time.perf_counter() - started) / rounds * 1e6


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20_000)
    rounds = parser.parse_args().rounds
    for count in (0, 100, 10_000):
        entries = [grant_entry(number) for number in range(1, count + 1)]
        state = ApprovalState().apply(entries)
        target = GrantTarget(GrantKind.FOLDER, "/srv/77" + "/deeper" * DEPTH)

        def check(state: ApprovalState = state, target: GrantTarget = target) -> object:
            found = [matched for _, matched in state.find_grants("file.send", target)]
            grant = found[0] if found else None
            return decide(CallFacts(Effect(), Role.OWNER, Place.DIRECT, world=("chat", 7), grant=grant))

        fold = measure(lambda entries=entries: ApprovalState().apply(entries), 1) / 1000  # type: ignore[misc]
        print(f"{count:6} grants: {measure(check, rounds):6.1f} µs a decision, {fold:8.1f} ms to fold all")


if __name__ == "__main__":
    main()
