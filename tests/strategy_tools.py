"""The tools of the feature of context strategies, as the bot makes them."""

from __future__ import annotations

from typing import Any

from bubbot.command import find_spec, make_tool, make_tools
from bubbot.features.strategies.choice import StrategyChoice
from bubbot.features.strategies.commands import (
    ReadingCommands,
    StrategyCommands,
)
from bubbot.ports.turn import Turn
from bubbot.tool import Tool


def make_choice_tool(choice: StrategyChoice) -> Tool:
    """That which chooses a strategy."""
    spec = find_spec(StrategyCommands, "session strategy")
    return make_tool(spec, StrategyCommands, lambda: StrategyCommands(choice))


async def _find_no_size(_turn: Turn) -> None:
    """Of a model whose size nobody knows."""


def make_reading_tools(find_size: Any = _find_no_size) -> list[Tool]:
    """Those that open entries by their ids."""
    options: dict[str, Any] = {"tape_around": {"is_rare": True}}
    return make_tools(ReadingCommands, lambda: ReadingCommands(find_size), **options)
