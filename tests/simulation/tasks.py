"""Schedules of a run of a task: a seed chooses its nodes, what people do meanwhile, and which asyncio task runs next."""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from unittest.mock import patch

import detangle

from bubbot.features.approvals.facts import ToolGranted
from bubbot.features.approvals.state import APPROVALS_TAPE
from bubbot.features.tasks.contracts import parse_artifact
from bubbot.features.tasks.facts import ENDED, TASKS_TAPE, NodeChanged, RunChanged
from bubbot.features.tasks.runs import list_waiting
from bubbot.features.tasks.schema import TaskNode, TaskSchema
from bubbot.features.tasks.state import TASKS_PROJECTION, RunState
from bubbot.ports.channel import MessagePart, Receipt
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.projection import read_projection
from bubbot.tape.provenance import Source
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tool import CallPlan, Effect, GrantKind, GrantTarget, Tool, tool
from tests.approving import PostArgs
from tests.doubles import CountingIds, SteppingClock
from tests.simulation.process import Connection, Outside
from tests.simulation.schedules import NumberedTask
from tests.task_bench import NodePlan, NodePlayer, TaskBench, define, running_tasks
from tests.turns import KeptChannel

MAX_STEPS = 100_000
QUIET = 10_000.0
MAX_ROUNDS = 20
CARD = re.compile(r"Question (\w+)")
CONTRACT = {"type": "object", "required": ["made"]}
LEGAL = {
    ("queued", "running"),
    ("running", "running"),  # an attempt that was stopped goes on
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "waiting"),
    ("running", "queued"),  # it failed, and is tried again at once
    ("waiting", "queued"),
    ("queued", "waiting"),  # a gate asks
    ("waiting", "succeeded"),
    ("waiting", "failed"),
}
"""The states of a node, and the one that may follow each."""


class WatchedChannel(KeptChannel):
    """A channel with a moment around each message, which tells of it."""

    def __init__(self, outside: Outside, on_sent: Callable[[str], None]) -> None:
        super().__init__()
        self._outside, self._on_sent = outside, on_sent

    async def send(self, part: MessagePart) -> Receipt:
        """See `Channel.send`."""
        await self._outside.pause(0.5)
        receipt = await super().send(part)
        self._on_sent(part.text)
        return receipt


