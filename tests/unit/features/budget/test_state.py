"""The state of budgets by the facts of the tape: which days and months it keeps, and which turns count for rates."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from itertools import count

import pytest
from msgspec import UNSET

from bubbot.features.budget.outages import ModelOutage
from bubbot.features.budget.state import RATES_PROJECTION, BudgetState, combine_failing
from bubbot.ports.usage import BudgetSubject
from bubbot.tape.entry import TapeEntry, event, timestamp
from tests.budgets import reserved
from tests.budgets import settled as call_settled
from tests.doubles import START

NUMBERS = count(1)


def fact(name: str, day: str, *, call: str = "", turn: str = "t1", asked: str = "") -> TapeEntry:
    """A call's reservation or settlement; both are of one call if `call` names it."""
    number = next(NUMBERS)
    make = reserved if name == "budget/reserved" else partial(call_settled, asked=asked or UNSET)
    payer = BudgetSubject("test:home", "test:1", turn=turn)
    return make(call or f"c{number}", payer, day=day).to_entry().with_id(number)


def periods(state: BudgetState) -> list[str]:
    return sorted(state.spent)


def settled(*days: str) -> BudgetState:
    return BudgetState().apply([fact("budget/settled", day) for day in days])


@pytest.mark.parametrize(
    ("days", "kept"),
    [
        (["2026-11-20", "2026-11-22"], ["2026-11", "2026-11-20", "2026-11-22"]),
        (["2026-11-19", "2026-11-22"], ["2026-11", "2026-11-22"]),
        (["2026-10-31", "2026-11-02"], ["2026-10", "2026-10-31", "2026-11", "2026-11-02"]),
        (["2026-10-31", "2026-11-03"], ["2026-11", "2026-11-03"]),
        # A clock that was set back for a while loses nothing, and one that was ahead neither.
        (["2026-11-22", "2026-11-20", "2026-11-22"], ["2026-11", "2026-11-20", "2026-11-22"]),
        (["2026-12-30", "2026-11-22"], ["2026-11", "2026-11-22", "2026-12", "2026-12-30"]),
        (["2026-12-30", "2026-11-22", "2026-11-25"], ["2026-11", "2026-11-25", "2026-12", "2026-12-30"]),
    ],
)
def test_days_and_months_that_are_over_are_dropped(days: list[str], kept: list[str]) -> None:
    assert periods(settled(*days)) == kept


@pytest.mark.parametrize(("back", "newest"), [("2026-11-20", "2026-11-22"), ("2026-11-19", "2026-11-19")])
def test_a_clock_that_is_more_than_two_days_behind_is_believed(back: str, newest: str) -> None:
    assert settled("2026-11-22", back).day == newest


def test_the_day_and_the_month_of_a_call_that_is_still_open_are_kept() -> None:
    state = BudgetState().apply(
        [
            fact("budget/settled", "2026-10-20"),
            fact("budget/reserved", "2026-10-20", call="long"),
            fact("budget/settled", "2026-11-22"),
        ]
    )
    assert periods(state) == ["2026-10", "2026-10-20", "2026-11", "2026-11-22"]
    state.apply([fact("budget/settled", "2026-10-20", call="long"), fact("budget/settled", "2026-11-23")])
    assert periods(state) == ["2026-11", "2026-11-22", "2026-11-23"]
    assert not len(state.open)


def test_warnings_go_with_their_periods() -> None:
    warned = [
        event(
            "budget/warned", {"scope": "bot", "name": "", "period": period, "measure": "cost", "percent": 80}
        ).with_id(next(NUMBERS))
        for period in ("2026-11-19", "2026-11-20", "2026-11")
    ]
    state = BudgetState().apply([*warned, fact("budget/settled", "2026-11-22")])
    assert sorted(cited.fact.period for cited in state.warned) == ["2026-11", "2026-11-20"]


def test_a_failure_on_one_shard_ends_with_an_answer_on_another() -> None:
    def shard(since: str, newest: str, answered: str = "") -> BudgetState:
        failing = {"m": ModelOutage("m", since, newest, "model_refused")} if newest else {}
        return BudgetState(failing=failing, answered={"m": answered} if answered else {})

    def combined(*shards: BudgetState) -> list[tuple[str, str]]:
        return [(model.since, model.newest) for model in combine_failing(shards).values()]

    assert combined(shard("10:00", "11:00"), shard("", "", "11:00")) == []
    assert combined(shard("10:00", "11:00"), shard("", "", "10:30")) == [("11:00", "11:00")]
    assert combined(shard("10:00", "11:00"), shard("", "", "10:00")) == [("11:00", "11:00")]
    assert combined(shard("10:00", "11:00"), shard("09:00", "12:00")) == [("09:00", "12:00")]
    assert combined(shard("10:00", "11:00"), shard("09:00", "12:00", "08:00")) == [("09:00", "12:00")]


def test_turns_of_the_last_hour_count_for_rates_and_some_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bubbot.features.budget.state.MIN_RECENT_TURNS", 1)
    monkeypatch.setattr("bubbot.features.budget.state.MAX_RECENT_TURNS", 3)

    def recent(minutes: Iterable[float]) -> list[float]:
        times = [timestamp(START + timedelta(minutes=each)) for each in minutes]
        facts = [fact("budget/settled", "2026-11-21", turn=f"t{at}", asked=at) for at in times]
        turns = {each.turn for each in RATES_PROJECTION.apply(RATES_PROJECTION.initial(), facts).turns}
        return [each for each, at in zip(minutes, times, strict=True) if f"t{at}" in turns]

    assert recent([0, 59.9]) == [0, 59.9]
    assert recent([0, 60]) == [60]
    assert recent([0, 1, 2]) == [0, 1, 2]
    assert recent([0, 1, 2, 3]) == [1, 2, 3]
    assert recent([0, 200]) == [200]
