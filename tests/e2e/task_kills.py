"""A run of a task in a process that is killed, started again until the run is over, and what must hold then.

What the run does is decided by its node and attempt alone, so that every life of the process works on the same run. What its
tools do outside, and what people read, are lines of files, which survive the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bubbot.app.bot import PortWrappers
from bubbot.app.channel_factory import ChannelFactory
from bubbot.app.daemon import Daemon, open_daemon
from bubbot.app.tapes import open_tapes, tape_service
from bubbot.arguments.fields import Args
from bubbot.features.approvals.facts import ToolGranted
from bubbot.features.approvals.state import APPROVALS_TAPE
from bubbot.features.tasks import runs
from bubbot.features.tasks.facts import TASKS_TAPE, ArtifactMade, NodeChanged, RuleJudged, RunEventSeen
from bubbot.features.tasks.state import TASKS_PROJECTION, RunState, TasksState
from bubbot.gateway.inbox import inbox_tape
from bubbot.home import Home
from bubbot.ports.channel import Inbound, MessagePart, Receipt, Sender
from bubbot.ports.model import Model
from bubbot.ports.turn import Turn
from bubbot.settings.loader import ModelSettings
from bubbot.tape.entry import TapeEntry, thaw, timestamp
from bubbot.tape.projection import read_projection
from bubbot.tape.provenance import Source
from bubbot.tape.service import session_tape
from bubbot.tool import READS_OWN, CallPlan, Effect, GrantKind, GrantTarget, Repeat, Tool, tool
from tests.e2e import forked
from tests.e2e.kill_child import Killer, KillingModel, KillingStore
from tests.e2e.kill_harness import damage, entries_of
from tests.made_settings import make_settings
from tests.task_bench import NodePlan, NodePlayer
from tests.turns import KeptChannel

CHILD = "tests.e2e.task_kills:run"
OWNER, SESSION = "1", "tg:1"
WAIT = 60.0
"""Seconds that a life may take."""
MAX_MESSAGES = 40
"""Messages of the person in one life."""
ANSWER = "The trip is booked."

TASK = """title = "Trip"
parallel = 2
[nodes.gather]
prompt = "STEP-gather"
tools = ["act.key", "look.up"]
artifact = { type = "object", required = ["items"], properties = { items = { type = "array" } } }
[nodes.look]
prompt = "STEP-look"
tools = ["act.probe"]
artifact = { type = "object", required = ["found"] }
repairs = 0
backoff = 0
[nodes.join]
after = ["gather", "look"]
prompt = "STEP-join"
tools = ["memory.*"]
[nodes.ok]
after = ["join"]
confirm = "Book it?"
[nodes.book]
after = ["ok", "join"]
prompt = "STEP-book"
tools = ["act.*"]
[nodes.report]
after = ["book"]
prompt = "STEP-report"
"""
RULES = """Feature: A trip

  Scenario: It books after a yes
    When tool "act.never" is called
    Then gate ok was confirmed before
    And tool "act.probe" succeeded before
    And tool "act.key" succeeded before

  Scenario: It acts no more often than it must
    Then tool "act.key" is called exactly 2 times
    And tool "act.probe" is called exactly 1 time
    And tool "look.up" is called at least 1 time

  Scenario: It remembers nothing
    When tool "memory.*" is called
    Then it is refused
"""
DUTY = """Feature: Too much

  Scenario: It looks twice
    Then tool "look.up" is called at least 2 times
