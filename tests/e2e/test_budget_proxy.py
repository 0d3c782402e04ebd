"""A budget in money with a provider's model behind `api_base`: real HTTP on loopback, the real price list, many turns."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bubbot.app.budget import model_facts
from bubbot.app.settings import load
from bubbot.features.budget.budget import Budget
from bubbot.features.budget.limits import budget_limits
from bubbot.features.budget.settings import BudgetSettings
from bubbot.ports.model import Model, ModelOptions
from bubbot.stores.sqlite.store import SqliteStore
from tests.budgets import facts, metering, opened
from tests.e2e.anthropic_server import AnthropicServer, says, text, thinks
from tests.e2e.model_paths import make_model
from tests.e2e.provider_server import Held, serving
from tests.turns import WAIT, Options, running

# Warnings of pydantic about litellm's own code: not ours to mend. Everything else stays an error.
pytestmark = [
    pytest.mark.usefixtures("loaded_litellm"),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]

NAME = "anthropic/claude-sonnet-4-5"
TURNS = 30
ANSWER = 500
"""Tokens of an answer; at 15 dollars a million three quarters of a cent."""
LIMIT = 0.01
BUDGET = f"[budget]\nday = {LIMIT}\nreserved_output_tokens = {ANSWER}\n"


async def budget_for(store: SqliteStore, home: Path, address: str) -> Budget:
    """A budget as these settings have it, with the model behind an address of one's own."""
    (home / "config.toml").write_text(f'[model]\nname = "{NAME}"\napi_base = "{address}"\n{BUDGET}')
    settings = load(home=home)
    return await opened(store, budget_limits(settings.section(BudgetSettings), model_facts(settings)))


def proxied(address: str) -> Model:
    """The model behind the address."""
    return make_model(ModelOptions(NAME, Path("unused"), {"api_base": address, "api_key": "sk-1", "retries": 0}))


async def test_many_turns_at_once_overspend_by_one_call_at_most(sqlite_store: SqliteStore, tmp_path: Path) -> None:
    async with serving(AnthropicServer([says(text("hello"), counted=ANSWER)])) as server:
        budget, model = await budget_for(sqlite_store, tmp_path, server.address), proxied(server.address)
        options = Options(features=[metering(budget)], at_once=TURNS)
        async with running(sqlite_store, model, options) as bench:
            futures = [await bench.post("hello", chat=f"c{number}", sender=str(number + 1)) for number in range(TURNS)]
            async with asyncio.timeout(3 * WAIT):
                results = [await one for one in futures]
        await budget.wait_written()
        costs = [one["nano"] / 1_000_000_000 for one in await facts(sqlite_store, "budget/settled")]
        answered = [one for one in results if one.status == "answered"]
        assert len(server.requests) == len(answered) == len(costs)
        assert LIMIT <= sum(costs) < LIMIT + max(costs)
        assert 0 < len(costs) < TURNS


async def test_a_call_that_is_stopped_in_the_middle_costs_something(sqlite_store: SqliteStore, tmp_path: Path) -> None:
    held = Held()
    step = says(text("a long answer that nobody hears to its end"), held=held, events=6)
    async with serving(AnthropicServer([step])) as server:
        budget, model = await budget_for(sqlite_store, tmp_path, server.address), proxied(server.address)
        async with running(sqlite_store, model, Options(features=[metering(budget)])) as bench:
            future = await bench.post("hello")
            async with asyncio.timeout(WAIT):
                await held.begun.wait()
                while not bench.app.stop("test:home"):  # noqa: ASYNC110 - the turn is just being opened
                    await asyncio.sleep(0)
                assert (await future).status == "stopped"
        await budget.wait_written()
        (settled,) = await facts(sqlite_store, "budget/settled")
        assert (settled["status"], settled["estimated"]) == ("stopped", True)
        assert settled["nano"] > 0


async def test_a_call_that_breaks_off_before_its_first_word_costs_something(
    sqlite_store: SqliteStore, tmp_path: Path
) -> None:
    step = says(thinks("A long thought before the first word. " * 10), text("hello"), events=8, cut=True)
    async with serving(AnthropicServer([step])) as server:
        budget, model = await budget_for(sqlite_store, tmp_path, server.address), proxied(server.address)
        async with running(sqlite_store, model, Options(features=[metering(budget)])) as bench:
            assert (await bench.say("hello")).status == "failed"
        await budget.wait_written()
        (settled,) = await facts(sqlite_store, "budget/settled")
        assert (settled["status"], settled["estimated"]) == ("failed", True)
        assert settled["input_tokens"] > 0
        assert settled["output_tokens"] > 0
        assert settled["nano"] > 0
