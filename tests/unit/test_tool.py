"""What a tool takes from its function: arguments, their schema, its summary."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from bubbot.arguments import fields
from bubbot.arguments.fields import NoArguments
from bubbot.errors import ConfigError
from bubbot.ports.turn import Turn
from bubbot.tool import Tool, tool


def test_the_arguments_may_be_named_by_a_path() -> None:
    @tool("far")
    async def far(turn: Turn, args: fields.NoArguments) -> str:
        """Take nothing."""
        return ""

    assert far.args is NoArguments


def test_a_function_without_arguments_of_a_tool_is_refused() -> None:
    async def plain(turn: Turn, args: str) -> str:
        """Take a text."""
        return args

    async def bare(turn, args):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, RUF100
        """Take anything."""

    for handler in (plain, bare):
        with pytest.raises(
            ConfigError, match=r"needs a parameter `args`|takes builtins.str, which is no class of arguments"
        ):
            tool("odd")(handler)  # type: ignore[arg-type, type-var, unused-ignore]


class RollArgs(BaseModel):
    """The arguments of a tool as earlier versions declared them."""

    sides: int = 6


def test_a_tool_that_declares_a_pydantic_model_is_refused_with_the_fix() -> None:
    async def roll(turn: Turn, args: RollArgs) -> str:
        """Roll a dice."""
        return ""

    told = r"the tool dice.roll takes tests.unit.test_tool.RollArgs, .*derive it from bubbot.arguments.fields.Args"
    with pytest.raises(ConfigError, match=told):
        tool("dice.roll")(roll)  # type: ignore[type-var]
    with pytest.raises(ConfigError, match=told):
        Tool("dice.roll", "Roll a dice.", RollArgs, roll)  # type: ignore[arg-type, unused-ignore]
