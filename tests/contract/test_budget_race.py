"""Fifty turns at once against a small budget, on a real database: overspent by one reserved call at most."""

from __future__ import annotations

import asyncio
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bubbot.features.budget.budget import BudgetLimits, SpendingLimit
from bubbot.features.budget.metering import BudgetMeter
from bubbot.middleware import CallNext, ModelCall
from bubbot.ports.model import ModelReply
from bubbot.ports.turn import TurnResult
from bubbot.stores.sqlite.store import SqliteStore
from tests.budgets import ANSWER, costing, facts, metering, opened, plan, read_books
from tests.turns import WAIT, Bench, Options, running

ROOT = Path(__file__).parents[2]
TURNS = 50
READING, WRITING = 4, 10
"""Tokens a call takes. It is reserved with what its request is estimated at, which is more than it reads."""
LARGE = 3_000


async def race(bench: Bench) -> list[TurnResult]:
    futures = [await bench.post("hello", chat=f"c{number}", sender=str(number + 1)) for number in range(TURNS)]
    async with asyncio.timeout(WAIT):
        return [await one for one in futures]


@pytest.mark.parametrize("answered", [7, *(pytest.param(count, marks=pytest.mark.proof) for count in (1, 49))])
async def test_a_race_does_not_overspend(sqlite_store: SqliteStore, answered: int) -> None:
    limit = float((READING + WRITING) * answered)
    budget = await opened(sqlite_store, plan(day=limit))
    at_once = 0

    async def before() -> None:
        nonlocal at_once
        at_once = max(at_once, len(budget.open_reservations()))
        held = [hold.nano or 0 for hold in budget.open_reservations()]
        spent = budget.spent("bot", "", budget.today()).cost_nanousd
        assert spent + sum(held) <= limit * 1_000_000_000 + max(held)
        await asyncio.sleep(0)

    options = Options(features=[metering(budget)], at_once=TURNS)
    async with running(sqlite_store, costing(READING, WRITING, before), options) as bench:
        results = await race(bench)
        assert sum(result.status == "answered" for result in results) == answered
        refused = [result.text for result in results if result.status == "failed"]
        assert len(refused) == TURNS - answered
        assert all(text.startswith("The budget of the whole bot for today is used up") for text in refused)
        assert at_once >= 1
    settled, reserved = await facts(sqlite_store, "budget/settled"), await facts(sqlite_store, "budget/reserved")
    assert len(settled) == len(reserved) == answered
    assert sum(one["nano"] for one in settled) == limit * 1_000_000_000
    assert (await read_books(sqlite_store)).spent == budget.state.spent


async def test_calls_that_take_all_that_was_reserved_go_over_by_one_of_them_at_most(sqlite_store: SqliteStore) -> None:
    """The worst case: nothing of a reservation comes back, and the limit is no multiple of it."""
    limit = 20_000
    budget = await opened(sqlite_store, plan(tokens_day=limit))
    most = 0

    async def before() -> None:
        nonlocal most
        most = max(most, len(budget.open_reservations()))
        await asyncio.sleep(0.01)

    model = costing(LARGE, ANSWER, before)
    options = Options(features=[metering(budget, Counted(budget))], at_once=TURNS)
    async with running(sqlite_store, model, options) as bench:
        results = await race(bench)
    calls = sum(result.status == "answered" for result in results)
    settled = await facts(sqlite_store, "budget/settled")
    spent = sum(one["input_tokens"] + one["output_tokens"] for one in settled)
    assert limit <= spent < limit + LARGE + ANSWER
    assert 1 < most <= calls < TURNS, "the calls really ran side by side"


class Counted(BudgetMeter):
    """Reserves the same for every call."""

    async def reserve_call(self, call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        """See `BudgetMeter.reserve_call`."""
        return await super().reserve_call(replace(call, count_input=lambda: LARGE), call_next)


async def test_tokens_and_people_have_their_own_budgets_in_a_race(sqlite_store: SqliteStore) -> None:
    agreed = BudgetLimits({("user", "each"): SpendingLimit(tokens_day=1)}, reserved_output_tokens=lambda _: 10)
    budget = await opened(sqlite_store, agreed)
    options = Options(features=[metering(budget)], at_once=TURNS)
    async with running(sqlite_store, costing(READING, WRITING), options) as bench:
        assert {result.status for result in await race(bench)} == {"answered"}  # one each
        again = await race(bench)
        assert {result.status for result in again} == {"failed"}
        assert all(re.match("The budget of your account for today", result.text) for result in again)


async def race_processes(address: str, limit: float, *options: str) -> int:
    """Let four processes make calls until the budget is used up; return how many they made."""
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.contract.budget_child", address, f"life{number}", str(limit), *options,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT,
        )
        for number in range(4)
    ]  # fmt: skip
    async with asyncio.timeout(10 * WAIT):
        try:
            for child in children:
                assert child.stdout is not None
                assert await child.stdout.readline() == b"ready\n"
            ends = await asyncio.gather(*(child.communicate(b"go\n") for child in children))
        finally:
            for child in children:
                if child.returncode is None:
                    child.kill()
                    await child.wait()
    return sum(int(out) for out, _ in ends)


async def test_four_processes_do_not_overspend(postgres_address: str) -> None:
    answered = 25
    assert await race_processes(postgres_address, float((READING + WRITING) * answered)) == answered


async def test_four_processes_overspend_by_one_call_at_most(postgres_address: str) -> None:
    limit = (READING + WRITING) * 25 - 1.0
    assert await race_processes(postgres_address, limit) == 25


@pytest.mark.proof
async def test_without_the_check_of_the_head_they_would(postgres_address: str) -> None:
    answered = 25
    assert await race_processes(postgres_address, float((READING + WRITING) * answered), "blind") > answered
