"""The answers of the models: outcomes of the newest calls, from the facts on the budget tape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime

from bubbot.app.health import configured_models
from bubbot.app.stores import open_home_store
from bubbot.features.budget.health import failing_models
from bubbot.features.budget.state import BUDGET_PROJECTION, BudgetState
from bubbot.gateway.health.formatter import explain_outage
from bubbot.home import Home
from bubbot.ops.doctor.finding import Finding
from bubbot.ops.doctor.stuck import unused_clock
from bubbot.ports.usage import BUDGET_TAPE
from bubbot.settings.loader import Settings
from bubbot.settings.sections import StoreSettings
from bubbot.tape.projection import read_projection
from bubbot.tape.service import TapeService
from bubbot.texts import Texts


def check_answers(home: Home, settings: Settings, *, now: datetime) -> Iterator[Finding]:
    """Report each model whose newest calls failed; send no request to it."""
    state = asyncio.run(_read_budget_state(home, settings.store))
    for model in failing_models(state.failing, configured_models(settings), now.isoformat()):
        since, newest = (datetime.fromisoformat(date) for date in (model.since, model.newest))
        cause = (
            f"{model.name} has not answered since {since:%Y-%m-%d %H:%M} UTC: {explain_outage(Texts(), model)}. It was asked "
            f"last at {newest:%Y-%m-%d %H:%M} UTC; the log has its own words. An answer that succeeds ends this."
        )
        yield Finding("model.failing", "problem", cause, "bubbot ask hello")


async def _read_budget_state(home: Home, store_settings: StoreSettings) -> BudgetState:
    store = await open_home_store(store_settings, home, now=unused_clock, readonly=True)
    try:
        tape = TapeService(store, BUDGET_TAPE, now=unused_clock, new_id=str, session="")
        return await read_projection(BUDGET_PROJECTION, tape)
    finally:
        await store.aclose()
