"""Handoffs of context strategies: a package writes one in a turn of its own through its ports, and no failure of it loses a word."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.guard import guard_strategy
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import BudgetExceeded
from bubbot.feature import Around, Feature
from bubbot.middleware import CallNext, ModelCall
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelReply
from bubbot.runtime.compose import ContextPolicy, rebuild_request
from bubbot.runtime.context.ports import StrategyPorts
from bubbot.runtime.context.selectors import prepend_opening, select_messages
from bubbot.runtime.context.strategy import (
    ContextInput,
    ContextStrategy,
    HandoffInput,
    ModelContext,
    StrategyHandoff,
)
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.provenance import Source, source_of
from bubbot.tape.query import TapeQuery, Window
from bubbot.tape.store import TapeStore
from tests.summarising import SummarisingModel, state_of, summaries, summarising
from tests.turns import Bench, Played, says

DUE = 3
"""The messages of people after which the strategy of these tests wants a turn of its own."""


def show(source: ContextInput) -> ModelContext:
    """Show the window with its anchor."""
    messages = select_messages(source.entries, source.style)
    return ModelContext(prepend_opening(source.opening, messages, source.style))


async def read_people(ports: StrategyPorts) -> list[TapeEntry]:
    """Return the messages of people in the window."""
    (entries,) = await ports.fetch([TapeQuery(ports.name, Window(), missing="empty", kinds=(Kind.MESSAGE,))])
    return [entry for entry in entries if entry.payload.get("role") == "user"]


async def is_due(ports: StrategyPorts, _source: HandoffInput) -> bool:
    """Return true after some messages."""
    return len(await read_people(ports)) >= DUE


async def hand_off(ports: StrategyPorts, source: HandoffInput) -> StrategyHandoff | None:
    """Let the model say in a line what people said; keep their newest message."""
    people = await read_people(ports)
    if len(people) < 2:
        return None
    *old, newest = people
    words = "\n".join(f"#{entry.id} {entry.payload['content']}" for entry in old)
    line = await ports.ask_model(
        [{"role": "user", "content": f"Brief:\n{words}"}], "line", shown=[each.id for each in old]
    )
    state = {
        "summary": line,
        "source_ids": [entry.id for entry in old],
        "style": "brief",
        "owner": "root",
        "parents": [99],
    }
    return StrategyHandoff(state, ((newest.id, newest.id),), lambda anchor: f"Briefed as #{anchor}.")


def brief(**changed: Any) -> dict[str, ContextStrategy]:
    return {"brief": ContextStrategy("brief", show, **{"is_due": is_due, "hand_off": hand_off, **changed})}


def anchors(entries: Sequence[TapeEntry], name: str = "auto_handoff/brief") -> list[TapeEntry]:
    return [entry for entry in entries if entry.kind == Kind.ANCHOR and entry.name == name]


async def say_all(bench: Bench, count: int = DUE) -> None:
    for number in range(count):
        await bench.say(f"word {number}")
        await bench.quiet()


@pytest.mark.law("T7", "T8")
async def test_a_package_hands_off_in_a_turn_of_its_own_with_sources_and_recalls(store: TapeStore) -> None:
    model = ScriptedModel(
        {"rules": [{"when": "^Brief", "steps": [says("in short")]}, {"when": ".", "steps": [says("ok")]}]}
    )
    async with summarising(store, model, selector="brief", packages=brief()) as bench:
        await say_all(bench)
        entries = await bench.entries()
        (anchor,) = anchors(entries)
        people = [entry.id for entry in entries if entry.payload.get("role") == "user"]
        first = next(entry.id for entry in entries if entry.name == "session/start")
        assert dict(state_of(anchor)) == {
            "summary": "in short",
            "source_ids": tuple(people[:2]),
            "owner": "agent",
            "parents": (first,),
            "style": "brief",
        }
        assert anchor.payload["recalls"] == ((people[-1], people[-1]),)
        steps = [entry for entry in entries if entry.name == "loop.step" and entry.data.get("purpose")]
        assert [step.data["purpose"] for step in steps] == ["brief/line"]
        assert steps[0].meta["turn"] == anchor.meta["turn"]
        assert anchor.meta["turn"] not in {entry.meta["turn"] for entry in entries if entry.kind == Kind.MESSAGE}
        assert bench.channel.texts[-1] == f"Briefed as #{anchor.id}."
        await bench.say("go on")
        shown = [str(message["content"]) for message in bench.requests[-1].messages]
        assert shown[0].startswith("[Anchor created: auto_handoff/brief]")
        assert [word for word in ("word 0", "word 1", "word 2") if word in str(shown)] == ["word 2"]
        for step in await bench.events("loop.step"):
            strategies = OWN_STRATEGIES.extend(["brief"], lambda _: guard_strategy(brief()["brief"]))
            assert (await rebuild_request(step, bench.tape(), strategies=strategies)).digest() == step["request"]


async def test_the_command_asks_it_too_and_says_if_there_is_nothing(memory_store: TapeStore) -> None:
    model = Played(says("ok"), says("ok"), says("in short"))
    async with summarising(memory_store, model, selector="brief", packages=brief()) as bench:
        await bench.say("one")
        assert (await bench.say(",summary")).text == "There is nothing to summarise in this window."
        await bench.say("two")
        told = (await bench.say(",summary")).text
        (anchor,) = anchors(await bench.entries())
        assert told == f"Briefed as #{anchor.id}."
        assert state_of(anchor)["owner"] == "human"


async def test_a_window_gets_one_turn_of_its_own_and_stays_if_nothing_is_handed_off(memory_store: TapeStore) -> None:
    model = Played(*[says("ok")] * (DUE + 2))
    packages = brief(hand_off=returning(None))
    async with summarising(memory_store, model, selector="brief", packages=packages) as bench:
        await say_all(bench, DUE + 2)
        entries = await bench.entries()
        assert anchors(entries) == await summaries(bench) == []
        assert len([entry for entry in entries if entry.name == "turn/start"]) == DUE + 2 + 1
        assert bench.channel.texts == ["ok"] * (DUE + 2)


@pytest.mark.law("T22")
async def test_what_it_hands_off_is_as_foreign_as_what_it_has_read(memory_store: TapeStore) -> None:
    model = Played(*[says("ok")] * 9)
    async with summarising(memory_store, model, selector="brief", packages=brief()) as bench:
        await bench.say("from afar", provenance=Source.WORLD)
        await bench.say("two")
        await bench.say(",summary")
        (anchor,) = anchors(await bench.entries())
        assert source_of(anchor) is Source.WORLD


async def hang(_ports: StrategyPorts, _source: HandoffInput) -> Any:
    await asyncio.Event().wait()


async def explode(_ports: StrategyPorts, _source: HandoffInput) -> Any:
    raise RuntimeError("boom\nTraceback")


def returning(value: Any) -> Any:
    async def give(_ports: StrategyPorts, _source: HandoffInput) -> Any:
        return value

    return give


BROKEN = {
    "hangs": (hang, "hand_off: it took longer than 0.05 seconds"),
    "raises": (explode, "hand_off: RuntimeError: boom Traceback"),
    "text": (returning("words"), "hand_off: it returned a str"),
    "no object": (returning(StrategyHandoff(["x"])), "hand_off: TypeError: its state is a list"),  # type: ignore[arg-type]
    "invents": (returning(StrategyHandoff({"source_ids": [3]})), "its state cites 3, which it was not given"),
    "elsewhere": (returning(StrategyHandoff({"source_ids": [["test:other", 3]]})), "which it was not given"),
    "recalls": (returning(StrategyHandoff({}, ((2, 3),))), "it recalls entries that it was not given"),
    "contract": (returning(StrategyHandoff({"summary": 5})), "handoff state: summary is 5; it has to be a text"),
    "no JSON": (returning(StrategyHandoff({"x": object()})), "hand_off: "),
    "too large": (returning(StrategyHandoff({"x": "y" * 200_000})), "bytes; 131072 are allowed"),
    "not async": (lambda _ports, _source: None, "hand_off: TypeError"),
}


@pytest.mark.parametrize(("broken", "reason"), [pytest.param(*case, id=name) for name, case in BROKEN.items()])
async def test_one_that_fails_leaves_it_to_summary_by_name(
    memory_store: TapeStore, monkeypatch: pytest.MonkeyPatch, broken: Any, reason: str
) -> None:
    monkeypatch.setattr("bubbot.runtime.handoffs.HANDOFF_SECONDS", 0.05)
    failures = list[str]()
    policy = ContextPolicy(on_strategy_failure=lambda selector, error: failures.append(f"{selector}: {error}"))
    packages = brief(hand_off=broken)
    async with summarising(
        memory_store, SummarisingModel(), selector="brief", packages=packages, policy=policy
    ) as bench:
        await say_all(bench)
        assert anchors(await bench.entries()) == []
        (anchor,) = await summaries(bench)
        assert "word 0" in state_of(anchor)["summary"]
        told = bench.channel.texts[-1]
        assert told.startswith("The context strategy brief did not hand off, so another one does: hand_off: ")
        assert reason in told
        assert "I summarised" in told
        assert len(failures) == 1
        await bench.say("go on")
        assert "word 2" in str(bench.requests[-1].messages)


async def ask_first(ports: StrategyPorts, _source: HandoffInput) -> bool:
    await ports.ask_model([{"role": "user", "content": "is it due?"}])
    return True


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (hang, "is_due: it took longer than 0.05 seconds"),
        (explode, "is_due: RuntimeError: boom"),
        (returning("yes"), "is_due: it returned a str"),
        (ask_first, "may ask the model 0 times"),
    ],
)
async def test_a_question_that_fails_costs_neither_the_answer_nor_a_turn(
    memory_store: TapeStore, broken: Any, reason: str
) -> None:
    failures = list[str]()
    policy = ContextPolicy(
        on_strategy_failure=lambda selector, error: failures.append(f"{selector}: {error}"), prepare_seconds=0.05
    )
    packages = brief(is_due=broken)
    async with summarising(
        memory_store, Played(says("ok")), selector="brief", packages=packages, policy=policy
    ) as bench:
        assert (await bench.say("hello")).text == "ok"
        await bench.quiet()
        assert len(await bench.events("turn/start")) == 1
        assert len(bench.requests) == 1
        (failure,) = failures
        assert reason in failure


async def test_a_handoff_that_cannot_be_described_is_written_all_the_same(memory_store: TapeStore) -> None:
    def fail(_anchor: int) -> str:
        raise RuntimeError("no words")

    packages = brief(hand_off=returning(StrategyHandoff({"summary": "all"}, (), fail)))
    async with summarising(memory_store, SummarisingModel(), selector="brief", packages=packages) as bench:
        await say_all(bench)
        assert len(anchors(await bench.entries())) == 1
        assert await summaries(bench) == []


async def test_its_calls_are_counted_and_a_stop_ends_it(memory_store: TapeStore) -> None:
    asked, begun = 0, asyncio.Event()

    async def count(call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        nonlocal asked
        asked += "Brief" in str(call.request.messages)
        return await call_next(call)

    async def linger(ports: StrategyPorts, source: HandoffInput) -> Any:
        await hand_off(ports, source)
        begun.set()
        await asyncio.Event().wait()

    further = [Feature(name="counts", around=Around(model=[count]))]
    packages = brief(hand_off=linger)
    async with summarising(
        memory_store, Played(*[says("ok")] * 9), selector="brief", packages=packages, further=further
    ) as bench:
        await bench.say("one")
        await bench.say("two")
        turn = await bench.post(",summary")
        await begun.wait()
        assert asked == 1
        assert bench.app.stop("test:home")
        assert (await turn).status == "stopped"
        assert anchors(await bench.entries()) == []
        assert [step.get("purpose") for step in await bench.events("loop.step")] == [None, None, "brief/line"]


async def test_over_budget_summary_cites_without_the_model(memory_store: TapeStore) -> None:
    async def deny(call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        if "Brief" not in str(call.request.messages) and "The chat to summarise" not in str(call.request.messages):
            return await call_next(call)
        raise BudgetExceeded(scope="bot", name="", period="day", renews="2026-11-30", told=True)

    further = [Feature(name="limits", around=Around(model=[deny]))]
    model = SummarisingModel()
    async with summarising(memory_store, model, selector="brief", packages=brief(), further=further) as bench:
        await say_all(bench)
        (anchor,) = await summaries(bench)
        assert state_of(anchor)["form"] == "extractive"
        assert bench.channel.texts[-1].startswith("The context strategy brief did not hand off")


PAGE = Path(__file__).parents[3] / "docs" / "howto" / "add-a-feature.md"


async def test_the_example_of_the_documentation_hands_off(memory_store: TapeStore) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("### A strategy that hands off")[2]
    names: dict[str, Any] = {}
    exec(section.partition("```python\n")[2].partition("```")[0], names)  # the page of this repository
    model = ScriptedModel({"rules": [{"when": "^What was said", "steps": [says("much")]}]})
    packages = {"brief": names["BRIEF"]}
    async with summarising(memory_store, model, selector="brief", packages=packages) as bench:
        await say_all(bench, 20)
        (anchor,) = anchors(await bench.entries())
        assert state_of(anchor)["summary"] == "much"
        assert bench.channel.texts[-1] == f"I go on from a line (,read {anchor.id})."
