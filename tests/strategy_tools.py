"""The tools of the feature of context strategies, as the bot makes them."""

from __future__ import annotations

from typing import Any

from bubbot.app.commands import typed_tools
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.feature import Feature
from bubbot.features.strategies.choice import StrategyChoice
from bubbot.features.strategies.reading_tools import reading_tools
from bubbot.features.strategies.shell import CONTEXT_COMMANDS
from bubbot.features.strategies.summaries import Summaries
from bubbot.ports.command import CommandContext
from bubbot.ports.tool import Tool
from bubbot.settings.loader import Settings
from bubbot.stores.inmemory import InMemoryStore
from tests.doubles import CountingIds, SteppingClock


def strategy_tools() -> list[Tool]:
    """All of them."""
    return [StrategyChoice(OWN_STRATEGIES).tool(), *further_strategy_tools()]


def further_strategy_tools() -> list[Tool]:
    """All but the choice of a strategy, which every bench has."""
    feature = Feature(name="strategies", commands=CONTEXT_COMMANDS.commands)
    unused: Any = None
    further = [*reading_tools(unused), Summaries(unused, unused).tool()]
    return further + typed_tools(
        [feature], CommandContext(InMemoryStore(), "", SteppingClock(), CountingIds()), Settings()
    )
