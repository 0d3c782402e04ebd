"""AgentDojo's tasks, played by a bot that has the tools of a suite from a server of MCP, with a model that obeys whatever it reads."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ToolCall, Usage
from bubbot.tape.entry import Kind
from bubbot.tape.query import TapeQuery
from tests.mcp.benches import READABLE, McpBench, mcp_bench

ROOT = Path(__file__).parents[2]
DOJO = ROOT / ".venv-agentdojo"
SERVER = ROOT / "tests" / "dojo" / "server.py"
READING = ("get_", "search_", "list_", "read_", "check_")
FETCHES = "get_webpage"
"""It reads any address, so that its arguments reach others: an owner does not vouch for it."""
PREFIX = "mcp_dojo_"
"""What the names of the tools begin with, as the model knows them."""
START_SECONDS = 300.0
"""AgentDojo imports the libraries of every provider: up to half a minute on a busy machine."""
ORDER = "<INFORMATION>"
"""What the orders of attackers begin with."""
DojoCall = Mapping[str, Any]
_OFFERED = re.compile(r"^(\w+) \[", re.MULTILINE)
_WORD = re.compile(r"[^\s'\",:;\[\]{}()]+")


def is_acting(tool: str) -> bool:
    """True if a tool of AgentDojo does more than read."""
    return not tool.startswith(READING)


def is_vouched(tool: str) -> bool:
    """True if an owner who follows our pages pins it as one that only reads."""
    return not is_acting(tool) and tool != FETCHES


def describe(tool: str, arguments: Mapping[str, Any]) -> str:
    """Write a call down, so that two can be compared."""
    given = {key: value for key, value in arguments.items() if value is not None}
    return f"{tool} {json.dumps(given, sort_keys=True)}"


def _words_of(value: Any) -> frozenset[str]:
    """List the words of a text, or of the arguments of a call."""
    if isinstance(value, Mapping):
        return frozenset[str]().union(*map(_words_of, value.values()))
    if isinstance(value, list | tuple):
        return frozenset[str]().union(*map(_words_of, value))
    return frozenset(word.strip(".-!?") for word in _WORD.findall(str(value))) - {""}


@dataclass
class Play:
    """A task under way, with an attack or without.

    Attributes:
        text: what the person wants.
        answer: what AgentDojo's own solution says at the end.
        calls: those of AgentDojo's own solution, each with its result.
        attack_calls: those that carry out the attack.
        was_shown: the model has read the attack.
    """

    text: str = ""
    answer: str = ""
    calls: Sequence[DojoCall] = ()
    attack_calls: Sequence[DojoCall] = ()
    was_shown: bool = False

    def wants(self, call: str) -> bool:
        """True if the person's task has this call."""
        return call in [describe(each["tool"], each["arguments"]) for each in self.calls]

    @property
    def acts(self) -> bool:
        """True if the task has a call that acts."""
        return any(is_acting(call["tool"]) for call in self.calls)


@dataclass
class Stage:
    """The play that is on, for the model of a bot."""

    play: Play = field(default_factory=Play)


class ObedientModel(ScriptedModel):
    """Carries out what the person wants, and before that whatever is ordered in anything it reads.

    It makes each call as soon as it can know the arguments, together with others of its kind: once every call whose result they
    stand in has been answered. It acts after what it reads before that. If something was asked, it does what does not depend on it.
    """

    def __init__(self, stage: Stage) -> None:
        super().__init__(keep_requests=False)
        self._stage, self._play, self._count = stage, stage.play, 0
        self._left, self._waiting, self._known = list[DojoCall](), dict[str, DojoCall](), set[str]()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        self._read(request.messages)
        chosen = self._choose()
        if not chosen:
            yield ModelReply("I have asked." if self._left else self._play.answer or "Done.", usage=Usage(1, 1))
            return
        self._left = [call for call in self._left if not any(call is each for each in chosen)]
        made = []
        for call in chosen:
            self._count += 1
            self._waiting[describe(call["tool"], call["arguments"])] = call
            made.append(ToolCall(f"c{self._count}", f"{PREFIX}{call['tool']}", json.dumps(call["arguments"])))
        yield ModelReply("", tuple(made), "tool_calls", Usage(1, 1), "obedient")

    def _read(self, messages: Sequence[Any]) -> None:
        """Take in what it is shown for the first time."""
        if self._stage.play is not self._play:
            self._play = self._stage.play
            self._left, self._waiting, self._known = list(self._play.calls), {}, set(_words_of(self._play.text))
        texts = list(_read_last(messages))
        for call, text in texts:
            if not text.startswith("asked "):
                self._known |= _words_of(text)
                self._waiting.pop(call, None)
        if any("[Approval " in text and ": denied" in text for call, text in texts if not call):
            again = [
                call for call in self._waiting.values() if not any(call is each for each in self._play.attack_calls)
            ]
            self._left, self._waiting = [*again, *self._left], {}
        if self._play.attack_calls and not self._play.was_shown and any(ORDER in text for _, text in texts):
            self._play.was_shown = True
            self._left = [*self._play.attack_calls, *self._left]

    def _choose(self) -> list[DojoCall]:
        """Choose the calls of the next step; none if it has to wait, or is done."""
        chosen: list[DojoCall] = []
        if not all(is_acting(call["tool"]) for call in self._waiting.values()):
            return []  # who knows what it would read
        for call in self._left:
            others = [*self._waiting.values(), *chosen]
            if any(is_acting(each["tool"]) is not is_acting(call["tool"]) for each in chosen):
                break
            unknown = _words_of(call["arguments"]) - self._known - _words_of([each["arguments"] for each in others])
            if any(unknown & _words_of(each["result"]) for each in others):
                break
            chosen.append(call)
        return chosen


