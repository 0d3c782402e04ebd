"""Replays in a real bot: requests built again byte for byte, what a change of the code changes, and other models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from bubbot.app.bot import Bot, PortWrappers, open_app
from bubbot.app.events import OWN_REFERENCES
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.arguments.fields import NoArguments
from bubbot.features.budget.settings import BudgetSettings
from bubbot.features.people.facts import Consent
from bubbot.features.replay.panels import PANELS
from bubbot.home import Home
from bubbot.models.scripted import ScriptedModel
from bubbot.panel import PanelQuery, PanelReader
from bubbot.ports.channel import Inbound, Sender
from bubbot.ports.model import Model, ModelEvent, ModelReply, ModelRequest, ModelTraits, TextDelta, ToolCall, Usage
from bubbot.ports.turn import Turn
from bubbot.runtime import rerun
from bubbot.runtime.compose import rebuild_request
from bubbot.runtime.context.strategy import ContextInput, ModelContext
from bubbot.settings.loader import BotSettings, ModelSettings
from bubbot.tape.boundary import OWNER, TapeBoundary, Viewer
from bubbot.tape.discard import DiscardingStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.entry import event as tape_event
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import Batch, ForkRecord, ResetBatch, TapeStore
from bubbot.texts import Texts
from bubbot.tool import READS_OWN, Tool, tool
from tests.made_settings import make_settings

CHAT = "default"


class Answering(ScriptedModel):
    """Looks before it answers every other question; `calls` are the tools that it calls, one in each step.

    `looking_cost` is what a step with a call costs; None if its provider does not say.
    """

    def __init__(
        self,
        name: str,
        answer: str = "Done: {text}",
        calls: tuple[str, ...] = ("test_look",),
        looking_cost: float | None = 0.001,
    ) -> None:
        super().__init__(name=name, traits=ModelTraits(context_tokens=12_000))
        self._answer, self._calls, self._looking_cost = answer, calls, looking_cost

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """See `Model.stream`."""
        self.requests.append(request)
        last = max(place for place, message in enumerate(request.messages) if message["role"] == "user")
        done = sum(message["role"] == "assistant" for message in request.messages[last:])
        usage = Usage(len(request.as_bytes()) // 4, 7, cost=0.001)
        asked = str(request.messages[last]["content"])
        if "look" in asked and done < len(self._calls):
            call = ToolCall(f"c{len(self.requests)}", self._calls[done], "{}")
            yield ModelReply("", (call,), "tool_calls", structs.replace(usage, cost=self._looking_cost), self.name)
            return
        text = self._answer.replace("{text}", asked[-40:])
        yield TextDelta(text)
        yield ModelReply(text, usage=usage, model=self.name)


class Bench:
    """A bot with a tool that counts its calls."""

    def __init__(self, bot: Bot, models: Mapping[str, Answering], looks: list[str]) -> None:
        self.bot, self.models, self.looks, self.number = bot, models, looks, 0

    async def say(self, text: str, chat: str = CHAT, model: str = "", person: str = "0") -> str:
        """Say something at the terminal; another person than its owner is one in a chat of several."""
        self.number += 1
        sender = Sender(person, "owner" if person == "0" else "Eve")
        inbound = Inbound(
            "stdin", f"m{id(self)}-{self.number}", chat, sender, text, "2026-11-21T20:21:00Z", model=model
        )
        return (await self.bot.ask(inbound)).text

    async def replay(self, arguments: str = "", model: str = "", chat: str = CHAT) -> Mapping[str, Any]:
        """Replay, and return the fact."""
        text = await self.say(f",replay chat={chat} {arguments}", "replay", model)
        facts = (await self.bot.store.fetch([TapeQuery("bubbot/replay")]))[0]
        assert facts, text
        data: Mapping[str, Any] = facts[-1].payload["data"]
        return {**data, "text": text}

    async def entries(self, chat: str = CHAT) -> tuple[TapeEntry, ...]:
        """What is on a tape."""
        tape = self.bot.tape(f"stdin:{chat}")
        return (await tape.fetch([TapeQuery(tape.name)]))[0]

    async def state(self) -> list[tuple[str, int, str]]:
        """The tapes of chats with their newest ids and hashes, and the open forks."""
        tapes = [(tape.name, tape.head, tape.hash) for tape in await self.bot.store.tapes()]
        replaying = self.bot.tape("stdin:replay").name
        kept = [each for each in tapes if not each[0].startswith("bubbot/") and each[0] != replaying]
        return [*kept, *((fork.tape, 0, fork.id) for fork in await self.bot.store.forks())]


@asynccontextmanager
async def opened(
    home: Path,
    *,
    strategies: Any = OWN_STRATEGIES,
    name: str = "bubbot",
    other: Answering | None = None,
    tools: tuple[Tool, ...] = (),
    monkeypatch: pytest.MonkeyPatch | None = None,
    **settings: Any,
) -> AsyncIterator[Bench]:
    """Open a bot on this home."""
    looks: list[str] = []

    @tool("test.look", effect=READS_OWN)
    async def look(turn: Turn, args: NoArguments) -> str:
        """Look."""
        looks.append(turn.id)
        return f"saw {len(looks)}"

    models: dict[str, Answering] = {}

    def choose(model: Model) -> Model:
        made = other if other is not None and model.name == "scripted/other" else Answering(model.name)
        return models.setdefault(model.name, made)

    if monkeypatch is not None:
        monkeypatch.setattr("bubbot.app.bot.load_strategies", lambda _given: strategies)
    made = make_settings(*settings.values(), model=ModelSettings(name="scripted"), bot=BotSettings(name=name))
    wrappers = PortWrappers(model=choose, tools=(look, *tools))
    async with open_app(made, Home(home), channel_settings={"write": lambda _: None}, wrappers=wrappers) as bot:
        yield Bench(bot, models, looks)


async def talk(bench: Bench, steps: int) -> None:
    """Talk until there are so many model calls."""
    number = 0
    while len(bench.models["scripted"].requests) < steps:
        number += 1
        words = "look at the train" if number % 2 else f"the hotel {'has a sauna ' * (number % 5)}"
        await bench.say(f"{words} number {number}")
        if number % 9 == 0:
            await bench.say(",handoff phase/next what was said")
        if number % 7 == 0:
            await bench.say(f",memory.daily Note {number}.")


async def check_replay(home: Path, steps: int) -> None:
    async with opened(home) as bench:
        await talk(bench, steps)
        sent = [request.as_bytes() for request in bench.models["scripted"].requests]
        before = await bench.state()
        replay = await bench.replay()
        assert len(replay["steps"]) == len(sent) >= steps
        assert [step for step in replay["steps"] if step["recorded"] != "equal" or step["differs"]] == []
        assert replay["is_equal"]
        assert await bench.state() == before
        tape, data = bench.bot.tape(f"stdin:{CHAT}"), {entry.id: entry for entry in await bench.entries()}
        for step, request in zip(replay["steps"], sent, strict=True):
            rebuilt = await rebuild_request(data[step["entry"][1]].payload["data"], tape, strategies=OWN_STRATEGIES)
            assert rebuilt.as_bytes() == request


async def test_recorded_requests_come_out_byte_for_byte_and_are_what_this_version_builds(tmp_path: Path) -> None:
    await check_replay(tmp_path / "home", 30)


@pytest.mark.proof
async def test_a_thousand_recorded_requests_come_out_byte_for_byte(tmp_path: Path) -> None:
    await check_replay(tmp_path / "home", 1_000)


def changed(fold: Callable[[ContextInput], ModelContext]) -> Any:
    """The strategies with another fold of the one that is chosen here, in its next version."""
    old = OWN_STRATEGIES.find("compact")
    new = replace(
        old, fold=fold, version=old.version + 1, earlier={**old.earlier, old.version: old.fold}, start_event=""
    )
    return structs.replace(
        OWN_STRATEGIES, own=tuple(new if each.name == "compact" else each for each in OWN_STRATEGIES.own)
    )


async def test_a_changed_strategy_is_named_at_exactly_the_steps_that_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "home") as bench:
        await talk(bench, 16)
        shows = [
            "has a sauna has a sauna has" in str(request.messages) for request in bench.models["scripted"].requests
        ]
    assert True in shows
    assert False in shows
    old = OWN_STRATEGIES.find("compact")

    def fold(source: ContextInput) -> ModelContext:
        context = old.fold(source)
        messages = [
            replace(item, message={**item.message, "content": "…"})
            if "has a sauna has a sauna has" in str(item.message["content"])
            else item
            for item in context.context_messages
        ]
        return ModelContext(tuple(messages), context.facts)

    async with opened(tmp_path / "home", strategies=changed(fold), monkeypatch=monkeypatch) as bench:
        replay = await bench.replay()
        assert [step["differs"] for step in replay["steps"]] == [("messages",) if each else () for each in shows]
        assert {step["recorded"] for step in replay["steps"]} == {"equal"}
        assert not replay["is_equal"]
        assert "…" in str([step["first"] for step in replay["steps"]])
        assert "…" not in replay["text"]


async def test_a_changed_prompt_and_a_changed_tool_are_told_apart(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as bench:
        await talk(bench, 3)

    @tool("test.more", effect=READS_OWN)
    async def more(turn: Turn, args: NoArguments) -> str:
        """Do more."""
        return turn.id + str(args)

    async with opened(tmp_path / "home", tools=(more,)) as bench:
        assert {step["differs"] for step in (await bench.replay())["steps"]} == {("tools",)}
    async with opened(tmp_path / "home", name="Robin") as bench:
        replay = await bench.replay("first=1 last=12")
        assert {step["differs"] for step in replay["steps"]} == {("prompt",)}
        assert "Robin" in replay["steps"][0]["first"]
        assert replay["last"] == 12


async def test_another_model_runs_in_forks_that_are_thrown_away_with_recorded_results(tmp_path: Path) -> None:
    other = Answering("scripted/other", "Else: {text}", calls=("test_look", "memory_clear"))
    async with opened(tmp_path / "home", other=other) as bench:
        await talk(bench, 6)
        before, looks = await bench.state(), len(bench.looks)
        replay = await bench.replay("again=yes", model="scripted/other")
        assert await bench.state() == before
        assert len(bench.looks) == looks, "no tool runs again"
        assert replay["model"] == "scripted/other"
        assert len(replay["turns"]) == 4
        first, second = replay["turns"][:2]
        assert first["recorded"]["text"].startswith("Done: ")
        assert first["replayed"]["text"].startswith("Else: ")
        assert first["replayed"]["calls"] == ("test_look", "memory_clear")
        assert first["replayed"]["not_recorded"] == 1
        assert first["recorded"]["cost"] == pytest.approx(0.002)
        assert first["replayed"]["cost"] == pytest.approx(0.003)
        assert second["replayed"]["steps"] == 1
        answered = [message["content"] for message in other.requests[2].messages if message["role"] == "tool"]
        assert answered == ["saw 1", rerun.NOT_RECORDED]
        steps = [entry for entry in await bench.entries("replay") if entry.name == "loop.step"]
        assert len(steps) == len(other.requests), "what it cost stays a fact"
        assert "Else: " not in str([entry.payload for entry in await bench.entries("replay")]), "only the fact quotes"


async def test_turns_with_words_of_people_who_did_not_allow_evaluation_do_not_run_again(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", other=Answering("scripted/other", "Else: {text}")) as bench:
        await bench.say("the owner speaks")
        await bench.say("eve speaks", person="7")
        await bench.say("the owner again")

        async def rerun_questions() -> tuple[list[str], int]:
            fact = await bench.replay("again=yes", model="scripted/other")
            asked = "".join(map(str, bench.models["scripted/other"].requests))
            bench.models["scripted/other"].requests.clear()
            assert ("eve speaks" in asked) is (not fact["left_out"])
            return [turn["question"].rpartition("] ")[2] for turn in fact["turns"]], fact["left_out"]

        assert await rerun_questions() == (["the owner speaks"], 2), "the third turn was shown her words, too"
        access, consent = bench.bot.channel_factory.open_tape("bubbot/access"), Consent("stdin", "7", "evaluation")
        await access.append([consent.to_entry()])
        assert await rerun_questions() == (["the owner speaks", "eve speaks", "the owner again"], 0)
        await access.append([consent.to_entry(Consent.EVENTS[1])])
        assert (await rerun_questions())[1] == 2, "a withdrawal holds at once"
        assert "not allowed evaluation" in (await bench.replay("again=yes", model="scripted/other"))["text"]


async def test_a_turn_with_a_step_of_unknown_cost_has_no_cost(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", other=Answering("scripted/other", looking_cost=None)) as bench:
        await talk(bench, 3)
        replay = await bench.replay("again=yes", model="scripted/other")
        with_call, without = replay["turns"][:2]
        assert with_call["recorded"]["cost"] == pytest.approx(0.002)
        assert with_call["replayed"].get("cost") is None, "a part of the cost is not the cost"
        assert without["replayed"]["cost"] == pytest.approx(0.001)


async def test_a_budget_ends_a_replay_and_the_report_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as bench:
        await talk(bench, 6)
        used = sum(len(request.as_bytes()) // 4 + 7 for request in bench.models["scripted"].requests)
    async with opened(tmp_path / "home", budget=BudgetSettings(tokens_day=used + 9_000)) as bench:
        replay = await bench.replay("again=yes")
        asked = len(bench.models["scripted"].requests)
        assert 0 < asked < 6
        assert len(replay["turns"]) < 4
        assert replay["problem"]
        assert not replay["is_equal"]


async def test_with_a_store_that_keeps_forks_a_replay_leaves_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Answering("scripted/other")

    class KeepingStore(DiscardingStore):
        def __init__(self, store: TapeStore) -> None:
            super().__init__(store)
            self.store = store

        async def open_fork(self, record: ForkRecord, *, expect_head: bool = True) -> None:
            await self.store.open_fork(record, expect_head=expect_head)

        async def extend_fork(self, fork: str, staged: Sequence[Batch], reset: ResetBatch | None = None) -> None:
            await self.store.extend_fork(fork, staged, reset)

    monkeypatch.setattr("bubbot.tape.discard.DiscardingStore", KeepingStore)
    async with opened(tmp_path / "home", other=other) as bench:
        await talk(bench, 2)
        before = await bench.state()
        await bench.replay("again=yes", model="scripted/other")
        assert await bench.state() != before


async def test_only_the_terminal_replays_and_bad_slices_are_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "home") as bench:
        await talk(bench, 1)
        assert (
            await bench.say(",replay chat=nowhere", "replay")
            == "there is no tape nowhere; bubbot tape list shows all tapes"
        )
        assert (await bench.say(f",replay chat={CHAT} first=999", "replay")).startswith(
            "There are no entries from #999"
        )
        assert "belongs to the system" in await bench.say(",replay chat=bubbot/budget", "replay")


async def test_the_terminal_asks_about_another_chat_and_changes_nothing_there(tmp_path: Path) -> None:
    class Explaining(Answering):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            if "You answer one question about what happened" not in request.system:
                async for event in super().stream(request):
                    yield event
                return
            done = sum(message["role"] == "tool" for message in request.messages)
            if not done:
                call = ToolCall("c", "tape_search", '{"query": "sauna"}')
                yield ModelReply("", (call,), "tool_calls", Usage(10, 1), self.name)
                return
            yield ModelReply("#3 a sauna", usage=Usage(10, 1), model=self.name)

    async with opened(tmp_path / "home", other=Explaining("scripted/other")) as bench:
        await bench.say("The hotel has a sauna.")
        before = await bench.state()
        text = await bench.say(f",explain chat={CHAT} What of the hotel?", "explain", "scripted/other")
        assert text.endswith(" wrote: “The hotel has a sauna.” [#3]")
        explain = bench.bot.tape("stdin:explain").name
        assert [each for each in await bench.state() if each[0] != explain] == before
        facts = [entry.payload["data"] for entry in await bench.entries("explain") if entry.name == "explain/ended"]
        assert facts[0]["tape"] == bench.bot.tape(f"stdin:{CHAT}").name
        assert facts[0]["statements"][0]["cites"] == ((facts[0]["tape"], 3),)
        steps = [entry.payload["data"] for entry in await bench.entries("explain") if entry.name == "loop.step"]
        assert [step["purpose"] for step in steps] == ["explain", "explain"]
        again = await bench.replay(chat="explain")
        assert (again["chat"], again["steps"]) == ("explain", ())  # no request was kept


async def test_a_replay_keeps_the_requests_of_one_turn_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []

    class CountingStore(DiscardingStore):
        blobs = 0

        async def put_blob(self, tape: str, data: bytes) -> str:
            self.blobs += 1
            kept.append(self.blobs)
            return await super().put_blob(tape, data)

        async def drop_fork(self, fork: str) -> None:
            await super().drop_fork(fork)
            if "/" not in fork:
                self.blobs = 0

    monkeypatch.setattr("bubbot.tape.discard.DiscardingStore", CountingStore)
    async with opened(tmp_path / "home", other=Answering("scripted/other")) as bench:
        for number in range(4):
            await bench.say(f"number {number}")
        await bench.replay("again=yes", model="scripted/other")
    assert (len(kept), max(kept)) == (12, 3)


async def test_a_long_slice_is_read_some_entries_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rerun, "PAGE_ENTRIES", 4)
    sizes: list[int] = []

    async with opened(tmp_path / "home") as bench:
        for number in range(5):
            await bench.say(f"number {number}")
        tape = bench.bot.tape(f"stdin:{CHAT}")
        fetch, head = tape.fetch, await tape.head()

        async def counted(queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
            answers = await fetch(queries)
            sizes.extend(map(len, answers))
            return answers

        monkeypatch.setattr(tape, "fetch", counted)
        turns = [found async for found in rerun.find_turns(tape, 1, head - 1)]
    assert [len({entry.meta["turn"] for entry in found.entries}) for found in turns] == [1] * 5
    assert (turns[0].entries[0].id, turns[-1].entries[-1].id) == (1, head - 1)
    assert max(sizes) == 4


async def test_a_step_of_an_early_version_names_the_head_of_the_tape_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        await bench.say("hello")
        (step,) = [entry for entry in await bench.entries() if entry.name == "loop.step"]
        data = dict(step.payload["data"])
        head = data.pop("as_of")[-1][1]
        await bench.bot.tape(f"stdin:{CHAT}").append([tape_event("loop.step", {**data, "head": head}, **step.meta)])
        assert [each["recorded"] for each in (await bench.replay())["steps"]] == ["equal", "equal"]


async def test_a_model_that_writes_half_characters_can_run_turns_again(tmp_path: Path) -> None:
    other = Answering("scripted/other", calls=("\ud800x",))
    async with opened(tmp_path, other=other) as bench:
        await bench.say("look")
        (turn,) = (await bench.replay("again=yes", model="scripted/other"))["turns"]
        assert turn["replayed"]["calls"] == ("\N{REPLACEMENT CHARACTER}x",)


async def test_a_replay_can_be_replayed(tmp_path: Path) -> None:
    async with opened(tmp_path / "home", other=Answering("scripted/other")) as bench:
        await talk(bench, 1)
        await bench.replay("again=yes", model="scripted/other")
        again = await bench.replay(chat="replay")
        assert (again["chat"], again["is_equal"], again["steps"]) == ("replay", True, ())


async def test_the_page_shows_replays_side_by_side_to_who_may_see_the_chat(tmp_path: Path) -> None:
    other = Answering("scripted/other", "Else: {text}")
    async with opened(tmp_path / "home", other=other) as bench:
        await talk(bench, 2)
        await bench.replay()
        kept = await bench.replay("again=yes", model="scripted/other")
        store, workspace = bench.bot.base_store, bench.bot.workspace

        async def read(sessions: set[str] | None, **params: str) -> Any:
            viewer = OWNER if sessions is None else Viewer("anna", frozenset(sessions))
            tapes = TapeBoundary(store, viewer, workspace=workspace, references=OWN_REFERENCES, shared=PANELS[0].shared)
            reader = PanelReader(tapes, None, UTC, datetime.now(UTC), Texts())
            return await PANELS[0].read(reader, PanelQuery(params=params))

        for sessions in (None, {f"stdin:{CHAT}"}):
            page = await read(sessions, replay=kept["id"])
            assert [(len(each.turns), len(each.steps), each.is_equal) for _, each in page.replays] == [
                (1, 0, True),
                (0, 2, True),
            ]
            (turn,) = page.chosen.turns
            assert (turn.recorded.text[:6], turn.replayed.text[:6]) == ("Done: ", "Else: ")
        for sessions in ({"stdin:replay", "telegram:42"}, set()):
            page = await read(sessions, replay=kept["id"])
            assert (page.replays, page.chosen) == ((), None)


async def test_a_chat_that_is_erased_while_it_is_replayed_leaves_no_replay(tmp_path: Path) -> None:
    class Erasing(Answering):
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            if not self.requests:
                await benches[0].say(",reset erase")
            async for part in super().stream(request):
                yield part

    benches: list[Bench] = []
    other = Erasing("scripted/other")
    async with opened(tmp_path / "home", other=other) as bench:
        benches.append(bench)
        await talk(bench, 2)
        assert "was erased" in await bench.say(f",replay chat={CHAT} again=yes", "replay", "scripted/other")
        assert (await bench.bot.store.fetch([TapeQuery("bubbot/replay")]))[0] == ()
        steps = [entry for entry in await bench.entries("replay") if entry.name == "loop.step"]
        assert len(steps) == len(other.requests) > 0