"""
"""A duty that the run does not meet."""
PLANS: Mapping[str, NodePlan] = {
    "gather": NodePlan(
        (("look_up", {"text": "g"}), ("act_key", {"text": "same"})), ("No items yet.", '{"items": [1, 2]}')
    ),
    "look": NodePlan((("act_probe", {"text": "l"}),), ('{"found": true}',), failures=1),
    "join": NodePlan((("memory_save", {"content": "x"}),), ("Both.",)),
    "book": NodePlan((("act_key", {"text": "same"}), ("act_never", {"text": "b"})), ("Booked.",)),
    "report": NodePlan(answers=(ANSWER,)),
}
"""What each node does. Two nodes make the same call: each of them counts."""


class ActArgs(Args, frozen=True):
    """What to do."""

    text: str


class FiledChannel(KeptChannel):
    """A channel whose messages are lines of a file; it finds what it sent."""

    edit_interval = 0.0

    def __init__(self, path: Path, killer: Killer) -> None:
        super().__init__("tg")
        self._path, self._killer = path, killer

    async def send(self, part: MessagePart) -> Receipt:
        """See `Channel.send`."""
        self._killer.at("send:before")
        number = _write_line(self._path, {"key": part.key, "text": part.text})
        self._killer.at("send:after")
        return Receipt(str(number))

    async def edit(self, message: str, part: MessagePart) -> None:
        """See `SupportsEditing`. Nobody asks what the message that shows the progress said."""

    async def find(self, part: MessagePart, since: str) -> Sequence[str]:
        """See `FindsMessages`."""
        return [str(number) for number, each in enumerate(_read_lines(self._path), 1) if each["key"] == part.key]


def _write_line(path: Path, value: Any) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{json.dumps(value)}\n".encode())
    finally:
        os.close(descriptor)
    return len(_read_lines(path))


def _read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def make_tools(home: Path, killer: Killer) -> list[Tool]:
    """Make the tools: one for each way in which an effect may be repeated, and one that reads."""
    done = home / "done"

    def build(once: Repeat) -> Tool:
        effect = Effect(once=once, source=Source.OWN)

        async def plan(_turn: Turn, args: ActArgs) -> CallPlan:
            return CallPlan(effect, args.text, GrantTarget(GrantKind.RECIPIENT, "crew"))

        async def look(turn: Turn, args: ActArgs) -> str | None:
            return "had done it" if any(each["key"] == turn.effect_key for each in _read_lines(done)) else None

        @tool(f"act.{once}", effect=effect, plan=plan, probe=look if once is Repeat.PROBE else None)
        async def act(turn: Turn, args: ActArgs) -> str:
            """Act outside."""
            killer.at(f"act-{once}:before")
            if once is not Repeat.KEY or not any(each["key"] == turn.effect_key for each in _read_lines(done)):
                _write_line(done, {"key": turn.effect_key, "tool": f"act.{once}", "text": args.text})
            killer.at(f"act-{once}:after")
            return "did it"

        return act

    @tool("look.up", effect=READS_OWN)
    async def look_up(turn: Turn, args: ActArgs) -> str:
        """Look something up."""
        killer.at("look:before")
        return "something"

    return [*map(build, Repeat), look_up]


class CountingKiller(Killer):
    """One that also counts: a life that is not killed tells how many boundaries it has met."""

    def __init__(self, point: str) -> None:
        super().__init__(point)
        self.count = 0

    def at(self, place: str) -> None:
        """See `Killer`."""
        self.count += 1
        super().at(place)


@dataclass
class Person:
    """The person, who goes on where an earlier life was killed."""

    daemon: Daemon
    messages: int = 0
    approved: Counter[str] = field(default_factory=Counter)

    async def say(self, kind: str, text: str) -> None:
        """Say something that the bot has not accepted yet."""
        gate = self.daemon.bot.channel_runtimes["tg"].gate
        for number in range(MAX_MESSAGES):
            self.messages += 1
            assert self.messages <= MAX_MESSAGES, f"the run does not end: {text}"
            now = timestamp(datetime.now(UTC))
            name = f"{kind}-{number}"
            inbound = Inbound("tg", name, OWNER, Sender(OWNER, "Ann"), text, now, message=name, direct=True)
            if await gate.accept(inbound) is not None:
                return

    async def quiet(self) -> None:
        """Return when no turn runs and nothing is delivered."""
        for _ in range(2):
            await self.daemon.bot.runtime.wait_idle()
            await self.daemon.bot.channel_runtimes["tg"].deliverer.wait_until_idle()

    async def finish(self) -> None:
        """Begin the run, answer its questions and take it up until it is over."""
        while True:
            await self.quiet()
            found = await read_runs(self.daemon)
            if not found:
                await self.say("run", ",task.run trip to the sea")
                continue
            (run,) = found.values()
            if run.has_ended:
                await self.quiet()
                return
            cards = runs.list_waiting(run)
            if cards:
                (card,) = cards.values()
                self.approved[card] += 1
                if self.approved[card] > 1:  # it was answered, and the turn that goes on was given up
                    await self.say(f"look-{card}", f",task.resume {run.run}")
                else:
                    await self.say(f"yes-{card}", f",approve {card}")
            elif run.status == "blocked":
                await self.say("resume", f",task.resume {run.run}")
            else:
                await asyncio.sleep(0.01)  # a moment comes, and the timer takes the run up


async def read_runs(daemon: Daemon) -> Mapping[str, RunState]:
    """Read the runs of a bot as the tape has them."""
    tape = tape_service(daemon.bot.base_store, TASKS_TAPE)
    return (await read_projection(TASKS_PROJECTION, tape)).runs


async def live(home: Path, killer: Killer) -> None:
    """Live until the run is over and everything is delivered."""
    channel, model = FiledChannel(home / "sent", killer), NodePlayer(PLANS).make_model()
    settings = make_settings(
        model=ModelSettings(name="scripted"),
        channels={
            "tg": {
                "kind": "kept",
                "owners": [OWNER],
                "debounce": 0,
                "messages_per_minute": 0,
                "messages_per_hour": 0,
            }
        },
    )

    def wrap_model(_: Model) -> Any:
        return KillingModel(model, killer)

    wrappers = PortWrappers(
        store=lambda store: KillingStore(store, killer, split_done=False),
        model=wrap_model,
        tools=make_tools(home, killer),
    )
    with ExitStack() as stack:
        stack.enter_context(patch.object(ChannelFactory, "build_adapter", lambda *_args, **_named: channel))
        stack.enter_context(patch.object(runs, "TIMER_SECONDS", 0.02))
        async with open_daemon(settings, Home(home), wrappers=wrappers) as daemon:
            await daemon.bot.recover_all()
            (watch,) = [
                feature.lifecycle.background["tasks"]
                for feature in daemon.bot.features.lasting
                if feature.name == "tasks"
            ]
            watching = asyncio.ensure_future(watch())
            async with asyncio.timeout(WAIT):
                await Person(daemon).finish()
            watching.cancel()


def run(arguments: Sequence[str]) -> int:
    """The process. Arguments: HOME [POINT], as in `kill_child`."""
    home, point = [*arguments, ""][:2]
    killer = CountingKiller(point)
    os.write(1, b".")
    asyncio.run(live(Path(home), killer))
    (Path(home) / "boundaries").write_text(str(killer.count))
    return 0


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Attributes:
        status: of the run.
        nodes: the status and the attempts of each node.
        artifacts: the newest of each node.
        verdicts: by rule.
        done: what happened outside, as tools and texts.
        answers: how often people got the answer.
        events: what its rules judged, as kinds, names, nodes and attempts; anchors left out, and of what is unknown the result.
        invalid: what went wrong in the tapes.
    """

    status: str
    nodes: Mapping[str, tuple[str, int]]
    artifacts: Mapping[str, Any]
    verdicts: Mapping[str, str]
    done: Mapping[str, int]
    answers: int
    events: Mapping[str, int]
    invalid: Sequence[str]


