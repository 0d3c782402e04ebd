"""Runs whose process ended in the middle: they go on, wait for somebody, or end, and nobody is told twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from bubbot.arguments.fields import NoArguments
from bubbot.features.tasks.facts import TASKS_TAPE, NodeChanged, RunChanged
from bubbot.features.tasks.progress import format_progress
from bubbot.features.tasks.schema import TaskNode, TaskSchema
from bubbot.features.tasks.state import TASKS_PROJECTION, RunState
from bubbot.ports.channel import TASK_ORIGIN
from bubbot.ports.model import Usage
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.projection import read_projection
from bubbot.tape.service import TapeService
from bubbot.texts import Texts
from bubbot.tool import READS_OWN, tool
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
    async with asyncio.timeout(60):
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


@tool("trip.look", effect=READS_OWN)
async def look(turn: Turn, args: NoArguments) -> str:
    """Look around."""
    return "the sea"


async def interrupt(node: TaskNode, *, is_stop: bool) -> tuple[RunState, int]:
    """Run a node whose model is asked twice, and cut it off while it is asked again.

    Return how the run ended, and how often the model answered.
    """
    store = InMemoryStore()
    schema = TaskSchema(nodes={"a": replace(node, prompt="STEP-a", tools=("trip.look",), retries=0)})
    player = NodePlayer({"a": NodePlan((("trip_look", {}),), ("A",))}, usage=Usage(9_999, 1))

    async def pause() -> None:
        if len(player.asked) == 2:
            await wait_for_ever()

    player.pause = pause
    async with running_tasks(store, player.make_model(), define(schema), tools=[look]) as bench:
        await bench.bench.say(",trip.begin")
        await until_asked(player)
        if is_stop:
            await bench.bench.post(",stop")
            await quiet(bench)
            player.pause = no_pause
            await bench.bench.say(f",task.resume {bench.run.run}")
            return await quiet(bench), len(player.asked) - 1
    player.pause = no_pause
    async with running_tasks(store, player.make_model(), define(schema), tools=[look], life="second") as bench:
        return await quiet(bench), len(player.asked) - 1


@pytest.mark.parametrize("is_stop", [True, False], ids=["stopped", "killed"])
async def test_what_an_attempt_used_before_it_was_cut_off_counts(*, is_stop: bool) -> None:
    run, answers = await interrupt(TaskNode(), is_stop=is_stop)
    assert (run.status, run.tokens, answers) == ("succeeded", 30_000, 3)


@pytest.mark.parametrize("is_stop", [True, False], ids=["stopped", "killed"])
@pytest.mark.parametrize(
    ("node", "reason", "answers"),
    [(TaskNode(tokens=12_000), "task_model_failed", 2), (TaskNode(timeout=2), "task_node_too_slow", 1)],
    ids=["tokens", "time"],
)
async def test_an_attempt_that_was_cut_off_has_only_what_is_left_of_its_limits(
    node: TaskNode, reason: str, answers: int, *, is_stop: bool
) -> None:
    run, made = await interrupt(node, is_stop=is_stop)
    assert (run.status, [each.reason for each in run.nodes], made) == ("failed", [reason], answers)


async def test_a_reason_that_this_version_does_not_know_is_shown_by_its_name() -> None:
    store = InMemoryStore()
    await cut_off(store, lives=1)
    run = await find_run(store)
    node = NodeChanged(run=run, node="a", status="failed", attempt=1, reason="task_of_later")
    await open_tasks(store).append(
        [node.to_entry(), RunChanged(run=run, status="failed", reason="task_of_late").to_entry()]
    )
    async with life(store, 1) as (bench, _):
        await quiet(bench)
        told = (await bench.bench.say(f",task.status {run}")).text
        assert "a: task_of_later" in told.splitlines()[1]
        assert "task_of_late" in told.splitlines()
        assert "task_of_late" in format_progress(bench.run, define(SCHEMA), Texts())
