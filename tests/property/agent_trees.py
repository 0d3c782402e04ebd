"""Random trees of sub-tasks, and processes that die in the middle of them.

What each task does is decided by its name alone, so that every life of the process works on the same tree. Each run of a
tool is a line of a file, which survives the process.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.arguments.fields import Args
from bubbot.errors import LeaseLost
from bubbot.features.agents.settings import AgentsSettings
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ToolCall, Usage
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import rebuild_request
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.entry import Kind, TapeEntry, encode
from bubbot.tape.store import TapeStore
from bubbot.texts import OUTCOME_UNKNOWN
from bubbot.tool import READS_OWN, Tool, tool
from tests.doubles import SteppingClock
from tests.e2e import forked
from tests.turns import WAIT, Bench, Options, Replying, running

WRITES = ("open_fork", "extend_fork", "merge_fork", "drop_fork", "append", "append_deferred")


@dataclass(frozen=True)
class Node:
    """A task: the steps of its model, each a list of calls as (tool, number) or of sub-tasks."""

    name: str
    calls: tuple[tuple[tuple[str, int], ...], ...] = ()
    children: tuple[Node, ...] = ()
    mode: str = "delta"

    def walk(self) -> Iterator[Node]:
        """This task and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def make_tree(seed: int) -> Node:
    """A tree of this seed: the root only orders sub-tasks."""
    chance = random.Random(seed)

    def make(name: str, depth: int) -> Node:
        calls = tuple(
            tuple((chance.choice(("look.up", "look.up", "send.out")), chance.randrange(9)) for _ in range(size))
            for size in (chance.randint(1, 2) for _ in range(chance.randint(0 if depth == 1 else 1, 2)))
        )
        count = chance.choice((0, 0, 1, 2)) if depth == 1 else 0
        children = tuple(make(f"{name}-{place}", depth + 1) for place in range(count))
        return Node(name, calls, children, chance.choice(("delta", "delta", "result")))

    return Node("root", (), tuple(make(f"t{place}", 1) for place in range(chance.randint(1, 4))))


