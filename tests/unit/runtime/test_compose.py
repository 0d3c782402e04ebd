"""Composing a request: what goes into the system prompt, which selector, how much room there is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.arguments.fields import NoArguments
from bubbot.features.memory.feature import MemoryFeature
from bubbot.features.memory.settings import MemorySettings
from bubbot.features.memory.zone import MemoryZone
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Role, Sender
from bubbot.ports.model import ModelEvent, ModelRequest, ModelTraits, ToolSpec, ToolSpecs
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import (
    ContextPolicy,
    PromptText,
    RequestComposer,
    narrow_view,
    parse_tools,
    rebuild_request,
)
from bubbot.runtime.context.view import ContextView
from bubbot.runtime.models import SessionModels
from bubbot.runtime.prompt import PromptSettings
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape import entry as make
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.provenance import Source, stamp_of
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, TapeStore
from bubbot.tool import tool
from tests.doubles import NO_RUNNER, CountingIds, SteppingClock
from tests.tapes import notes
from tests.turns import HOME, WAIT, Bench, Options, Played, calls, no_lessons, no_other, running, says

MAX_SECTION_CHARS = 16_384


BERLIN = ZoneInfo("Europe/Berlin")
SPECS = (ToolSpec("tape_search", "Searches.", {"type": "object", "properties": {"q": {"type": "string"}}}),)


@pytest.fixture
async def turn(tape: TapeService, clock: SteppingClock) -> Turn:
    await tape.ensure_bootstrap_anchor()
    return Turn("t", "stdin:default", await tape.open_fork(), Sender("1"), Role.OWNER, clock, BERLIN, runner=NO_RUNNER)


def open_tape(store: TapeStore) -> TapeService:
    return TapeService(store, HOME, now=SteppingClock(), new_id=CountingIds())


async def composed(turn: Turn, traits: ModelTraits | None = None, **settings: Any) -> Any:
    models = SessionModels(ScriptedModel(traits=traits), no_other, tuple, no_lessons())
    memory = MemoryFeature(Path("unused"), turn.now, MemorySettings())
    policy = ContextPolicy(**{"sections": [memory.build_block], "strategies": OWN_STRATEGIES, **settings})
    composer = RequestComposer(models.model_for_turn, policy, lambda _names: SPECS)
    return await composer.compose(turn)


async def system(turn: Turn, traits: ModelTraits | None = None, **settings: Any) -> str:
    text: str = (await composed(turn, traits, **settings)).request.system
    return text


class TestTheSystemPrompt:
    async def test_it_has_persona_contract_memory_and_day(self, turn: Turn) -> None:
        text = await system(turn, prompt=PromptSettings("Ada", "You are {name} the kind."))
        assert text.startswith("You are {name} the kind.\n")
        assert "<runtime_contract>" in text
        assert "Today is Saturday, 2026-11-21." in text
        assert text.endswith("</memory>")

    async def test_it_asks_for_formulas_as_plain_text(self, turn: Turn) -> None:
        assert "formulas as plain text, such as c = √(a² + b²)" in await system(turn)

    async def test_without_a_persona_the_bot_has_its_name(self, turn: Turn) -> None:
        assert (await system(turn, prompt=PromptSettings("Ada"))).startswith("You are Ada, ")

    async def test_the_day_is_that_of_the_chat(self, turn: Turn, clock: SteppingClock) -> None:
        clock.advance(timedelta(hours=3))  # 23:21 in UTC
        assert "Today is Sunday, 2026-11-22." in await system(turn)

    async def test_it_changes_with_the_day_and_not_before(self, turn: Turn, clock: SteppingClock) -> None:
        first = await system(turn)
        clock.advance(timedelta(hours=1))
        assert await system(turn) == first
        clock.advance(timedelta(days=1))
        assert await system(turn) != first

    async def test_it_changes_with_the_memory(self, turn: Turn, clock: SteppingClock) -> None:
        first = await system(turn)
        zone = MemoryZone(turn.tape, now=clock, zone=BERLIN)
        await zone.save_long_term("Likes tea.")
        assert "Likes tea." in (second := await system(turn))
        await zone.save_long_term("Likes tea.")
        assert await system(turn) == second != first

    async def test_a_small_model_gets_persona_and_memory_only(self, turn: Turn, clock: SteppingClock) -> None:
        small = ModelTraits(short_prompt=True)
        assert await system(turn, small, prompt=PromptSettings("Ada", "Be kind.")) == "Be kind."
        await MemoryZone(turn.tape, now=clock, zone=BERLIN).save_long_term("Likes tea.")
        assert "Likes tea." in await system(turn, small)
        assert "contract" not in await system(turn, small)

    async def test_a_long_memory_leaves_room_in_a_small_context(self, turn: Turn, clock: SteppingClock) -> None:
        await MemoryZone(turn.tape, now=clock, zone=BERLIN).save_long_term("fact\n" * 13_000)
        assert len(await system(turn, ModelTraits(context_tokens=2_000, short_prompt=True))) < 2_000 * 3 // 4
        assert len(await system(turn)) > MAX_SECTION_CHARS


class TestTheRequest:
    async def test_a_model_without_tools_is_offered_none(self, turn: Turn) -> None:
        assert (await composed(turn)).request.tools == SPECS
        assert (await composed(turn, ModelTraits(tools=False))).request.tools == ()

    async def test_sampling_parameters_ride_along(self, turn: Turn) -> None:
        assert (await composed(turn, parameters={"temperature": 0.2})).request.parameters == {"temperature": 0.2}

    @pytest.mark.parametrize(
        ("selector", "size", "used"),
        [("auto", None, "window"), ("auto", 8_000, "compact"), ("full", 8_000, "full"), ("summary", None, "summary")],
    )
    async def test_the_selector_is_the_configured_one(
        self, turn: Turn, selector: str, size: int | None, used: str
    ) -> None:
        made = await composed(turn, ModelTraits(context_tokens=size), selector=selector)
        assert made.view["selector"] == used

    @pytest.mark.parametrize("size", [500, 4_000, 100_000])
    async def test_the_budget_leaves_a_quarter_for_the_answer_and_what_the_prompt_takes(
        self, turn: Turn, size: int
    ) -> None:
        budget = (await composed(turn, ModelTraits(context_tokens=size))).view["budget"]
        assert size // 8 <= budget <= size - size // 4

    async def test_it_says_at_which_head_it_was_read(self, turn: Turn) -> None:
        assert (await composed(turn)).head == await turn.tape.head() == 1

    @pytest.mark.law("T8")
    async def test_composing_writes_nothing(self, turn: Turn, memory_store: InMemoryStore) -> None:
        before = turn.tape.delta, await memory_store.forks(), await memory_store.fetch([TapeQuery("tape")])
        for selector in ("window", "messages", "full", "compact", "summary"):
            await composed(turn, ModelTraits(context_tokens=100), selector=selector)
        assert (turn.tape.delta, await memory_store.forks(), await memory_store.fetch([TapeQuery("tape")])) == before

    async def test_composing_twice_gives_the_same_bytes(self, turn: Turn) -> None:
        assert (await composed(turn)).request.as_bytes() == (await composed(turn)).request.as_bytes()


@pytest.mark.law("T22")
@pytest.mark.parametrize(("judged", "expected"), [(None, (("notes", 1),)), ((), ())])
async def test_what_a_section_shows_is_foreign_unless_somebody_judged_it(
    turn: Turn,
    memory_store: InMemoryStore,
    judged: Sequence[tuple[tuple[str, int], Source]] | None,
    expected: Sequence[tuple[str, int]],
) -> None:
    await memory_store.append([Batch("notes", (make.message("assistant", "from a page", **stamp_of(Source.WORLD)),))])

    async def build(_turn: Turn, _traits: ModelTraits) -> PromptText:
        return PromptText("from a page", {"notes": [(1, 1)]}, judged)

    assert (await composed(turn, sections=[build])).foreign.world == expected


async def test_a_window_is_read_from_its_newest_cut(turn: Turn) -> None:
    of_subtask = make.event("context/cut", {"from": 4}, fork="f1")
    await turn.tape.append([*[make.message("user", "x")] * 3, make.event("context/cut", {"from": 3}), of_subtask])
    cases = (("compact", ""), ("compact", "f1"), ("compact", "f2"), ("window", ""))
    views = [ContextView(name, fork=fork, strategies=OWN_STRATEGIES) for name, fork in cases]
    spans = [(await narrow_view(turn.tape, view)).spans for view in views]
    assert spans == [((3, None),), ((4, None),), ((3, None),), None]


def test_tool_schemas_come_back_from_their_kept_text() -> None:
    text = ToolSpecs(SPECS).encoded
    assert ToolSpecs(parse_tools(text)).encoded == text
    assert parse_tools(ToolSpecs().encoded) == ()


async def assert_rebuilt(bench: Bench) -> int:
    """Builds the request of every recorded step again and compares it with the one that was sent."""
    entries = await bench.entries()
    steps = [entry.payload["data"] for entry in entries if entry.name == "loop.step"]
    assert len(steps) == len(bench.requests)
    for step, sent in zip(steps, bench.requests, strict=True):
        assert (await rebuild_request(step, bench.tape(), strategies=OWN_STRATEGIES)).as_bytes() == sent.as_bytes()
        assert sent.digest() == step["request"]
    return len(steps)


LIFE = (
    "hello",
    "remember that I like tea",
    ",tape.info",
    "search for tea",
    ",correct 3 hello there",
    ",retry",
    "hand over",
    "after the handoff",
    ",new",
    "fresh",
    ",resume phase/two",
    "back again",
    "too long",
    "unavailable",
    "last",
)
SCRIPT = {
    "rules": [
        {"when": "remember", "steps": [calls("memory_save", content="Likes tea."), says("noted")]},
        {"when": "search", "steps": [calls("tape_search", query="tea"), calls("no_such_tool"), says("found")]},
        {"when": "unavailable", "steps": [{"error": "unavailable"}]},
    ]
}


class Varied(ScriptedModel):
    """The script above, and what depends on how often it was asked: one handoff, one overflow."""

    def __init__(self, traits: ModelTraits) -> None:
        super().__init__(SCRIPT, traits=traits)
        self._once = {
            "hand over": calls("tape_handoff", name="phase/two", summary="tea"),
            "too long": {"error": "overflow"},
        }

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        text = str(request.messages[-1]["content"])
        for word in list(self._once):
            if word in text:
                once = Played(self._once.pop(word))
                self.requests.append(request)
                async for item in once.stream(request):
                    yield item
                return
        async for item in super().stream(request):
            yield item


@pytest.mark.law("T8")
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("selector", "traits"),
    [
        ("window", ModelTraits()),
        ("full", ModelTraits()),
        ("messages", ModelTraits(first_assistant=False)),
        ("compact", ModelTraits(context_tokens=4200)),
        ("summary", ModelTraits(context_tokens=4200)),
        ("auto", ModelTraits(short_prompt=True, tools=False, context_tokens=600)),
    ],
)
async def test_the_request_of_every_step_can_be_built_again_byte_for_byte(
    memory_store: InMemoryStore, selector: str, traits: ModelTraits
) -> None:
    model = Varied(traits)
    async with running(
        memory_store, model, Options(compose=ContextPolicy(selector, strategies=OWN_STRATEGIES))
    ) as bench:
        for text in LIFE:
            await bench.say(text)
            await assert_rebuilt(bench)
        for place in range(12):
            await bench.say(f"{place} " + "long words " * 40)
        assert await assert_rebuilt(bench) >= 23
        cuts = await bench.events("context/cut")
        assert bool(cuts) == (traits.context_tokens is not None)


async def test_what_is_built_again_is_checked_against_what_was_sent(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        await bench.say("hello")
        entries = list(await bench.entries())
        (step,) = await bench.events("loop.step")
        forged = [
            TapeEntry(e.kind, {**e.payload, "content": "hullo"}, e.meta, e.date, id=e.id)
            if e.kind == Kind.MESSAGE
            else e
            for e in entries
        ]
        other = InMemoryStore()
        await other.append([Batch(HOME, tuple(forged))])
        for name in ("system", "tools"):
            await other.put_blob(HOME, await bench.store.get_blob(HOME, step[name]))
        assert (await rebuild_request(step, bench.tape(), strategies=OWN_STRATEGIES)).digest() == step["request"]
        assert (await rebuild_request(step, open_tape(other), strategies=OWN_STRATEGIES)).digest() != step["request"]


@pytest.mark.law("T8", "T13")
async def test_the_requests_of_a_turn_whose_fork_was_rebased_can_be_built_again(store: TapeStore) -> None:
    """The process dies in a turn that has corrected itself; before the next start the tape grows."""
    entered = asyncio.Event()

    @tool("correct.last")
    async def correct_last(turn: Turn, args: NoArguments) -> str:
        """Corrects the turn's own message."""
        await turn.tape.correct(turn.message_ids[-1], "meant otherwise")
        return "corrected"

    @tool("wait.here")
    async def wait_here(turn: Turn, args: NoArguments) -> str:
        """Stands still."""
        entered.set()
        await asyncio.Event().wait()
        return ""

    model = Played(
        says("hello"), calls("correct_last"), calls("tape_handoff", name="phase"), calls("wait_here"), says("never")
    )
    async with running(store, model, Options([correct_last, wait_here]), life="first") as bench:
        await bench.say("hi")
        await bench.post("do it")
        await asyncio.wait_for(entered.wait(), WAIT)
        sent = list(bench.requests)
        await bench.kill()
    await store.append([notes("from elsewhere", "and more", tape=HOME)])
    async with running(store, ScriptedModel(), life="second") as bench:
        await bench.recover()
        entries = await bench.entries()
        steps = [entry for entry in entries if entry.name == "loop.step"]
        assert "[corrects #" in sent[2].as_bytes().decode()
        for entry, request in zip(steps, sent, strict=True):
            step = entry.payload["data"]
            assert (
                await rebuild_request(step, bench.tape(), strategies=OWN_STRATEGIES)
            ).as_bytes() == request.as_bytes()
            assert request.digest() == step["request"]
            assert all(high < entry.id for _, high in step["shown"])
        assert [len(entry.payload["data"]["as_of"]) for entry in steps] == [1, 2, 2, 2]
        texts = [
            one.payload.get("content")
            for low, high in steps[-1].payload["data"]["shown"]
            for one in entries[low - 1 : high]
        ]
        assert "from elsewhere" not in texts
