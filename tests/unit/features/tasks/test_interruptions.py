"""Runs whose process ended in the middle: they go on, wait for somebody, or end, and nobody is told twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bubbot.features.tasks.facts import TASKS_TAPE, NodeChanged, RunChanged
from bubbot.features.tasks.schema import TaskNode, TaskSchema
from bubbot.features.tasks.state import TASKS_PROJECTION, RunState
from bubbot.ports.channel import TASK_ORIGIN
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.projection import read_projection
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.task_bench import NodePlan, NodePlayer, TaskBench, define, no_pause, running_tasks

SCHEMA = TaskSchema(nodes={name: TaskNode(prompt=f"STEP-{name}") for name in ("a", "b")}, timeout=5, parallel=2)
PLANS = {"a": NodePlan(answers=("A",)), "b": NodePlan(answers=("B",))}


@asynccontextmanager
async def life(
    store: InMemoryStore, number: int, *, stuck: bool = False
) -> AsyncIterator[tuple[TaskBench, NodePlayer]]:
    """A process for the block, in which models do not answer if it is `stuck`."""
    player = NodePlayer(PLANS, wait_for_ever if stuck else no_pause)
    async with running_tasks(store, player.make_model(), define(SCHEMA), life=f"life{number}") as bench:
        yield bench, player


async def wait_for_ever() -> None:
    """Answer nothing."""
    await asyncio.Event().wait()


async def until_asked(player: NodePlayer, number: int = 2) -> None:
    """Wait until the model was asked so often."""
    async with asyncio.timeout(10):
        while len(player.asked) < number:  # noqa: ASYNC110 - the model tells nobody
            await asyncio.sleep(0)


async def cut_off(store: InMemoryStore, *, lives: int) -> None:
    """Begin a run, and end so many processes while its nodes wait for the model."""
    for number in range(lives):
        async with life(store, number, stuck=True) as (bench, player):
            if not number:
                await bench.bench.say(",trip.begin")
            await until_asked(player)


def open_tasks(store: InMemoryStore) -> TapeService:
    """Open the tape of tasks, as another process does."""
    return TapeService(store, TASKS_TAPE, now=SteppingClock(), new_id=CountingIds("other"))


async def find_run(store: InMemoryStore) -> str:
    """Return the name of the only run."""
    (name,) = (await read_projection(TASKS_PROJECTION, open_tasks(store))).runs
    return name


async def quiet(bench: TaskBench) -> RunState:
    """Wait until nothing is left to do."""
    await bench.bench.quiet()
    return bench.run


async def test_a_run_that_was_cut_off_once_goes_on_by_itself() -> None:
    store = InMemoryStore()
    await cut_off(store, lives=1)
    async with life(store, 2) as (bench, _):
        run = await quiet(bench)
        assert (run.status, [node.attempt for node in run.nodes]) == ("succeeded", [1, 1])


async def test_a_run_that_was_cut_off_twice_in_one_turn_is_blocked_until_somebody_resumes_it() -> None:
    store = InMemoryStore()
    await cut_off(store, lives=2)
    async with life(store, 2) as (bench, player):
        assert (await quiet(bench)).status == "blocked"
        await bench.bench.say(f",task.resume {bench.run.run}", origin=TASK_ORIGIN)
        assert (await quiet(bench)).status == "blocked"
        assert player.asked == []
        await bench.bench.say(f",task.resume {bench.run.run}")
        assert (await quiet(bench)).status == "succeeded"


async def test_a_blocked_run_can_be_resumed_from_another_chat() -> None:
    store = InMemoryStore()
    await cut_off(store, lives=2)
    async with life(store, 2) as (bench, _):
        await quiet(bench)
        assert await bench.runs.resume(bench.run.run)
        assert (await quiet(bench)).status == "succeeded"


async def test_an_attempt_that_was_cut_off_ends_with_a_run_that_is_out_of_time() -> None:
    store = InMemoryStore()
    await cut_off(store, lives=1)
    spent = NodeChanged(run=await find_run(store), node="a", status="failed", attempt=1, seconds=6.0)
    await open_tasks(store).append([spent.to_entry()])
    async with life(store, 1) as (bench, player):
        run = await quiet(bench)
        assert (run.status, run.reason) == ("failed", "task_too_slow")
        assert {node.status for node in run.nodes} == {"failed"}
        assert player.asked == []


async def test_the_turn_of_a_run_that_was_cancelled_meanwhile_says_nothing() -> None:
    store = InMemoryStore()
    await cut_off(store, lives=1)
    await open_tasks(store).append([RunChanged(run=await find_run(store), status="cancelled").to_entry()])
    async with life(store, 1) as (bench, player):
        assert (await quiet(bench)).status == "cancelled"
        assert player.asked == []
        assert bench.bench.channel.texts == []
