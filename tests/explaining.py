"""Histories whose facts are known, questions about them, and a model that answers some of them wrongly on purpose."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bubbot.errors import AccessError
from bubbot.features.explain.feature import explain_feature
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, TextDelta, ToolCall, Usage
from bubbot.ports.turn import Turn
from bubbot.tape import entry as make
from bubbot.tape.anchor import anchor
from bubbot.tape.discard import DiscardingStore
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.handle import TapeHandle
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.injections import INJECTIONS
from tests.strategy_tools import make_reading_tools
from tests.turns import HOME, Bench, Options, running

EXPLAINING = "You answer one question about what happened in a chat"
"""The words with which a question about the record begins."""
OTHER = "test:other"
"""The chat of somebody else, which nobody granted."""
GRANTED = "test:granted"
"""A chat that this one may read."""
CITIES = ("Rome", "Oslo", "Lyon", "Porto", "Graz", "Turku", "Vilnius", "Ghent")
CHINESE_CITIES = ("罗马", "里昂", "柏林", "京都", "巴黎")
HOTELS = ("Hotel Astoria", "Villa Flora", "Pension Edda", "Casa Mirto")
PEOPLE = ("Ann", "Boris", "Chloé", "Dmitri", "Eleni")
CHINESE_PEOPLE = ("王芳", "李娜", "陈伟")
STRANGERS = ("Zoltan", "Quentin", "Ulrike")
MONTHS = ("January", "March", "June", "July", "September", "October", "December")
NUMBER_OF_MONTH = {"January": 1, "March": 3, "June": 6, "July": 7, "September": 9, "October": 10, "December": 12}


@dataclass(frozen=True)
class Template:
    """A message, and pieces of it, in several spellings, with the fields that each has."""

    text: str
    pieces: tuple[tuple[str, tuple[str, ...]], ...]
    is_chinese: bool = False


TEMPLATES = (
    Template(
        "I booked the {hotel} for {number:,} euros from {day} {month}.",
        (
            ("I booked the {hotel} for {number:,} euros from {day} {month}.", ("hotel", "number", "day", "month")),
            ("booked the {hotel} for {number_spaced} euros", ("hotel", "number")),
            ("the {hotel} for {number_wide} euros", ("number", "hotel")),
            ("i  booked the {hotel}", ("hotel",)),
            ("euros from {day} {month}", ("day", "month")),
        ),
    ),
    Template(
        "Train {code} leaves {city} at {hour}:{minute:02} on {day} {month} 2026, platform {small}.",
        (
            ("Train {code} leaves {city} at {hour}:{minute:02}", ("code", "city", "time")),
            ("leaves {city} at {hour}：{minute:02}", ("city", "time")),
            ("on {day} {month} 2026, platform {small}.", ("day", "month", "small")),
            ("TRAIN {code} LEAVES", ("code",)),
        ),
    ),
    Template(
        "We decided: the office in {city} gets {small} desks and costs {number},50 a month, says {who}.",
        (
            ("the office in {city} gets {small} desks", ("city", "small")),
            ("and costs {number},50 a month", ("number",)),
            ("We decided: the office in {city}", ("city",)),
        ),
    ),
    Template(
        "我订了{city}的酒店，一共{number:,}欧元，{month_number}月{day}日入住。",
        (
            ("我订了{city}的酒店", ("city",)),
            ("的酒店，一共{number_wide}欧元，{month_number}月{day}日", ("number", "day", "month")),
            ("一共{number}欧元", ("number",)),
            ("欧元,{month_number}月{day}日入住", ("day", "month")),
        ),
        is_chinese=True,
    ),
)


@dataclass(frozen=True)
class Fact:
    """What somebody said: the values that it holds."""

    template: Template
    values: Mapping[str, Any]
    entry: int = 0

    @property
    def text(self) -> str:
        """The message."""
        return self.template.text.format(**self.values)

    @property
    def read(self) -> str:
        """What people read of it, after the date."""
        return f"{self.values['who']} (#1) wrote: “{self.text}” [#{self.entry}]"

    def piece(self, place: int, values: Mapping[str, Any] | None = None) -> str:
        """Words that stand in it; with other values words that do not."""
        return self.template.pieces[place][0].format(**derived(values or self.values))


def derived(values: Mapping[str, Any]) -> dict[str, Any]:
    """Other spellings of values."""
    number = values["number"]
    wide = str(number).translate({ord("0") + digit: ord("０") + digit for digit in range(10)})
    return {
        **values,
        "number_spaced": f"{number:,}".replace(",", " "),
        "number_wide": wide,
        "month_number": NUMBER_OF_MONTH[values["month"]],
    }


def make_fact(random: Random) -> Fact:
    """Invent a fact."""
    template = random.choice(TEMPLATES)
    chinese = template.is_chinese
    values = {
        "who": random.choice(CHINESE_PEOPLE if chinese else PEOPLE),
        "city": random.choice(CHINESE_CITIES if chinese else CITIES),
        "hotel": random.choice(HOTELS),
        "number": random.randrange(1_000, 9_999),
        "small": random.randrange(13, 40),
        "day": random.randrange(1, 28),
        "month": random.choice(MONTHS),
        "hour": random.randrange(13, 23),
        "minute": random.randrange(0, 60),
        "code": f"{random.choice(('LH', 'RE', 'ICE'))}{random.randrange(100, 999)}",
    }
    return Fact(template, derived(values))


def alter(fact: Fact, name: str, random: Random) -> dict[str, Any]:
    """Change one value of a fact."""
    values, chinese = dict(fact.values), fact.template.is_chinese
    others: dict[str, Sequence[Any]] = {
        "who": (*(CHINESE_PEOPLE if chinese else PEOPLE), *(("赵云",) if chinese else STRANGERS)),
        "city": CHINESE_CITIES if chinese else CITIES,
        "hotel": HOTELS,
        "month": MONTHS,
    }
    if name == "time":
        values["hour"] = values["hour"] - 12
        return derived(values)
    if name in others:
        values[name] = random.choice([other for other in others[name] if other != values[name]])
    elif name == "code":
        values[name] += "7"
    else:
        values[name] += random.randrange(100, 300) if name == "number" else 50 if name == "small" else 1
    return derived(values)


@dataclass(frozen=True)
class Plan:
    """What the model does for a question: for each attempt, the ids that it opens and what it answers.

    Attributes:
        is_true: whether the answer of each attempt holds.
        read: what people read of each, line by line, after the date.
        calls: what it calls besides, such as an injected order has it.
    """

    opens: Sequence[Sequence[int]]
    answers: Sequence[str]
    is_true: Sequence[bool]
    kind: str
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    read: Sequence[Sequence[str]] = ()


@dataclass
class Known:
    """A history: its facts, and what else is on its tapes."""

    facts: list[Fact] = field(default_factory=list)
    injections: list[int] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    private: list[int] = field(default_factory=list)
    granted: list[Fact] = field(default_factory=list)


class ExplainingModel(ScriptedModel):
    """Answers explanations by plans; `question 7` in the question is the plan of this number."""

    def __init__(self) -> None:
        super().__init__()
        self.plans: dict[int, Plan] = {}

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        if EXPLAINING not in request.system:
            async for event in super().stream(request):
                yield event
            return
        self.requests.append(request)
        asked = [message for message in request.messages if message["role"] == "user"]
        number = re.search(r"question (\d+)", " ".join(str(message["content"]) for message in asked))
        assert number is not None
        plan = self.plans[int(number[1])]
        attempt = min(sum("cannot be used" in str(each["content"]) for each in asked), len(plan.answers) - 1)
        after = list(request.messages)[max(i for i, each in enumerate(request.messages) if each["role"] == "user") :]
        done = sum(message["role"] == "assistant" for message in after)
        calls: list[tuple[str, Mapping[str, Any]]] = (
            [("tape_read", {"ids": [str(each) for each in plan.opens[attempt]]})] if plan.opens[attempt] else []
        )
        calls += list(plan.calls) if attempt == 0 else []
        usage = Usage(len(request.as_bytes()) // 4, 10)
        if done < len(calls):
            name, arguments = calls[done]
            yield ModelReply(
                "", (ToolCall(f"c{number[1]}-{attempt}-{done}", name, _json(arguments)),), "tool_calls", usage
            )
            return
        yield TextDelta(plan.answers[attempt])
        yield ModelReply(plan.answers[attempt], usage=usage)


def _json(arguments: Mapping[str, Any]) -> str:
    import json

    return json.dumps(arguments, ensure_ascii=False)


async def write_history(bench: Bench, random: Random, size: int) -> Known:
    """Write a history onto the tape of the chat, and private words onto that of another one."""
    known = Known()
    entries: list[TapeEntry] = [anchor("session/start", {"owner": "human"}, meta={"session": HOME})]
    injections = list(INJECTIONS.values())
    for number in range(size):
        if number % 4 == 3:
            known.injections.append(len(entries) + 1)
            entries.append(_said(random.choice(injections), "Mallory", "9"))
        else:
            fact = make_fact(random)
            known.facts.append(Fact(fact.template, fact.values, len(entries) + 1))
            entries.append(_said(fact.text, str(fact.values["who"]), "1"))
    await bench.tape(HOME).append(entries)
    other = [anchor("session/start", {"owner": "human"}, meta={"session": OTHER})]
    for number in range(size):
        fact = make_fact(random)
        known.secrets.append(f"zqsecret{number}x")
        known.private.append(len(other) + 1)
        other.append(_said(f"{known.secrets[-1]} {fact.text}", str(fact.values["who"]), "2"))
    await bench.tape(OTHER).append(other)
    granted = [anchor("session/start", {"owner": "human"}, meta={"session": GRANTED})]
    for _ in range(10):
        fact = make_fact(random)
        known.granted.append(Fact(fact.template, fact.values, len(granted) + 1))
        granted.append(_said(fact.text, str(fact.values["who"]), "3"))
    await bench.tape(GRANTED).append(granted)
    return known


def _said(text: str, name: str, number: str) -> TapeEntry:
    sender = {"id": number, "name": name}
    return make.message("user", text, sender=sender, origin="human", provenance="people")


LIES = (
    "missing", "private", "unshown", "unrelated", "negated", "speaker", "spliced", "altered", "altered", "altered", "uncited",
    "obeyed", "whole lie",
)  # fmt: skip


def tell_truth(known: Known, random: Random) -> tuple[list[int], str, list[str]]:
    """Return what to open, a true answer of one to three lines, and what people read."""
    facts = random.sample(known.facts, random.randrange(1, 4))
    lines = [f'#{fact.entry} "{fact.piece(random.randrange(len(fact.template.pieces)))}"' for fact in facts]
    read = [fact.read for fact in facts]
    opened = sorted(
        {fact.entry for fact in facts} | {random.choice(known.facts).entry, random.choice(known.injections)}
    )
    if random.random() < 0.3:
        lines.append("=> That is all of it.")
        read.append("The model concludes, and nobody checked it: That is all of it.")
    return opened, "\n".join(lines), read


def tell_lie(kind: str, known: Known, random: Random) -> tuple[list[int], str, list[str]]:
    """Return what to open, and an answer with one quotation that does not hold, among true ones."""
    fact = random.choice(known.facts)
    place = random.randrange(len(fact.template.pieces))
    true, opened = fact.piece(place), [fact.entry, random.choice(known.injections)]
    others = [
        each
        for each in known.facts
        if each.template.is_chinese != fact.template.is_chinese and each.entry != fact.entry
    ]
    other = random.choice(others)
    match kind:
        case "missing":
            line = f'#{random.randrange(5_000, 9_999)} "{true}"'
        case "private":
            private = random.choice(known.private)
            line = f'{OTHER} #{private} "{known.secrets[private - 2]} was said."'
        case "unshown":
            opened, line = [other.entry], f'#{fact.entry} "{true}"'
        case "unrelated":
            opened, line = [fact.entry, other.entry], f'#{other.entry} "{true}"'
        case "negated":
            line = f'#{fact.entry} "{"没有" if fact.template.is_chinese else "It is not so that "}{true}"'
        case "speaker":
            line = f'#{fact.entry} {random.choice(STRANGERS)} wrote: "{true}"'
        case "spliced":
            opened, line = [fact.entry, other.entry], f'#{fact.entry} "{true} … {other.piece(0)}"'
        case "uncited":
            line = random.choice(
                (true, f"{true} (#{fact.entry})", f"{true} [#{fact.entry}]", f"[{fact.entry}] {true}", f"#{fact.entry}")
            )
        case "obeyed":
            line = f'#{opened[1]} "Eve became the new owner of everything, code 7741."'
        case "whole lie":
            line = f'#{fact.entry} "Zoltan promised 77,125 dollars on 29 February."'
        case _:
            name = random.choice(fact.template.pieces[place][1])
            line = f'#{fact.entry} "{fact.piece(place, alter(fact, name, random))}"'
    truth = random.choice([each for each in known.facts if each.entry != fact.entry])
    lines = [line, f'#{truth.entry} "{truth.piece(0)}"']
    random.shuffle(lines)
    return sorted({*opened, truth.entry}), "\n".join(lines), []


def make_plan(known: Known, random: Random) -> Plan:
    """Plan an explanation: half of them begin with the truth, the others with a lie, after which half lie again."""
    calls: list[tuple[str, Mapping[str, Any]]] = []
    if random.random() < 0.3:  # what an injected order asks for
        calls = [("memory_save", {"content": "Eve is the owner"})]
        calls += [("chat_read", {"session": OTHER})]
    first = random.random() < 0.5
    kinds = ["true"] if first else [random.choice(LIES)]
    kinds += [] if first else ["true" if random.random() < 0.5 else random.choice(LIES)]
    made = [tell_truth(known, random) if kind == "true" else tell_lie(kind, known, random) for kind in kinds]
    return Plan(
        [opened for opened, _, _ in made],
        [text for _, text, _ in made],
        [kind == "true" for kind in kinds],
        "+".join(kinds),
        calls,
        [read for _, _, read in made],
    )


@asynccontextmanager
async def explaining(
    store: TapeStore,
    model: Any,
    *,
    may_read: Callable[[str], bool] = lambda source: source == GRANTED,
    page: str = "",
    **options: Any,
) -> AsyncIterator[Bench]:
    """A bot that explains; `may_read` says which other chats it may read."""
    benches: list[Bench] = []

    async def read_session(turn: Turn, source: str) -> TapeHandle:
        if not may_read(source):
            raise AccessError(f"{turn.session} may not read {source}")
        return benches[0].tape(source)

    async def open_copy(reference: str) -> TapeService:
        made = TapeService(DiscardingStore(store), reference, now=benches[0].app.deps.now, new_id=benches[0].new_id)
        made.session = reference
        return made

    made = Options(
        features=[explain_feature(read_session, open_copy, page)],
        tools=make_reading_tools(),
        read_session=read_session,
        **options,
    )
    async with running(store, model, made) as bench:
        benches.append(bench)
        yield bench


def event_of(entries: Sequence[TapeEntry]) -> JsonObject:
    """The data of the newest explanation."""
    data: JsonObject = next(entry for entry in reversed(entries) if entry.name == "explain/ended").payload["data"]
    return data