@dataclass
class TaskBench:
    """A home with the task, and the processes that work on its run. `scripts` are the files with its rules."""

    home: Path
    scripts: Mapping[str, str] = field(default_factory=lambda: {"rules.feature": RULES})

    def __post_init__(self) -> None:
        folder = self.home / "tasks" / "trip"
        (folder / "scripts").mkdir(parents=True)
        (folder / "task.toml").write_text(TASK)
        for name, text in self.scripts.items():
            (folder / "scripts" / name).write_text(text)
        asyncio.run(self._grant())

    async def _grant(self) -> None:
        """Let the nodes act outside: nobody is there whom they could ask."""
        async with open_tapes(Home(self.home), write=True) as (store, _):
            grants = [
                ToolGranted(
                    tool=f"act.{once}", kind="recipient", value="crew", approval="AAAAA", by=OWNER, channel="tg"
                )
                for once in Repeat
            ]
            await tape_service(store, APPROVALS_TAPE).append([grant.to_entry() for grant in grants])

    def start(self, point: str = "") -> forked.Child:
        """Start a bot that ends itself at the point; return once it has begun to live."""
        nothing, (begun, ours) = os.open(os.devnull, os.O_RDWR), os.pipe()
        try:
            with (self.home / "errors").open("ab") as errors:
                env = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
                streams = (nothing, ours, errors.fileno())
                child = forked.start(CHILD, [str(self.home), point], env=env, cwd=forked.ROOT, streams=streams)
            os.close(ours)
            ours = -1
            os.read(begun, 1)
            return child
        finally:
            for descriptor in (nothing, begun, ours):
                if descriptor >= 0:
                    os.close(descriptor)

    def live(self, point: str = "") -> bool:
        """Run a life to its end; return false if it was killed."""
        child = self.start(point)
        try:
            code = child.wait(timeout=WAIT + 30)
        finally:
            child.close()
        assert code in (0, -signal.SIGKILL), (self.home / "errors").read_text()[-4000:]
        return code == 0

    def live_for(self, seconds: float) -> bool:
        """Kill a life after so many seconds; return true if it was over before."""
        child = self.start()
        try:
            return child.wait(timeout=seconds) == 0
        except TimeoutError:
            return False
        finally:
            child.close()

    @property
    def boundaries(self) -> int:
        """How many boundaries the last life that was not killed has met."""
        return int((self.home / "boundaries").read_text())

    def count_said(self, kind: str) -> int:
        """Return how many messages of a kind the bot has accepted from the person."""
        entries = asyncio.run(entries_of(self.home, inbox_tape("tg")))
        return sum(str(entry.key).startswith(f"{kind}-") for entry in entries)

    def read_ending(self) -> Ending:
        """Read how the run ended."""
        return asyncio.run(self._read_ending())

    async def _read_ending(self) -> Ending:
        async with open_tapes(Home(self.home)) as (_, workspace):
            tape = session_tape(workspace, SESSION)
        facts, entries = await entries_of(self.home, TASKS_TAPE), await entries_of(self.home, tape)
        state: TasksState = TASKS_PROJECTION.apply(
            TASKS_PROJECTION.initial(), [entry for entry in facts if TASKS_PROJECTION.selects(entry)]
        )
        (run,) = state.runs.values()
        made = [ArtifactMade.of(entry) for entry in entries if entry.name in ArtifactMade.EVENTS]
        artifacts: dict[str, Any] = {fact.node: thaw(fact.artifact) for fact in made}
        judged = [RuleJudged.of(entry) for entry in entries if entry.name in RuleJudged.EVENTS]
        seen = [RunEventSeen.of(entry) for entry in entries if entry.name in RunEventSeen.EVENTS]
        events = Counter(
            f"{fact.kind} {fact.name} {fact.node} {fact.attempt}"
            for fact in seen
            if fact.kind != "anchor" and (fact.kind, fact.name) != ("result", "act.never")
        )
        sent = Counter(line["text"] for line in _read_lines(self.home / "sent"))
        done = Counter(f"{line['tool']} {line['text']}" for line in _read_lines(self.home / "done"))
        return Ending(
            run.status,
            {name: (node.status, node.attempt) for name, node in run.by_node.items()},
            artifacts,
            {fact.rule: fact.status for fact in judged},
            done,
            sent[ANSWER],
            events,
            [*await damage(self.home), *_find_illegal(facts, seen)],
        )


