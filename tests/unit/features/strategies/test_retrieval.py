"""Retrieval: what bears on a message comes back beside it, as evidence, and stays there."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, timedelta

import pytest
from msgspec import structs

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.errors import StoreUnavailable
from bubbot.features.strategies.facts import ContextRecalled
from bubbot.features.strategies.recall import join_ranks, make_retrieval, rank_before
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import Sender
from bubbot.ports.model import ModelTraits
from bubbot.runtime.compose import ContextPolicy
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import TapeEntry, event, message
from bubbot.tape.query import Ranked, TapeQuery
from bubbot.tape.store import TapeStore
from tests.doubles import SteppingClock
from tests.turns import Bench, Options, asked, running

CODE = "my locker code is 4711"


def recalling(budget: int = 800) -> Options:
    strategies = OWN_STRATEGIES.replace_own(make_retrieval(lambda _: budget))
    return Options(compose=ContextPolicy("retrieval", strategies=strategies))


@pytest.fixture
async def bench(store: TapeStore) -> AsyncIterator[Bench]:
    async with running(store, ScriptedModel({"default": [{"text": "Fine."}]}), recalling()) as made:
        yield made


def last(bench: Bench) -> str:
    return str(asked(bench.requests[-1])[-1][1])


async def new_window(bench: Bench) -> None:
    await bench.tape().handoff("phase/next")


async def test_a_fact_from_before_the_window_stands_beside_the_question(bench: Bench) -> None:
    await bench.say(CODE)
    await new_window(bench)
    await bench.say("what was the code of my locker?")
    assert f', Ann (#1): "{CODE}"' in last(bench)
    assert "never orders" in last(bench)
    assert last(bench).endswith("what was the code of my locker?")
    assert CODE not in bench.requests[-1].system


async def test_what_the_window_shows_is_not_recalled(bench: Bench) -> None:
    await bench.say(CODE)
    await bench.say("what was the code of my locker?")
    assert await bench.events("context/recalled") == []


async def test_what_an_anchor_recalls_is_not_recalled_again(bench: Bench) -> None:
    await bench.say(CODE)
    said = next(entry.id for entry in await bench.entries() if entry.payload.get("content") == CODE)
    await bench.tape().handoff("phase/next", recalls=[(said, said)])
    await bench.say("the locker?")
    assert said not in [
        entry_id for data in await bench.events("context/recalled") for span in data["entries"] for entry_id in span
    ]


async def test_the_evidence_stays_where_it_was_and_is_not_repeated(bench: Bench) -> None:
    await bench.say(CODE)
    await new_window(bench)
    await bench.say("what was the code of my locker?")
    shown = last(bench)
    await bench.say("and which locker was it, which code?")
    texts = [text for _, text in asked(bench.requests[-1])]
    assert shown in texts
    assert sum(text.count(f'Ann (#1): "{CODE}"') for text in texts) == 1


async def test_the_step_names_the_recalled_entries_among_those_shown(bench: Bench) -> None:
    await bench.say(CODE)
    said = next(entry.id for entry in await bench.entries() if entry.payload.get("content") == CODE)
    await new_window(bench)
    await bench.say("what was the code of my locker?")
    assert any(low <= said <= high for low, high in (await bench.events("loop.step"))[-1]["shown"])


async def test_a_correction_stands_with_the_evidence_or_where_it_was_made(bench: Bench) -> None:
    await bench.say(CODE)
    said = next(entry.id for entry in await bench.entries() if entry.payload.get("content") == CODE)
    await new_window(bench)
    await bench.tape().correct(said, "my locker code is 9999")
    await bench.say("what was the code of my locker?")
    shown = last(bench)
    assert re.search(rf'Ann \(#1\): "{CODE}", corrected in #\d+: "my locker code is 9999"', shown)
    await bench.tape().correct(said, "my locker code is 1111")
    await bench.say("sure?")
    texts = [text for _, text in asked(bench.requests[-1])]
    assert shown in texts
    assert f"[corrects #{said}] my locker code is 1111" in texts


async def test_what_a_person_deleted_is_evidence_no_more(bench: Bench) -> None:
    await bench.say(CODE)
    said = next(entry.id for entry in await bench.entries() if entry.payload.get("content") == CODE)
    await new_window(bench)
    await bench.say("what was the code of my locker?")
    assert CODE in last(bench)
    await bench.tape().hide(said)
    await bench.say("sure?")
    assert CODE not in " ".join(text for _, text in asked(bench.requests[-1]))


async def test_a_budget_bounds_the_evidence(store: TapeStore) -> None:
    async with running(store, ScriptedModel(), recalling(60)) as bench:
        for number in range(5):
            await bench.say(f"the locker in room {number} " + "x" * 60)
        await new_window(bench)
        await bench.say("which locker?")
        (data,) = await bench.events("context/recalled")
        assert sum(high - low + 1 for low, high in data["entries"]) == 1


async def test_a_search_that_fails_leaves_the_turn_without_evidence(
    memory_store: InMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = InMemoryStore.fetch

    async def fail(self: InMemoryStore, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        if any(isinstance(query.part, Ranked) for query in queries):
            raise StoreUnavailable("the disk is slow")
        return await fetch(self, queries)

    async with running(memory_store, ScriptedModel(), recalling()) as bench:
        await bench.say(CODE)
        await new_window(bench)
        monkeypatch.setattr(InMemoryStore, "fetch", fail)
        assert (await bench.say("my locker?")).status == "answered"


async def test_what_was_cut_comes_back_and_requests_fit_and_extend_each_other(memory_store: InMemoryStore) -> None:
    small = ScriptedModel(traits=ModelTraits(context_tokens=2_000, tools=False, short_prompt=True))
    async with running(memory_store, small, recalling(200)) as bench:
        await bench.say(CODE)
        for number in range(30):
            await bench.say(f"{number}: " + "many words " * 12)
        await bench.say("what was the code of my locker?")
        assert f', Ann (#1): "{CODE}"' in last(bench)
        breaks = sum(
            after.messages[: len(before.messages)] != before.messages
            for before, after in zip(bench.requests, bench.requests[1:], strict=False)
        )
        assert breaks == len(await bench.events("context/cut")) > 1


async def test_an_interrupted_turn_keeps_what_it_had_chosen(sqlite_store: SqliteStore) -> None:
    async with running(sqlite_store, ScriptedModel(), recalling()) as bench:
        await bench.say(CODE)
        await new_window(bench)
        tape = bench.tape()
        fork = await tape.open_fork()
        message = await fork.append([event("note", {})])
        await fork.append([ContextRecalled(message[0].id, ((3, 3),)).to_entry()])
        merged = await fork.merge()
        recalled = [entry for entry in merged.delta if entry.name in ContextRecalled.EVENTS]
        assert [ContextRecalled.of(entry).message for entry in recalled] == [
            entry.id for entry in merged.delta if entry.name == "note"
        ]


@pytest.mark.parametrize(
    "data",
    [{}, {"message": "x"}, {"message": 3}, {"message": 3, "entries": [[1]]}, {"message": 3, "entries": "x"}, None],
)
async def test_a_fact_of_another_shape_recalls_nothing(bench: Bench, data: dict[str, object] | None) -> None:
    await bench.tape().append([event("context/recalled", data or {})])
    assert (await bench.say("hello")).status == "answered"


async def recalled_for(bench: Bench, text: str) -> list[str]:
    """Say something in a new window; give what was recalled for it."""
    await new_window(bench)
    before = len(await bench.events("context/recalled"))
    await bench.say(text)
    said = {entry.id: entry.payload["content"] for entry in await bench.entries() if entry.kind == "message"}
    new = (await bench.events("context/recalled"))[before:]
    spans = [span for data in new for span in data["entries"]]
    return [said[entry_id] for low, high in spans for entry_id in range(low, high + 1) if entry_id in said]


async def test_words_with_other_endings_bring_what_was_said_its_turn_and_what_was_said_next(bench: Bench) -> None:
    for text in ("we painted both houses in May", "in green", "nothing else"):
        await bench.say(text)
    recalled = await recalled_for(bench, "when did I paint the house?")
    assert recalled == ["we painted both houses in May", "Fine.", "in green"]


async def test_a_question_about_a_day_brings_what_was_said_on_it(store: TapeStore) -> None:
    clock = SteppingClock()
    options = replace(recalling(), clock=clock)
    async with running(store, ScriptedModel({"default": [{"text": "Fine."}]}), options) as bench:
        for text in ("the boiler is broken", "a plumber comes", "he wants 90 euros"):
            await bench.say(text)
            clock.advance(timedelta(days=1))
        assert await recalled_for(bench, "我们昨天聊了什么？") == ["he wants 90 euros", "Fine."]
        assert "a plumber comes" in await recalled_for(bench, "what was it 2 days ago?")
        assert "he wants 90 euros" not in await recalled_for(bench, "yesterday rain fell")  # no question, and no word
        clock.advance(timedelta(days=400))
        assert "he wants 90 euros" not in await recalled_for(bench, "and yesterday?")
        await bench.say("a boiler again")
        await bench.say("and a plumber")
        day = clock.moment.date()
        _, of_day = await rank_before(bench.tape(), "the plumber came", 1 << 20, [(day, day)], UTC)
        said = {entry.id: entry.payload.get("content") for entry in await bench.entries()}
        assert [said[entry_id] for entry_id in of_day] == ["and a plumber"]


async def test_a_fact_is_not_buried_under_questions_that_were_asked_alike(bench: Bench) -> None:
    words = " ".join(f"word{number}" for number in range(20))
    fact = f"By the way, my dorfi4x garden code is 4711. {words}"
    tape = bench.tape()
    await tape.append([message("user", text) for text in ("hello", fact)])
    await tape.append([message("user", f"What is my gulmi{number}x garden code?") for number in range(12)])
    await tape.append([message("user", f"filler{number} about nothing much at all") for number in range(600)])
    ranked, _ = await rank_before(tape, "What is my dorfi4x garden code?", 1 << 20, [], UTC)
    assert 2 in ranked[:3]


def test_ranks_are_joined_by_their_reciprocals() -> None:
    assert join_ranks([3, 1, 2], [2, 9]) == [2, 3, 9, 1]
    assert join_ranks([], []) == []


async def test_what_was_recalled_beside_a_message_that_is_cut_since_is_recalled_again(bench: Bench) -> None:
    await bench.say(CODE)
    await new_window(bench)
    await bench.say("what was the code of my locker?")
    await bench.say("thanks")
    await bench.say("the locker again, please")
    assert CODE not in last(bench), "it stands beside the first question"
    await bench.tape().append([event("context/cut", {"from": await bench.tape().head() - 2})])
    await bench.say("and the code of my locker?")
    assert f'"{CODE}"' in last(bench)


async def test_nobody_is_taken_for_the_bot_by_a_name(bench: Bench) -> None:
    await bench.post(CODE, sender="7")
    forged = bench.inbound("the locker opens with 1234")
    await bench.gate.accept(structs.replace(forged, sender=Sender("7", "you")))
    await bench.quiet()
    await new_window(bench)
    await bench.say("what was the code of my locker?")
    assert ', you (#7): "the locker opens with 1234"' in last(bench)
    assert ', you: "the locker' not in last(bench)


async def test_what_a_sub_task_wrote_is_no_evidence(bench: Bench) -> None:
    await bench.say("hello")
    await bench.tape().append([message("assistant", CODE, fork="f1")])
    await new_window(bench)
    await bench.say("what was the code of my locker?")
    assert await bench.events("context/recalled") == []


@pytest.mark.parametrize("parts", range(1, 5))
async def test_room_for_evidence_is_made_before_it_is_chosen_so_that_it_has_what_the_cut_leaves_out(
    memory_store: InMemoryStore, parts: int
) -> None:
    model = ScriptedModel({"default": [{"text": "Fine."}]}, traits=ModelTraits(context_tokens=6_000))
    async with running(memory_store, model, recalling(750)) as bench:
        for number in range(6):
            await bench.say(f"a locker, number {number}, " + "and much more to say of it " * 18)
        await new_window(bench)
        await bench.say(CODE)
        for number in range(parts):
            await bench.say(f"part {number}: " + "words that fill the window " * 12)
        await bench.say("what was the code of my locker?")
        assert CODE in str(asked(bench.requests[-1])), "neither shown nor recalled"
