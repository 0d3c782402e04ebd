"""Random talks with branches, and processes that die in the middle of them.

What a branch does follows from its question and its number alone, so that every life of the process works on the same talk, and a
pure model says what the tape must hold. Each run of a tool is a line of a file, which survives the process.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import LeaseLost
from bubbot.features.agents.facts import BranchChosen, BranchEnded, BranchesAsked
from bubbot.features.agents.settings import AgentsSettings
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ToolCall, Usage
from bubbot.runtime.compose import rebuild_request
from bubbot.tape.entry import Kind, TapeEntry, encode
from bubbot.tape.events import EffectBegin
from bubbot.tape.store import TapeStore
from tests.doubles import SteppingClock
from tests.property.agent_trees import Life, open_tree_store
from tests.turns import HOME, WAIT, Options, Replying, running

_ASKED = re.compile(r"question (\d+)")
_BRANCH = re.compile(r"like this: way (\d+)")


@dataclass(frozen=True)
class Line:
    """A line of a talk: `say`, `ask` in so many branches, or `choose` the branch of this number."""

    action: str
    number: int = 0

    def text(self, place: int) -> str:
        """Write what a person types."""
        match self.action:
            case "say":
                return f"words {place}"
            case "ask":
                ways = "|".join(f"way {number}" for number in range(1, self.number + 1))
                return f',branch.ask prompts="{ways}" tools=look.up,send.out question {place}'
            case _:
                return f",branch.choose {self.number}"


def make_talk(seed: int) -> list[Line]:
    """Make the talk of a seed. It asks at least once, and some of its choices must be refused."""
    chance = random.Random(seed)
    lines = [Line("ask", chance.randint(2, 3))]
    for _ in range(chance.randint(2, 5)):
        action = chance.choice(("say", "ask", "choose", "choose"))
        lines.append(Line(action, chance.randint(2, 3) if action == "ask" else chance.randint(1, 4)))
    return [*lines, Line("choose", chance.randint(1, 3)), Line("say")]


def calls_of(seed: int, question: int, way: int) -> list[tuple[str, int]]:
    """List the calls of a branch, one for each step before its answer."""
    chance = random.Random(f"{seed} {question} {way}")
    return [
        (chance.choice(("look_up", "send_out")), 100 * question + 10 * way + step)
        for step in range(chance.randint(0, 2))
    ]


@dataclass
class Expected:
    """What the tape must hold: what the conversation shows, the choices, and what was sent at most once."""

    said: list[tuple[str, str]] = field(default_factory=list)
    chosen: list[tuple[int, int]] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)


def expect(seed: int) -> Expected:
    """Play a talk on the model."""
    made = Expected()
    asked: tuple[int, int] | None = None
    for place, line in enumerate(make_talk(seed)):
        if line.action == "say":
            made.said += [("user", f"words {place}"), ("assistant", f"heard words {place}")]
        elif line.action == "ask":
            asked = place, line.number
            for way in range(1, line.number + 1):
                made.sent |= {
                    f"send.out q{place} {number}" for name, number in calls_of(seed, place, way) if name == "send_out"
                }
        elif asked and line.number <= asked[1] and asked[0] not in [question for question, _ in made.chosen]:
            question = asked[0]
            made.chosen.append((question, line.number))
            made.said.append(("user", f"question {question}"))
            for name, number in calls_of(seed, question, line.number):
                made.said += [("call", f"{name} {number}"), ("result", str(number))]
            made.said.append(("assistant", f"answer {question} {line.number}"))
    return made


def plays(seed: int, chance: random.Random) -> Replying:
    """Make the model of a talk."""
    made = 0

    async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
        nonlocal made
        made += 1
        number = made
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        users = [place for place, each in enumerate(request.messages) if each["role"] == "user"]
        last = str(request.messages[users[-1]]["content"])
        usage = Usage(10, 5)
        way = _BRANCH.search(request.system)
        if way is None:
            yield ModelReply(f"heard {last.rpartition('] ')[2]}", usage=usage, model="scripted")
            return
        asked = _ASKED.search(last)
        assert asked is not None
        question, branch = int(asked[1]), int(way[1])
        steps = calls_of(seed, question, branch)
        done = sum("tool_calls" in each for each in request.messages[users[-1] :])
        if done < len(steps):
            name, value = steps[done]
            arguments = encode({"node": f"q{question}", "number": value})
            yield ModelReply(
                "", (ToolCall(f"c{seed}-{number}-{value}", name, arguments),), "tool_calls", usage, "scripted"
            )
        else:
            yield ModelReply(f"answer {question} {branch}", usage=usage, model="scripted")

    return Replying(stream)


@dataclass
class TalkOutcome:
    """What is left of a talk."""

    entries: tuple[TapeEntry, ...] = ()
    ran: Counter[str] = field(default_factory=Counter)
    broken_requests: list[int] = field(default_factory=list)

    @property
    def has_given_up(self) -> bool:
        """True if two interruptions of one turn ended it, as the bot says: the rest of the talk is another one then."""
        return any(entry.kind == Kind.ERROR and entry.payload["kind"] == "interrupted" for entry in self.entries)


async def live_talk(store: TapeStore, seed: int, life: Life, number: int) -> TalkOutcome:
    """Live once over the store: the first life begins the talk, a later one takes it up where it was."""
    chance = random.Random(seed * 31 + number)
    options = Options(tools=life.tools(chance), agents=AgentsSettings(), clock=SteppingClock())
    outcome = TalkOutcome()
    async with running(store, plays(seed, chance), options, life=f"life{number}") as bench:
        life.watch(store)
        with suppress(LeaseLost):
            async with asyncio.timeout(WAIT):
                if number:
                    await bench.resume()
                for place, line in enumerate(make_talk(seed)):
                    turn = await bench.gate.accept(bench.inbound(line.text(place), external_id=f"m{place}"))
                    if turn is not None:
                        await turn
                await bench.quiet()
        life.unwatch(store)
        if life.is_dead:
            await bench.kill()
        else:
            outcome.entries = await bench.entries()
            for entry in outcome.entries:
                if entry.name == "loop.step":
                    request = await rebuild_request(entry.payload["data"], bench.tape(), strategies=OWN_STRATEGIES)
                    if request.digest() != entry.payload["data"]["request"]:
                        outcome.broken_requests.append(entry.id)
    outcome.ran = Counter(life.log.read_text().splitlines() if life.log.exists() else ())
    return outcome


def run_talk_life(path: str, log: str, seed: int, dies_at: int, *, is_after: bool) -> None:
    """Live in a process of its own, which kills itself."""

    async def run() -> None:
        store = await open_tree_store(Path(path))
        try:
            await live_talk(store, seed, Life(Path(log), dies_at, is_after=is_after, is_real=True), 0)
        finally:
            await store.aclose()

    asyncio.run(run())


def check_talk(seed: int, outcome: TalkOutcome) -> None:
    """Compare the tape with the model; every reference leads where it should, and nothing was sent twice."""
    entries, expected = outcome.entries, expect(seed)
    assert [entry.id for entry in entries] == list(range(1, len(entries) + 1))
    assert outcome.broken_requests == []
    assert conversation(entries) == expected.said
    assert {line for line in outcome.ran if line.startswith("send.out")} <= expected.sent
    assert all(count == 1 for line, count in outcome.ran.items() if line.startswith("send.out"))
    chosen = [(entry, BranchChosen.of(entry)) for entry in entries if entry.name in BranchChosen.EVENTS]
    asked = [BranchesAsked.of(entry) for entry in entries if entry.name in BranchesAsked.EVENTS]
    questions = {fact.group: int(fact.question.rpartition(" ")[2]) for fact in asked}
    assert [(questions[fact.group], fact.number) for _, fact in chosen] == expected.chosen
    for entry in entries:
        if entry.name in BranchEnded.EVENTS:
            _check_end(entries, BranchEnded.of(entry))
    for entry, fact in chosen:
        _check_choice(entries, entry, fact)


def conversation(entries: tuple[TapeEntry, ...]) -> list[tuple[str, str]]:
    """List what the conversation shows, in order."""
    said: list[tuple[str, str]] = []
    for entry in entries:
        if not entry.is_shown_to(""):
            continue
        if entry.kind == Kind.MESSAGE:
            said.append((entry.payload["role"], entry.payload["content"]))
        for call in entry.payload["calls"] if entry.kind == Kind.TOOL_CALL else ():
            number = re.findall(r"\d+", call["function"]["arguments"])[-1]
            said.append(("call", f"{call['function']['name']} {number}"))
        results = entry.payload["results"] if entry.kind == Kind.TOOL_RESULT else ()
        said += [("result", result["tool_call_id"].rpartition("-")[2]) for result in results]
    return said


def _check_end(entries: tuple[TapeEntry, ...], end: BranchEnded) -> None:
    own = [entry.id for entry in entries if entry.meta.get("fork") == end.fork]
    assert [[own[0], own[-1]]] == [list(span) for span in end.entries]
    assert own == list(range(own[0], own[-1] + 1))
    for effect in end.effects:
        begin = entries[effect.begin - 1]
        assert EffectBegin.of(begin).tool == effect.tool == "send.out"


def _check_choice(entries: tuple[TapeEntry, ...], entry: TapeEntry, fact: BranchChosen) -> None:
    sources = [number for low, high in fact.sources for number in range(low, high + 1)]
    copies = [number for low, high in fact.copies for number in range(low, high + 1)]
    assert copies == list(range(entry.id + 1, entry.id + 1 + len(sources)))
    for source, copy in zip(sources, copies, strict=True):
        original, made = entries[source - 1], entries[copy - 1]
        assert made.meta["source"] == (HOME, source)
        assert (made.kind, made.payload) == (original.kind, original.payload)
        assert original.meta["fork"] == fact.fork
        assert "fork" not in made.meta
