"""Runs of tasks that chance makes: their order, what nodes are shown, and that the tape alone says how far they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bubbot.features.tasks.contracts import parse_artifact
from bubbot.features.tasks.facts import TASKS_TAPE, ArtifactMade, NodeChanged
from bubbot.features.tasks.graph import TaskGraph
from bubbot.features.tasks.runs import list_waiting
from bubbot.features.tasks.schema import TaskNode, TaskSchema
from bubbot.features.tasks.state import TASKS_PROJECTION, RunState
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind, TapeEntry, thaw
from bubbot.tape.projection import ProjectedTape, read_projection
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, SteppingClock
from tests.property.test_task_graphs import graphs
from tests.task_bench import NodePlan, NodePlayer, TaskBench, define, running_tasks
from tests.turns import HOME

CONTRACT = {"type": "object", "required": ["made"], "properties": {"made": {"type": "integer"}}}
MAX_ROUNDS = 40
EXAMPLES = min(settings().max_examples, 200)
"""Each example is a whole run or two, so the proof has fewer of them than others."""
ANCHORS = ("task/", "dag.node/")


@dataclass(frozen=True)
class Trip:
    """A task and what the model does in it."""

    schema: TaskSchema
    plans: dict[str, NodePlan]


@st.composite
def trips(draw: st.DrawFn) -> Trip:
    """Make a task whose nodes succeed in the end: some are gates, some fail once, some have to repair what they made."""
    graph, nodes, plans = draw(graphs(is_acyclic=True)), dict[str, TaskNode](), dict[str, NodePlan]()
    for number, (name, node) in enumerate(graph.nodes.items()):
        kind = draw(st.sampled_from(["text", "json", "json", "repaired", "retried", "gate"]))
        if kind == "gate":
            nodes[name] = TaskNode(confirm="Go on?", after=node.after)
            continue
        contract, made = None if kind == "text" else CONTRACT, f'{{"made": {number}}}'
        nodes[name] = TaskNode(prompt=f"STEP-{name}", after=node.after, artifact=contract, repairs=1, backoff=0)
        plans[name] = NodePlan(
            (), ('{"made": "?"}', made) if kind == "repaired" else (made,), failures=1 if kind == "retried" else 0
        )
    return Trip(replace(graph, nodes=nodes, parallel=draw(st.integers(1, 4))), plans)


def play(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run one example."""
    asyncio.run(work())


async def finish(bench: TaskBench) -> RunState:
    """Answer each question with yes until the run is over."""
    for _ in range(MAX_ROUNDS):
        await bench.bench.quiet()
        if bench.run.has_ended:
            return bench.run
        for card in list_waiting(bench.run).values():
            await bench.bench.say(f",approve {card}")
        if bench.run.status == "blocked":
            await bench.bench.say(f",task.resume {bench.run.run}")
    raise AssertionError(f"the run does not end: {bench.run}")


@asynccontextmanager
async def begun(trip: Trip, store: TapeStore, player: NodePlayer | None = None) -> AsyncIterator[TaskBench]:
    """A bot for the block, in which a run of the task has begun."""
    player = player or NodePlayer(trip.plans)
    async with running_tasks(store, player.make_model(), define(trip.schema)) as bench:
        await bench.bench.say(",trip.begin")
        yield bench


async def read(store: TapeStore, tape: str) -> Sequence[TapeEntry]:
    """Everything on a tape."""
    return (await store.fetch([TapeQuery(tape)]))[0]


async def read_artifacts(store: TapeStore, run: str) -> dict[str, Any]:
    """The newest artifact of each node of a run."""
    facts = [ArtifactMade.of(entry) for entry in await read(store, HOME) if entry.name in ArtifactMade.EVENTS]
    return {fact.node: thaw(fact.artifact) for fact in facts if fact.run == run}


def tasks_tape(store: TapeStore) -> TapeService:
    """The tape of tasks, as another process opens it."""
    return TapeService(store, TASKS_TAPE, now=SteppingClock(), new_id=CountingIds())


@settings(max_examples=EXAMPLES)
@given(trips())
def test_a_node_begins_after_its_parents_and_is_shown_only_artifacts_that_fit(trip: Trip) -> None:
    async def work() -> None:
        store, player = InMemoryStore(), NodePlayer(trip.plans)
        async with begun(trip, store, player) as bench:
            assert (await finish(bench)).status == "succeeded"
        done: set[str] = set()
        for entry in await read(store, TASKS_TAPE):
            if entry.name in NodeChanged.EVENTS:
                fact = NodeChanged.of(entry)
                assert done.issuperset(trip.schema.nodes[fact.node].after), f"{fact.node} after {done}"
                done |= {fact.node} if fact.status == "succeeded" else set()
        assert done == {*trip.schema.nodes}
        for node, parent, text in player.shown:
            assert parent in trip.schema.nodes[node].after
            contract = None if trip.schema.nodes[parent].is_gate else trip.schema.nodes[parent].artifact
            parse_artifact(text, contract)
        shown = {(node, parent) for node, parent, _ in player.shown}
        assert shown == {(name, parent) for name in trip.plans for parent in trip.schema.nodes[name].after}

    play(work)