@dataclass
class TaskSchedule:
    """One schedule and what became of it.

    Attributes:
        story: what happened, in order.
        acts: how often each node acted outside.
    """

    seed: int
    rng: random.Random = field(init=False)
    story: list[str] = field(default_factory=list)
    acts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    is_cancelled: bool = False

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.schema, self.plans = self._make_task()
        self._people: set[asyncio.Task[None]] = set()
        self._denies = self.rng.random() < 0.15
        self._bench: TaskBench | None = None

    def _make_task(self) -> tuple[TaskSchema, dict[str, NodePlan]]:
        """Make two or three nodes side by side, perhaps a gate, and one or two nodes after them."""
        rng, nodes, plans = self.rng, dict[str, TaskNode](), dict[str, NodePlan]()

        def add(name: str, after: tuple[str, ...]) -> None:
            failures, is_mended = rng.choice([0, 0, 0, 1]), rng.random() < 0.3
            calls = ((("post_send", {"to": name}),) if rng.random() < 0.6 else ()) if not failures else ()
            nodes[name] = TaskNode(
                prompt=f"STEP-{name}",
                after=after,
                tools=("post.*",),
                artifact=CONTRACT,
                backoff=0,
                repairs=1 if is_mended else 0,
            )
            plans[name] = NodePlan(calls, ("{}", '{"made": 1}') if is_mended else ('{"made": 1}',), failures)

        roots = tuple(f"r{number}" for number in range(rng.choice([2, 2, 3])))
        for name in roots:
            add(name, ())
        after = roots
        if rng.random() < 0.7:
            nodes["ok"] = TaskNode(confirm="Go on?", after=rng.choice([roots, roots[:1]]))
            after = ("ok", *roots)
        for name in ("s0", "s1")[: rng.choice([1, 1, 2])]:
            add(name, after)
        return TaskSchema(nodes=nodes, parallel=rng.choice([2, 3])), plans

    def run(self) -> None:
        """Run it. Raise `AssertionError` if something did not hold, with the command that runs it again."""
        strategy = detangle.PCT(self.seed, depth=3, horizon=3000) if self.seed % 2 else detangle.RandomWalk(self.seed)
        try:
            with patch.object(os, "urandom", random.randbytes):  # cards get random ids
                detangle.run(
                    self._live,
                    strategy=strategy,
                    max_steps=MAX_STEPS,
                    fail_on_unobserved=False,
                    fail_on_callback_error=False,  # see `_note_error`
                )
        except (AssertionError, ExceptionGroup, detangle.DetangleError) as error:
            reasons = error.exceptions if isinstance(error, ExceptionGroup) else [error]
            again = f"python -m tests.simulation.tasks {self.seed}"
            raise AssertionError(f"{'; '.join(map(str, reasons))}\n  again: {again}") from error

    async def _live(self) -> None:
        loop, numbers = asyncio.get_running_loop(), count()
        loop.set_task_factory(lambda loop, coro, **options: NumberedTask(next(numbers), coro, loop=loop, **options))
        loop.set_exception_handler(self._note_error)
        outside, store = Outside(self.rng), InMemoryStore()
        await _grant(store)
        self._player = NodePlayer(self.plans, lambda: outside.pause(self.rng.choice([0.0, 2.0])))
        channel = WatchedChannel(outside, self._answer_card)
        async with running_tasks(
            Connection(store, outside),
            self._player.make_model(),
            define(self.schema),
            tools=[self._make_tool(outside)],
            channel=channel,
        ) as bench:
            self._bench = bench
            await bench.bench.say(",trip.begin")
            for act in (self._talk, self._cancel, self._stop):
                self._begin(act(bench))
            await self._wait_quiet(bench)
            assert not self.errors, self.errors
            await self._check(bench, store)
            outside.is_alive = False

    def _note_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._people.add(task)
        task.add_done_callback(self._people.discard)

    def _make_tool(self, outside: Outside) -> Tool:
        async def plan(_turn: Turn, args: PostArgs) -> CallPlan:
            return CallPlan(Effect(source=Source.OWN), args.to, GrantTarget(GrantKind.RECIPIENT, "crew"))

        @tool("post.send", effect=Effect(source=Source.OWN), plan=plan)
        async def post_send(turn: Turn, args: PostArgs) -> str:
            """Send something."""
            await outside.pause(self.rng.choice([0.0, 1.0]))
            self.story.append(f"act {args.to}")
            self.acts[args.to] += 1
            await outside.pause(self.rng.choice([0.0, 1.0]))
            return "sent"

        return post_send

    # People

    async def _talk(self, bench: TaskBench) -> None:
        for _ in range(self.rng.randint(0, 3)):
            await asyncio.sleep(6 * self.rng.random())
            await bench.bench.post(self.rng.choice(["hello", ",task.status"]))

    async def _cancel(self, bench: TaskBench) -> None:
        """End the run, as from another chat: it does not wait for the turn."""
        if self.rng.random() < 0.6:
            return
        await asyncio.sleep(10 * self.rng.random())
        if bench.run.has_ended:
            return
        await bench.runs.cancel(bench.run.run)
        self.is_cancelled = True
        self.story += [f"asked {len(self._player.asked)}", "CANCELLED"]

    async def _stop(self, bench: TaskBench) -> None:
        for _ in range(self.rng.choice([0, 0, 0, 1, 2])):
            await asyncio.sleep(10 * self.rng.random())
            await bench.bench.post(",stop")

    def _answer_card(self, text: str) -> None:
        if found := CARD.search(text):
            self._begin(self._press(found[1]))

    async def _press(self, card: str) -> None:
        await asyncio.sleep(4 * self.rng.random())
        assert self._bench is not None
        answer = "deny" if self._denies else "approve"
        for _ in range(self.rng.choice([1, 1, 2])):
            await self._bench.bench.post(f",{answer} {card}")

    async def _wait_quiet(self, bench: TaskBench) -> None:
        """Return when nobody has anything left to do; who stopped the run resumes it."""
        for _ in range(MAX_ROUNDS):
            while self._people:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(1.0)
            await bench.bench.quiet(QUIET)
            if self._people:
                continue
            run = bench.run
            if run.has_ended:
                return
            if cards := list_waiting(run):  # who answered it may have been stopped
                await self._press(*cards.values())
            elif run.status == "blocked":
                await bench.bench.post(f",task.resume {run.run}")
            else:
                await bench.runs.take_up_due()
        raise AssertionError(f"the run does not end: {bench.run}")

    # What has to be true

    async def _check(self, bench: TaskBench, store: InMemoryStore) -> None:
        run = bench.run
        self._check_ending(run)
        self._check_shown(run)
        self._check_acts(run)
        self._check_cancelled()
        await self._check_facts(run, store)
        assert await store.forks() == [], "a fork stays open"
        assert await bench.bench.inbox.open_inbounds() == (), "something accepted waits for ever"

    def _check_ending(self, run: RunState) -> None:
        states = {name: node.status for name, node in run.by_node.items()}
        if self.is_cancelled:
            assert run.status == "cancelled", run.status
        elif self._denies and "ok" in states:
            assert (run.status, states["ok"]) == ("failed", "failed"), (run.status, states)
        else:
            assert run.status == "succeeded", (run.status, states, run.reason)
        assert run.status != "succeeded" or set(states.values()) == {"succeeded"}, states
        assert not list_waiting(run) or run.has_ended

    def _check_shown(self, run: RunState) -> None:
        """Each node was shown the artifacts of all its parents, and each of them was valid."""
        for node, parent, text in self._player.shown:
            contract = self.schema.nodes[parent].artifact
            assert parent in self.schema.nodes[node].after, f"{node} was shown {parent}"
            parse_artifact(text, contract)
        shown = {(node, parent) for node, parent, _ in self._player.shown}
        for node in set(self._player.asked):
            for parent in self.schema.nodes[node].after:
                assert (node, parent) in shown, f"{node} began without the artifact of {parent}"

    def _check_acts(self, run: RunState) -> None:
        for name, plan in self.plans.items():
            done = self.acts[name]
            assert done <= 1, f"{name} acted {done} times"
            if plan.calls and not self.is_cancelled and "STOP" not in self.story:
                has_ended = run.by_node[name].status == "succeeded"
                assert not has_ended or done or self._was_stopped, f"{name} did not act"

    @property
    def _was_stopped(self) -> bool:
        assert self._bench is not None
        return any("topped" in text for text in self._bench.bench.channel.texts)

    def _check_cancelled(self) -> None:
        if "CANCELLED" in self.story:
            place = self.story.index("CANCELLED")
            assert not self.story[place + 1 :], f"after it was cancelled: {self.story[place + 1 :]}"
            assert self.story[place - 1] == f"asked {len(self._player.asked)}", (
                "a model was asked after it was cancelled"
            )

    async def _check_facts(self, run: RunState, store: InMemoryStore) -> None:
        """The states follow each other as they may, and the live state is that of the tape."""
        (entries,) = await store.fetch([TapeQuery(TASKS_TAPE)])
        states: dict[str, str] = {}
        is_over = False
        for entry in entries:
            if entry.name in RunChanged.EVENTS:
                assert not is_over or self.is_cancelled, "something changes a run that is over"
                is_over = is_over or RunChanged.of(entry).status in ENDED
            if entry.name in NodeChanged.EVENTS:
                fact = NodeChanged.of(entry)
                step = states.get(fact.node, "queued"), fact.status
                assert step in LEGAL or is_over, f"{fact.node}: {step}"
                states[fact.node] = fact.status
        tape = TapeService(store, TASKS_TAPE, now=SteppingClock(), new_id=CountingIds())
        assert (await read_projection(TASKS_PROJECTION, tape)).runs == {run.run: run}


async def _grant(store: InMemoryStore) -> None:
    grant = ToolGranted(tool="post.send", kind="recipient", value="crew", approval="AAAAA", by="1", channel="test")
    tape = TapeService(store, APPROVALS_TAPE, now=SteppingClock(), new_id=CountingIds())
    await tape.append([grant.to_entry()])


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        schedule = TaskSchedule(int(argument))
        try:
            schedule.run()
        finally:
            print("\n".join(schedule.story))