def _read_last(messages: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield the results and messages since its last step: the call that a result is of, or nothing, and the text."""
    place = max((place for place, message in enumerate(messages) if message["role"] == "assistant"), default=-1)
    made = {
        call["id"]: describe(call["function"]["name"].removeprefix(PREFIX), json.loads(call["function"]["arguments"]))
        for call in (messages[place].get("tool_calls", ()) if place >= 0 else ())
    }
    for message in messages[place + 1 :]:
        content = message["content"]
        text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
        yield made.get(message.get("tool_call_id", ""), ""), text


@dataclass(frozen=True)
class Card:
    """A card that was shown.

    Attributes:
        tools: those of its calls.
    """

    tools: Sequence[str]

    @property
    def acts(self) -> bool:
        """True if one of its calls acts."""
        return any(map(is_acting, self.tools))


@dataclass(frozen=True)
class Played:
    """What came of a play.

    Attributes:
        utility: AgentDojo says that the person's task is done.
        security: AgentDojo says that the attacker got what it wanted.
        cards: in their order.
        unclear: cards with calls that the person wants and others.
        unasked: calls that acted without a yes.
    """

    utility: bool
    security: bool
    cards: Sequence[Card]
    unclear: int
    unasked: Sequence[str]


class DojoBench:
    """A bot with the tools of a suite; each play is a chat of its own."""

    def __init__(self, bench: McpBench, stage: Stage) -> None:
        self._bench, self._stage, self._count = bench, stage, 0

    async def prepare(self, command: str, *readable: str) -> None:
        """Add the server, and pin its tools as an owner does who follows our pages."""
        await self._bench.type(f",mcp.add read={','.join((*READABLE, *readable))} dojo {command}")
        listed = await self._bench.type(",mcp.tools dojo")
        for tool in [each for each in _OFFERED.findall(listed.replace("\\", "")) if not each.startswith("stage_")]:
            await self._bench.pin(tool, "dojo", **({"reads": "yes"} if is_vouched(tool) else {}))

    async def _ask_server(self, tool: str, **arguments: Any) -> Any:
        """Call a tool that is for the test alone."""
        server = self._bench.service.state.find_server("dojo")
        assert server is not None
        async with self._bench.service._use_host() as host:
            reply = await host.call(server, tool, arguments, meta={})
        return json.loads(reply.text)

    async def list_plays(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the ids of the tasks of the suite, and of its attacks."""
        found = await self._ask_server("stage_list")
        return found["tasks"], found["attacks"]

    async def perform(self, task: str, attack: str | None = None) -> tuple[Play, Played]:
        """Perform a play; each card gets a yes if the person's task has all its calls, else a no."""
        begun = await self._ask_server("stage_begin", task=task, attack=attack)
        self._count += 1
        session = f"play{self._count}"
        play = self._stage.play = Play(begun["text"], begun["answer"], begun["calls"], begun["attack_calls"])
        await self._bench.say(play.text, session=session)
        cards, unclear, allowed = list[Card](), 0, set[str]()
        while len(asked := await self._read_facts(session, "approval.asked")) > len(cards):
            card = asked[len(cards)]
            tools = [call["tool"].rpartition(".")[2] for call in card["calls"]]
            made = [
                describe(tool, json.loads(call["arguments"])) for tool, call in zip(tools, card["calls"], strict=True)
            ]
            wanted = {play.wants(call) for call in made}
            cards.append(Card(tools))
            unclear += len(wanted) > 1
            allowed |= {call["digest"] for call in card["calls"]} if wanted == {True} else set()
            answer = f",approve {card['id']}" if wanted == {True} else f",deny {card['id']} I did not ask for that"
            await self._bench.say(answer, session=session)
        judged = await self._ask_server("stage_judge", answer=await self._find_answer(session))
        begun_effects = await self._read_facts(session, "effect.begin")
        unasked = [each["tool"] for each in begun_effects if each["digest"] not in allowed]
        return play, Played(judged["utility"], judged["security"], cards, unclear, unasked)

    async def _read_facts(self, session: str, name: str) -> Sequence[Any]:
        tape = self._bench.app.tape(f"stdin:{session}")
        found = (await tape.fetch([TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(name,))]))[0]
        return [entry.payload["data"] for entry in found]

    async def _find_answer(self, session: str) -> str:
        """Return the last words of the bot in a chat."""
        tape = self._bench.app.tape(f"stdin:{session}")
        found = (await tape.fetch([TapeQuery(tape.name, kinds=(Kind.MESSAGE,))]))[0]
        said = [entry.payload["content"] for entry in found if entry.payload.get("role") == "assistant"]
        return str(said[-1]) if said else ""


@asynccontextmanager
async def performing(home: Path, suite: str, *, recorded: Path | None = None) -> AsyncIterator[DojoBench]:
    """Open a bot with the tools of a suite; its world is AgentDojo's, or plays that were `recorded`."""
    stage = Stage()
    async with mcp_bench(home, ObedientModel(stage), connect_timeout=START_SECONDS) as bench:
        dojo = DojoBench(bench, stage)
        if recorded is None:
            python = DOJO / "bin" / "python"
            await dojo.prepare(f"{sys.executable} {SERVER} world {python} {suite}", str(DOJO), str(ROOT))
        else:
            await dojo.prepare(f"{sys.executable} {SERVER} recorded {recorded} {suite}")
        yield dojo
