"""What tasks cost: `python -m benchmarks.tasks [--nodes 10,100,1000] [--entries 0,100000] [--rules 25]`.

Boundary: from the end of a node's last model call to the first model call of the next node, in milliseconds of the clock on the
wall and of the processor, over a real database and with a model that answers at once. It holds the end of the node, the turn that ends and the one that goes on
with the run (in a chain), and the request of the next node. `chain`: each node waits for the one before, so that each boundary
is one between turns. `wide`: all nodes are ready at once, two at the same time, in one turn.

Harness: what it adds to a tool call of a node, which is judging and recording the call and its result, with their facts.

`--profile` prints the functions in which the boundaries of the largest chain spend their time.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import os
import pstats
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bubbot.features.tasks.facts import RunQueued
from bubbot.features.tasks.harness.feature_files import parse_harness
from bubbot.features.tasks.harness.monitor import Monitor
from bubbot.features.tasks.schema import TaskNode, TaskSchema
from bubbot.features.tasks.state import begin_run
from bubbot.features.tasks.work import RunWork
from bubbot.ports.model import ModelEvent, ModelRequest
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.entry import message
from bubbot.tape.fact import Cited
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.task_bench import NodePlan, NodePlayer, define, running_tasks
from tests.turns import HOME, Replying

BATCH = 1_000
"""Entries that are written at once."""
CONTRACT = {"type": "object", "required": ["made"]}
SKIPPED = 3
"""Boundaries before the clock counts: the first ones import and compile."""
CALLS = 2_000
"""Tool calls of the harness."""
SECONDS = 3_600.0
"""A run may take so long."""


@dataclass
class TimedPlayer(NodePlayer):
    """One that takes the time between the end of a reply and the next request of another node.

    Attributes:
        boundaries: in milliseconds, of the wall clock and of the processor.
    """

    boundaries: list[tuple[float, float]] = field(default_factory=list)
    _ended: tuple[float, float] = (0.0, 0.0)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        wall, processor = self._ended
        if wall:
            self.boundaries.append((1_000 * (time.perf_counter() - wall), 1_000 * (time.process_time() - processor)))
        async for event in super().stream(request):
            self._ended = time.perf_counter(), time.process_time()
            yield event


def make_schema(nodes: int, *, is_chain: bool) -> TaskSchema:
    """Make a task of so many nodes."""
    made = {
        f"n{number}": TaskNode(
            prompt=f"STEP-n{number}",
            after=(f"n{number - 1}",) if is_chain and number else (),
            artifact=CONTRACT,
            shown=("artifacts", "description"),
        )
        for number in range(nodes)
    }
    return TaskSchema(nodes=made, parallel=2)


async def fill(store: SqliteStore, entries: int) -> None:
    """Write so many entries into the chat."""
    tape = TapeService(store, HOME, now=SteppingClock(), new_id=CountingIds("fill"), session=HOME)
    await tape.ensure_bootstrap_anchor()
    for start in range(0, entries, BATCH):
        size = min(BATCH, entries - start)
        await tape.append([message("user", f"{start + number}: how is the garden?") for number in range(size)])
    if entries:
        await tape.handoff("auto_handoff/summary", {"summary": "They talked.", "owner": "agent"})


async def measure_boundaries(
    nodes: int, entries: int, rules: str, *, is_chain: bool, folder: Path
) -> Sequence[tuple[float, float]]:
    """Return the milliseconds of each boundary of a run, see `TimedPlayer`."""
    async with AsyncExitStack() as stack:
        store = await open_store(folder / f"{nodes}-{entries}-{is_chain}.db", salt=os.urandom, now=SteppingClock())
        stack.push_async_callback(store.aclose)
        await fill(store, entries)
        player = TimedPlayer({f"n{number}": NodePlan(answers=('{"made": 1}',)) for number in range(nodes)})
        definition = define(make_schema(nodes, is_chain=is_chain), rules)
        bench = await stack.enter_async_context(running_tasks(store, Replying(player.stream), definition))
        await bench.bench.say(",trip.begin")
        await bench.bench.quiet(SECONDS)
        assert bench.run.status == "succeeded", bench.run.status
        return player.boundaries[SKIPPED:]


def make_rules(number: int) -> str:
    """Make rules of all kinds about tools that are called, or that might be."""
    forms = (
        'Scenario: At most {n}\n    Then tool "tool{n}.*" is called at most 100000 times',
        'Scenario: Never {n}\n    When tool "gone{n}.send" is called\n    Then it is refused',
        'Scenario: After {n}\n    When tool "late{n}.send" is called\n    Then tool "tool{n}.send" was called before',
        'Scenario: Small {n}\n    When tool "tool{n}.*" is called and its text contains "x"\n    Then its size is at most 9',
        'Scenario: Often {n}\n    Then tool "tool{n}.*" is called at most 100000 times within 60 seconds',
    )
    scenarios = (forms[place % len(forms)].format(n=place % 7) for place in range(number))
    return "\n".join(["Feature: Rules", *(f"  {scenario}" for scenario in scenarios), ""])


async def measure_harness(nodes: int, rules: str, folder: Path) -> Sequence[float]:
    """Return the milliseconds that the harness adds to each of many tool calls in one run."""
    definition = define(make_schema(nodes, is_chain=True), rules)
    harness = parse_harness(definition.harness)
    person = HOME, "test", "1", "Ann", (), True, "", tuple(definition.schema.nodes), True, "m1"
    state = begin_run(Cited(RunQueued("RUN22", "trip", *person), 1))
    work, spent = RunWork(state, definition, "", harness, Monitor(harness), 1), list[float]()
    store = await open_store(folder / f"harness-{nodes}.db", salt=os.urandom, now=SteppingClock())
    try:
        tape = TapeService(store, HOME, now=SteppingClock(), new_id=CountingIds(), session=HOME)
        await tape.ensure_bootstrap_anchor()
        fork = await tape.open_fork([])
        now = datetime(2026, 11, 30, tzinfo=UTC)
        for number in range(CALLS):
            now += timedelta(seconds=1)
            started = time.perf_counter()
            called = work.make_event("call", f"tool{number % 7}.send", "n0", now, {"text": "x", "size": 3})
            assert not work.judge(called, 1)
            await work.record(fork, called, 1)
            await work.record(fork, work.make_event("result", called.name, "n0", now, {"ok": True}), 1)
            spent.append(1_000 * (time.perf_counter() - started))
    finally:
        await store.aclose()
    return spent


def show(title: str, spent: Sequence[float]) -> None:
    """Print a line: the median, the 99th of 100, and the second half compared with the first one."""
    ordered = sorted(spent)
    half = len(spent) // 2
    growth = statistics.median(spent[half:]) / statistics.median(spent[:half]) if half else 1.0
    late = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    print(f"{title:<44} median {statistics.median(spent):8.3f} ms   99 % {late:8.3f} ms   growth {growth:5.2f}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", default="10,100,1000", help="nodes of a task, with commas")
    parser.add_argument("--entries", default="0,100000", help="entries of the chat before, with commas")
    parser.add_argument("--rules", type=int, default=25, help="rules of the harness")
    parser.add_argument("--profile", action="store_true", help="print where the time of the largest chain goes")
    asked = parser.parse_args()
    rules = make_rules(asked.rules)
    sizes = [int(size) for size in asked.nodes.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for nodes in sizes:
            show(f"harness per call, {nodes} nodes", asyncio.run(measure_harness(nodes, rules, folder)))
        for entries in map(int, asked.entries.split(",")):
            for nodes in sizes:
                for is_chain in (True, False):
                    work = measure_boundaries(nodes, entries, rules, is_chain=is_chain, folder=folder)
                    spent = asyncio.run(work)
                    shape = "chain" if is_chain else "wide"
                    title = f"boundary, {shape} of {nodes} nodes, {entries} entries"
                    show(title, [wall for wall, _ in spent])
                    show(f"{'':>9} of the processor", [processor for _, processor in spent])
        if asked.profile:
            with cProfile.Profile() as profile:
                asyncio.run(measure_boundaries(max(sizes), 1, rules, is_chain=True, folder=folder))
            pstats.Stats(profile).sort_stats("cumulative").print_stats(60)


if __name__ == "__main__":
    main()
