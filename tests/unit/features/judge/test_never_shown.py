"""No model is shown a judgement, whatever people do and whatever models ask for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Quote, Sender
from bubbot.ports.judgements import Annotator, JudgedTarget, Judgement
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ToolCall, Usage
from bubbot.tape.entry import Kind
from tests.family import GROUP, MEMBER, NAMES, OWNER, Family, family
from tests.judging import answers_of, react

COMMON = "zebra"
"""The word beside each canary, for which models and people search."""
ACTS = 30
CALLS = 3
"""Calls of one answer of the model, and the steps of a turn in which it calls."""


class Prying(ScriptedModel):
    """A model that calls what it is offered, with drawn arguments, and knows no canary unless it is shown one."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance, self._numbers = chance, count(1)
        self.called: set[str] = set()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        self.requests.append(request)
        newest = [message["role"] for message in request.messages]
        asked = len(newest) - 1 - newest[::-1].index("user") if "user" in newest else 0
        calls: tuple[ToolCall, ...] = ()
        if request.tools and newest[asked:].count("assistant") < CALLS:
            calls = tuple(self._draw(request) for _ in range(CALLS))
        text = "" if calls else f"It is so, {next(self._numbers)}."
        yield ModelReply(text, calls, "tool_calls" if calls else "stop", Usage(10, 10), self.name)

    def _draw(self, request: ModelRequest) -> ToolCall:
        spec = self._chance.choice(request.tools)
        self.called.add(spec.name)
        fields: dict[str, Any] = dict(spec.parameters.get("properties", {}))
        required = spec.parameters.get("required", ())
        given = {
            name: self._value(name, schema)
            for name, schema in fields.items()
            if name in required or self._chance.random() < 0.5
        }
        return ToolCall(f"call{next(self._numbers)}", spec.name, json.dumps(given))

    def _value(self, name: str, schema: Any) -> Any:
        """Return a value that finds much."""
        schema = next((each for each in schema.get("anyOf", ()) if each.get("type") != "null"), schema)
        if "enum" in schema:
            return self._chance.choice(schema["enum"])
        match schema.get("type"):
            case "integer" | "number":
                return self._chance.randint(1, 100 if name in ("limit", "number") else 200)
            case "boolean":
                return self._chance.random() < 0.5
            case "array":
                items = schema.get("items", {})
                return ["1-400"] if name == "ids" else [self._value(name, items)]
        if name in ("session", "chat"):
            return self._chance.choice([f"tg:{GROUP}", f"tg:{OWNER}", f"tg:{MEMBER}"])
        return COMMON