def steps_of(node: Node) -> list[list[tuple[str, dict[str, Any]]]]:
    """The calls of the node's steps, before it answers."""
    steps: list[list[tuple[str, dict[str, Any]]]] = [
        [(name.replace(".", "_"), {"node": node.name, "number": number}) for name, number in step]
        for step in node.calls
    ]
    if node.children:
        tools = ["look.up", "send.out", "agent.run"]
        orders = [
            ("agent_run", {"task": f"do {child.name}", "name": child.name, "tools": tools[: 2 + bool(child.children)], "mode": child.mode})
            for child in node.children
        ]  # fmt: skip
        steps.insert(len(steps) // 2, orders)
    return steps


def plays(tree: Node, chance: random.Random) -> Replying:
    """The model of a tree. A step is taken again if none of its calls has a result of its own."""
    nodes = {node.name: node for node in tree.walk()}

    async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
        for _ in range(chance.randrange(3)):
            await asyncio.sleep(0)
        users = [place for place, message in enumerate(request.messages) if message["role"] == "user"]
        node = nodes[str(request.messages[users[-1]]["content"]).split()[-1]]
        steps, after, done = steps_of(node), request.messages[users[-1] + 1 :], 0
        results = {message["tool_call_id"]: message["content"] for message in after if message["role"] == "tool"}
        for message in after:
            if calls := message.get("tool_calls"):
                done += not any(
                    results[call["id"]] in (OUTCOME_UNKNOWN, "not run: the turn was cut off before this call began")
                    for call in calls
                )
        usage = Usage(10, 5)
        if done < len(steps):
            calls = tuple(
                ToolCall(f"{node.name}.{done}.{place}", name, encode(arguments))
                for place, (name, arguments) in enumerate(steps[done])
            )
            yield ModelReply("", calls, "tool_calls", usage, "scripted")
        else:
            yield ModelReply(f"result {node.name}", usage=usage, model="scripted")

    return Replying(stream)


class CallArgs(Args, frozen=True):
    """A call of a node."""

    node: str
    number: int


@dataclass
class Life:
    """One process. It dies at the write with this number (from 1; 0: never), before or after it is done."""

    log: Path
    dies_at: int = 0
    is_after: bool = False
    is_real: bool = False
    writes: int = 0
    is_dead: bool = False
    _is_writing: ContextVar[bool] = field(default_factory=lambda: ContextVar("is_writing", default=False))

    def die(self) -> None:
        """Ends the process, or what stands for it: nothing that happens later is seen by anybody."""
        if self.is_real:
            os.kill(os.getpid(), signal.SIGKILL)
        self.is_dead = True
        raise LeaseLost("the process is gone")

    def watch(self, store: TapeStore) -> None:
        """Counts the writes of the store from now on."""
        for name in WRITES:
            if hasattr(store, name):
                setattr(store, name, self._counting(getattr(store, name)))

    def unwatch(self, store: TapeStore) -> None:
        """Lets the next life write."""
        for name in WRITES:
            with suppress(AttributeError):
                delattr(store, name)

    def _counting(self, write: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*args: Any, **kwargs: Any) -> Any:
            if self._is_writing.get():  # a store may make one write of another, and both are one transaction
                return await write(*args, **kwargs)
            if self.is_dead:
                raise LeaseLost("the process is gone")
            self.writes += 1
            is_last = self.writes == self.dies_at
            if is_last and not self.is_after:
                self.die()
            token = self._is_writing.set(True)
            try:
                result = await write(*args, **kwargs)
            finally:
                self._is_writing.reset(token)
            if is_last:
                self.die()
            return result

        return counted

    def tools(self, chance: random.Random) -> list[Tool]:
        """The tools of its tasks."""

        async def note(name: str, args: CallArgs) -> str:
            if self.is_dead:
                raise LeaseLost("the process is gone")
            line = f"{name} {args.node} {args.number}\n"
            descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
            for _ in range(chance.randrange(3)):
                await asyncio.sleep(0)
            return f"{name} gave {args.number}"

        @tool("look.up", effect=READS_OWN)
        async def look_up(turn: Turn, args: CallArgs) -> str:
            """Look something up."""
            return await note("look.up", args)

        @tool("send.out")
        async def send_out(turn: Turn, args: CallArgs) -> str:
            """Send something out."""
            return await note("send.out", args)

        return [look_up, send_out]


@dataclass
class Outcome:
    """What is left of a tree."""

    entries: tuple[TapeEntry, ...] = ()
    text: str = ""
    ran: Counter[str] = field(default_factory=Counter)
    broken_requests: list[int] = field(default_factory=list)


async def live(store: TapeStore, seed: int, life: Life, number: int) -> Outcome:
    """One life of the bot over the store: the first accepts the message, later ones take it up."""
    tree, chance = make_tree(seed), random.Random(seed * 31 + number)
    options = Options(tools=life.tools(chance), agents=AgentsSettings(), clock=SteppingClock())
    outcome = Outcome()
    async with running(store, plays(tree, chance), options, life=f"life{number}") as bench:
        if number == 0:
            answer: Any = await bench.post("do root")
            life.watch(store)
        else:
            life.watch(store)
            answer = bench.resume()
        with suppress(LeaseLost):
            async with asyncio.timeout(WAIT):
                result = await answer
            outcome.text = (result[0] if isinstance(result, list) else result).text if result else ""
        life_dead = life.is_dead
        if life_dead:
            await bench.kill()
        else:
            await bench.quiet()
        life.unwatch(store)
        if not life_dead:
            outcome.entries = await bench.entries()
            outcome.broken_requests = [entry.id for entry in outcome.entries if not await _is_rebuilt(bench, entry)]
    outcome.ran = Counter(life.log.read_text().splitlines() if life.log.exists() else ())
    return outcome


async def _is_rebuilt(bench: Bench, entry: TapeEntry) -> bool:
    """True if the entry is no request, or if that is rebuilt byte for byte from the merged tape."""
    if entry.kind != Kind.EVENT or entry.name != "loop.step" or "purpose" in entry.payload["data"]:
        return True
    step = entry.payload["data"]
    request = await rebuild_request(step, bench.tape(), strategies=OWN_STRATEGIES)
    return bool(request.digest() == step["request"])


async def open_tree_store(path: Path) -> SqliteStore:
    """The database of a tree."""
    return await open_store(path, salt=os.urandom, now=SteppingClock())


async def live_killed(program: str) -> None:
    """Run a life in a process of its own, which kills itself."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        child = forked.start(
            forked.PROGRAM,
            [program],
            env={name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
            cwd=forked.ROOT,
            streams=(nothing, nothing, nothing),
        )
        assert await child.ended() == -signal.SIGKILL
    finally:
        os.close(nothing)


def run_life(path: str, log: str, seed: int, number: int, dies_at: int, is_after: bool) -> None:
    """A life in a process of its own, which kills itself."""

    async def run() -> None:
        store = await open_tree_store(Path(path))
        try:
            await live(store, seed, Life(Path(log), dies_at, is_after=is_after, is_real=True), number)
        finally:
            await store.aclose()

    asyncio.run(run())


def check(seed: int, outcome: Outcome, reference: Outcome, lives: int) -> None:
    """The merged tape is whole, each result belongs to its task, and nothing was done twice that has a result."""
    entries = outcome.entries
    assert [entry.id for entry in entries] == list(range(1, len(entries) + 1))
    assert outcome.broken_requests == []
    assert outcome.text == reference.text == "result root"
    ended = [entry.payload["data"] for entry in entries if entry.name == "agent/ended"]
    answered = {data["name"]: data["merged"] for data in ended if data["status"] == "answered"}
    for node in make_tree(seed).children:
        assert node.name in answered
        assert not answered[node.name] or {child.name for child in node.children} <= answered.keys()
    _check_attribution(entries, ended)
    for line, count in outcome.ran.items():
        wanted = reference.ran[line]
        most = wanted if line.startswith("send.out") else wanted * lives
        assert count <= most, line
    for line, wanted in reference.ran.items():
        if line.startswith("look.up"):
            assert outcome.ran[line] >= wanted, line


def _check_attribution(entries: tuple[TapeEntry, ...], ended: list[Any]) -> None:
    results = [
        result["content"]
        for entry in entries
        if entry.kind == Kind.TOOL_RESULT
        for result in entry.payload["results"]
        if "[Sub-task" in result["content"]
    ]
    for data in ended:
        fork = data["fork"]
        spans = {entry_id for low, high in data["entries"] for entry_id in range(low, high + 1)}
        own = {entry.id for entry in entries if f"{entry.meta.get('fork', '')}/".startswith(f"{fork}/")}
        assert not data["merged"] or own == spans, (data["name"], sorted(own ^ spans), spans)
        if data["status"] == "answered":
            assert data["result"] == f"result {data['name']}"
    forks = {data["fork"]: data["name"] for data in ended if data["status"] == "answered"}
    for text in results:
        fork = text.rpartition("fork ")[2].partition(";")[0]
        assert text.startswith(f"result {forks[fork]}\n\n[Sub-task {forks[fork]}: ")