@settings(max_examples=EXAMPLES)
@given(trips(), st.integers(1, 6))
def test_the_state_is_what_the_tape_says_from_its_beginning_and_from_a_checkpoint(trip: Trip, every: int) -> None:
    async def work() -> None:
        store = InMemoryStore()
        async with begun(trip, store) as bench:
            await finish(bench)
            live = bench.runs.state
            assert await read_projection(TASKS_PROJECTION, tasks_tape(store)) == live
            facts = [entry for entry in await read(store, TASKS_TAPE) if TASKS_PROJECTION.selects(entry)]
            state = TASKS_PROJECTION.initial()
            for start in range(0, len(facts), every):
                state = TASKS_PROJECTION.apply(state, facts[start : start + every])
            assert state == live
        written = ProjectedTape(TASKS_PROJECTION, tasks_tape(store))
        await written.load()
        await written.write_checkpoint(force=True)
        assert await read_projection(TASKS_PROJECTION, tasks_tape(store)) == live

    play(work)


class AnchorlessStore:
    """A store that shows no anchor of a task.

    Attributes:
        hidden: how many it did not show.
    """

    def __init__(self, store: TapeStore) -> None:
        self._store = store
        self.hidden = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.fetch`."""
        found = await self._store.fetch(queries)
        shown = [
            tuple(entry for entry in each if not (entry.kind == Kind.ANCHOR and str(entry.name).startswith(ANCHORS)))
            for each in found
        ]
        self.hidden += sum(map(len, found)) - sum(map(len, shown))
        return shown


@settings(max_examples=EXAMPLES)
@given(trips())
def test_without_any_anchor_a_run_is_as_far_and_goes_on_to_the_same_end(trip: Trip) -> None:
    async def work() -> None:
        whole, store = InMemoryStore(), InMemoryStore()
        async with begun(trip, whole) as bench:
            await finish(bench)
        async with begun(trip, store) as bench:
            await bench.bench.quiet()  # it is over, or waits for an answer
            told = (await bench.bench.say(f",task.status {bench.run.run}")).text
        player, bare = NodePlayer(trip.plans), AnchorlessStore(store)
        async with running_tasks(bare, player.make_model(), define(trip.schema), life="second") as bench:
            assert (await bench.bench.say(f",task.status {bench.run.run}")).text == told
            assert (await finish(bench)).status == "succeeded"
            run = bench.run.run
        assert bare.hidden
        assert await read_artifacts(store, run) == await read_artifacts(whole, run)

    play(work)


@settings(max_examples=EXAMPLES)
@given(trips(), st.data())
def test_running_a_part_again_makes_the_same_of_it_and_keeps_the_rest(trip: Trip, data: st.DataObject) -> None:
    start = data.draw(st.sampled_from(sorted(trip.schema.nodes)))

    async def work() -> None:
        store, player = InMemoryStore(), NodePlayer(trip.plans)
        async with begun(trip, store, player) as bench:
            first = (await finish(bench)).run
            player.asked.clear()
            answer = await bench.bench.say(f",task.rerun {first} from={start}")
            again = await finish(bench)
        assert again.run != first, answer.text
        assert again.status == "succeeded"
        part = {start, *TaskGraph(trip.schema).descendants(start)}
        made, wanted = await read_artifacts(store, again.run), await read_artifacts(store, first)
        assert made == {name: value for name, value in wanted.items() if name in part}
        assert set(player.asked) == part & trip.plans.keys()

    play(work)


@settings(max_examples=EXAMPLES)
@given(trips(), st.integers(1, 8))
def test_a_run_that_was_stopped_and_resumed_makes_the_same_as_one_that_was_not(trip: Trip, at: int) -> None:
    async def work() -> None:
        whole, store, player = InMemoryStore(), InMemoryStore(), NodePlayer(trip.plans)
        async with begun(trip, whole) as bench:
            wanted = await finish(bench)

        async def pause() -> None:
            if len(player.asked) == at:
                await bench.bench.post(",stop")
                await asyncio.Event().wait()  # until the stop arrives here

        player.pause = pause
        async with begun(trip, store, player) as bench:
            ended = await finish(bench)
        assert (ended.status, ended.run) == ("succeeded", wanted.run)
        assert [(node.status, node.attempt) for node in ended.nodes] == [
            (node.status, node.attempt) for node in wanted.nodes
        ]
        assert await read_artifacts(store, ended.run) == await read_artifacts(whole, wanted.run)

    play(work)
