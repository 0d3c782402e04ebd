"""Rates: a message over one waits a moment, or is refused with the time at which there is room again."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest

from bubbot.errors import RateLimitExceeded
from bubbot.features.budget.rates import RateLimiter
from bubbot.features.budget.settings import PersonLimitSettings
from bubbot.features.budget.state import RATES_PROJECTION
from bubbot.ports.usage import BudgetSubject
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.projection import read_combined_projection
from tests.budgets import budget_tape, opened, plan, spend
from tests.doubles import START, SteppingClock

ANN, BEN = BudgetSubject("test:home", "test:1"), BudgetSubject("test:home", "test:2")


def still() -> SteppingClock:
    return SteppingClock(step=timedelta(0))


def rates(clock: SteppingClock, *loud: str, **tables: PersonLimitSettings) -> RateLimiter:
    """Rates for each person, or `chat` for each chat."""
    return RateLimiter({(scope, "each"): rate for scope, rate in tables.items()}, clock, UTC, frozenset(loud))


def test_within_the_rate_nobody_waits() -> None:
    clock = still()
    mine = rates(clock, user=PersonLimitSettings(per_minute=2))
    for _ in range(10):
        assert [mine.book(ANN), mine.book(ANN), mine.book(BEN)] == [0, 0, 0]
        clock.advance(timedelta(minutes=1))


def test_what_is_over_it_waits_in_order_until_there_is_room() -> None:
    clock = still()
    mine = rates(clock, user=PersonLimitSettings(per_minute=2))
    assert mine.book(ANN) == 0
    clock.advance(timedelta(seconds=20))
    assert [mine.book(ANN), mine.book(ANN), mine.book(ANN)] == [0, 40, 60]


def test_what_would_wait_for_too_long_is_refused_and_takes_no_place() -> None:
    clock = still()
    mine = rates(clock, user=PersonLimitSettings(per_hour=3))
    for _ in range(3):
        assert mine.book(ANN) == 0
    for told in (False, True):
        with pytest.raises(RateLimitExceeded) as caught:
            mine.book(ANN)
        assert (caught.value.count, caught.value.span, caught.value.renews) == (3, "hour", "21:21")
        assert caught.value.told is told
    clock.advance(timedelta(hours=1))
    assert mine.book(ANN) == 0
    assert mine.book(BEN) == 0


def test_a_chat_that_moved_has_the_rate_of_its_current_id() -> None:
    table = {("chat", "test:new"): PersonLimitSettings(per_minute=1)}
    mine = RateLimiter(table, still(), UTC, current_session={"test:home": "test:new"}.__getitem__)
    assert [mine.book(ANN), mine.book(BEN)] == [0, 60]


def test_of_a_thousand_people_one_who_was_refused_by_the_chat_is_forgotten_without_harm() -> None:
    """Their own starts have expired, and the chat's rate booked no new one."""
    clock = still()
    mine = rates(clock, user=PersonLimitSettings(per_minute=10), chat=PersonLimitSettings(per_hour=1))
    assert mine.book(BudgetSubject("", "test:1")) == 0
    clock.advance(timedelta(hours=1, minutes=1))
    assert mine.book(BudgetSubject("test:home", "test:2")) == 0
    with pytest.raises(RateLimitExceeded):
        mine.book(BudgetSubject("test:home", "test:1"))
    for number in range(1001):
        assert mine.book(BudgetSubject("", f"test:{number + 10}")) == 0


def test_a_flood_within_a_minute_is_refused_behind_those_that_wait() -> None:
    mine = rates(still(), user=PersonLimitSettings(per_minute=1))
    assert [mine.book(ANN), mine.book(ANN)] == [0, 60]
    with pytest.raises(RateLimitExceeded) as caught:
        mine.book(ANN)
    assert caught.value.span == "minute"


def test_a_clock_that_is_set_back_keeps_nobody_waiting() -> None:
    clock = still()
    mine = rates(clock, user=PersonLimitSettings(per_minute=2, per_hour=3))
    clock.advance(timedelta(days=2))
    assert [mine.book(ANN), mine.book(ANN), mine.book(ANN)] == [0, 0, 60]
    with pytest.raises(RateLimitExceeded):
        mine.book(ANN)
    clock.advance(-timedelta(days=2))
    assert [mine.book(ANN), mine.book(ANN), mine.book(ANN)] == [0, 0, 60]
    with pytest.raises(RateLimitExceeded) as caught:
        mine.book(ANN)
    assert not caught.value.told


