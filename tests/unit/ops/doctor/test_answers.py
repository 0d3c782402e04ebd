"""Doctor findings of models that do not answer, by the facts of the budget tape. The fault is planted."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bubbot.errors import ModelOverflow, ModelUnavailable
from bubbot.home import Home
from bubbot.ops.doctor.answers import check_answers
from bubbot.settings.loader import Settings
from bubbot.stores.sqlite.store import SqliteStore, open_store
from tests.budgets import ANN, opened, plan, spend
from tests.doubles import START, CountingSalt, SteppingClock
from tests.planting import found, plants

HOUR = timedelta(hours=1)
MODEL = "openai/x"


@pytest.fixture
def home(tmp_path: Path, new_database: Path) -> Home:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    shutil.copy(new_database, path / "bubbot.db")
    return Home(path)


def write(home: Home, work: Callable[[SqliteStore], Awaitable[None]]) -> None:
    """Lets somebody write to the home, and closes it."""

    async def inside() -> None:
        store = await open_store(home.database, salt=CountingSalt(), now=lambda: START)
        await work(store)
        await store.aclose()

    asyncio.run(inside())


def failed(status: int | None) -> ModelUnavailable:
    error = ModelUnavailable("it rains")
    error.status = status
    return error


async def fail(store: SqliteStore, *errors: Exception) -> None:
    budget = await opened(store, plan(), clock=SteppingClock(START))
    for error in errors:
        with pytest.raises(type(error)):
            async with budget.metered_call(ANN, MODEL, 5):
                raise error
    await budget.wait_written()


@plants("model.failing")
def test_a_model_that_has_not_answered_since_it_failed(home: Home) -> None:
    write(home, lambda store: fail(store, failed(401), failed(503)))
    finding = found(check_answers(home, Settings(), now=START + HOUR))["model.failing"]
    assert (finding.level, finding.fix) == ("problem", "bubbot ask hello")
    assert f"{MODEL} has not answered since {START:%Y-%m-%d %H:%M} UTC" in finding.cause
    assert "its provider fails (HTTP 503)" in finding.cause

    async def answer(store: SqliteStore) -> None:
        await spend(await opened(store, plan(), life="later"), 5, 5, model=MODEL)

    write(home, answer)
    assert found(check_answers(home, Settings(), now=START + HOUR)) == {}


def test_a_request_that_was_too_long_says_nothing_of_the_model(home: Home) -> None:
    write(home, lambda store: fail(store, ModelOverflow("too long")))
    assert found(check_answers(home, Settings(), now=START + HOUR)) == {}
