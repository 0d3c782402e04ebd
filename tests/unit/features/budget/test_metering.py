"""Budgets, rates and places in chats: what people are told, and that nothing of theirs is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, timedelta
from typing import Any

import pytest
from msgspec import structs

from bubbot.arguments.fields import NoArguments
from bubbot.errors import BudgetExceeded, ConfigError, ModelRefused, RateLimitExceeded
from bubbot.features.budget.budget import Budget, BudgetLimits, SpendingLimit
from bubbot.features.budget.metering import BudgetFallbackModel, RateGate, add_notice, budget_subject
from bubbot.features.budget.rates import RateLimiter
from bubbot.features.budget.settings import PersonLimitSettings
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound, Outbound, Sender
from bubbot.ports.model import Model, ModelEvent, ModelReply, ModelRequest, TextDelta, ToolCall, Usage
from bubbot.ports.turn import AcceptedInbound, Turn
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.runtime.turn_limiter import TurnLimiter
from bubbot.stores.inmemory import InMemoryStore
from bubbot.texts import Texts
from bubbot.tool import tool
from tests.budgets import costing, facts, metering, opened, plan
from tests.doubles import NO_RUNNER, SteppingClock
from tests.turns import HOME, WAIT, Bench, Options, Played, Replying, asked, calls, replying, running, says, texts_of
from tests.virtual import virtual


@asynccontextmanager
async def metered(
    store: InMemoryStore, agreed: BudgetLimits, model: Model, **more: object
) -> AsyncIterator[tuple[Bench, Budget]]:
    """A bench with a budget."""
    clock = SteppingClock()
    budget = await opened(store, agreed, clock=clock)
    options = replace(Options(features=[metering(budget)], clock=clock), **more)  # type: ignore[arg-type]
    async with running(store, model, options) as bench:
        yield bench, budget


async def test_a_turn_is_refused_with_one_sentence_and_kept(memory_store: InMemoryStore) -> None:
    async with metered(memory_store, plan(tokens_day=1), ScriptedModel()) as (bench, _):
        assert (await bench.say("one")).status == "answered"
        for _ in range(3):
            assert (await bench.say("more")).status == "failed"
        told = (
            "The budget of the whole bot for today is used up, so I did not ask the model. It begins anew on "
            "2026-11-22; ,retry has your message answered then."
        )
        assert bench.channel.texts == ["You said: one", told]
        assert texts_of(await bench.entries(), "user") == ["one", "more", "more", "more"]
        errors = [entry.payload["kind"] for entry in await bench.entries() if entry.kind == "error"]
        assert errors == ["budget_spent"] * 3
        assert (await bench.inbox.open_inbounds()) == ()
        assert (await bench.say(",help")).status == "answered"  # commands go on working
        bench.app.deps.now.advance(timedelta(days=1))  # type: ignore[attr-defined]
        assert (await bench.say(",retry")).text == "You said: more"


async def test_a_turn_whose_budget_ends_in_the_middle_keeps_what_it_did(memory_store: InMemoryStore) -> None:
    model = Played(calls("memory_daily", content="tea"), says("noted"))
    async with metered(memory_store, plan(tokens_day=1), model) as (bench, _):
        result = await bench.say("I like tea")
        assert result.status == "failed"
        assert "used up" in result.text
        names = [entry.name for entry in await bench.entries()]
        assert "memory.daily" in names
        assert [step["status"] for step in await bench.events("loop.step")] == ["tool_calls", "error"]


async def test_each_step_is_a_call_of_its_turn_and_person(memory_store: InMemoryStore) -> None:
    model = Played(calls("tape_info"), says("done"))
    async with metered(memory_store, plan(tokens_month=10**9), model) as (bench, _):
        result = await bench.say("hello", sender="7", chat="room")
        reserved = await facts(memory_store, "budget/reserved")
        assert [(one["session"], one["user"], one["turn"]) for one in reserved] == [
            ("test:room", "test:7", result.turn_id)
        ] * 2
        assert all(one["input_tokens"] > 100 for one in reserved)


@pytest.mark.parametrize("limit", [None, 10**9])
@pytest.mark.parametrize(
    ("streamed", "ending", "output"),
    [
        ("", ModelRefused("no"), 0),
        ("words that came before", ModelRefused("no"), estimate_tokens("words that came before")),
        ("", ModelReply("all at once"), estimate_tokens("all at once")),
        ("all of these words were written", ModelReply("one"), estimate_tokens("all of these words were written")),
    ],
)
async def test_a_call_whose_usage_nobody_tells_costs_what_arrived(
    memory_store: InMemoryStore, streamed: str, ending: ModelReply | ModelRefused, output: int, limit: int | None
) -> None:
    """A call that failed before anything arrived is free, whatever was sent."""

    async def stream(_: ModelRequest) -> AsyncIterator[ModelEvent]:
        if streamed:
            yield TextDelta(streamed)
        if isinstance(ending, ModelRefused):
            raise ending
        yield ending

    agreed = plan() if limit is None else plan(tokens_day=limit)
    async with metered(memory_store, agreed, Replying(stream)) as (bench, budget):
        await bench.say("hello")
        await budget.wait_written()
        (settled,) = await facts(memory_store, "budget/settled")
        assert settled["output_tokens"] == output
        assert (settled["input_tokens"] > 0, settled["nano"] > 0) == (output > 0, output > 0)


@pytest.mark.parametrize(
    ("reply", "kinds"),
    [
        (ModelReply("hi"), [None]),
        (ModelReply("", (ToolCall("1", "tape_info", "{}"),)), [None, None]),
        (ModelReply("hi", (ToolCall("1", "tape_info", "{}"),)), [None, None]),
        (ModelReply(" \n"), ["empty_answer"]),
    ],
)
async def test_an_answer_of_nothing_is_an_error_of_its_provider(
    memory_store: InMemoryStore, reply: ModelReply, kinds: list[str | None]
) -> None:
    async with metered(memory_store, plan(), replying(reply, ModelReply("done"))) as (bench, budget):
        await bench.say("hello")
        await budget.wait_written()
        settled = await facts(memory_store, "budget/settled")
        assert [one.get("error", {}).get("kind") for one in settled][: len(kinds)] == kinds


@pytest.mark.parametrize("limit", [None, 10**9])
async def test_an_answer_that_is_stopped_is_settled(memory_store: InMemoryStore, limit: int | None) -> None:
    begun = asyncio.Event()

    async def before() -> None:
        begun.set()
        await asyncio.Event().wait()

    agreed = plan() if limit is None else plan(tokens_day=limit)
    async with metered(memory_store, agreed, costing(1, 1, before)) as (bench, budget):
        turn = await bench.post("hello")
        async with asyncio.timeout(WAIT):
            await begun.wait()
            assert len(budget.open_reservations()) == (limit is not None)
            bench.app.stop(HOME)
            assert (await turn).status == "stopped"
        await budget.wait_written()
        (settled,) = await facts(memory_store, "budget/settled")
        assert (settled["status"], settled["estimated"], "reserved" in settled) == ("stopped", True, limit is not None)
        assert settled["input_tokens"] > 100
        assert budget.open_reservations() == ()


async def test_a_job_pays_for_its_turns(memory_store: InMemoryStore) -> None:
    found = []

    @tool("test.payer", commands=("payer",))
    async def payer(turn: Turn, args: NoArguments) -> str:
        """Note who pays."""
        turn.cause = "job-7"
        found.append(budget_subject(turn))
        return "noted"

    async with metered(memory_store, plan(), ScriptedModel(), tools=[payer]) as (bench, _):
        await bench.say(",payer")
    assert (found[0].job, found[0].chat, found[0].user) == ("job-7", "test:home", "test:1")


async def test_where_a_models_budget_is_used_up_a_cheaper_one_is_asked(memory_store: InMemoryStore) -> None:
    budget = await opened(
        memory_store,
        BudgetLimits({("model", "dear"): SpendingLimit(tokens_day=1), ("model", "none"): SpendingLimit(0.0)}),
    )
    dear, cheap = ScriptedModel(name="dear"), ScriptedModel(name="cheap")

    async def usual(_: Turn) -> Model:
        return dear

    def named(name: str) -> Model:
        if name != "cheap":
            raise ConfigError(name)
        return cheap

    async with metered(memory_store, plan(), ScriptedModel()) as (bench, _):
        turn = await _turn(bench)
        thrifty = BudgetFallbackModel(usual, named, budget, ["none", "cheap"])
        assert await thrifty.find_model(turn) is dear
        async with budget.metered_call(budget_subject(turn), "dear", 1) as call:
            call.reply = ModelReply("x", usage=Usage(1, 1))
        assert await thrifty.find_model(turn) is cheap


async def _turn(bench: Bench) -> Turn:
    fork = await bench.tape().open_fork()
    inbound = bench.inbound("hi")
    return Turn("t", HOME, fork, inbound.sender, bench.line.link.role(inbound), SteppingClock(), UTC, runner=NO_RUNNER)


def paced(bench: Bench, **tables: PersonLimitSettings) -> list[str]:
    """Gives the bench rates; what it says between turns."""
    told: list[str] = []

    async def tell(_: str, outbound: Outbound) -> None:
        told.append(outbound.text)

    table = {(scope, "each"): rate for scope, rate in tables.items()}
    pace = RateGate(RateLimiter(table, SteppingClock(step=timedelta(0)), UTC), Texts(), tell)
    bench.app.reload({bench.channel.name: bench.line.link}, structs.replace(bench.app.deps, gate=pace))
    return told


@virtual
async def test_a_message_over_the_rate_waits_and_is_answered() -> None:
    async with running(InMemoryStore(), ScriptedModel()) as bench:
        told = paced(bench, user=PersonLimitSettings(per_minute=1))
        began = asyncio.get_running_loop().time()
        turns = [await bench.post(text) for text in ("one", "two")]
        assert [(await turn).text for turn in turns] == ["You said: one", "You said: two"]
        assert asyncio.get_running_loop().time() - began >= 60
        assert told == ["You write faster than I may answer. Your message waits for 60 seconds."]


async def test_one_that_would_wait_for_long_is_refused_once_and_kept(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        paced(bench, user=PersonLimitSettings(per_hour=1))
        assert (await bench.say("one")).status == "answered"
        assert (await bench.say("two")).status == "failed"
        assert (await bench.say("three")).text == ""
        assert (await bench.say(",help")).status == "answered"
        assert (await bench.say("hello", sender="2")).status == "answered"
        assert [text[:43] for text in bench.channel.texts if "more than" in text] == [
            "That is more than 1 message within an hour,"
        ]
        assert texts_of(await bench.entries(), "user") == ["one", "two", "three", "hello"]
        assert (await bench.say(",retry")).status == "failed"  # it would ask the model too


async def test_a_refusal_does_not_outlive_the_rate(memory_store: InMemoryStore) -> None:
    async with running(memory_store, ScriptedModel()) as bench:
        paced(bench, user=PersonLimitSettings(per_hour=1))
        assert (await bench.say("one")).status == "answered"
        assert (await bench.say("two")).status == "failed"
        bench.app.reload({bench.channel.name: bench.line.link}, structs.replace(bench.app.deps, gate=None))
        assert (await bench.say("three")).status == "answered"


async def test_what_is_no_message_to_the_model_or_begins_again_takes_no_place_in_the_rate() -> None:
    told: list[Outbound] = []

    async def notify(_channel: str, outbound: Outbound) -> None:
        told.append(outbound)

    rates = RateLimiter({("user", "each"): PersonLimitSettings(per_minute=1)}, SteppingClock(step=timedelta(0)), UTC)
    gate, woken = RateGate(rates, Texts(), notify), asyncio.Event()
    woken.set()
    message = Inbound("test", "m1", "home", Sender("1"), "hello", "2026-11-21T20:21:00+00:00", message="7")
    free = [structs.replace(message, origin="schedule:j"), structs.replace(message, text=",help")]
    for batch in [[], [AcceptedInbound(1, message, attempts=1)], *[[AcceptedInbound(1, each)] for each in free]]:
        for _ in range(3):
            assert await gate.wait(batch, woken) is None
    assert told == []
    for _ in range(2):  # the first is free; the second, also of `,retry`, has to wait
        assert await gate.wait([AcceptedInbound(1, structs.replace(message, text=",retry"))], woken) is None
    (notice,) = told
    assert (notice.chat, notice.reply_to, "60" in notice.text) == ("home", "7", True)
    denial = await gate.wait([AcceptedInbound(1, message)], woken)
    assert isinstance(denial, RateLimitExceeded)


@virtual
async def test_a_stop_ends_the_wait_and_no_later_one() -> None:
    async with running(InMemoryStore(), ScriptedModel()) as bench:
        paced(bench, user=PersonLimitSettings(per_minute=2))
        for text in ("one", "two"):
            assert (await bench.say(text)).status == "answered"
        turn = await bench.post("three")
        await asyncio.sleep(5)
        assert bench.app.stop(HOME)
        assert (await turn).status == "stopped"
        assert asyncio.get_running_loop().time() < 30
        assert (await (await bench.post("four"))).status == "answered"
        assert asyncio.get_running_loop().time() > 60


@virtual
async def test_the_end_of_the_process_does_not_wait_and_the_message_is_owed() -> None:
    async with running(InMemoryStore(), ScriptedModel()) as bench:
        paced(bench, user=PersonLimitSettings(per_minute=1))
        assert (await bench.say("one")).status == "answered"
        turn = await bench.post("two")
        await asyncio.sleep(5)
        bench.app.pause()
        await bench.app.wait_idle()
        assert asyncio.get_running_loop().time() < 30
        assert not turn.done()
        assert [one.inbound.text for one in await bench.inbox.open_inbounds()] == ["two"]


@virtual
async def test_under_load_messages_wait_in_order_and_their_chats_are_told_once() -> None:
    """Forty chats, two places, a model that takes four seconds: nobody is left out, and nobody overtakes."""
    async with running(InMemoryStore(), Played({"text": "ok", "delay": 4.0}), Options(at_once=2)) as bench:
        told: list[tuple[str, str]] = []

        async def tell(_: str, outbound: Outbound) -> None:
            told.append((outbound.chat, outbound.text))

        bench.app.reload({bench.channel.name: bench.line.link}, structs.replace(bench.app.deps, notify=tell))
        chats = [f"c{number}" for number in range(40)]
        turns = [await bench.post(chat, chat=chat) for chat in chats]
        results = [await turn for turn in turns]
        assert [result.status for result in results] == ["answered"] * 40
        assert [asked(request)[-1][1].split()[-1] for request in bench.requests] == chats
        assert asyncio.get_running_loop().time() == 80
        # The first four have begun within five seconds; two have their turn at a time.
        text = "I am busy with many chats. Your message is kept and waits its turn; {} before it."
        forms = [text.format("1 is" if before == 1 else f"{before} are") for before in range(36)]
        assert sorted(told) == sorted(zip(chats[4:], forms, strict=True))


async def test_a_bench_has_the_places_that_were_asked_for(memory_store: InMemoryStore) -> None:
    async with running(memory_store, replying(ModelReply("ok")), Options(at_once=1)) as bench:
        assert isinstance(bench.app.deps.turn_limiter, TurnLimiter)
        assert (await bench.say("hi")).text == "ok"


async def test_a_chinese_chat_is_told_in_chinese(memory_store: InMemoryStore) -> None:
    texts = Texts("zh")
    async with metered(memory_store, plan(tokens_day=0), ScriptedModel(), texts=texts) as (bench, _):
        assert (await bench.say("你好")).text.startswith("整个机器人今天的预算已用完，因此没有请求模型。")


async def test_what_a_refusal_is_told_as() -> None:
    named: dict[str, Any] = {"name": "n", "renews": "2026-12-01"}
    told = [
        add_notice(BudgetExceeded(scope=scope, period="month", **named), Texts()).notice
        for scope in ("bot", "channel", "chat", "user", "job", "agent", "model")
    ]
    whose = ["the whole bot", "the channel n", "this chat", "your account", "the job n", "the agent n", "the model n"]
    assert told == [
        f"The budget of {one} for this month is used up, so I did not ask the model. "
        "It begins anew on 2026-12-01; ,retry has your message answered then."
        for one in whose
    ]
    many = RateLimitExceeded(scope="user", name="n", count=3, span="minute", renews="20:21")
    assert add_notice(many, Texts()).notice.startswith("That is more than 3 messages within a minute, so")
    assert add_notice(BudgetExceeded(scope="bot", period="day", told=True, **named), Texts()).notice == ""
