"""What the doctor finds of budgets: settings that do not fit together, and models that do not answer."""

from __future__ import annotations

from datetime import datetime

from bubbot.errors import ConfigError
from bubbot.features.budget.health import model_outages
from bubbot.features.budget.limits import budget_limits
from bubbot.features.budget.outages import explain_outage
from bubbot.features.budget.state import BUDGET_PROJECTION
from bubbot.ports.checks import Check, Finding, HomeReader, edit_command
from bubbot.ports.usage import BUDGET_TAPE
from bubbot.tape.projection import read_combined_projection
from bubbot.texts import Texts


async def check_settings(home: HomeReader) -> list[Finding]:
    """Report settings from which no limits can be made."""
    try:
        budget_limits(*home.settings)
    except ConfigError as error:
        return [Finding("config.budget", "problem", str(error), edit_command(home.config))]
    return []


async def check_answers(home: HomeReader) -> list[Finding]:
    """Report each model whose newest calls failed; send no request to it."""
    findings = []
    budget, models = home.settings
    async with home.open_tape(BUDGET_TAPE) as tape:
        state = await read_combined_projection(BUDGET_PROJECTION, tape.shards())
    for model in model_outages(state.failing, state.answered, budget, models, home.now().isoformat()):
        since, newest = (datetime.fromisoformat(date) for date in (model.since, model.newest))
        cause = (
            f"{model.name} has not answered since {since:%Y-%m-%d %H:%M} UTC: {explain_outage(Texts(), model)}. It was asked "
            f"last at {newest:%Y-%m-%d %H:%M} UTC; the log has its own words. An answer that succeeds ends this."
        )
        findings.append(Finding("model.failing", "problem", cause, "bubbot ask hello"))
    return findings


CHECKS = (Check("the settings", check_settings), Check("the answers", check_answers, reads_tapes=True))