def _find_illegal(facts: Sequence[TapeEntry], seen: Sequence[RunEventSeen]) -> list[str]:
    """Find what no run may do, killed or not: an attempt that ends twice, events with one number."""
    ends = Counter(
        (fact.node, fact.attempt, fact.status)
        for entry in facts
        if entry.name in NodeChanged.EVENTS and (fact := NodeChanged.of(entry)).status in ("succeeded", "failed")
    )
    numbers = Counter(fact.number for fact in seen)
    found = [f"{end} is written {count} times" for end, count in ends.items() if count > 1]
    return found + [f"event {number} is written {count} times" for number, count in numbers.items() if count > 1]


def compare(ending: Ending, wanted: Ending) -> list[str]:
    """Return in what a run that was killed differs from one that was not. What must not run twice may be unknown."""
    faults = [*ending.invalid]
    faults += [
        f"{name}: {getattr(ending, name)}, wanted {expected}"
        for name in ("status", "nodes", "artifacts", "verdicts", "answers", "events")
        if getattr(ending, name) != (expected := getattr(wanted, name))
    ]
    for what, count in wanted.done.items():
        least = 0 if what.startswith("act.never") else count
        if not least <= ending.done.get(what, 0) <= count:
            faults.append(f"{what} happened {ending.done.get(what, 0)} times, wanted {count}")
    return faults


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
