"""The tools of the feature of context strategies, as the bot makes them."""

from __future__ import annotations

from typing import Any

from bubbot.app.strategies import OWN_STRATEGIES
from bubbot.command import find_spec, make_tool, make_tools
from bubbot.features.strategies.choice import StrategyChoice
from bubbot.features.strategies.commands import (
    ContextCommands,
    FindContextSize,
    ReadingCommands,
    StrategyCommands,
)
from bubbot.ports.turn import Turn
from bubbot.tool import Tool


def strategy_tools() -> list[Tool]:
    """All of them."""
    return [make_choice_tool(StrategyChoice(OWN_STRATEGIES)), *further_strategy_tools()]


def further_strategy_tools() -> list[Tool]:
    """All but the choice of a strategy, which every bench has."""
    unused: Any = None
    summary = make_tool(find_spec(StrategyCommands, "session summary"), StrategyCommands, lambda: unused)
    return [*make_reading_tools(), summary, *make_tools(ContextCommands, lambda: unused)]


def make_choice_tool(choice: StrategyChoice) -> Tool:
    """That which chooses a strategy."""
    spec = find_spec(StrategyCommands, "session strategy")
    return make_tool(spec, StrategyCommands, lambda: StrategyCommands(choice))


async def _find_no_size(_turn: Turn) -> None:
    """Of a model whose size nobody knows."""


def make_reading_tools(find_size: FindContextSize = _find_no_size) -> list[Tool]:
    """Those that open entries by their ids."""
    options: dict[str, Any] = {"tape_around": {"is_rare": True}}
    return make_tools(ReadingCommands, lambda: ReadingCommands(find_size), **options)
