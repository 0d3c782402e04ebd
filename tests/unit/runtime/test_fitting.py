"""A request is counted before it is sent, where that can change anything, and cut or refused by the count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.model import ModelRequest, ModelTraits, TokenCount
from bubbot.runtime.compose import ContextPolicy
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore
from tests.turns import Bench, Options, assert_rebuilt, running

SIZE = 2_000
ROOM = 1_500
SMALL = ModelTraits(context_tokens=SIZE, tools=False, short_prompt=True)


class Counting(ScriptedModel):
    """A scripted model whose tokenizer has `per_token` bytes a token; `counted` are the requests it was given."""

    def __init__(self, per_token: float, traits: ModelTraits = SMALL) -> None:
        super().__init__(traits=traits)
        self.per_token = per_token
        self.counted: list[ModelRequest] = []

    def tokens(self, request: ModelRequest) -> int:
        return int(len(request.as_bytes()) / self.per_token)

    async def count(self, request: ModelRequest) -> TokenCount | None:
        """See `CountsTokens.count`."""
        self.counted.append(request)
        return TokenCount(self.tokens(request), "test")


async def talk(bench: Bench, turns: int, text: str = "many words " * 12) -> None:
    for number in range(turns):
        assert (await bench.say(f"{number}: {text}")).status == "answered"


async def steps(bench: Bench) -> list[Any]:
    return [dict(step) for step in await bench.events("loop.step")]


async def test_what_has_fewer_bytes_than_there_is_room_is_not_counted(memory_store: InMemoryStore) -> None:
    model = Counting(1.0)
    async with running(memory_store, model) as bench:
        await bench.say("hello")
        assert model.counted == []
        assert "count" not in (await steps(bench))[0]


async def test_a_model_of_unknown_size_is_not_asked_to_count(memory_store: InMemoryStore) -> None:
    model = Counting(0.1, ModelTraits())
    async with running(memory_store, model) as bench:
        assert (await bench.say("long " * 5_000)).status == "answered"
        assert model.counted == []


async def test_nothing_is_cut_while_the_count_says_that_it_fits(memory_store: InMemoryStore) -> None:
    """The estimate takes 3 bytes for a token; where there are 6 of them, twice as much fits."""
    model = Counting(6.0)
    async with running(memory_store, model) as bench:
        cut_after = 0
        while not await bench.events("context/cut"):
            await talk(bench, 1)
            cut_after += 1
            assert cut_after < 60
        before = bench.requests[-2]
        assert model.tokens(before) > ROOM - 100
        assert len(before.as_bytes()) // 3 > ROOM
        assert model.tokens(bench.requests[-1]) <= ROOM * 0.6
        await assert_rebuilt(bench)


@pytest.mark.parametrize("selector", ["compact", "summary"])
async def test_dense_text_is_cut_until_the_count_fits(memory_store: InMemoryStore, selector: str) -> None:
    """Where a token has 1.4 bytes, as in base64, the estimate would send twice as much as fits."""
    model = Counting(1.4)
    async with running(
        memory_store, model, Options(compose=ContextPolicy(selector, strategies=OWN_STRATEGIES))
    ) as bench:
        await talk(bench, 40)
        assert max(map(model.tokens, bench.requests)) <= ROOM
        assert 1 < len(await bench.events("context/cut")) < 20
        sent = [step for step in await steps(bench) if step["status"] == "ok"]
        # The hint of a summary takes room too, until a new window is the better choice.
        assert len(await steps(bench)) == 40 or selector == "summary"
        for step, request in zip(sent, bench.requests, strict=True):
            if "count" in step:
                assert step["count"] == {"tokens": model.tokens(request), "by": "test"}
        assert any("count" in step for step in await steps(bench))
        await assert_rebuilt(bench)


@pytest.mark.parametrize("per_token", [1.4, 6.0])
async def test_between_two_cuts_requests_extend_each_other(memory_store: InMemoryStore, per_token: float) -> None:
    async with running(memory_store, Counting(per_token)) as bench:
        await talk(bench, 40)
        breaks = sum(
            after.messages[: len(before.messages)] != before.messages
            for before, after in zip(bench.requests, bench.requests[1:], strict=False)
        )
        assert breaks == len(await bench.events("context/cut")) > 0


async def test_dense_new_text_behind_loose_old_text_is_cut_in_several_rounds(memory_store: InMemoryStore) -> None:
    class Uneven(Counting):
        def tokens(self, request: ModelRequest) -> int:
            return len(request.as_bytes()) // 6 + request.as_bytes().count(b"#") * 5 // 6

    model = Uneven(1.0)
    async with running(memory_store, model) as bench:
        await talk(bench, 12)
        await talk(bench, 6, "#" * 250)
        assert max(map(model.tokens, bench.requests)) <= ROOM
        await assert_rebuilt(bench)


async def test_what_cannot_be_cut_is_not_sent_and_opens_a_new_window(memory_store: InMemoryStore) -> None:
    model = Counting(1.0, ModelTraits(context_tokens=SIZE, tools=False, short_prompt=True))
    async with running(memory_store, model, Options(compose=ContextPolicy("window"))) as bench:
        await talk(bench, 8)
        found = await steps(bench)
        refused = [step for step in found if step["status"] == "auto_handoff"]
        assert refused
        assert "counted with test) and may have 1500; it was not sent" in refused[0]["error"]
        assert refused[0]["count"]["tokens"] > ROOM
        assert max(map(model.tokens, bench.requests)) <= SIZE
        assert len(bench.requests) == len(found) - len(refused)


async def test_with_no_shorter_window_to_go_to_the_whole_context_may_be_used(memory_store: InMemoryStore) -> None:
    model = Counting(1.0)
    async with running(memory_store, model) as bench:
        overhead = len(ModelRequest("", ()).as_bytes())
        result = await bench.say("x" * (1_400 - overhead))
        assert result.status == "answered"
        assert ROOM < model.tokens(bench.requests[-1]) <= SIZE
        assert [step["status"] for step in await steps(bench)] == ["auto_handoff", "ok"]


async def test_what_fits_nowhere_is_never_sent(memory_store: InMemoryStore) -> None:
    model = Counting(1.0)
    async with running(memory_store, model) as bench:
        result = await bench.say("x" * 9_000)
        assert result.status == "failed"
        assert "it was not sent" in result.text
        assert bench.requests == []
        assert [step["status"] for step in await steps(bench)] == ["auto_handoff", "error"]


async def hangs(_: ModelRequest) -> TokenCount | None:
    await asyncio.Event().wait()
    return None


async def raises(_: ModelRequest) -> TokenCount | None:
    raise KeyError("no tokenizer")


async def declines(_: ModelRequest) -> TokenCount | None:
    return None


@pytest.mark.parametrize("count", [hangs, raises, declines])
async def test_where_counting_fails_the_estimate_holds(
    memory_store: InMemoryStore, monkeypatch: pytest.MonkeyPatch, count: Callable[..., Any]
) -> None:
    monkeypatch.setattr("bubbot.runtime.fitting.COUNT_TIMEOUT", 0.01)
    model, plain = Counting(1.0), ScriptedModel(traits=SMALL)
    monkeypatch.setattr(model, "count", count)
    async with running(memory_store, model) as bench, running(InMemoryStore(), plain) as other:
        await talk(bench, 30)
        await talk(other, 30)
        assert [len(one.messages) for one in bench.requests] == [len(one.messages) for one in other.requests]
        assert all("count" not in step for step in await steps(bench))
        await assert_rebuilt(bench)


async def test_a_real_store_keeps_the_count_and_rebuilds_the_request(store: SqliteStore) -> None:
    async with running(store, Counting(1.4)) as bench:
        await talk(bench, 12)
        assert await bench.events("context/cut")
        assert {step["count"]["by"] for step in await steps(bench) if "count" in step} == {"test"}
        await assert_rebuilt(bench)