def test_a_chat_counts_all_its_people_and_threads() -> None:
    mine = rates(still(), chat=PersonLimitSettings(per_minute=2))
    assert [mine.book(ANN), mine.book(BudgetSubject("test:home:7", "test:2")), mine.book(BEN)] == [0, 0, 60]


def test_one_of_their_own_takes_the_place_of_the_rate_for_each() -> None:
    table = {
        ("user", "each"): PersonLimitSettings(per_minute=1),
        ("user", "test:1"): PersonLimitSettings(per_minute=100),
    }
    mine = RateLimiter(table, still(), UTC)
    assert [mine.book(ANN) for _ in range(100)] == [0] * 100


def test_in_a_terminal_everything_refused_is_told() -> None:
    mine = rates(still(), "test", user=PersonLimitSettings(per_minute=1))
    for _ in range(2):
        mine.book(ANN)
    for _ in range(2):
        with pytest.raises(RateLimitExceeded) as caught:
            mine.book(ANN)
        assert not caught.value.told


async def test_a_restart_does_not_forget_the_last_hour(memory_store: InMemoryStore) -> None:
    clock = SteppingClock(START - timedelta(hours=2))
    budget = await opened(memory_store, plan(), clock=clock)
    await spend(budget, 1, 1, BudgetSubject("test:home", "test:1", turn="long ago"))
    clock.moment = START + timedelta(days=2)  # the clock was ahead then
    await spend(budget, 1, 1, BudgetSubject("test:home", "test:1", turn="to come"))
    clock.moment = START
    for turn in ("a", "a", "b"):  # a turn counts once, however often it asks
        await spend(budget, 1, 1, BudgetSubject("test:home", "test:1", turn=turn))
    mine = rates(clock, user=PersonLimitSettings(per_hour=2))
    await mine.load(budget_tape(memory_store))
    with pytest.raises(RateLimitExceeded):
        mine.book(ANN)
    mine = rates(clock, user=PersonLimitSettings(per_hour=3))
    await mine.load(budget_tape(memory_store))
    assert mine.book(ANN) == 0


async def test_after_a_restart_a_call_of_exactly_an_hour_ago_counts_no_more(memory_store: InMemoryStore) -> None:
    clock = SteppingClock(START - timedelta(hours=1), timedelta(0))
    budget = await opened(memory_store, plan(), clock=clock)
    await spend(budget, 1, 1, BudgetSubject("test:home", "test:1", turn="an hour ago"))
    clock.moment = START
    mine = rates(clock, user=PersonLimitSettings(per_hour=1))
    await mine.load(budget_tape(memory_store))
    clock.advance(timedelta(minutes=-2))  # the clock was set back, which makes no call count again
    assert mine.book(ANN) == 0


async def test_of_the_turns_beyond_the_newest_those_of_an_hour_ago_are_dropped(
    memory_store: InMemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bubbot.features.budget.state.MIN_RECENT_TURNS", 1)
    clock = SteppingClock(START, timedelta(0))
    budget = await opened(memory_store, plan(), clock=clock)
    for turn, later in (("a", timedelta(seconds=1)), ("b", timedelta(minutes=59, seconds=59)), ("c", timedelta(0))):
        await spend(budget, 1, 1, BudgetSubject("test:home", "test:1", turn=turn))
        clock.advance(later)
    turns = await read_combined_projection(RATES_PROJECTION, budget_tape(memory_store).shards())
    assert [each.turn for each in turns.turns] == ["b", "c"]


def test_people_who_have_gone_are_forgotten() -> None:
    clock = still()
    mine = rates(clock, user=PersonLimitSettings(per_hour=3))
    for number in range(1000):
        mine.book(BudgetSubject("test:home", f"test:{number}"))
    assert "test:999" in repr(mine)
    clock.advance(timedelta(hours=2))
    mine.book(ANN)
    mine.book(BudgetSubject("test:home", "test:new"))
    assert "test:999" not in repr(mine)
