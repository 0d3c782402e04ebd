"""Nothing said in one chat appears on another's tape, except what an owner sends there: every tool, in every chat."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, timedelta
from random import Random
from typing import Any, cast

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from bubbot.app.reading import session_reader
from bubbot.features.access.service import TERMINAL, AccessService
from bubbot.features.budget.report import LimitReporter
from bubbot.features.schedule.timer import JobTimer
from bubbot.features.usage.reporter import UsageReporter
from bubbot.features.usage.tools import usage_tool
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest, ToolCall
from bubbot.ports.tool import Tool
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from tests.budgets import budget_tape, metering, opened, plan
from tests.doubles import CountingIds, SteppingClock
from tests.gateways import admitting
from tests.schedules import Timed, WallClock, timed
from tests.turns import Options, Replying

OWNER, MEMBER, GUEST = "1", "5", "7"
GROUP = "-9"
PEOPLE = ((OWNER, OWNER), (MEMBER, MEMBER), (OWNER, GROUP), (MEMBER, GROUP), (GUEST, GROUP))
"""Who speaks where: sender and chat."""
CHATS = (OWNER, MEMBER, GROUP)
WORD = re.compile(r"zq[a-z]+zq")
_LETTERS = {OWNER: "a", MEMBER: "b", GROUP: "c"}
_JOB_TOOLS = ("schedule.add", "schedule.remind", "schedule.edit")
_LEFT_OUT = frozenset({"session.quit"})
TOOLS = 41
"""How many there are, those left out aside."""
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


def said_in(chat: str) -> str:
    """The word that is only ever said in this chat."""
    return f"zqsaid{_LETTERS[chat]}zq"


def planned_in(chat: str) -> str:
    """The word of this chat's jobs, which an owner sees in a direct chat."""
    return f"zqjob{_LETTERS[chat]}zq"


SENT = "zqsentzq"
"""The word of jobs that the owner makes or changes in the direct chat: they may go elsewhere."""


@dataclass(frozen=True)
class Act:
    """Somebody calls a tool, or has the model call it. `choices` decide which one, and with what."""

    speaker: tuple[str, str]
    by_model: bool
    tool: int
    choices: tuple[int, ...]


acts = st.builds(
    Act,
    st.sampled_from(PEOPLE),
    st.booleans(),
    st.integers(0, 1000),
    st.lists(st.integers(0, 1000), min_size=24, max_size=24).map(tuple),
)


@dataclass
class Drawn:
    """Numbers that were drawn, one after another."""

    numbers: Sequence[int]
    place: int = 0

    def of(self, choices: Sequence[Any]) -> Any:
        """The next choice."""
        self.place += 1
        return choices[self.numbers[self.place % len(self.numbers)] % len(choices)]


def repeating() -> Replying:
    """A model that calls what the newest message tells it to, and then says every word that it was shown."""

    async def stream(request: ModelRequest) -> AsyncIterator[ModelEvent]:
        newest = str(request.messages[-1].get("content"))
        called = re.search(r"CALL (\{.*\})", newest, re.DOTALL)
        if called and request.messages[-1]["role"] == "user":
            asked = json.loads(called[1])
            yield ModelReply("", (ToolCall("c1", asked["name"], json.dumps(asked["arguments"])),), finish="tool_calls")
            return
        shown = sorted(set(WORD.findall(f"{request.system} {request.messages!r}")))
        yield ModelReply(" ".join(["I was shown:", *shown]))

    return Replying(stream)


