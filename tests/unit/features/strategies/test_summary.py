"""Summaries: when they are written, what a model may write, what happens if it cannot, and what they keep within reach."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from bubbot.app.bot import PortWrappers, open_app
from bubbot.errors import BudgetExceeded, ModelOverflow, ModelUnavailable, TapeCorrupt
from bubbot.feature import Around, Feature
from bubbot.features.agents.settings import AgentsSettings
from bubbot.features.strategies.settings import ContextSettings
from bubbot.features.strategies.summary import SummaryInvalid, parse_summary
from bubbot.gateway.channel_runtime import ChannelPolicy
from bubbot.gateway.outbound import RetryPolicy
from bubbot.home import Home
from bubbot.middleware import CallNext, ModelCall
from bubbot.models.scripted import ScriptedModel
from bubbot.models.unconfigured import UnconfiguredModel
from bubbot.ports.channel import Deletion, Inbound, Sender
from bubbot.ports.model import ModelEvent, ModelReply, ModelRequest
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.runtime.queue import QueuePolicy
from bubbot.settings.sections import ModelSettings
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, message
from bubbot.tape.provenance import Source, source_of
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from tests.made_settings import make_settings
from tests.summarising import (
    SUMMARY_PROMPT,
    SummarisingModel,
    cite_all,
    is_summary,
    quoted_messages,
    state_of,
    summaries,
    summarising,
    summary_so_far,
)
from tests.tapes import whole
from tests.turns import WAIT, Bench

LONG = "word " * 60


async def test_a_window_that_fills_gets_a_summary_of_its_own_turn_before_it_overflows(store: TapeStore) -> None:
    model = SummarisingModel(size=6_000)
    async with summarising(store, model) as bench:
        for number in range(20):
            assert (await bench.say(f"fact {number}: {LONG}")).text == "ok"
        await bench.quiet()
        anchors = await summaries(bench)
        assert anchors, "no summary was written"
        state = state_of(anchors[0])
        cited = state["source_ids"]
        entries = {entry.id: entry for entry in await bench.entries()}
        assert {"phase", "summary", "next_steps", "source_ids", "owner", "parents"} == set(state)
        assert state["owner"] == "agent"
        assert [entries[number].name for number in state["parents"]] == ["session/start"]
        assert all(entries[number].kind == "message" for number in cited)
        assert "fact 0" in state["summary"]
        assert not [fact for fact in entries.values() if fact.name == "context/cut"], "it came too late"
        assert [entry for entry in entries.values() if entry.kind == "error"] == []
        steps = [entry.payload["data"] for entry in entries.values() if entry.name == "loop.step"]
        asked = [step for step in steps if step.get("purpose") == "summary"]
        assert len(asked) == len(model.summary_requests) > 0
        assert all(step["usage"]["input_tokens"] and step["shown"] for step in asked)
        turns = {entry.meta.get("turn") for entry in entries.values() if entry.name == "auto_handoff/summary"}
        assert not turns & {entry.meta.get("turn") for entry in entries.values() if entry.kind == "message"}
        told = [text for text in bench.channel.texts if text.startswith("I summarised ")]
        assert len(told) == len(anchors)
        assert f",read {anchors[0].id}" in told[0]
        assert "\n" not in told[0]


async def test_messages_of_a_program_that_never_holds_commands_get_summaries_as_well(
    memory_store: InMemoryStore,
) -> None:
    async with summarising(memory_store, model := SummarisingModel(size=6_000)) as bench:
        for number in range(20):
            assert (await bench.say(f"fact {number}: {LONG}", is_plain_text=True)).text == "ok"
        await bench.quiet()
        assert await summaries(bench)
        entries = await bench.entries()
    assert len(model.summary_requests) >= 1
    messages = [entry for entry in entries if entry.kind == "message" and entry.payload["role"] == "user"]
    assert len(messages) == 20
    assert not [entry for entry in messages if ",summary" in str(entry.payload["content"])]


async def test_the_new_window_shows_the_summary_and_the_newest_exchanges(memory_store: InMemoryStore) -> None:
    model = SummarisingModel(size=6_000)
    async with summarising(memory_store, model) as bench:
        for number in range(20):
            await bench.say(f"fact {number}: {LONG}")
            await bench.quiet()
            if await summaries(bench):
                break
        await bench.say("and now?")
        anchor = (await summaries(bench))[0]
        first, second, *rest = model.talk[-1].messages
        assert first["content"].startswith('[Anchor created: auto_handoff/summary]: {"phase":"talk"')
        assert first["role"] == "assistant"
        assert f"fact {number}: " not in first["content"], "the newest exchange is kept, not summarised"
        shown = "".join(str(message["content"]) for message in (second, *rest))
        assert f"fact {number}: " in shown
        assert "fact 0" not in shown
        assert anchor.payload["recalls"]
        assert [message["role"] for message in model.talk[-1].messages] == ["assistant", "user"] * (
            len(model.talk[-1].messages) // 2
        )


async def test_a_summary_of_a_summary_cites_the_first_sources(memory_store: InMemoryStore) -> None:
    model = SummarisingModel(size=6_000)
    async with summarising(memory_store, model) as bench:
        for number in range(60):
            await bench.say(f"fact {number}: {LONG}")
            await bench.quiet()
        anchors, entries = await summaries(bench), {entry.id: entry for entry in await bench.entries()}
        assert len(anchors) > 2
        assert [state_of(anchor)["parents"] for anchor in anchors[1:]] == [(anchor.id,) for anchor in anchors[:-1]]
        for anchor in anchors:
            assert {entries[number].kind for number in state_of(anchor)["source_ids"]} == {"message"}
        assert set(state_of(anchors[0])["source_ids"]) & set(state_of(anchors[1])["source_ids"])
        assert not [anchor for anchor in anchors if "form" in state_of(anchor)]


async def test_a_cited_anchor_is_replaced_by_its_sources(memory_store: InMemoryStore) -> None:
    def write(request: ModelRequest) -> str:
        sources = summary_so_far(request).get("source_ids", [])
        return json.dumps({"summary": "all", "source_ids": [*sources, quoted_messages(request)[0][0]]})

    model = SummarisingModel(write)
    async with summarising(memory_store, model) as bench:
        await bench.say("the code is 4711")
        await bench.say(",handoff name=phase/one summary=Done. source_ids=3")
        one = next(entry for entry in await bench.entries() if entry.name == "phase/one")
        await bench.say(f",handoff name=phase/two summary=More. source_ids={one.id}")
        await bench.say("what else?")
        await bench.say(",summary")
        state = state_of((await summaries(bench))[0])
        assert 3 in state["source_ids"]
        assert one.id not in state["source_ids"]


async def test_the_command_writes_one_now_and_says_if_there_is_nothing(memory_store: InMemoryStore) -> None:
    model = SummarisingModel()
    async with summarising(memory_store, model, selector="window") as bench:
        assert (await bench.say(",summary")).text == "There is nothing to summarise in this window."
        await bench.say("the code is 4711")
        told = (await bench.say(",summary")).text
        (anchor,) = await summaries(bench)
        assert told == f"I summarised 2 entries (,read {anchor.id}) and go on in a new window."
        assert state_of(anchor)["owner"] == "human"
        assert "the code is 4711" in state_of(anchor)["summary"]
        opened = (await bench.say(f",read {anchor.id}")).text
        assert "the code is 4711 (#" in opened


async def test_no_summary_is_written_unasked_with_another_strategy_or_at_zero(memory_store: InMemoryStore) -> None:
    off = ContextSettings(selector="summary", summary_at=0)
    for life, selector, settings in (("a", "compact", None), ("b", "summary", off)):
        model = SummarisingModel(size=6_000)
        async with summarising(InMemoryStore(), model, settings, selector=selector, life=life) as bench:
            for number in range(25):
                await bench.say(f"fact {number}: {LONG}")
            await bench.quiet()
            assert await summaries(bench) == []
            assert model.summary_requests == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no json", "there is no JSON object"),
        ('{"summary": ', "there is no JSON object"),
        ('{"summary": x}', "it is not JSON"),
        ('["summary"]', "there is no JSON object"),
        ('{"phase": "x"}', "its summary is empty"),
        ('{"summary": 5, "source_ids": [1]}', "expected `str`, got `int` - at `$.summary`"),
        ('{"summary": "", "source_ids": [1]}', "its summary is empty"),
        ('{"summary": " ", "source_ids": [1]}', "its summary is empty"),
        ('{"summary": "x", "source_ids": ["1"]}', "expected `int`, got `str` - at `$.source_ids[0]`"),
        ('{"summary": "x", "source_ids": [true]}', "expected `int`, got `bool` - at `$.source_ids[0]`"),
        ('{"summary": "x", "source_ids": 1}', "expected `array`, got `int` - at `$.source_ids`"),
        ('{"summary": "x", "source_ids": [99]}', "it cites #99, which you were not shown"),
        ('{"summary": "x (#98)", "source_ids": [1]}', "it cites #98, which you were not shown"),
        ('{"summary": "x"}', "it cites no entry"),
        ('{"summary": "x", "source_ids": [1], "next_steps": "y"}', "expected `array`, got `str` - at `$.next_steps`"),
        (
            '{"summary": "x", "source_ids": [1], "next_steps": [{"a": 1}]}',
            "expected `str`, got `object` - at `$.next_steps[0]`",
        ),
        (f'{{"summary": "{"long " * 300}", "source_ids": [1]}}', "it is too long: it may have 200 characters"),
        ("{" * 5000 + "}", "it is not JSON"),
    ],
)
def test_what_breaks_the_contract_is_named(text: str, problem: str) -> None:
    with pytest.raises(SummaryInvalid) as raised:
        parse_summary(text, {1, 2}, 100, 200)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"summary": "x (#1)"}',
        '```json\n{"summary": "x (#1)"}\n```',
        'Here it is: {"summary": "x", "source_ids": [1], "owner": "root", "parents": [7], "recalls": [[1, 9]]} Done.',
    ],
)
def test_what_keeps_the_contract_is_taken_without_the_rest(text: str) -> None:
    state = parse_summary(text, {1}, 100, 200)
    assert state.source_ids == (1,)
    assert set(state.as_json()) == {"summary", "source_ids"}


async def test_an_answer_that_cannot_be_used_is_repaired_once(memory_store: InMemoryStore) -> None:
    def write(request: ModelRequest) -> str:
        return cite_all(request) if len(request.messages) == 3 else '{"summary": "x", "source_ids": [999]}'

    model = SummarisingModel(write)
    async with summarising(memory_store, model) as bench:
        await bench.say("the code is 4711")
        assert "I summarised 2 entries" in (await bench.say(",summary")).text
        first, second = model.summary_requests
        assert [message["role"] for message in second.messages] == ["user", "assistant", "user"]
        assert "it cites #999, which you were not shown" in str(second.messages[-1]["content"])
        assert first.messages[0] == second.messages[0]
        assert "form" not in state_of((await summaries(bench))[0])


FAILURES: list[tuple[Callable[[ModelRequest], str | Exception], str]] = [
    (lambda _: "I will not.", "what it wrote cannot be used"),
    (lambda _: "", "what it wrote cannot be used"),
    (lambda _: ModelUnavailable("no answer"), "no answer"),
    (lambda _: ModelOverflow("too long"), "too long"),
]


@pytest.mark.parametrize(("write", "reason"), FAILURES)
async def test_a_model_that_cannot_leaves_the_newest_messages_cited_and_says_so(
    memory_store: InMemoryStore, write: Callable[[ModelRequest], str | Exception], reason: str
) -> None:
    model = SummarisingModel(write)
    async with summarising(memory_store, model) as bench:
        await bench.say("the code is 4711")
        await bench.say("the door is [red]")
        told = (await bench.say(",summary")).text
        (anchor,) = await summaries(bench)
        assert told.startswith("I go on in a new window. The model did not write the summary (")
        assert reason.split(maxsplit=1)[0] in told or "context" in told
        state = state_of(anchor)
        assert state["form"] == "extractive"
        assert '"the code is 4711"' in state["summary"]
        assert len(state["source_ids"]) == 2
        assert (await bench.say("go on")).text == "ok"


@pytest.mark.law("T22")
@pytest.mark.parametrize("write", [cite_all, lambda _: ModelUnavailable("no answer")])
async def test_a_summary_is_as_foreign_as_what_it_rests_on_even_without_the_model(
    memory_store: InMemoryStore, write: Callable[[ModelRequest], str | Exception]
) -> None:
    async with summarising(memory_store, SummarisingModel(write)) as bench:
        await bench.say("mine")
        await bench.say(",summary")
        await bench.say("sent on", provenance=Source.WORLD)
        await bench.say(",summary")
        await bench.say(",new")
        await bench.say("mine again")
        await bench.say(",summary")
        assert [source_of(anchor) for anchor in await summaries(bench)] == [Source.OWN, Source.WORLD, Source.OWN]


async def test_without_a_model_the_newest_messages_are_cited(memory_store: InMemoryStore) -> None:
    async with summarising(memory_store, UnconfiguredModel(), texts=Texts("zh")) as bench:
        await bench.say("the code is 4711")
        told = (await bench.say(",summary")).text
        assert told.startswith("我在新窗口里继续。模型没有写成摘要")
        assert '"the code is 4711"' in state_of((await summaries(bench))[0])["summary"]


async def test_a_long_window_is_summarised_in_pieces_that_fit(memory_store: InMemoryStore) -> None:
    size = 3_000
    model = SummarisingModel(size=size)
    async with summarising(memory_store, model, selector="window") as bench:
        await bench.say("hello")
        async with bench.app.exclusive("test:home"):
            await bench.tape().append(
                [message("user", f"fact {number}: {LONG}", sender={"id": "1"}) for number in range(60)]
            )
        told = (await bench.say(",summary")).text
        assert "I summarised 62 entries" in told
        assert len(model.summary_requests) > 3
        sizes = [len(request.as_bytes()) // 3 for request in model.summary_requests]
        assert max(sizes) <= size * 3 // 4
        seen = [number for request in model.summary_requests for number, _ in quoted_messages(request)]
        assert len(seen) == len(set(seen)) > 50


async def test_pieces_shrink_if_the_model_counts_more_tokens_than_estimated(memory_store: InMemoryStore) -> None:
    def write(request: ModelRequest) -> str | Exception:
        return ModelOverflow("too long") if len(request.as_bytes()) > 3_000 else cite_all(request)

    model = SummarisingModel(write, size=8_000)
    async with summarising(memory_store, model, selector="window") as bench:
        for number in range(12):
            await bench.say(f"fact {number}: {LONG}")
        said = re.search(r"I summarised (\d+) entries", (await bench.say(",summary")).text)
        assert said is not None
        assert int(said[1]) >= 12  # the newest exchanges stay


async def test_what_was_deleted_or_erased_is_not_summarised(memory_store: InMemoryStore) -> None:
    model = SummarisingModel()
    async with summarising(memory_store, model, selector="window") as bench:
        await bench.say("the secret is 4711")
        entry = next(entry for entry in await bench.entries() if entry.kind == "message")
        async with bench.app.exclusive("test:home"):
            await bench.tape().hide(entry.id)
        await bench.say("hello")
        await bench.say(",summary")
        assert "4711" not in str([request.messages for request in model.summary_requests])
        assert "4711" not in str(state_of((await summaries(bench))[0]))


async def test_a_message_that_comes_meanwhile_waits_and_a_stop_ends_it(memory_store: InMemoryStore) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Slow(SummarisingModel):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            if request.system.startswith("You write the summary"):
                begun.set()
                await go_on.wait()
            async for item in super().stream(request):
                yield item

    async with summarising(memory_store, Slow()) as bench:
        await bench.say("the code is 4711")
        asked = await bench.post(",summary")
        await begun.wait()
        later = await bench.post("are you there?")
        await asyncio.sleep(0)
        assert not later.done()
        go_on.set()
        assert "I summarised" in (await asked).text
        assert (await later).text == "ok"
        begun.clear()
        go_on.clear()
        asked = await bench.post(",summary")
        await begun.wait()
        assert bench.app.stop("test:home")
        assert (await asked).status == "stopped"
        assert len(await summaries(bench)) == 1


async def test_a_turn_for_a_window_that_is_over_does_nothing(memory_store: InMemoryStore) -> None:
    model = SummarisingModel(size=6_000)
    async with summarising(memory_store, model) as bench:
        for number in range(20):
            await bench.say(f"fact {number}: {LONG}")
            await bench.quiet()
            if await summaries(bench):
                break
        received = [
            entry.payload["data"]
            for entry in await bench.entries("bubbot/inbox/test")
            if entry.payload["data"].get("origin") == "summary"
        ]
        assert len(received) == 1
        late = bench.inbound(",summary", external_id=received[0]["external_id"] + "x", origin="summary")
        result = await bench.gate.accept(late, is_own=True)
        assert result is not None
        assert (await result).status == "silent"
        assert len(await summaries(bench)) == 1
        same = bench.inbound(",summary", external_id=received[0]["external_id"], origin="summary")
        assert await bench.gate.accept(same, is_own=True) is None


async def test_a_summary_stays_within_its_share_of_a_small_window(memory_store: InMemoryStore) -> None:
    model = SummarisingModel(size=6_000)
    async with summarising(memory_store, model) as bench:
        for number in range(90):
            await bench.say(f"fact {number}: {LONG}")
            await bench.quiet()
        anchors = await summaries(bench)
        assert len(anchors) > 5
        assert not [anchor for anchor in anchors if "form" in state_of(anchor)]
        assert all(estimate_tokens(json.dumps(dict(state_of(anchor)), default=list)) < 1_200 for anchor in anchors)
        assert not [entry for entry in await bench.entries() if entry.kind == "error"]


class Stuck(SummarisingModel):
    """A model that never ends its summaries; `begun` says that it was asked for one."""

    def __init__(self) -> None:
        super().__init__(size=6_000)
        self.begun = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        if is_summary(request):
            self.begun.set()
            await asyncio.Event().wait()
        async for item in super().stream(request):
            yield item


async def fill(bench: Bench, model: Stuck) -> None:
    """Talk until a summary is asked for."""
    for number in range(30):
        await bench.say(f"fact {number}: {LONG}")
        received = [entry.payload["data"] for entry in await bench.entries("bubbot/inbox/test")]
        if any(data.get("origin") == "summary" for data in received):
            async with asyncio.timeout(WAIT):
                await model.begun.wait()
            return
    pytest.fail("no summary was asked for")


async def test_a_process_that_dies_over_a_summary_writes_it_once_in_its_next_life(store: TapeStore) -> None:
    dying = Stuck()
    async with summarising(store, dying, life="first") as bench:
        await fill(bench, dying)
        await bench.kill()
    model = SummarisingModel(size=6_000)
    async with summarising(store, model, life="second") as bench:
        assert [result.status for result in await bench.resume()] == ["answered"]
        await bench.quiet()
        assert len(await summaries(bench)) == 1
        assert len([text for text in bench.channel.texts if text.startswith("I summarised")]) == 1
        assert (await bench.say("go on")).text == "ok"
        handoffs = [entry for entry in await bench.entries() if entry.name == "auto_handoff/summary"]
        assert len(handoffs) == 1
    async with summarising(store, SummarisingModel(size=6_000), life="third") as bench:
        assert await bench.resume() == []
        assert len(await summaries(bench)) == 1


async def test_a_summary_that_a_process_dies_over_again_and_again_is_given_up_without_a_word(
    memory_store: InMemoryStore,
) -> None:
    dying = Stuck()
    async with summarising(memory_store, dying, life="first") as bench:
        await fill(bench, dying)
        await bench.kill()
    dying = Stuck()
    async with summarising(memory_store, dying, life="second") as bench:
        resuming = asyncio.ensure_future(bench.resume())
        await dying.begun.wait()
        await bench.kill()
        resuming.cancel()
    model = SummarisingModel(size=6_000)
    async with summarising(memory_store, model, life="third") as bench:
        assert [result.status for result in await bench.resume()] == ["failed"]
        assert bench.channel.texts == []
        assert (await bench.say("go on")).text == "ok"
        assert "I summarised" in (await bench.say(",summary")).text


async def test_a_process_that_dies_before_it_asks_for_a_summary_asks_after_the_next_turn(
    memory_store: InMemoryStore,
) -> None:
    off = ContextSettings(selector="summary", summary_at=0)
    async with summarising(memory_store, SummarisingModel(size=6_000), off, life="first") as bench:
        for number in range(12):
            await bench.say(f"fact {number}: {LONG}")
        assert await summaries(bench) == []
    async with summarising(memory_store, SummarisingModel(size=6_000), life="second") as bench:
        await bench.say("go on")
        await bench.quiet()
        assert len(await summaries(bench)) == 1


async def test_a_channel_whose_queue_is_full_still_gets_its_summary(memory_store: InMemoryStore) -> None:
    model = SummarisingModel(size=6_000)
    rules = ChannelPolicy(QueuePolicy(), RetryPolicy(()), one_lane=True, queue_limit=1)
    async with summarising(memory_store, model, rules=rules) as bench:
        async with asyncio.timeout(60):
            for number in range(20):
                await bench.say(f"fact {number}: {LONG}")
            await bench.quiet()
        assert await summaries(bench)


async def test_a_summary_in_a_group_names_the_speakers_and_the_window_before_it(memory_store: InMemoryStore) -> None:
    model = SummarisingModel()
    async with summarising(memory_store, model, selector="window") as bench:
        await bench.say("the code is 4711", direct=False)
        await bench.say(",handoff phase/garden", direct=False)
        phase = next(entry for entry in await bench.entries() if entry.name == "phase/garden")
        await bench.say("roses", direct=False)
        await bench.say(",summary", direct=False)
        assert "Ann (#1), message:\n    roses" in str(model.summary_requests[0].messages[0]["content"])
        (anchor,) = await summaries(bench)
        assert state_of(anchor)["parents"] == (phase.id,)


async def test_the_scripted_model_writes_summaries_by_its_rules(memory_store: InMemoryStore) -> None:
    written = json.dumps({"summary": "Ann told the code (#3).", "source_ids": [3]})
    script = {"rules": [{"when": "^The chat to summarise", "steps": [{"text": written}]}]}
    async with summarising(memory_store, ScriptedModel(script)) as bench:
        await bench.say("the code is 4711")
        assert "I summarised 2 entries" in (await bench.say(",summary")).text
        assert state_of((await summaries(bench))[0])["summary"] == "Ann told the code (#3)."


async def test_a_budget_that_is_used_up_is_respected_and_named(memory_store: InMemoryStore) -> None:
    async def deny(call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        if not is_summary(call.request):
            return await call_next(call)
        error = BudgetExceeded(scope="chat", name="home", period="day", renews="2026-11-22 00:00")
        error.notice = "Today's budget of this chat is used up."
        raise error

    model = SummarisingModel()
    async with summarising(memory_store, model, further=[Feature(name="limits", around=Around(model=[deny]))]) as bench:
        await bench.say("the code is 4711")
        told = (await bench.say(",summary")).text
        assert "did not write the summary (Today's budget of this chat is used up): it cites" in told
        assert model.summary_requests == []
        steps = [data for data in await bench.events("loop.step") if data.get("purpose") == "summary"]
        assert [(step["status"], step["attempts"]) for step in steps] == [("error", ())]


async def test_a_window_that_cannot_be_measured_never_costs_the_answer(
    memory_store: InMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    def fail(*_: object) -> None:
        failed.append("altered")
        raise TapeCorrupt("test:home", 3, "altered")

    monkeypatch.setattr("bubbot.features.strategies.summaries.select_messages", fail)
    async with summarising(memory_store, SummarisingModel(size=6_000)) as bench:
        assert (await bench.say("hello")).text == "ok"
    assert failed


async def test_the_bot_as_it_is_shipped_writes_and_announces_one(tmp_path: Path) -> None:
    model = SummarisingModel(size=8_000)
    settings = make_settings(ContextSettings(selector="summary"), model=ModelSettings(name="scripted"))
    wrappers = PortWrappers(model=lambda _: model)
    lines: list[str] = []
    async with open_app(settings, Home(tmp_path), channel_settings={"write": lines.append}, wrappers=wrappers) as app:
        for number in range(30):
            text = f"fact {number}: {LONG}"
            await app.ask(Inbound("stdin", str(number), "default", Sender("0", "owner"), text, "2026-11-21T20:21:00Z"))
            if model.summary_requests:
                break
        async with asyncio.timeout(WAIT):
            await app.runtime.wait_idle()
            await app.deliverer.wait_until_idle()
        (anchor,) = [entry for entry in await whole(app.store, app.tape("stdin:default").name) if _is_summary(entry)]
        assert state_of(anchor)["owner"] == "agent"
        assert len([line for line in lines if f"(,read {anchor.id}) and go on in a new window." in line]) == 1
        paid = [entry.name for entry in await whole(app.store, "bubbot/budget")]
        assert len(paid) >= len(model.requests), "its calls are metered"


def _is_summary(entry: TapeEntry) -> bool:
    return entry.name == "auto_handoff/summary" and entry.kind == "anchor"


async def test_what_a_sub_task_wrote_is_not_summarised(memory_store: InMemoryStore) -> None:
    model = SummarisingModel(size=6_000)
    async with summarising(memory_store, model, selector="window", agents=AgentsSettings()) as bench:
        await bench.say("the plan for Rome")
        await bench.say(",agent.run Think of the hidden task.")
        await bench.say(",summary")
        assert len(await summaries(bench)) == 1
        (request,) = model.summary_requests
        assert "the plan for Rome" in str(request.messages)
        assert "Think of the hidden task." not in str(request.messages)
        assert "agent/task" not in str(request.messages)


async def delete(bench: Bench, words: str) -> int:
    """Delete the message with these words on the platform; return its entry."""
    entry = next(entry for entry in await bench.entries() if words in str(entry.payload.get("content")))
    at = "2026-11-21T20:22:00+00:00"
    deletion = Deletion("test", f"delete-{entry.id}", "home", entry.meta["message"], at)
    await bench.gate.receive(deletion)
    await bench.quiet()
    return entry.id


async def test_a_source_that_is_deleted_later_is_marked_where_the_summary_is_shown(memory_store: InMemoryStore) -> None:
    model = SummarisingModel(size=6_000)
    async with summarising(memory_store, model, selector="window") as bench:
        await bench.say("the code is 4711")
        await bench.say("the cat is grey")
        await bench.say(",summary")
        await bench.say("go on")
        before = model.talk[-1]
        deleted = await delete(bench, "4711")
        await bench.say("what was the code?")
        after = model.talk[-1]
        contents = [str(message["content"]) for message in after.messages]
        assert f"[#{deleted}, which is cited above, was deleted since: do not use or repeat it]" in contents
        assert after.messages[: len(before.messages)] == before.messages, "the window still extends"
        await bench.tape().handoff("phase/next", {"summary": "nothing of it"})
        await bench.say("and now?")
        assert "deleted since" not in str(model.talk[-1].messages)


async def test_a_deletion_of_what_no_summary_cites_is_not_marked(memory_store: InMemoryStore) -> None:
    model = SummarisingModel()
    async with summarising(memory_store, model, selector="window") as bench:
        await bench.say("the code is 4711")
        await bench.tape().handoff("phase/next")
        await bench.say("hello")
        await delete(bench, "4711")
        await delete(bench, "hello")
        await bench.say("go on")
        assert "deleted" not in str(model.talk[-1].messages)


@pytest.mark.parametrize("obeys", [True, False])
async def test_the_next_summary_rests_on_no_source_that_was_deleted(memory_store: InMemoryStore, obeys: bool) -> None:
    def write(request: ModelRequest) -> str:
        if obeys and "Deleted since" in str(summary_so_far(request).get("summary")):
            return json.dumps({"summary": f"new (#{quoted_messages(request)[0][0]})"})
        return cite_all(request)

    model = SummarisingModel(write, size=6_000)
    async with summarising(memory_store, model, selector="window") as bench:
        await bench.say("the code is 4711")
        await bench.say(",summary")
        deleted = await delete(bench, "4711")
        await bench.say("the cat is grey")
        await bench.say(",summary")
        assert "carried over" in str(summary_so_far(model.summary_requests[1]).get("summary"))
        state = state_of((await summaries(bench))[-1])
        assert deleted not in state["source_ids"]
        assert ("4711" in state["summary"]) is not obeys
        if not obeys:  # the form without a model keeps the words, and says that they were deleted
            assert state["form"] == "extractive"
            assert state["summary"].startswith("Deleted since")


async def test_why_shows_the_request_that_wrote_a_summary(memory_store: InMemoryStore) -> None:
    async with summarising(memory_store, SummarisingModel()) as bench:
        await bench.say("my locker code is 4711")
        await bench.say(",summary")
        told = (await bench.say(",why yes")).text
    assert SUMMARY_PROMPT in told
    assert "my locker code is 4711" in told
    assert "equal to the recorded one" in told
