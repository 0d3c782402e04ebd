"""Totals are the sum of the facts, whatever happens in whatever order, and however often a process begins anew."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, timedelta
from typing import Any
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from bubbot.errors import BudgetExceeded, ModelUnavailable
from bubbot.features.budget.budget import Budget
from bubbot.features.budget.state import BUDGET_PROJECTION, CLOCK_GRACE, BudgetState
from bubbot.features.usage.reporter import UsageReporter
from bubbot.ports.model import ModelPrice, ModelReply, Usage
from bubbot.ports.usage import BudgetSubject, SpentTotal, TotalKey
from bubbot.stores.inmemory import InMemoryStore
from tests.budgets import budget_tape, facts, opened, pages_of, plan, read_books
from tests.doubles import SteppingClock

LIMIT = 400
PAYERS = [BudgetSubject(f"test:{chat}", f"test:{user}", turn="t") for chat in "ab" for user in "12"]
TOKENS = st.integers(0, 60)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sampled_from(PAYERS), TOKENS),
        st.tuples(st.just("answer"), st.integers(0, 9), TOKENS),
        st.tuples(st.just("fail"), st.integers(0, 9), TOKENS),
        st.tuples(st.just("kill"), st.just(0), st.just(0)),
        st.tuples(st.just("night"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


def added_up(settled: list[Any]) -> dict[TotalKey, SpentTotal]:
    """The totals by hand, out of the facts."""
    found: dict[TotalKey, SpentTotal] = {}
    for one in settled:
        chat = ":".join(one["session"].split(":")[:2])
        scopes = {"bot": "", "channel": "test", "chat": chat, "user": one["user"], "model": one["model"]}
        for scope, name in scopes.items():
            for period in (one["day"], one["day"][:7]):
                key = TotalKey(scope, name, period)
                before = found.get(key, SpentTotal())
                tokens = one["input_tokens"] + one["output_tokens"]
                found[key] = SpentTotal(before.calls + 1, before.tokens + tokens, before.cost_nanousd + one["nano"])
    return found


class World:
    """A budget, the calls that are under way, and what was reserved at most."""

    def __init__(self, shards: int) -> None:
        self.store = InMemoryStore(tape_shards=shards)
        self.clock = SteppingClock()
        self.lives = 0
        self.calls: list[tuple[Any, Any]] = []
        self.budget: Budget

    async def begin_life(self) -> None:
        """A process begins; whatever the one before had under way is cut off."""
        self.lives += 1
        self.calls.clear()
        price = ModelPrice(1.5, 7.0, 0.1)
        self.budget = await opened(self.store, plan(price, tokens_day=LIMIT), clock=self.clock, life=f"l{self.lives}")

    async def begin(self, payer: BudgetSubject, tokens: int) -> None:
        """A call, unless the budget is used up or held by others."""
        spent = self.budget.spent("bot", "", self.budget.today())
        held = sum(call.reservation.tokens for _, call in self.calls)
        if spent.tokens < LIMIT <= spent.tokens + held:
            return  # it would wait
        made = self.budget.metered_call(payer, "m", tokens)
        try:
            self.calls.append((made, await made.__aenter__()))
        except BudgetExceeded:
            assert spent.tokens >= LIMIT

    async def end(self, place: int, tokens: int, *, failed: bool) -> None:
        """One of the calls ends."""
        if not self.calls:
            return
        made, call = self.calls.pop(place % len(self.calls))
        if not failed:
            call.reply = ModelReply(
                "x", usage=Usage(min(tokens, call.reservation.input_tokens), min(tokens, 10)), model="m"
            )
            await made.__aexit__(None, None, None)
            return
        call.output_estimate = tokens % 3
        error = ModelUnavailable("gone")
        assert await made.__aexit__(ModelUnavailable, error, None) is not True


async def _one(world: World, step: tuple[Any, Any, Any]) -> None:
    match step:
        case ("begin", payer, tokens):
            await world.begin(payer, tokens)
        case ("kill", _, _):
            await world.begin_life()
        case ("night", _, _):
            world.clock.advance(timedelta(hours=13))
        case (word, place, tokens):
            try:
                await world.end(place, tokens, failed=word == "fail")
            except ModelUnavailable:
                assert word == "fail"


async def _story(steps: list[tuple[Any, Any, Any]], shards: int) -> None:
    world = World(shards)
    await world.begin_life()
    for step in steps:
        await _one(world, step)
    await _check(world)
    await world.begin_life()  # what was open is settled
    await _check(world)
    settled = await facts(world.store, "budget/settled")
    assert Counter(one["call"] for one in settled) == Counter(
        one["call"] for one in await facts(world.store, "budget/reserved")
    )
    largest = max(
        (one["input_tokens"] + one["output_tokens"] for one in await facts(world.store, "budget/reserved")), default=0
    )
    for key, total in added_up(settled).items():
        if key.scope == "bot" and len(key.period) == 10:
            assert total.tokens < LIMIT + largest


async def _check(world: World) -> None:
    """What the process knows, what a start reads, what all facts say, and what people are shown: all the same."""
    await world.budget.wait_written()
    settled = await facts(world.store, "budget/settled")
    truth, pages = added_up(settled), await pages_of(world.store)
    scratch = BUDGET_PROJECTION.combine_states(
        [BudgetState().apply([entry for entry in page if BUDGET_PROJECTION.selects(entry)]) for page in pages]
    )
    for books in (world.budget.state, await read_books(world.store), scratch):
        # Each shard drops the periods that are over for itself: of these a part may be left.
        first = (date.fromisoformat(books.day) - CLOCK_GRACE).isoformat() if books.day else ""
        kept = {period for period in books.spent if len(pages) == 1 or period >= first[: len(period)]}
        totals = {key: total for key, total in books.totals() if key.period in kept}
        assert {key: truth[key] for key in totals} == totals
        today = world.budget.today()
        current = {key: total for key, total in truth.items() if key.period in (today, today[:7])}
        assert current.items() <= totals.items()
        assert {cited.fact.call: cited.id for cited in books.open} == {
            call.reservation.call: call.entry for _, call in world.calls
        }
        assert books.failing == world.budget.failing_models()
    shown = await UsageReporter(budget_tape(world.store), world.clock, UTC).read_spending("all")
    months = [total for key, total in truth.items() if key.scope == "bot" and len(key.period) == 7]
    assert (shown.total.calls, shown.total.cost_nanousd) == (
        sum(one.calls for one in months),
        sum(one.cost_nanousd for one in months),
    )
    for by in ("chat", "user", "model", "day"):
        assert sum(one.cost_nanousd for one in shown.by[by].values()) == shown.total.cost_nanousd
    cited = {
        tape: [entry.payload["data"]["reserved"] for entry in page if entry.name == "budget/settled"]
        for tape, page in zip(budget_tape(world.store).shards_of("bubbot/budget"), pages, strict=True)
    }
    assert {tape: list(ids) for tape, ids in shown.total.reservations.items()} == {
        tape: ids for tape, ids in cited.items() if ids
    }


@given(STEPS, st.sampled_from([1, 5, 200]), st.sampled_from([1, 8]))
@example([*[("begin", payer, 0) for payer in PAYERS[::2]], *[("night", 0, 0)] * 4, ("begin", PAYERS[0], 0)], 1, 8)
def test_totals_are_the_sum_of_the_facts(steps: list[tuple[Any, Any, Any]], every: int, shards: int) -> None:
    often = replace(BUDGET_PROJECTION, interval=every)
    with patch("bubbot.features.budget.budget.BUDGET_PROJECTION", often):
        asyncio.run(_story(steps, shards))


@given(st.permutations(range(8)))
def test_the_order_in_which_calls_end_changes_no_total(order: list[int]) -> None:
    async def story() -> BudgetState:
        store = InMemoryStore()
        budget = await opened(store, plan(ModelPrice(0.1, 0.3)))
        made = [budget.metered_call(PAYERS[number % 4], "m", number) for number in range(8)]
        calls = [await one.__aenter__() for one in made]
        for number in order:
            calls[number].reply = ModelReply("x", usage=Usage(number, 3 * number), model="m")
            await made[number].__aexit__(None, None, None)
        return await read_books(store)

    assert asyncio.run(story()).find_spent(TotalKey("bot", "", "2026-11-21")) == SpentTotal(
        8, 4 * 28, sum(n * 100 + 3 * n * 300 for n in range(8))
    )