@dataclass
class World:
    """A bot with three chats, and what happened in them."""

    bot: Timed
    clock: WallClock
    keeper: JobTimer
    used: set[str] = field(default_factory=set)
    found: dict[int, tuple[TapeEntry, set[str], set[str]]] = field(default_factory=dict)
    """Entries by identity, with the words and digests in them: an entry is searched once, however often it is read."""

    async def do(self, act: Act) -> None:
        """One call, and the firings of the next minutes."""
        drawn, (sender, chat) = Drawn(act.choices), act.speaker
        tools = [one for one in self.bot.bench.toolbox if one.name not in _LEFT_OUT]
        chosen = tools[act.tool % len(tools)]
        given = await self.arguments(chosen, act.speaker, drawn)
        if act.by_model and chosen.for_model:
            text = f"{said_in(chat)} CALL {json.dumps({'name': chosen.provider_name, 'arguments': given})}"
        else:
            words = " ".join(f'{name}="{_typed(value)}"' for name, value in given.items())
            text = f",{chosen.name} {words}"
        who = {"sender": sender, "chat": chat, "direct": chat != GROUP, "addressed": True}
        await self.bot.bench.say(text, **who)
        self.used.add(chosen.name)
        self.clock.forward += timedelta(minutes=3)
        for job in tuple(self.bot.book.state.jobs):
            await self.keeper.check_job(job)
        await self.bot.quiet()

    async def arguments(self, chosen: Tool, speaker: tuple[str, str], drawn: Drawn) -> dict[str, Any]:
        """Arguments of the right types, with words of this chat and whatever of other chats could be guessed."""
        sender, chat = speaker
        words = said_in(chat)
        if chosen.name in _JOB_TOOLS:
            words = SENT if (sender, chat) == (OWNER, OWNER) else planned_in(chat)
        jobs = [*self.bot.book.state.jobs, "none"]
        kept = sorted({one for other in CHATS for one in (await self.found_in(other))[1]}) or ["0" * 64]
        known: Mapping[str, Sequence[Any]] = {
            "job": jobs,
            "handle": kept,
            "turn": ["", "0" * 8],
            "when": ["in 1m", "every 1h"],
            "to": [f"test:{one}" for one in CHATS],
            "name": [words] if chosen.name != "session.model" else ["other"],
            "prompt": [words],
            "command": [",memory.recall", ",schedules every=true", ",context", f",memory.daily {words}"],
            "session": [f"test:{one}" for one in CHATS],
            "source": [f"test:{one}" for one in CHATS],
            "topic": ["-"],
            "before": [0],
            "query": ["zqsaid", "zqjob", ""],
            "how": ["archive", "erase"],
            "scope": ["chat", "user", "workspace"],
            "anchor": ["session/new", "1"],
            "zone": ["Europe/Berlin"],
            "quiet": ["none"],
            "date": ["2026-11-22"],
            "start": ["2026-11-01"],
            "end": ["2026-12-01"],
            "until": ["2027-01-01"],
            "jitter": ["1m"],
            "budget": ["1m"],
            "catch_up": ["all", "once"],
            "period": ["all", "day"],
            "kinds": [["message", "event"]],
            "source_ids": [[1, 2]],
            "next_steps": [[words]],
        }
        made: dict[str, Any] = {}
        what = drawn.of(["prompt", "command", "text"])
        for name, one in chosen.args.model_fields.items():
            wanted = one.is_required() or drawn.of([True, False])
            if name in ("prompt", "command", "text") and chosen.name in _JOB_TOOLS:
                wanted = name == what
            if name in ("handle", "text") and chosen.name == "file.send":
                wanted = name == ("handle" if what == "prompt" else "text")
            wanted = wanted or name == "session"
            if wanted:
                made[name] = drawn.of(known[name]) if name in known else _value(one, words)
        if made.get("scope") == "workspace" and (sender, chat) == (OWNER, OWNER) and "content" in made:
            made["content"] = SENT  # what an owner keeps for everybody
        if chosen.name == "session.help":
            made.pop("command", None)
        return made

    async def found_in(self, chat: str) -> tuple[set[str], set[str]]:
        """The words and the digests on the tape of a chat."""
        words, digests = set[str](), set[str]()
        for entry in (await self.bot.bench.store.fetch([TapeQuery(f"test:{chat}")]))[0]:
            if id(entry) not in self.found:
                text = str(entry)
                self.found[id(entry)] = (entry, set(WORD.findall(text)), set(DIGEST.findall(text)))
            words |= self.found[id(entry)][1]
            digests |= self.found[id(entry)][2]
        return words, digests

    async def check(self) -> None:
        """Each tape has the words of its own chat alone, what the owner sent there, and what it was granted to read."""
        for chat in CHATS:
            found, _ = await self.found_in(chat)
            own = {said_in(chat), planned_in(chat), SENT}
            if chat == OWNER:
                own |= {planned_in(one) for one in CHATS} | {said_in(GROUP)}
            assert found <= own, (chat, found - own)


