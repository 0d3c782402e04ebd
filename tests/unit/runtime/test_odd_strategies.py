"""Turns with the context strategy of a package that chooses badly, fails, or reads another part of the tape."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bubbot.app.bot import open_app
from bubbot.app.guard import guard_strategy
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import BubbotError
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.strategies.settings import ContextSettings
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.model import ModelTraits
from bubbot.runtime.compose import ContextPolicy, rebuild_request
from bubbot.runtime.context.selectors import select_messages
from bubbot.runtime.context.strategy import ContextInput, ContextStrategies, ContextStrategy, ModelContext
from bubbot.runtime.queue import QueuePolicy
from bubbot.settings.loader import ModelSettings
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.query import AfterAnchor, IdRanges
from bubbot.tape.store import TapeStore
from tests.installed import installed
from tests.made_settings import make_settings
from tests.provider_rules import faults
from tests.turns import Bench, Options, Played, calls, running, says

CONTEXT_VERSION = 4


Choose = Callable[[ContextInput], Any]


def last(count: int) -> Choose:
    return lambda source: ModelContext(select_messages(source.entries, source.style)[-count:])


def every_second(source: ContextInput) -> ModelContext:
    return ModelContext(select_messages(source.entries, source.style)[::2])


def backwards(source: ContextInput) -> ModelContext:
    return ModelContext(select_messages(source.entries, source.style)[::-1])


def doubled(source: ContextInput) -> ModelContext:
    return ModelContext(select_messages(source.entries, source.style) * 2)


def without_people(source: ContextInput) -> ModelContext:
    messages = select_messages(source.entries, source.style)
    return ModelContext(tuple([each for each in messages if each.message["role"] != "user"]))


def fail(source: ContextInput) -> ModelContext:
    raise RuntimeError("boom")


def options(strategy: ContextStrategy, failures: list[str] | None = None) -> Options:
    found = [] if failures is None else failures

    def note(selector: str, error: BubbotError) -> None:
        found.append(f"{selector}: {error}")

    strategies = OWN_STRATEGIES.extend([strategy.name], lambda _: guard_strategy(strategy))
    return Options(compose=ContextPolicy(strategy.name, strategies=strategies, on_strategy_failure=note))


async def assert_rebuilt(bench: Bench, strategies: ContextStrategies) -> None:
    """Every request comes out again, byte for byte."""
    steps = await bench.events("loop.step")
    assert len(steps) == len(bench.requests)
    for step, request in zip(steps, bench.requests, strict=True):
        made = await rebuild_request(step, bench.tape(), strategies=strategies)
        assert made.as_bytes() == request.as_bytes()
        assert made.digest() == step["request"]


def two() -> dict[str, Any]:
    """One step with two calls."""
    return {"calls": [*calls("tape_info")["calls"], *calls("memory_show")["calls"]]}


@pytest.mark.law("T8", "T10", "T12")
@pytest.mark.parametrize(
    "choose", [last(1), last(3), lambda _: ModelContext(()), every_second, backwards, doubled],
    ids=["newest", "three", "nothing", "second", "backwards", "doubled"],
)  # fmt: skip
async def test_each_request_is_one_that_providers_take_and_has_the_question(store: TapeStore, choose: Choose) -> None:
    chosen = options(ContextStrategy("odd", choose))
    async with running(store, Played(says("hi"), two(), two(), says("done")), chosen) as bench:
        await bench.say("first")
        assert (await bench.say("the question")).text == "done"
        for request in bench.requests[1:]:
            assert faults(request.messages) == []
            assert request.messages[-1]["role"] in ("user", "tool")
            assert "the question" in str(request.messages)
        await assert_rebuilt(bench, chosen.compose.strategies)
        assert [step["view"]["selector"] for step in await bench.events("loop.step")] == ["odd"] * 4


@pytest.mark.law("T10")
@pytest.mark.parametrize("part", [IdRanges(()), IdRanges(((1, 1),))])
async def test_a_part_of_the_tape_without_the_question_has_it_all_the_same(store: TapeStore, part: IdRanges) -> None:
    chosen = options(ContextStrategy("odd", last(9), part=lambda _: part))
    async with running(store, Played(two(), says("done")), chosen) as bench:
        await bench.say("the question")
        assert ["the question" in str(request.messages) for request in bench.requests] == [True, True]
        await assert_rebuilt(bench, chosen.compose.strategies)


@pytest.mark.law("T10", "T12")
async def test_messages_that_are_answered_together_and_are_longer_than_the_window_do_not_overflow(
    store: TapeStore,
) -> None:
    traits, chosen = ModelTraits(context_tokens=16_000), ContextPolicy("compact", strategies=OWN_STRATEGIES)
    together = Options(compose=chosen, waiting=QueuePolicy(debounce=0.5))
    async with running(store, Played(says("done"), traits=traits), together) as bench:
        parts = [await bench.post(f"part {number}: " + "word " * 1_800) for number in range(8)]
        assert [(await part).text for part in parts] == ["done"] * 8
        (request,) = bench.requests
        assert len(request.as_bytes()) < 16_000 * 3
        shown = [number for number in range(8) if f"part {number}:" in str(request.messages)]
        assert shown[-1:] == [7]
        assert 1 < len(shown) < 8
        assert shown == [*range(shown[0], 8)]
        await assert_rebuilt(bench, OWN_STRATEGIES)


@pytest.mark.law("T12")
@pytest.mark.parametrize(
    "strategy",
    [
        ContextStrategy("odd", fail),
        ContextStrategy("odd", lambda _: None),  # type: ignore[arg-type, return-value]
        ContextStrategy("odd", last(1), part=lambda _: AfterAnchor("nowhere")),
        ContextStrategy("odd", last(1), part=lambda _: 1 / 0),  # type: ignore[arg-type, return-value]
    ],
    ids=["raises", "nonsense", "no part", "raises early"],
)
async def test_a_turn_goes_on_with_the_window_if_it_fails(store: TapeStore, strategy: ContextStrategy) -> None:
    failures = list[str]()
    chosen = options(strategy, failures)
    async with running(store, Played(two(), says("done")), chosen) as bench:
        assert (await bench.say("the question")).text == "done"
        await assert_rebuilt(bench, OWN_STRATEGIES)
        assert [step["view"]["selector"] for step in await bench.events("loop.step")] == ["window"] * 2
    assert len(failures) == 2
    assert all(failure.startswith("odd: ") for failure in failures)


async def test_a_turn_that_runs_again_shows_the_messages_of_the_attempt(store: TapeStore) -> None:
    chosen = options(ContextStrategy("odd", lambda _: ModelContext(())))
    async with running(store, Played(says("hi"), says("done")), chosen) as bench:
        await bench.say("one")
        await bench.say(",retry")
        assert "one" in str(bench.requests[-1].messages)
        await assert_rebuilt(bench, chosen.compose.strategies)


@pytest.mark.law("T8", "T13")
async def test_what_sub_tasks_answer_is_found_again_after_their_entries_moved(store: TapeStore) -> None:
    chosen = replace(options(ContextStrategy("deaf", without_people)), agents=AgentsSettings())
    run = {"calls": [call for task in ("dig", "wait", "dig") for call in calls("agent_run", task=task)["calls"]]}
    rules = [
        ("go", [run, says("done")]),
        ("dig", [calls("tape_info"), says("gold")]),
        ("wait", [calls("tape_info"), says("late")]),
    ]
    model = ScriptedModel({"rules": [{"when": when, "steps": steps} for when, steps in rules]})
    async with running(store, model, chosen) as bench:
        assert (await bench.say("go")).text == "done"
        steps = await bench.events("loop.step")
        sent = {request.digest(): request.as_bytes() for request in bench.requests}
        moved = [step for step in steps if len(step["as_of"]) > 1]
        assert moved
        for step in steps:
            made = await rebuild_request(step, bench.tape(), strategies=chosen.compose.strategies)
            assert made.as_bytes() == sent[step["request"]]
            assert any(message["role"] == "user" for message in made.messages)


async def test_the_requests_of_the_version_before_come_out_without_repair(store: TapeStore) -> None:
    chosen = options(ContextStrategy("odd", last(1)))
    async with running(store, Played(two(), says("done")), chosen) as bench:
        await bench.say("the question")
        step = dict((await bench.events("loop.step"))[-1])
        old = {**step, "view": {**step["view"], "version": CONTEXT_VERSION - 1}}
        made = await rebuild_request(old, bench.tape(), strategies=chosen.compose.strategies)
        assert [message["role"] for message in made.messages] == ["tool"]


PAGE = Path(__file__).parents[3] / "docs" / "howto" / "add-a-feature.md"


async def test_the_example_of_the_documentation_gives_requests_that_providers_take(store: TapeStore) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## A context strategy")[2]
    names: dict[str, Any] = {}
    exec(section.partition("```python\n")[2].partition("```")[0], names)  # the page of this repository
    chosen = options(names["NEWEST"])
    async with running(store, Played(says("hi"), two(), two(), says("done")), chosen) as bench:
        await bench.say("first")
        assert (await bench.say("the question")).text == "done"
        for request in bench.requests:
            assert faults(request.messages) == []
        roles = [message["role"] for message in bench.requests[-1].messages]
        assert roles == ["user", *["assistant", "tool", "tool"] * 2]
        await assert_rebuilt(bench, chosen.compose.strategies)


@pytest.mark.law("T22")
async def test_the_facts_of_a_fold_have_no_provenance_of_their_own_and_none_is_bubbots(store: TapeStore) -> None:
    def choose(*facts: TapeEntry) -> Choose:
        return lambda source: ModelContext(
            select_messages(source.entries, source.style), facts if source.entries else ()
        )

    mine = event("odd/chosen", {"a": 1}, provenance="own", fork="x")
    async with running(store, Played(says("done")), options(ContextStrategy("odd", choose(mine)))) as bench:
        await bench.say("the question", sender="2")
        (fact,) = [entry for entry in await bench.entries() if entry.name == "odd/chosen"]
        assert fact.meta.keys() == {"turn"}
    failures = list[str]()
    vouching = options(ContextStrategy("odd", choose(event("provenance/vouched", {"entry": 2}))), failures)
    async with running(store, Played(says("done")), vouching, life="second") as bench:
        await bench.say("and another")
        assert [step["view"]["selector"] for step in await bench.events("loop.step")] == ["odd", "window"]
    assert "it returned an event provenance/vouched, which is bubbot's own" in failures[0]


MODULE = """
from bubbot.runtime.context.strategy import ContextStrategy

def boom(source):
    raise RuntimeError("boom")

STRATEGY = ContextStrategy("boom", boom)
"""


async def test_a_bot_names_the_strategy_that_fails_and_logs_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed(tmp_path, "booming", "1.0", "[bubbot.context]\nboom = booming_strategy_package:STRATEGY\n")
    (tmp_path / "booming_strategy_package.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    settings = make_settings(ContextSettings(selector="boom"), model=ModelSettings(name="scripted"))
    async with open_app(settings, Home(tmp_path / "home"), channel_settings={"write": lambda _: None}) as bot:
        answers = [await ask(bot, text) for text in ("one", "two")]
        status = await ask(bot, ",status")
    assert answers == ["You said: one", "You said: two"]
    assert "context strategy boom failed at " in status
    assert "fold: RuntimeError: boom" in status
    logged = [record for record in caplog.records if "context strategy boom failed" in record.getMessage()]
    assert [record.levelno for record in logged] == [logging.WARNING]


async def ask(bot: Any, text: str) -> str:
    inbound = Inbound("stdin", text, "default", Sender("0", "owner"), text, "2026-11-21T20:21:00Z")
    return str((await bot.ask(inbound)).text)
