"""Recall by meaning: how the index follows a tape, and what the turn does without it. The model: `test_index.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import ModelUnavailable
from bubbot.feature import Around, Feature
from bubbot.features.strategies.feature import StrategiesFeature
from bubbot.features.strategies.meaning import MeaningSearch
from bubbot.features.strategies.recall import make_retrieval
from bubbot.features.strategies.settings import ContextSettings
from bubbot.middleware import CallNext
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import Model
from bubbot.ports.passages import Coverage, FoundPassage
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.compose import ContextPolicy
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import event, message
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, SteppingClock
from tests.kernels import make_kernel
from tests.turns import Bench, Options, asked, no_lessons, running


class KnownSynonyms:
    """A passage index that knows one pair of words: passages about automobiles answer to `car`."""

    def __init__(self) -> None:
        self.closed = False
        self.passages: dict[str, dict[int, str]] = {}
        self.coverages: dict[str, Coverage] = {}
        self.error: Exception | None = None
        self.added = asyncio.Event()

    async def coverage(self, tape: str) -> Coverage:
        return self.coverages.get(tape, Coverage())

    async def add(self, tape: str, passages: Sequence[Any], coverage: Coverage) -> None:
        self.passages.setdefault(tape, {}).update(passages)
        self.coverages[tape] = coverage
        self.added.set()

    async def forget(self, tape: str) -> None:
        self.passages.pop(tape, None)
        self.coverages.pop(tape, None)

    async def find(self, tape: str, text: str, before: int, limit: int) -> Sequence[FoundPassage]:
        if self.error:
            raise self.error
        found = [number for number, words in self.passages.get(tape, {}).items() if "automobile" in words]
        return [FoundPassage(number, 0.6 if "car" in text else 0.1) for number in found if number < before][:limit]

    async def aclose(self) -> None:
        self.closed = True


@pytest.fixture
def index() -> KnownSynonyms:
    return KnownSynonyms()


@pytest.fixture
def chat(memory_store: InMemoryStore, ids: CountingIds) -> TapeService:
    return TapeService(memory_store, "chat", now=SteppingClock(), new_id=ids)


def searching(index: KnownSynonyms, tape: TapeService) -> MeaningSearch:
    return MeaningSearch(index, lambda _: tape, is_on=lambda: True)


def indexed(index: KnownSynonyms) -> Mapping[int, str]:
    (passages,) = index.passages.values()
    return passages


async def test_the_index_follows_a_tape_in_batches_without_bookkeeping_and_other_peoples_tasks(
    index: KnownSynonyms, chat: TapeService
) -> None:
    said = [message("user", f"message {number}") for number in range(19)]
    await chat.append([*said, event("note", {}), message("assistant", "of a task", fork="f1")])
    search = searching(index, chat)
    await search.follow(chat)
    assert sorted(indexed(index)) == list(range(1, len(said) + 1))
    await chat.append([message("user", "one more")])
    await search.follow(chat)
    assert max(indexed(index).values()) == "one more"


async def test_a_tape_that_began_anew_shares_nothing_with_the_one_before(
    index: KnownSynonyms, chat: TapeService
) -> None:
    await chat.append([message("user", "the automobile")])
    await searching(index, chat).follow(chat)
    await chat.reset(archive=True)
    assert await searching(index, chat).find(chat, "my car", 100) == {}


async def test_a_tape_that_another_took_the_place_of_is_indexed_again(index: KnownSynonyms, chat: TapeService) -> None:
    await chat.append([message("user", "the automobile"), message("user", "later")])
    await searching(index, chat).follow(chat)
    (name,) = index.coverages
    index.coverages[name] = index.coverages[name]._replace(mark="another date")  # as after a restore
    index.passages[name] = {1: "of the other"}
    await searching(index, chat).follow(chat)
    assert indexed(index) == {1: "the automobile", 2: "later"}


async def test_what_is_erased_while_it_is_added_does_not_stay(index: KnownSynonyms, chat: TapeService) -> None:
    await chat.append([message("user", "the automobile")])
    add = index.add

    async def add_late(tape: str, passages: Sequence[Any], coverage: Coverage) -> None:
        await chat.reset(archive=False)
        await add(tape, passages, coverage)

    index.add = add_late  # type: ignore[method-assign]
    await searching(index, chat).follow(chat)
    assert index.passages == {}


async def test_nothing_is_looked_for_if_nothing_was_said_or_it_is_off(
    index: KnownSynonyms, chat: TapeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> Sequence[FoundPassage]:
        raise AssertionError("the index is asked")

    monkeypatch.setattr(index, "find", fail)
    assert await searching(index, chat).find(chat, " ", 100) == {}
    assert await MeaningSearch(index, lambda _: chat, is_on=lambda: False).find(chat, "my car", 100) == {}
    with pytest.raises(AssertionError):
        await searching(index, chat).find(chat, "my car", 100)


async def test_little_likeness_says_nothing(index: KnownSynonyms, chat: TapeService) -> None:
    await chat.append([message("user", "the automobile")])
    search = searching(index, chat)
    await search.follow(chat)
    assert await search.find(chat, "my car", 100) == {1: 0.6}
    assert await search.find(chat, "the weather", 100) == {}


@pytest.mark.parametrize("error", [ModelUnavailable("it died"), TimeoutError()])
async def test_a_turn_goes_on_without_the_index(
    index: KnownSynonyms, chat: TapeService, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    index.error = error
    assert await searching(index, chat).find(chat, "my car", 100) == {}
    assert "nothing recalled by meaning" in caplog.text


async def test_switched_off_it_asks_nothing(index: KnownSynonyms, chat: TapeService) -> None:
    index.error = ModelUnavailable("it was asked")
    search = MeaningSearch(index, lambda _: chat, is_on=lambda: False)
    assert await search.find(chat, "my car", 100) == {}


async def test_in_the_background_the_index_follows_what_was_asked_about(
    index: KnownSynonyms, chat: TapeService
) -> None:
    await chat.append([message("user", "the automobile")])
    search = searching(index, chat)
    assert await search.find(chat, "my car", 100) == {}, "nothing is indexed yet"
    async with asyncio.timeout(60), search.lifespan():
        await index.added.wait()
        assert await search.find(chat, "my car", 100) == {1: 0.6}
    assert index.closed


async def test_what_means_the_same_stands_beside_the_message(memory_store: TapeStore, index: KnownSynonyms) -> None:
    async def follow(turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        await search.follow(turn.tape)
        return await call_next(turn)

    def open_nothing(name: str) -> TapeService:
        raise AssertionError(f"{name} is not followed in the background")

    search = MeaningSearch(index, open_nothing, is_on=lambda: True)
    strategies = OWN_STRATEGIES.replace_own(make_retrieval(lambda _: 800, search.find))
    policy = ContextPolicy("retrieval", strategies=strategies)
    options = Options(compose=policy, features=[Feature(name="strategies", around=Around(turn=(follow,)))])
    async with running(memory_store, ScriptedModel(), options) as bench:
        await bench.say("The automobile is on level 4711.")
        await bench.tape().handoff("phase/next")
        await bench.say("Where did I leave my car?")
        assert '"The automobile is on level 4711."' in str(asked(bench.requests[-1])[-1][1])


@pytest.mark.parametrize("is_on", [True, False])
async def test_the_feature_recalls_by_meaning_if_it_is_switched_on(
    memory_store: TapeStore, index: KnownSynonyms, *, is_on: bool
) -> None:
    benches: list[Bench] = []

    def open_tape(name: str) -> TapeService:
        return benches[0].service(name)

    kernel = make_kernel(
        open_tape=open_tape,
    )

    async def find_model(turn: Turn) -> Model:
        return await turn.runner.find_model(turn)

    settings = ContextSettings(selector="retrieval", embeddings=is_on)
    built = StrategiesFeature(
        kernel,
        settings,
        find_model=find_model,
        strategies=OWN_STRATEGIES,
        lessons=no_lessons(),
        find_price=lambda _: None,
        passages=index,
    )
    policy = ContextPolicy("retrieval", strategies=OWN_STRATEGIES.replace_own(built.retrieval))
    made = built.feature()
    tools = [tool for tool in made.tools if tool.name != "session.strategy"]  # the bench has it
    options = Options(compose=policy, features=[replace(made, tools=tools)])
    assert made.lifecycle.lifespan is not None
    async with running(memory_store, ScriptedModel(), options) as bench, made.lifecycle.lifespan():
        benches.append(bench)
        await bench.say("The automobile is on level 4711.")
        await bench.tape().handoff("phase/next")
        await bench.say("Hello.")
        if is_on:
            await index.added.wait()
        await bench.say("Where did I leave my car?")
        assert ("The automobile is on level 4711." in str(asked(bench.requests[-1])[-1][1])) == is_on
    assert index.closed