@dataclass
class Judging:
    """What people do in a bot, drawn by a seed."""

    bench: Family
    model: Prying
    chance: Random
    canaries: list[str] = field(default_factory=list)
    typed: list[tuple[str, str]] = field(default_factory=list)

    def canary(self) -> str:
        """Return a word that is written once."""
        self.canaries.append(f"zcan{len(self.canaries):04}x")
        return self.canaries[-1]

    async def act(self) -> None:
        """Let somebody do something."""
        acts = (self.ask, self.rate, self.label, self.list, self.quote, self.quote_line, self.search, self.explain)
        others = (self.react, self.export, self.fail, self.why)
        await self.chance.choice((*acts, self.ask, self.explain, *others))()

    async def ask(self) -> None:
        await self.say("what do people think of your answers?")

    async def rate(self) -> None:
        line = f",rate {self.chance.randint(1, 5)} {COMMON} {self.canary()}"
        self.typed.append((self.chance.choice([OWNER, MEMBER]), line))
        await self.say(line, self.typed[-1][0])

    async def fail(self) -> None:
        await self.say(f",rate {COMMON}{self.canary()} {COMMON} {self.canary()}")

    async def label(self) -> None:
        chat = self.chance.choice([GROUP, OWNER])
        answers = answers_of(await self.bench.entries(chat)) or [1]
        target = JudgedTarget("entry", ((answers[-1], answers[-1]),))
        words = [self.canary() for _ in range(4)]
        annotator = Annotator(self.chance.choice(["model", "code"]), words[0])
        fact = Judgement(target, words[1], 0.5, words[2], f"{COMMON} {words[3]}", annotator)
        await self.bench.daemon.bot.tape(f"tg:{chat}").append([fact.to_entry()])

    async def list(self) -> None:
        await self.say(",labels", OWNER)

    async def quote(self) -> None:
        """Reply to what people alone were told."""
        told = [(at, part) for at, part in enumerate(self.bench.channel.sent, 1) if "zcan" in part.text]
        if told:
            number, part = self.chance.choice(told)
            quote = Quote(f"p{number}", Sender("bot", "Bot"), part.text, own=True)
            sender = OWNER if part.chat == GROUP else part.chat
            await self.bench.say("is that so?", sender, part.chat, quote=quote, reply_to=quote.message)

    async def quote_line(self) -> None:
        """Reply to a command of somebody."""
        if self.typed:
            sender, line = self.chance.choice(self.typed)
            form = self.chance.choice([line, line.replace(",rate", "/rate@bubbot_bot")])
            quote = Quote("m1", Sender(sender, NAMES[sender]), form)
            await self.say("is that so?", quote=quote, reply_to="m1")

    async def search(self) -> None:
        await self.say(f",search {COMMON} kinds=event,message,error")

    async def explain(self) -> None:
        await self.say(",explain how was your answer judged?", OWNER)

    async def why(self) -> None:
        await self.say(",why request", OWNER)

    async def react(self) -> None:
        if self.bench.channel.sent:
            await react(self.bench, f"p{self.chance.randint(1, len(self.bench.channel.sent))}", "👍")

    async def export(self) -> None:
        await self.bench.say(",export.me", OWNER, OWNER)

    async def say(self, text: str, sender: str = OWNER, **fields: Any) -> None:
        await self.bench.say(text, sender, self.chance.choice([GROUP, sender]), **fields)

    async def leaks(self) -> Iterator[str]:
        """Return each place with a canary that a model was shown, or a tool returned to it."""
        found = [
            f"request {number}: {word}"
            for number, request in enumerate(self.model.requests)
            for word in words_in(request.as_bytes().decode())
        ]
        for chat in (GROUP, OWNER, MEMBER):
            results = [entry for entry in await self.bench.entries(chat) if entry.kind == Kind.TOOL_RESULT]
            found += [f"{chat} #{each.id}: {word}" for each in results for word in words_in(each.all_text())]
        return iter(found)


def words_in(text: str) -> list[str]:
    """Return the canaries in a text."""
    return [word for word in text.replace('"', " ").replace("\\", " ").split() if "zcan" in word]


async def _read_nothing(_digest: str) -> bytes:
    return b""


async def pry(home: Path, seed: int, acts: int = ACTS) -> tuple[list[str], set[str], int]:
    """Let people act; return what leaked, which tools were called, and how many canaries there were."""
    chance = Random(seed)
    model = Prying(chance)
    async with family(home, model, agents={}) as bench:
        bench.channel.blob = _read_nothing
        judging = Judging(bench, model, chance)
        for _ in range(acts):
            await judging.act()
        return list(await judging.leaks()), model.called, len(judging.canaries)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(1, 9))
async def test_no_request_and_no_result_of_a_tool_holds_a_judgement(tmp_path: Path, seed: int) -> None:
    leaks, called, canaries = await pry(tmp_path, seed)
    assert leaks == []
    assert canaries > 10
    assert {"tape_search", "explain_turn", "tape_read"} <= called


@pytest.mark.sampled(3)
@pytest.mark.parametrize("module", ["bubbot.tape.withheld", "bubbot.tape.entry", "bubbot.runtime.session"])
async def test_without_the_rule_in_one_place_models_are_shown_judgements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setattr(f"{module}.is_for_people", lambda *_: False)
    leaks, _, _ = await pry(tmp_path, 1)
    assert leaks
