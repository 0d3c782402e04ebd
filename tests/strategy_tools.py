"""The tools of the feature of context strategies, as the bot makes them."""

from __future__ import annotations

from bubbot.app.commands import typed_tools
from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.feature import Feature
from bubbot.features.strategies.choice import StrategyChoice
from bubbot.features.strategies.shell import CONTEXT_COMMANDS
from bubbot.ports.command import CommandContext
from bubbot.ports.tool import Tool
from bubbot.settings.loader import Settings
from bubbot.stores.inmemory import InMemoryStore
from tests.doubles import CountingIds, SteppingClock


def strategy_tools() -> list[Tool]:
    """All of them."""
    return [StrategyChoice(OWN_STRATEGIES).tool(), *typed_strategy_tools()]


def typed_strategy_tools() -> list[Tool]:
    """Those that are commands of the shell, too."""
    feature = Feature(name="strategies", commands=CONTEXT_COMMANDS.commands)
    return typed_tools([feature], CommandContext(InMemoryStore(), "", SteppingClock(), CountingIds()), Settings())
