"""Doctor findings of models that do not answer, by the facts of the budget tape. The fault is planted."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bubbot.errors import ModelOverflow, ModelUnavailable
from bubbot.home import Home
from bubbot.ops.doctor.features import check_features
from bubbot.settings.loader import Settings
from bubbot.stores.sqlite.store import SqliteStore
from tests.budgets import ANN, opened, plan, spend
from tests.doubles import START, SteppingClock
from tests.planting import found, plants, write

HOUR = timedelta(hours=1)
MODEL = "openai/x"


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
    finding = found(check_features(home, home.config, Settings(), lambda: START + HOUR, of_tapes=True))["model.failing"]
    assert (finding.level, finding.fix) == ("problem", "bubbot ask hello")
    assert f"{MODEL} has not answered since {START:%Y-%m-%d %H:%M} UTC" in finding.cause
    assert "its provider fails (HTTP 503)" in finding.cause

    async def answer(store: SqliteStore) -> None:
        await spend(await opened(store, plan(), life="later"), 5, 5, model=MODEL)

    write(home, answer)
    assert found(check_features(home, home.config, Settings(), lambda: START + HOUR, of_tapes=True)) == {}


def test_a_request_that_was_too_long_says_nothing_of_the_model(home: Home) -> None:
    write(home, lambda store: fail(store, ModelOverflow("too long")))
    assert found(check_features(home, home.config, Settings(), lambda: START + HOUR, of_tapes=True)) == {}
