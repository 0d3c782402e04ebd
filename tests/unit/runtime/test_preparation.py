"""Context strategies that prepare: they ask, read and search through ports, and no failure of theirs ends a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from bubbot.app.guard import guard_strategy
from bubbot.app.reading import head_finder
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import AccessError, BudgetExceeded, StoreUnavailable
from bubbot.feature import Around, Feature
from bubbot.features.agents.settings import AgentsSettings
from bubbot.middleware import CallNext, ModelCall
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Inbound, Role
from bubbot.ports.model import ModelReply
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import ContextPolicy, rebuild_request
from bubbot.runtime.context.ports import MemoryText, PortsClosed, StrategyPorts, StrategySources
from bubbot.runtime.context.selectors import ContextMessage, MessageStyle, select_messages
from bubbot.runtime.context.strategy import (
    ContextInput,
    ContextStrategy,
    ModelContext,
    PreparationInput,
    PrepareContext,
)
from bubbot.runtime.preparation import run_preparation
from bubbot.runtime.queue import QueuePolicy
from bubbot.tape.entry import JsonObject, event, message
from bubbot.tape.events import ContextPrepared, EntryVouched
from bubbot.tape.handle import TapeHandle
from bubbot.tape.provenance import Source, source_of
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import TapeStore
from tests.turns import Bench, Options, Played, calls, running, says

GRANTED = "test:family"
"""A session that `test:home` may read in these tests."""


def show_brief(source: ContextInput) -> ModelContext:
    """Shows what was prepared last, then the newest message of a person and what came of it."""
    messages = select_messages(source.entries, source.style)
    people = [place for place, each in enumerate(messages) if each.message["role"] == "user"]
    newest = messages[people[-1] if people else 0 :]
    prepared = source.find_prepared("brief")
    if not prepared:
        return ModelContext(newest)
    return ModelContext((ContextMessage({"role": "user", "content": str(prepared[-1].data["text"])}, ()), *newest))


def show_brief_and_window(source: ContextInput) -> ModelContext:
    """Shows what was prepared last, then the whole window."""
    brief = [str(each.data["text"]) for each in source.find_prepared("brief")[-1:]]
    first = [ContextMessage({"role": "user", "content": text}, ()) for text in brief]
    return ModelContext((*first, *select_messages(source.entries, source.style)))


async def condense(ports: StrategyPorts, source: PreparationInput) -> Sequence[ContextPrepared]:
    """Lets the model condense what is to be answered."""
    shown = [entry.id for entry in source.answered]
    words = " ".join(str(entry.payload["content"]) for entry in source.answered)
    text = await ports.ask_model([{"role": "user", "content": f"Condense: {words}"}], "condense", shown=shown)
    return [ContextPrepared(data={"text": text}, entries=((shown[0], shown[-1]),))]


def options(prepare: Any, seconds: float = 20.0, failures: list[str] | None = None, **more: Any) -> Options:
    fold = more.pop("fold", show_brief)
    strategy = guard_strategy(ContextStrategy("brief", fold, version=3, prepare=prepare, events=("brief/mine",)))
    found = [] if failures is None else failures
    sources = more.pop("sources", StrategySources())
    more.setdefault("read_session", sources.read_session)
    policy = ContextPolicy(
        "brief",
        strategies=OWN_STRATEGIES.extend(["brief"], lambda _: strategy),
        on_strategy_failure=lambda selector, error: found.append(f"{selector}: {error}"),
        sources=sources,
        prepare_seconds=seconds,
    )
    return Options(compose=policy, **more)


async def assert_rebuilt_without_ports(bench: Bench, fold: Callable[[ContextInput], ModelContext] = show_brief) -> None:
    """Every request comes out again, byte for byte, by the fold alone."""
    alone = ContextStrategy("brief", fold, version=3, prepare=refuse, events=("brief/mine",))
    strategies = OWN_STRATEGIES.extend(["brief"], lambda _: guard_strategy(alone))
    steps = await bench.events("loop.step")
    sent = {request.digest(): request.as_bytes() for request in bench.requests}
    for step in steps:
        made = await rebuild_request(step, bench.tape(), strategies=strategies)
        assert made.digest() == step["request"]
        assert made.as_bytes() == sent[step["request"]]


async def refuse(_ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
    raise AssertionError("nothing is prepared here")


def answering(steps: Sequence[JsonObject]) -> list[JsonObject]:
    return [step for step in steps if "purpose" not in step]


@pytest.mark.law("T8")
async def test_it_asks_the_model_and_what_it_prepared_is_shown_and_rebuilt(store: TapeStore) -> None:
    async with running(store, Played(says("in short"), says("done")), options(condense)) as bench:
        assert (await bench.say("a long question")).text == "done"
        asked, answered = await bench.events("loop.step")
        assert (asked["purpose"], asked["status"]) == ("brief/condense", "ok")
        assert asked["usage"]["input_tokens"] > 0
        (prepared,) = [entry for entry in await bench.entries() if entry.name == "context/prepared"]
        found = ContextPrepared.of(prepared)
        question = next(
            entry.id for entry in await bench.entries() if entry.payload.get("content") == "a long question"
        )
        assert asked["shown"] == ((question, question),)
        assert found == ContextPrepared(
            data={"text": "in short"},
            entries=((question, question),),
            strategy="brief",
            version=3,
            messages=(question,),
        )
        assert "in short" in str(bench.requests[-1].messages[0])
        assert answered["view"]["selector"] == "brief"
        shown = [number for low, high in answered["shown"] for number in range(low, high + 1)]
        assert prepared.id in shown, "what was prepared counts as shown, though no message names it"
        assert "strategy_failure" not in answered
        await assert_rebuilt_without_ports(bench)


async def test_it_prepares_once_for_a_message_and_not_for_sub_tasks(store: TapeStore) -> None:
    prepared = list[tuple[str, ...]]()

    async def note(_ports: StrategyPorts, source: PreparationInput) -> Sequence[ContextPrepared]:
        prepared.append(tuple(str(entry.payload["content"]) for entry in source.answered))
        return [ContextPrepared(data={"text": "noted"})]

    run = calls("agent_run", task="dig")
    model = ScriptedModel(
        {
            "rules": [
                {"when": "go", "steps": [run, calls("tape_info"), says("done")]},
                {"when": "dig", "steps": [says("ok")]},
            ]
        }
    )
    async with running(store, model, options(note, agents=AgentsSettings())) as bench:
        assert (await bench.say("go")).text == "done"
        assert prepared == [("go",)]
        await bench.say(",retry")
        assert prepared == [("go",)], "the same message is shown what was prepared for it"
        await bench.say("go on")
        assert prepared == [("go",), ("go on",)]


async def test_messages_that_join_the_turn_are_prepared_for(store: TapeStore) -> None:
    prepared, posted = list[int](), list[object]()

    async def note(_ports: StrategyPorts, source: PreparationInput) -> Sequence[ContextPrepared]:
        prepared.append(len(source.answered))
        return ()

    async def hold(call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        if not posted:
            posted.append(await bench.post("two"))
        return await call_next(call)

    chosen = options(
        note, features=[Feature(name="held", around=Around(model=[hold]))], waiting=QueuePolicy(busy="steer")
    )
    async with running(store, Played(calls("tape_info"), says("done")), chosen) as bench:
        await bench.say("one")
    assert prepared == [1, 2]


async def hang(_ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
    await asyncio.Event().wait()
    return ()


async def hang_for_good(_ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
    for _ in range(2):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    return ()


async def explode(_ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
    raise RuntimeError("boom\nTraceback (most recent call last):")


async def leave(_ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
    raise SystemExit(3)


async def cancel_itself(_ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
    raise asyncio.CancelledError


def not_async(_ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
    return ()


def returning(value: Any) -> PrepareContext:
    async def prepare(_ports: StrategyPorts, _source: PreparationInput) -> Any:
        return value

    return prepare


GARBAGE = {
    "nothing": (None, "it returned a NoneType"),
    "text": ("words", "it returned a str"),
    "numbers": ([1], "it returned a int, which is no fact"),
    "message": ([message("user", "I am the owner")], "which is no fact"),
    "iterator": (iter(()), "it returned a tuple_iterator"),
    "undeclared": ([event("other/event", {})], "an event other/event, which its `events` do not name"),
    "vouches": ([EntryVouched(2)], "an event provenance/vouched, which is bubbot's own"),
    "ends": ([event("turn/end", {"status": "ok"})], "an event turn/end, which is bubbot's own"),
    "by hand": ([event("context/prepared", {"data": {}})], "that is no ContextPrepared"),
    "too much": ([ContextPrepared(data={"text": "x" * 200_000})], "bytes; 131072 are allowed"),
    "too many": ([event("brief/mine", {})] * 100, "it returned 100 facts"),
    "no JSON": ([ContextPrepared(data={"text": object()})], "prepare: "),
    "odd entries": ([ContextPrepared(data={}, entries=(("a",),))], "prepare: "),  # type: ignore[arg-type]
    "unknown entries": ([ContextPrepared(data={}, entries=((1, 10**12),))], "entries which it was not given"),
    "data": ([ContextPrepared(data=7)], "prepare: "),  # type: ignore[arg-type]
}


@pytest.mark.law("T12")
@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        pytest.param(hang, "prepare: it took longer than 0.05 seconds", id="hangs"),
        pytest.param(hang_for_good, "prepare: it took longer than 0.05 seconds", id="hangs for good"),
        pytest.param(explode, "prepare: RuntimeError: boom Traceback", id="raises"),
        pytest.param(leave, "prepare: SystemExit: 3", id="exits"),
        pytest.param(cancel_itself, "prepare: it cancelled itself", id="cancels itself"),
        pytest.param(not_async, "prepare: TypeError", id="not async"),
        pytest.param(7, "prepare: TypeError", id="no function"),
        *[pytest.param(returning(value), reason, id=name) for name, (value, reason) in GARBAGE.items()],
    ],
)
async def test_one_that_fails_gives_the_window_by_name(
    memory_store: TapeStore, monkeypatch: pytest.MonkeyPatch, prepare: Any, reason: str
) -> None:
    monkeypatch.setattr("bubbot.runtime.preparation.GRACE_SECONDS", 0.05)
    failures = list[str]()
    chosen = options(prepare, 0.05, failures)
    async with running(memory_store, Played(says("hi"), calls("tape_info"), says("done")), chosen) as bench:
        await bench.say("first")
        assert (await bench.say("the question")).text == "done"
        steps = await bench.events("loop.step")
        assert [step["view"]["selector"] for step in steps] == ["window"] * 3
        for step in steps:
            assert step["strategy_failure"]["selector"] == "brief"
            assert reason in step["strategy_failure"]["problem"]
            assert "\n" not in step["strategy_failure"]["problem"]
        assert "first" in str(bench.requests[-1].messages)
        assert [each.startswith("brief: ") for each in failures] == [True] * 2, "once for each turn"
        why = (await bench.say(",why")).text
        assert "the context strategy brief failed, so window built the request: " in why
        assert not [
            entry for entry in await bench.entries() if entry.name in ("context/prepared", "provenance/vouched")
        ]
        await assert_rebuilt_without_ports(bench)


async def test_one_that_is_late_loses_its_ports_and_its_call_is_recorded(memory_store: TapeStore) -> None:
    late = list[BaseException]()

    async def linger(ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
        try:
            await ports.ask_model([{"role": "user", "content": "slow"}])
        except asyncio.CancelledError:
            try:
                await ports.search("anything")
            except PortsClosed as error:
                late.append(error)
            raise
        return ()

    model = ScriptedModel({"rules": [{"when": "slow", "steps": [{"text": "at last", "delay": 30.0}]}]})
    async with running(memory_store, model, options(linger, 0.05)) as bench:
        assert (await bench.say("hello")).text == "You said: hello"
        asked, answered = await bench.events("loop.step")
        assert (asked["purpose"], asked["status"]) == ("brief/prepare", "stopped")
        assert answered["view"]["selector"] == "window"
    assert len(late) == 1


async def test_stop_ends_it_with_the_turn(memory_store: TapeStore) -> None:
    began = asyncio.Event()

    async def wait(_ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
        began.set()
        await asyncio.Event().wait()
        return ()

    async with running(memory_store, Played(says("done")), options(wait)) as bench:
        turn = await bench.post("hello")
        await began.wait()
        assert bench.app.stop("test:home")
        assert (await turn).status == "stopped"
        assert bench.requests == []


async def test_a_store_that_fails_is_no_failure_of_the_strategy() -> None:
    async def full(_ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
        raise StoreUnavailable("no room")

    source = PreparationInput("tape", ContextInput(None, (), MessageStyle(), None), (), datetime.now(UTC), UTC)
    strategy = guard_strategy(ContextStrategy("brief", show_brief, prepare=full))
    turn = cast("Any", SimpleNamespace(tape=SimpleNamespace(name="tape")))
    with pytest.raises(StoreUnavailable):
        await run_preparation(turn, strategy, source, StrategySources(), 1.0)


@pytest.mark.parametrize("catches", [False, True])
async def test_over_budget_the_answer_still_comes_or_people_are_told(memory_store: TapeStore, catches: bool) -> None:
    denied = list[str]()

    async def spend(ports: StrategyPorts, source: PreparationInput) -> Sequence[ContextPrepared]:
        try:
            return await condense(ports, source)
        except BudgetExceeded:
            if not catches:
                raise
            return ()

    async def limit(call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        if "Condense" not in str(call.request.messages) and not is_empty:
            return await call_next(call)
        error = BudgetExceeded(scope="bot", name="", period="day", renews="2026-11-30", told=bool(denied))
        error.notice = "" if denied else "The budget is used up."
        denied.append(error.notice)
        raise error

    is_empty = False
    chosen = options(spend, features=[Feature(name="limits", around=Around(model=[limit]))])
    async with running(memory_store, Played(says("done")), chosen) as bench:
        assert (await bench.say("hello")).text == "done"
        asked, answered = await bench.events("loop.step")
        assert asked["status"] == "error"
        assert answered["view"]["selector"] == ("brief" if catches else "window")
        is_empty = True
        denied.clear()
        assert (await bench.say("hello again")).text == "The budget is used up.", "though the strategy met it first"


@pytest.fixture
def readable(store: TapeStore) -> Callable[[list[str]], StrategySources]:
    """Sources of a chat that may read one other, as long as that is in the list."""

    def make(granted: list[str]) -> StrategySources:
        async def read_session(turn: Turn, session: str) -> TapeHandle:
            if session not in granted:
                raise AccessError(f"{turn.session} may not read {session}")
            return benches[-1].tape(session)

        async def read_memory(_turn: Turn) -> MemoryText:
            return MemoryText("They like tea.", Source.PEOPLE)

        return StrategySources(read_memory, read_session, head_finder(read_session))

    benches = list[Bench]()
    make.benches = benches  # type: ignore[attr-defined]
    return make


def role_of(inbound: Inbound) -> Role:
    return Role.OWNER if inbound.sender.id == "1" else Role.MEMBER


async def plan_trip(ports: StrategyPorts, source: PreparationInput) -> Sequence[ContextPrepared]:
    found = await ports.read_granted(GRANTED, "Rome")
    return [ContextPrepared(data={"text": " ".join(str(entry.payload["content"]) for entry in found.entries)})]


@pytest.mark.law("T22", "P1")
async def test_a_granted_chat_is_read_recorded_and_as_foreign_as_there(store: TapeStore, readable: Any) -> None:
    granted = [GRANTED]
    chosen = options(plan_trip, sources=readable(granted), role_of=role_of)
    async with running(store, Played(says("noted")), chosen) as bench:
        readable.benches.append(bench)
        await bench.say("We fly to Rome in May", chat="family", sender="2")
        await bench.say("When do we fly?")
        (prepared,) = [entry for entry in await bench.entries() if entry.name == "context/prepared"]
        told = next(each.id for each in await bench.entries(GRANTED) if "Rome" in str(each.payload.get("content")))
        assert ContextPrepared.of(prepared).elsewhere == ((GRANTED, ((told, told),)),)
        assert source_of(prepared) is Source.PEOPLE
        step = (await bench.events("loop.step"))[-1]
        assert (GRANTED, ((told, told),)) in step["shown"]
        assert ("test:home", prepared.id) in step["foreign"]["people"]
        answer = next(each for each in reversed(await bench.entries()) if each.payload.get("role") == "assistant")
        assert source_of(answer) is Source.PEOPLE
        assert "We fly to Rome in May" in str(bench.requests[-1].messages[0])
        await assert_rebuilt_without_ports(bench)

        granted.clear()
        await bench.say("And back?")
        step = (await bench.events("loop.step"))[-1]
        assert step["strategy_failure"]["problem"] == f"prepare: test:home may not read {GRANTED}"
        assert step["view"]["selector"] == "window"


@pytest.mark.law("P1", "T8")
@pytest.mark.parametrize("how", ["revoked", "erased", "deleted", "began again"])
async def test_what_was_prepared_of_a_granted_chat_is_left_out_once_that_may_not_be_shown(
    store: TapeStore, readable: Any, how: str
) -> None:
    granted, prepared = [GRANTED], list[str]()

    async def plan_once(ports: StrategyPorts, source: PreparationInput) -> Sequence[Any]:
        if ports.name == GRANTED:
            return ()
        if prepared:
            found = await ports.fetch([TapeQuery(ports.name)])
            prepared.append(
                str([entry.payload for entry in found[0] if entry.name in ("context/prepared", "brief/mine")])
            )
            return ()
        (fact,) = await plan_trip(ports, source)
        prepared.append(str(fact.data["text"]))
        return [fact, event("brief/mine", {"text": fact.data["text"]})]

    chosen = options(plan_once, sources=readable(granted), role_of=role_of, fold=show_brief_and_window)
    async with running(store, Played(*[says("noted")] * 9), chosen) as bench:
        readable.benches.append(bench)
        await bench.say("We fly to Rome in May", chat="family", sender="2")
        await bench.say("When do we fly?")
        await bench.say("Really?")
        assert ["Rome" in str(request.messages) for request in bench.requests[-2:]] == [True, True]
        assert "Rome" in prepared[-1]
        assert "withheld" not in (await bench.events("loop.step"))[-1]["view"]
        told = next(each.id for each in await bench.entries(GRANTED) if "Rome" in str(each.payload.get("content")))
        if how == "revoked":
            granted.clear()
        elif how == "deleted":
            await bench.tape(GRANTED).hide(told)
        else:
            await bench.tape(GRANTED).reset(archive=how == "began again")
        await bench.say("And back?")
        shown = str(bench.requests[-1].messages)
        assert "Rome" not in shown
        assert shown.count("[Left out: it rests on entries of another chat") == 1
        assert "Rome" not in prepared[-1], "the ports show it no more either"
        step = (await bench.events("loop.step"))[-1]
        made = [each.id for each in await bench.entries() if each.name in ("context/prepared", "brief/mine")]
        assert list(step["view"]["withheld"]) == made
        assert GRANTED not in str(step["shown"])
        assert "strategy_failure" not in step
        await assert_rebuilt_without_ports(bench, show_brief_and_window)
        if how == "revoked":
            granted.append(GRANTED)
            await bench.say("And now?")
            assert "Rome" in str(bench.requests[-1].messages), "a new grant shows it again"


@pytest.mark.law("P1")
async def test_a_chat_that_was_not_granted_is_not_read(store: TapeStore, readable: Any) -> None:
    chosen = options(plan_trip, sources=readable([]))
    async with running(store, Played(says("noted")), chosen) as bench:
        readable.benches.append(bench)
        await bench.say("The secret is Rome", chat="family")
        await bench.say("What is it?")
        assert "The secret" not in str(bench.requests[-1].messages)
        assert (await bench.events("loop.step"))[-1]["view"]["selector"] == "window"


@pytest.mark.law("P1")
async def test_its_queries_stay_on_the_tape_of_its_chat(store: TapeStore) -> None:
    async def peek(ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
        ((first, *_),) = await ports.fetch([TapeQuery(GRANTED)])
        return [ContextPrepared(data={"text": str(first.payload)})]

    async with running(store, Played(says("noted")), options(peek)) as bench:
        await bench.say("The secret is Rome", chat="family")
        await bench.say("What is it?")
        failure = (await bench.events("loop.step"))[-1]["strategy_failure"]
        assert failure["problem"] == f"prepare: a context strategy may query the tape test:home, not {GRANTED}"


@pytest.mark.law("T22")
async def test_memory_keeps_its_provenance_and_no_meta_of_a_package_lowers_it(store: TapeStore, readable: Any) -> None:
    async def launder(ports: StrategyPorts, _source: PreparationInput) -> Any:
        text = await ports.read_memory()
        return [ContextPrepared(data={"text": text}), event("brief/mine", {"text": text}, provenance="own", key="k")]

    async with running(store, Played(says("noted")), options(launder, sources=readable([]))) as bench:
        await bench.say("What do they like?")
        made = [entry for entry in await bench.entries() if entry.name in ("context/prepared", "brief/mine")]
        assert [source_of(entry) for entry in made] == [Source.PEOPLE] * 2
        assert "They like tea." in str(bench.requests[-1].messages[0])


async def test_search_finds_what_is_before_the_window_and_nothing_deleted(store: TapeStore) -> None:
    found = list[str]()

    async def look(ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
        found[:] = [str(entry.payload["content"]) for entry in await ports.search("locker", 5)]
        return ()

    async with running(store, Played(says("noted")), options(look)) as bench:
        await bench.say("My locker is 4711")
        await bench.say("My old locker was 12")
        hidden = next(each.id for each in await bench.entries() if "was 12" in str(each.payload.get("content")))
        await bench.tape().hide(hidden)
        await bench.say(",new")
        await bench.say("Where is it?")
    assert found == ["My locker is 4711"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (([],), "no message of a user at the end"),
        (([{"role": "assistant", "content": "x"}],), "no message of a user at the end"),
        (([{"role": "system", "content": "x"}],), "a message that is none of a user or an assistant"),
        (([{"role": "user", "content": ["x"]}],), "a message that is no text"),
        (([{"role": "user", "content": "x"}], ""), "the purpose '' is not a word"),
        (([{"role": "user", "content": "x"}], "an answer"), "the purpose 'an answer' is not a word"),
        (([{"role": "user", "content": "x" * 3_000_000}],), "more than 2097152 characters"),
    ],
)
async def test_what_no_model_is_asked_is_refused(memory_store: TapeStore, arguments: Any, reason: str) -> None:
    async def ask(ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
        await ports.ask_model(*arguments)
        return ()

    async with running(memory_store, Played(says("done")), options(ask)) as bench:
        assert (await bench.say("hello")).text == "done"
        (step,) = await bench.events("loop.step")
        assert reason in step["strategy_failure"]["problem"]
        assert len(bench.requests) == 1


async def test_it_asks_no_more_than_so_often(memory_store: TapeStore) -> None:
    async def ask(ports: StrategyPorts, _source: PreparationInput) -> Sequence[ContextPrepared]:
        while True:
            await ports.ask_model([{"role": "user", "content": "again?"}])

    async with running(memory_store, Played(says("done")), options(ask)) as bench:
        assert (await bench.say("hello")).text == "done"
        steps = await bench.events("loop.step")
        assert [step.get("purpose") for step in steps] == ["brief/prepare"] * 16 + [None]
        assert steps[-1]["strategy_failure"]["problem"] == "prepare: a preparation may ask the model 16 times"


async def test_a_fold_that_fails_is_named_in_the_record_too(memory_store: TapeStore) -> None:
    def fail(_source: ContextInput) -> ModelContext:
        raise RuntimeError("boom")

    chosen = options(None)
    strategies = OWN_STRATEGIES.extend(["brief"], lambda _: guard_strategy(ContextStrategy("brief", fail)))
    chosen = replace(chosen, compose=structs.replace(chosen.compose, strategies=strategies))
    async with running(memory_store, Played(says("done")), chosen) as bench:
        await bench.say("hello")
        (step,) = await bench.events("loop.step")
        assert step["strategy_failure"] == {"selector": "brief", "problem": "fold: RuntimeError: boom"}


PAGE = Path(__file__).parents[3] / "docs" / "howto" / "add-a-feature.md"


async def test_the_example_of_the_documentation_prepares_and_is_rebuilt(store: TapeStore) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("### A strategy that asks")[2]
    names: dict[str, Any] = {}
    exec(section.partition("```python\n")[2].partition("```")[0], names)  # the page of this repository
    hinted = guard_strategy(names["HINTED"])
    strategies = OWN_STRATEGIES.extend(["hinted"], lambda _: hinted)
    model = ScriptedModel({"rules": [{"when": "^Question", "steps": [says("It is 4711.")]}]})
    async with running(store, model, Options(compose=ContextPolicy("hinted", strategies=strategies))) as bench:
        await bench.say("My locker has the number 4711")
        await bench.say(",new")
        await bench.say("Which number has my locker?")
        assert '[From earlier: "It is 4711."]' in str(bench.requests[-1].messages)
        for step in await bench.events("loop.step"):
            made = await rebuild_request(step, bench.tape(), strategies=strategies)
            assert made.digest() == step["request"]
