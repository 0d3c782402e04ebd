"""What a tool takes from its function: arguments, their schema, its summary."""

from __future__ import annotations

from enum import StrEnum

import pytest

from bubbot.errors import ConfigError
from bubbot.ports.turn import Turn
from bubbot.tool import NoArgs, ToolArgs, tool


class Color(StrEnum):
    RED = "red"


class ManyArgs(ToolArgs):
    required: int
    nothing: str | None = None
    flag: bool = True
    count: int = 3
    ratio: float = 0.5
    text: str = "a"
    color: Color = Color.RED
    items: tuple[int, ...] = ()


def test_a_schema_is_that_of_pydantic_without_what_a_call_is_written_without() -> None:
    @tool("many")
    async def many(turn: Turn, args: ManyArgs) -> str:
        """Take many."""
        return ""

    expected = ManyArgs.model_json_schema()
    del expected["title"], expected["additionalProperties"]
    expected["properties"]["nothing"] = {"type": "string"}
    for value in expected["properties"].values():
        for key in ("title", "default"):
            value.pop(key, None)
    assert many.spec().parameters == expected
    assert expected["properties"]["count"] == {"type": "integer"}


def test_the_arguments_may_be_named_by_a_path() -> None:
    @tool("far")
    async def far(turn: Turn, args: NoArgs) -> str:
        """Take nothing."""
        return ""

    assert far.args is NoArgs


def test_a_function_without_arguments_of_a_tool_is_refused() -> None:
    async def plain(turn: Turn, args: str) -> str:
        """Take a text."""
        return args

    async def bare(turn, args):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202, RUF100
        """Take anything."""

    for handler in (plain, bare):
        with pytest.raises(ConfigError, match="annotated with a ToolArgs class"):
            tool("odd")(handler)  # type: ignore[arg-type, type-var, unused-ignore]
