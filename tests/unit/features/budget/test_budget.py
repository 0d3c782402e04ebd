"""Budgets: reserved before the call, settled after it, and never overspent by more than one call."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec import structs

from bubbot.errors import BudgetExceeded, LeaseLost, ModelRefused, ModelUnavailable, StoreUnavailable
from bubbot.features.budget.budget import Budget, BudgetLimits, SpendingLimit
from bubbot.ports.model import ModelPrice, ModelReply, Usage
from bubbot.ports.usage import BudgetSubject, SpentTotal, TotalKey
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import event
from bubbot.tape.shards import shard_tape
from bubbot.tape.store import Batch, Lease, TapeStore
from tests.budgets import ANN, ANSWER, Owner, facts, metering, names, opened, plan, read_books, spend, whole
from tests.doubles import SteppingClock
from tests.turns import Options, Played, running, says

DAY = "2026-11-21"


@pytest.fixture(params=["memory", "sqlite", "sharded"])
def store(request: pytest.FixtureRequest) -> TapeStore:
    """Each store in turn, and one with sharded system tapes."""
    found: TapeStore = request.getfixturevalue(f"{request.param}_store")
    return found


async def test_a_call_is_reserved_before_it_and_settled_after_it(store: TapeStore) -> None:
    budget = await opened(store, plan(day=1000.0))
    async with budget.metered_call(ANN, "m", 5) as call:
        assert names(await whole(store)) == ["budget/reserved"]
        assert budget.open_reservations()[0].tokens == 15
        call.reply = ModelReply("ok", usage=Usage(4, 2, 2), model="m")
    assert budget.open_reservations() == ()
    await budget.wait_written()
    reserved, settled = await whole(store)
    assert reserved.payload["data"] == {
        "call": "call-1",
        "session": "test:home",
        "turn": "t1",
        "user": "test:1",
        "model": "m",
        "day": DAY,
        "input_tokens": 5,
        "output_tokens": 10,
        "nano": 15 * 10**9,
    }
    took = {"input_tokens": 4, "output_tokens": 2, "cached_tokens": 2, "nano": 5 * 10**9}
    assert settled.payload["data"] == reserved.payload["data"] | took | {"reserved": 1, "status": "answered"}
    assert budget.open_reservations() == ()
    for scope, name in (("bot", ""), ("channel", "test"), ("chat", "test:home"), ("user", "test:1"), ("model", "m")):
        for period in (DAY, DAY[:7]):
            assert budget.spent(scope, name, period) == SpentTotal(1, 6, 5 * 10**9)


async def test_a_call_that_nothing_limits_is_not_reserved_and_settled_as_well(store: TapeStore) -> None:
    budget = await opened(
        store,
        structs.replace(plan(), limits={("model", "other"): SpendingLimit(day=1.0), ("bot", ""): SpendingLimit()}),
    )
    async with budget.metered_call(ANN, "m", 5) as call:
        assert (await whole(store), budget.open_reservations()[0].tokens) == ((), 15)
        call.reply = ModelReply("ok", usage=Usage(4, 2), model="m")
    await budget.wait_written()
    [settled] = await facts(store, "budget/settled")
    assert (settled["nano"], settled["status"], "reserved" in settled) == (6 * 10**9, "answered", False)
    assert settled["asked"] < (await whole(store))[0].date
    assert (await read_books(store)).spent == budget.state.spent
    assert budget.spent("user", "test:1", DAY).calls == 1
    assert len(await whole(store)) == 1


async def test_while_nothing_is_limited_a_call_is_counted_and_its_request_only_if_it_is_estimated(
    store: TapeStore,
) -> None:
    budget = await opened(store, plan())
    counts: list[int] = []

    def count() -> int:
        counts.append(7)
        return 7

    with budget.begin_call(ANN, "m", count) as call:
        assert budget.open_reservations() == ()
        call.reply = ModelReply("ok", usage=Usage(4, 2), model="m")
    assert (call.cost_nanousd, counts) == (6 * 10**9, [])
    with budget.begin_call(ANN, "m", count) as call:
        call.output_estimate, call.reply = 3, ModelReply("ok", model="m")
    assert (call.cost_nanousd, counts) == (10 * 10**9, [7])
    with pytest.raises(ModelUnavailable), budget.begin_call(ANN, "m", count):
        raise ModelUnavailable("it rains")
    await budget.wait_written()
    settled = await facts(store, "budget/settled")
    assert [(one["input_tokens"], one["output_tokens"], one["status"]) for one in settled] == [
        (4, 2, "answered"),
        (7, 3, "answered"),
        (0, 0, "failed"),
    ]
    assert [one.get("estimated", False) for one in settled] == [False, True, False]
    assert all("asked" in one and "reserved" not in one for one in settled)
    assert names(await whole(store)) == ["budget/settled"] * 3
    assert (await read_books(store)).spent == budget.state.spent


async def test_calls_in_progress_count_towards_a_limit_that_is_set_meanwhile(memory_store: InMemoryStore) -> None:
    budget = await opened(memory_store, plan())
    with budget.begin_call(ANN, "m", lambda: 20) as call:
        budget.apply_limits(plan(tokens_day=30))
        (hold,) = budget.open_reservations()
        assert (hold.call, hold.tokens, hold.day) == (call.reservation.call, 20 + ANSWER, DAY)
        waiting = asyncio.create_task(spend(budget, 1, 1))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()  # the whole budget is held by the call in progress
        call.reply = ModelReply("x", usage=Usage(1, 1))
    await waiting
    assert budget.open_reservations() == ()
    assert budget.spent("bot", "", DAY) == SpentTotal(2, 4, 4 * 10**9)


async def test_a_call_that_waits_goes_on_once_the_limit_is_removed(memory_store: InMemoryStore) -> None:
    budget = await opened(memory_store, plan(tokens_day=30))
    async with budget.metered_call(ANN, "m", 20) as call:
        waiting = asyncio.create_task(spend(budget, 1, 1))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        budget.apply_limits(plan())
        await waiting
        call.reply = ModelReply("x", usage=Usage(1, 1))
    assert budget.spent("bot", "", DAY).calls == 2


async def test_what_a_call_took_is_durable_no_later_than_what_is_written_after_it(sqlite_store: SqliteStore) -> None:
    budget = await opened(sqlite_store, plan())
    for number in range(1, 20):
        async with budget.metered_call(ANN, "m", 5) as call:
            call.reply = ModelReply("ok", usage=Usage(4, 2), model="m")
        await sqlite_store.append([Batch("other", (event("step"),))])
        assert len(await facts(sqlite_store, "budget/settled")) == number


async def test_a_call_whose_fact_cannot_be_written_is_counted_and_ends_well(
    memory_store: InMemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    budget = await opened(memory_store, plan())
    async with budget.metered_call(ANN, "m", 5) as call:
        call.reply = ModelReply("ok", usage=Usage(4, 2), model="m")
        await memory_store.aclose()
    await budget.wait_written()
    assert budget.spent("bot", "", DAY).tokens == 6
    assert "model call usage not written" in caplog.text


@pytest.mark.parametrize(
    "limits",
    [{"day": 20.0}, {"month": 20.0}, {"tokens_day": 20}, {"tokens_month": 20}],
    ids=lambda one: next(iter(one)),
)
async def test_a_budget_ends_and_says_until_when(store: TapeStore, limits: dict[str, Any]) -> None:
    budget = await opened(store, plan(**limits))
    await spend(budget, 9, 10)
    await spend(budget, 9, 10)  # one dollar was left: the last call may go over it
    with pytest.raises(BudgetExceeded) as caught:
        await spend(budget, 1, 1)
    period = "month" if "month" in next(iter(limits)) else "day"
    assert (caught.value.scope, caught.value.period) == ("bot", period)
    assert caught.value.renews == ("2026-12-01" if period == "month" else "2026-11-22")
    assert len(await whole(store)) == 5  # nothing was reserved for the third; the owner was told of the second
    assert len(await facts(store, "budget/settled")) == 2


@pytest.mark.parametrize("limits", [{"day": 10.0}, {"month": 10.0}, {"tokens_day": 10}, {"tokens_month": 10}])
async def test_a_budget_is_used_up_once_nothing_is_left_of_it(
    memory_store: InMemoryStore, limits: dict[str, Any]
) -> None:
    budget = await opened(memory_store, plan(**limits))
    for _ in range(2):
        assert not budget.is_used_up("bot", "")
        await spend(budget, 4, 1)
    assert budget.is_used_up("bot", "")
    assert not budget.is_used_up("model", "m")


async def test_totals_and_answers_of_a_call_are_known_at_once(memory_store: InMemoryStore) -> None:
    budget = await opened(memory_store, plan())
    async with budget.metered_call(ANN, "m", 5) as call:
        call.reply = ModelReply("x", usage=Usage(5, 2), model="m")
    day, month = (TotalKey("chat", "test:home", period) for period in (DAY, DAY[:7]))
    expected = SpentTotal(calls=1, tokens=7, cost_nanousd=7 * 10**9)
    for _ in range(2):  # before and after they are on the tape
        assert [budget.totals()[key] for key in (day, month)] == [expected, expected]
        assert budget.spent("chat", "test:home", DAY) == expected
        await budget.wait_written()
    assert list(budget.answered_models()) == ["m"]


@pytest.mark.parametrize(
    ("scope", "name"), [("channel", "test"), ("chat", "test:home"), ("user", "test:1"), ("job", "j"), ("model", "m")]
)
@pytest.mark.parametrize("limit", ["own", "each"])
async def test_each_scope_has_its_own_budget(memory_store: InMemoryStore, scope: str, name: str, limit: str) -> None:
    agreed = BudgetLimits(
        {(scope, name if limit == "own" else "each"): SpendingLimit(tokens_day=10)}, reserved_output_tokens=lambda _: 1
    )
    budget = await opened(memory_store, agreed)
    mine = BudgetSubject("test:home:7", "test:1", "j", "t")
    await spend(budget, 10, 1, mine)
    with pytest.raises(BudgetExceeded) as caught:
        await spend(budget, 1, 1, mine)
    assert (caught.value.scope, caught.value.name) == (scope, name)
    other = BudgetSubject("other:home", "other:1", "k", "t")
    await spend(budget, 10, 1, other, "n")


async def test_an_own_limit_takes_the_place_of_the_one_for_each(memory_store: InMemoryStore) -> None:
    limits = {("user", "each"): SpendingLimit(tokens_day=1), ("user", "test:1"): SpendingLimit(tokens_day=100)}
    budget = await opened(memory_store, BudgetLimits(limits))
    await spend(budget, 10, 10)
    await spend(budget, 10, 10)
    other = BudgetSubject("test:home", "test:2")
    await spend(budget, 1, 1, other)
    with pytest.raises(BudgetExceeded):
        await spend(budget, 1, 1, other)


async def test_a_budget_of_nothing_lets_nothing_through(memory_store: InMemoryStore) -> None:
    budget = await opened(memory_store, plan(day=0.0))
    with pytest.raises(BudgetExceeded):
        await spend(budget, 1, 1)
    assert await whole(memory_store) == ()


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_clock_that_is_set_back_gives_no_day_twice(store: TapeStore, restarted: bool) -> None:
    clock = SteppingClock()
    budget = await opened(store, plan(tokens_day=20), clock=clock)
    await spend(budget, 9, 11)  # today's is used up
    for back in (timedelta(hours=-1), timedelta(days=-1), timedelta(days=1, hours=1)):
        clock.advance(back)
        if restarted:
            budget = await opened(store, plan(tokens_day=20), clock=clock, life=f"after {back}")
        if back == timedelta(days=-1):
            await spend(budget, 9, 11)  # the day before has its own, once
        with pytest.raises(BudgetExceeded):
            await spend(budget, 1, 1)


async def test_a_day_is_one_of_the_deployment_and_a_new_one_begins_anew(memory_store: InMemoryStore) -> None:
    clock = SteppingClock(datetime(2026, 11, 30, 22, 59, 50, tzinfo=UTC))  # ten seconds before midnight in Berlin
    budget = await opened(memory_store, plan(tokens_day=1, month=30.0), clock=clock, zone=ZoneInfo("Europe/Berlin"))
    await spend(budget, 9, 10)
    with pytest.raises(BudgetExceeded):
        await spend(budget, 9, 10)
    clock.advance(timedelta(minutes=1))
    await spend(budget, 9, 10)
    assert [one["day"] for one in await facts(memory_store, "budget/reserved")] == ["2026-11-30", "2026-12-01"]
    assert budget.spent("bot", "", "2026-12").tokens == 19


@pytest.mark.parametrize(
    ("limit", "day", "anew"),
    [("day", "2026-12-31", "2027-01-01"), ("month", "2026-12-31", "2027-01-01"), ("month", "2026-01-15", "2026-02-01")],
)
async def test_when_a_budget_begins_anew(memory_store: InMemoryStore, limit: str, day: str, anew: str) -> None:
    clock = SteppingClock(datetime.fromisoformat(f"{day}T12:00:00+00:00"))
    limits: dict[str, Any] = {limit: 0.0}
    budget = await opened(memory_store, plan(**limits), clock=clock)
    with pytest.raises(BudgetExceeded) as refused:
        await spend(budget, 1, 1)
    assert refused.value.renews == anew


class TestWhatIsNotKnown:
    async def test_a_call_that_failed_before_anything_came_is_free(self, memory_store: InMemoryStore) -> None:
        budget = await opened(memory_store, plan())
        with pytest.raises(ModelUnavailable):
            async with budget.metered_call(ANN, "m", 5):
                raise ModelUnavailable("down")
        [settled] = await facts(memory_store, "budget/settled")
        assert (settled["status"], settled["input_tokens"], settled["nano"]) == ("failed", 0, 0)

    async def test_one_that_broke_off_counts_with_what_was_heard(self, memory_store: InMemoryStore) -> None:
        budget = await opened(memory_store, plan())

        async def broken_off() -> None:
            async with budget.metered_call(ANN, "m", 5) as call:
                call.output_estimate = 3
                raise ModelUnavailable("broke off")

        with pytest.raises(ModelUnavailable):
            await broken_off()
        [settled] = await facts(memory_store, "budget/settled")
        assert (settled["input_tokens"], settled["output_tokens"], settled["estimated"]) == (5, 3, True)

    async def test_one_that_was_stopped_counts_with_its_request(self, memory_store: InMemoryStore) -> None:
        budget = await opened(memory_store, plan())
        begun = asyncio.Event()

        async def ask() -> None:
            async with budget.metered_call(ANN, "m", 5):
                begun.set()
                await asyncio.Event().wait()

        asking = asyncio.create_task(ask())
        await begun.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        [settled] = await facts(memory_store, "budget/settled")
        assert (settled["status"], settled["input_tokens"], settled["output_tokens"]) == ("stopped", 5, 0)

    @pytest.mark.parametrize(
        "told",
        [Usage(-5, 7), Usage(5, 10**12), Usage(5, 7, cost=-1.0), Usage(5, 7, cost=float("nan")), Usage(5, 7, -1)],
    )
    async def test_a_usage_that_cannot_be_is_estimated(self, memory_store: InMemoryStore, told: Usage) -> None:
        budget = await opened(memory_store, plan(day=1000))
        async with budget.metered_call(ANN, "m", 5) as call:
            call.output_estimate, call.reply = 4, ModelReply("words words", usage=told)
        await budget.wait_written()
        (settled,) = await facts(memory_store, "budget/settled")
        assert (settled["input_tokens"], settled["output_tokens"], settled["estimated"]) == (5, 4, True)

    async def test_an_answer_without_usage_is_estimated(self, memory_store: InMemoryStore) -> None:
        budget = await opened(memory_store, plan())
        async with budget.metered_call(ANN, "m", 5) as call:
            call.output_estimate, call.reply = 4, ModelReply("words words")
        [settled] = await facts(memory_store, "budget/settled")
        assert (settled["input_tokens"], settled["output_tokens"], settled["estimated"]) == (5, 4, True)

    async def test_without_a_price_the_models_own_cost_counts(self, memory_store: InMemoryStore) -> None:
        budget = await opened(memory_store, plan(None, day=1.0))
        await spend(budget, 5, 5, cost=2.0)
        with pytest.raises(BudgetExceeded):
            await spend(budget, 5, 5)

    async def test_the_models_own_cost_goes_before_a_list_and_behind_a_price_that_was_set(
        self, memory_store: InMemoryStore
    ) -> None:
        for agreed in (plan(), structs.replace(plan(), configured_price=lambda _: ModelPrice(1.0, 1.0))):
            await spend(await opened(memory_store, agreed, life=str(id(agreed))), 5, 5, cost=2.0)
        assert [one["nano"] for one in await facts(memory_store, "budget/settled")] == [2 * 10**9, 10_000]

    async def test_what_has_no_price_counts_in_tokens_and_the_owner_is_told_once(self, store: TapeStore) -> None:
        owner = Owner()
        budget = await opened(store, plan(None, day=1.0), tell=owner)
        for _ in range(3):
            await spend(budget, 50, 50)
        assert [text[:32] for text in owner.texts] == ["I do not know what m costs: its "]
        again = await opened(store, plan(None, day=1.0, tokens_day=300), tell=owner, life="second")
        with pytest.raises(BudgetExceeded):
            await spend(again, 1, 1)
        assert len(await facts(store, "budget/unpriced")) == 1

    @pytest.mark.parametrize("limits", [{"day": 1.0}, {"month": 1.0}])
    async def test_a_missing_price_matters_to_a_budget_of_money_for_a_day_or_a_month(
        self, memory_store: InMemoryStore, limits: dict[str, Any]
    ) -> None:
        owner = Owner()
        await spend(await opened(memory_store, plan(None, **limits), tell=owner), 5, 5)
        assert len(owner.texts) == 1

    async def test_nobody_is_told_of_prices_where_no_budget_is_in_money(self, memory_store: InMemoryStore) -> None:
        owner = Owner()
        await spend(await opened(memory_store, plan(None, tokens_day=10_000), tell=owner), 5, 5)
        assert owner.texts == []


class TestTheOwner:
    async def test_is_told_once_for_each_budget_and_period(self, store: TapeStore) -> None:
        owner, clock = Owner(), SteppingClock()
        agreed = plan(day=100.0)
        budget = await opened(store, agreed, tell=owner, clock=clock)
        await spend(budget, 70, 9)
        assert owner.texts == []
        await spend(budget, 1, 1)
        await spend(budget, 1, 1)
        budget = await opened(store, agreed, tell=owner, clock=clock, life="second")
        await spend(budget, 1, 1)
        assert owner.texts == [
            "81 % of the budget of the whole bot for 2026-11-21 is used. ,usage tells where it went."
        ]
        clock.advance(timedelta(days=1))
        await spend(budget, 90, 1)
        assert len(owner.texts) == 2
        assert [(one["period"], one["measure"], one["percent"]) for one in await facts(store, "budget/warned")] == [
            ("2026-11-21", "cost", 81),
            ("2026-11-22", "cost", 91),
        ]

    async def test_is_told_once_by_many_calls_that_end_together(self, store: TapeStore) -> None:
        owner = Owner()
        budget = await opened(store, plan(tokens_day=1000), tell=owner)
        await asyncio.gather(*(spend(budget, 90, 9) for _ in range(10)))
        assert len(owner.texts) == 1


class TestManyAtOnce:
    async def test_a_call_waits_for_those_under_way_and_goes_on_with_what_they_leave(
        self, memory_store: InMemoryStore
    ) -> None:
        budget = await opened(memory_store, plan(tokens_day=30))
        go = asyncio.Event()

        async def slow() -> None:
            async with budget.metered_call(ANN, "m", 20) as call:
                await go.wait()
                call.reply = ModelReply("x", usage=Usage(1, 1))

        first = asyncio.create_task(slow())
        await asyncio.sleep(0)
        second = asyncio.create_task(spend(budget, 1, 1))
        third = asyncio.create_task(spend(budget, 1, 1))
        for _ in range(20):
            await asyncio.sleep(0)
        assert (len(budget.open_reservations()), second.done(), third.done()) == (1, False, False)
        go.set()
        await asyncio.gather(first, second, third)
        assert budget.spent("bot", "", DAY).calls == 3

    async def test_who_stops_waiting_leaves_nothing_behind(self, memory_store: InMemoryStore) -> None:
        budget = await opened(memory_store, plan(tokens_day=10))
        async with budget.metered_call(ANN, "m", 20) as call:
            waiting = asyncio.create_task(spend(budget, 1, 1))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            call.reply = ModelReply("x", usage=Usage(1, 1))
        assert len(await facts(memory_store, "budget/reserved")) == 1

    async def test_a_store_that_fails_holds_no_money_back(self, memory_store: InMemoryStore) -> None:
        budget = await opened(memory_store, plan(tokens_day=10))
        await memory_store.aclose()
        with pytest.raises(StoreUnavailable):
            await spend(budget, 1, 1)
        assert budget.open_reservations() == ()


class TestAnOlderHolder:
    async def test_reserves_and_settles_under_the_lease_of_its_session(self, store: TapeStore) -> None:
        budget = await opened(store, plan(tokens_day=100))
        lease = Lease("tape", await store.raise_epoch("tape"))
        async with budget.metered_call(ANN, "m", 20, lease=lease) as call:
            call.reply = ModelReply("x", usage=Usage(1, 1))
        await budget.wait_written()
        assert [
            fact["epoch"] for name in ("budget/reserved", "budget/settled") for fact in await facts(store, name)
        ] == [1, 1]

    async def test_makes_no_call_and_holds_no_money_back(self, store: TapeStore) -> None:
        budget = await opened(store, plan(tokens_day=100))
        lease = Lease("tape", await store.raise_epoch("tape"))
        await store.raise_epoch("tape")
        with pytest.raises(LeaseLost):
            async with budget.metered_call(ANN, "m", 20, lease=lease):
                pytest.fail("it is not called")
        assert (budget.open_reservations(), await facts(store, "budget/reserved")) == ((), [])

    async def test_settles_nothing_and_the_next_start_counts_the_call_in_full(self, store: TapeStore) -> None:
        budget = await opened(store, plan(tokens_day=100))
        lease = Lease("tape", await store.raise_epoch("tape"))
        async with budget.metered_call(ANN, "m", 20, lease=lease) as call:
            await store.raise_epoch("tape")
            call.reply = ModelReply("x", usage=Usage(1, 1))
        await budget.wait_written()
        assert await facts(store, "budget/settled") == []
        again = await opened(store, plan(tokens_day=100), life="second")
        assert again.spent("bot", "", DAY).tokens == 30


class TestAStart:
    async def test_what_was_not_settled_counts_in_full_and_says_so(self, store: TapeStore) -> None:
        budget = await opened(store, plan(day=100.0))
        await spend(budget, 1, 1)
        hold = await budget.reserve(ANN, "m", 20)
        again = await opened(store, plan(None, day=100.0), life="second")  # the price is not known any more
        assert again.open_reservations() == ()
        assert again.spent("bot", "", DAY) == SpentTotal(2, 32, 32 * 10**9)
        settled = (await facts(store, "budget/settled"))[-1]
        assert (settled["call"], settled["status"], settled["estimated"]) == (hold.reservation.call, "unknown", True)
        third = await opened(store, plan(), life="third")
        assert third.spent("bot", "", DAY) == SpentTotal(2, 32, 32 * 10**9)

    async def test_reads_little_of_a_long_tape(self, store: TapeStore) -> None:
        budget = await opened(store, plan(tokens_day=1_000_000))
        for _ in range(120):
            await spend(budget, 1, 1)
        assert names(await whole(store)).count("budget/checkpoint") == 1
        assert (await read_books(store)).spent == budget.state.spent
        assert budget.spent("bot", "", DAY).calls == 120

    async def test_counts_everything_again_if_an_earlier_version_wrote_the_checkpoint(self, store: TapeStore) -> None:
        await spend(await opened(store, plan()), 5, 5)
        state = {"day": DAY, "open": [], "spent": [["bot", DAY, "7\t70\t7\t\n"]], "warned": [], "unpriced": []}
        checkpoint = event("budget/checkpoint", {"version": 2, "after": 1, "state": state})
        await store.append([Batch("bubbot/budget", (checkpoint,))])
        assert (await opened(store, plan())).spent("bot", "", DAY).tokens == 10

    async def test_a_model_that_got_cheaper_does_not_change_what_was_spent(self, memory_store: InMemoryStore) -> None:
        await spend(await opened(memory_store, plan()), 5, 5)
        later = await opened(memory_store, plan(ModelPrice(0, 0)), life="second")
        assert later.spent("bot", "", DAY).cost_nanousd == 10 * 10**9


async def test_people_are_told_once_in_ten_minutes_and_in_a_terminal_each_time(memory_store: InMemoryStore) -> None:
    clock = SteppingClock()
    agreed = BudgetLimits({("bot", ""): SpendingLimit(day=0.0)}, always_notify=frozenset({"stdin"}))
    budget = await opened(memory_store, agreed, clock=clock)

    async def told(payer: BudgetSubject) -> bool:
        with pytest.raises(BudgetExceeded) as caught:
            await spend(budget, 1, 1, payer)
        return not caught.value.told

    assert [await told(ANN), await told(ANN), await told(BudgetSubject("test:home", "test:2", turn="u"))] == [
        True,
        False,
        True,
    ]
    assert [await told(BudgetSubject("stdin:default", "stdin:0", turn="v")) for _ in range(2)] == [True, True]
    clock.advance(timedelta(minutes=10))
    assert await told(ANN)


async def test_after_exactly_ten_minutes_people_are_told_again(memory_store: InMemoryStore) -> None:
    clock = SteppingClock(step=timedelta(0))
    budget = await opened(memory_store, plan(day=0.0), clock=clock)
    told = []
    for minutes in (0, 9, 1):
        clock.advance(timedelta(minutes=minutes))
        with pytest.raises(BudgetExceeded) as caught:
            await spend(budget, 1, 1)
        told.append(not caught.value.told)
    assert told == [True, False, True]


def test_a_price_reckons_with_the_cache() -> None:
    assert ModelPrice(2.0, 10.0, 0.5).cost_nanousd(Usage(1_000_000, 100_000, 400_000)) == 2_400_000_000
    assert ModelPrice(2.0, 10.0).cost_nanousd(Usage(1_000_000, 0, 400_000)) == 2_000_000_000
    assert ModelPrice(0.15, 0.6).cost_nanousd(Usage(1, 1)) == 750


async def test_who_is_refused_is_told_of_the_budget_that_lasts_longest(memory_store: InMemoryStore) -> None:
    budget = await opened(memory_store, plan(tokens_day=1, month=1.0))
    await spend(budget, 5, 5)
    with pytest.raises(BudgetExceeded) as caught:
        await spend(budget, 5, 5)
    assert (caught.value.period, caught.value.renews) == ("month", "2026-12-01")


async def test_a_call_that_is_given_up_while_it_is_reserved_costs_nothing_and_leaves_nothing_open(
    sqlite_store: SqliteStore,
) -> None:
    budget = await opened(sqlite_store, plan(day=1000.0))
    asking = asyncio.create_task(spend(budget, 5, 5))
    await asyncio.sleep(0)
    assert len(budget.open_reservations()) == 1
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await budget.wait_written()
    [settled] = await facts(sqlite_store, "budget/settled")
    assert (settled["reserved"], settled["nano"], budget.open_reservations()) == (1, 0, ())


class TestModelsThatFail:
    async def fail(self, budget: Budget, model: str = "m", subject: BudgetSubject = ANN) -> None:
        with pytest.raises(ModelUnavailable):
            async with budget.metered_call(subject, model, 5):
                raise ModelUnavailable("it rains")
        await budget.wait_written()

    async def test_a_model_fails_from_its_first_failure_until_it_answers(self, memory_store: InMemoryStore) -> None:
        budget = await opened(memory_store, plan())
        await self.fail(budget)
        since = budget.failing_models()["m"].since
        await self.fail(budget)
        (one,) = budget.failing_models().values()
        assert (one.name, one.since, one.kind) == ("m", since, "model_unavailable")
        assert one.newest > since
        assert (await opened(memory_store, plan(), life="next")).failing_models() == {"m": one}
        await spend(budget, 5, 5)
        assert not budget.failing_models()
        assert not (await opened(memory_store, plan(), life="third")).failing_models()

    async def test_an_answer_of_a_fallback_is_one_too_and_that_of_another_model_is_none(
        self, memory_store: InMemoryStore
    ) -> None:
        budget = await opened(memory_store, plan())
        await self.fail(budget)
        await spend(budget, 5, 5, model="other")
        assert list(budget.failing_models()) == ["m"]
        async with budget.metered_call(ANN, "m", 5) as call:
            call.reply = ModelReply("x", usage=Usage(5, 5), model="fallback")
        await budget.wait_written()
        assert not budget.failing_models()
        assert (await facts(memory_store, "budget/settled"))[-1]["requested"] == "m"

    async def test_an_answer_in_a_chat_of_another_shard_ends_it(self, sharded_store: InMemoryStore) -> None:
        budget = await opened(sharded_store, plan())
        here, there = BudgetSubject("test:home"), BudgetSubject("test:office")
        assert shard_tape("bubbot/budget", here.session, 8) != shard_tape("bubbot/budget", there.session, 8)
        await self.fail(budget, subject=here)
        first = budget.failing_models()["m"]
        await self.fail(budget, subject=there)
        both = budget.failing_models()["m"]
        assert first.since == first.newest == both.since < both.newest
        await spend(budget, 5, 5, payer=there)
        assert not budget.failing_models()
        assert not (await opened(sharded_store, plan(), life="next")).failing_models()
        await self.fail(budget, subject=here)
        (again,) = budget.failing_models().values()
        assert again.since == again.newest > both.newest
        assert (await opened(sharded_store, plan(), life="third")).failing_models() == {"m": again}
        assert (await read_books(sharded_store)).failing == {"m": again}

    async def refuse(self, budget: Budget, status: int) -> None:
        error = ModelRefused("no")
        error.status = status
        with pytest.raises(ModelRefused):
            async with budget.metered_call(ANN, "m", 5):
                raise error
        await budget.wait_written()

    async def test_the_owner_hears_once_of_an_outage_that_waiting_does_not_end(
        self, memory_store: InMemoryStore
    ) -> None:
        owner, clock = Owner(), SteppingClock()
        budget = await opened(memory_store, plan(), tell=owner, clock=clock)
        await self.fail(budget)
        assert owner.texts == []
        await spend(budget, 5, 5)
        await self.refuse(budget, 401)
        assert owner.texts == []
        await self.refuse(budget, 401)
        await self.refuse(budget, 401)
        (text,) = owner.texts
        assert text.startswith("No answer comes from m: it refuses the key. Nobody gets an answer until ")
        again = await opened(memory_store, plan(), life="next", tell=owner, clock=clock)
        await self.refuse(again, 401)
        assert len(owner.texts) == 1
        for _ in range(2):  # now it answers, and now it does not
            await spend(again, 5, 5)
            await self.refuse(again, 402)
            await self.refuse(again, 402)
        assert len(owner.texts) == 1
        clock.advance(timedelta(hours=1))
        await self.refuse(again, 402)
        assert "the credit or the quota of the account is used up" in owner.texts[1]
        assert len(owner.texts) == 2

    async def test_empty_answers_are_failures(self, memory_store: InMemoryStore) -> None:
        budget = await opened(memory_store, plan())
        async with running(memory_store, Played(says(" ")), Options(features=[metering(budget)])) as bench:
            assert (await bench.say("hello")).status == "failed"
        assert budget.failing_models()["scripted"].kind == "empty_answer"