def _typed(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text.replace('"', '""')


def _value(one: FieldInfo, words: str) -> Any:
    shape = str(one.annotation)
    if "bool" in shape:
        return True
    if "int" in shape:
        return 3
    return words


def session_tape(store: InMemoryStore, clock: WallClock, session: str) -> TapeService:
    """In these tests a session's tape has the session's name."""
    return TapeService(store, session, now=clock, new_id=CountingIds("read"), session=session)


async def through(sequence: Sequence[Act], used: set[str]) -> None:
    store, clock = InMemoryStore(), WallClock()
    budget = await opened(store, plan(), clock=cast("SteppingClock", clock))
    tape = budget_tape(store, cast("SteppingClock", clock))
    ledger = UsageReporter(tape, clock, UTC, LimitReporter(tape, plan(), budget.today).report_limits)
    rules = admitting(store, owners={OWNER}, members={MEMBER}, groups={GROUP}, respond_to_all={GROUP})
    access = rules.access
    assert isinstance(access, AccessService)
    await access.grant_reading(f"test:{GROUP}", f"test:{OWNER}", TERMINAL)
    reader = session_reader(lambda session: session_tape(store, clock, session), access.may_read)
    options = Options(rules=rules, read_session=reader, tools=[usage_tool(ledger)], features=[metering(budget)])
    async with timed(store, repeating(), options, clock=clock, keep=False) as bot:
        world = World(bot, clock, bot.make_timer())
        for chat in CHATS:
            sender = GUEST if chat == GROUP else chat
            who = {"sender": sender, "chat": chat, "direct": chat != GROUP}
            for first in (
                said_in(chat),
                f",memory.save {said_in(chat)}",
                f",remind every 1h: {planned_in(chat)}",
                f",schedule in 1m: {planned_in(chat)}",
                f",file.send name=x.txt text={said_in(chat)}",
            ):
                await bot.bench.say(first, **who)
        for act in sequence:
            await world.do(act)
            await world.check()
        used |= world.used


@settings(max_examples=5, phases=(Phase.explicit, Phase.generate))
@given(st.lists(acts, min_size=6, max_size=12))
def test_nothing_said_in_one_chat_appears_on_anothers_tape(sequence: list[Act]) -> None:
    asyncio.run(through(sequence, set()))


def test_no_tool_carries_words_from_chat_to_chat_whoever_calls_it() -> None:
    """Every tool, by everybody, typed or called by the model."""
    used: set[str] = set()
    chance = Random(20261122)
    sequence = [
        Act(speaker, (number + place) % 2 == 0, number, tuple(chance.randint(0, 1000) for _ in range(24)))
        for number in range(TOOLS)
        for place, speaker in enumerate(PEOPLE)
    ]
    chance.shuffle(sequence)
    asyncio.run(through(sequence, used))
    assert len(used) == TOOLS


@pytest.mark.proof
@settings(max_examples=500, phases=(Phase.explicit, Phase.generate))
@given(st.lists(acts, min_size=8, max_size=40))
def test_nothing_said_in_one_chat_appears_on_anothers_tape_at_length(sequence: list[Act]) -> None:
    asyncio.run(through(sequence, set()))
