"""What a tool takes from its function: arguments, their schema, its summary."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from bubbot.arguments import fields
from bubbot.arguments.fields import JsonArgs, NoArguments, dump_args, write_given
from bubbot.errors import ConfigError
from bubbot.ports.turn import Turn
from bubbot.tool import ArgumentsInvalid, Tool, digest_call, tool


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


SCHEMA = {
    "type": "object",
    "properties": {
        "toName": {"type": "string", "description": "who gets it"},
        "count": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}},
        "either": {"type": ["string", "null"]},
    },
    "required": ["toName"],
    "additionalProperties": False,
    "$defs": {"tag": {"type": "string"}},
}


def schema_tool(schema: dict[str, Any] | None = None) -> Tool:
    async def run(turn: Turn, args: JsonArgs) -> str:
        raise NotImplementedError

    return Tool("mcp.post.send", "Send it.", JsonArgs, run, schema=schema or SCHEMA)


class TestAToolWithASchemaOfItsOwn:
    def test_is_shown_with_it_and_keeps_its_names(self) -> None:
        made = schema_tool()
        assert made.spec().parameters == SCHEMA
        assert [*made.fields] == ["toName", "count", "tags", "either"]
        assert made.words == ("toName",)
        assert made.fields["toName"].description == "who gets it"

    def test_checks_the_arguments_of_a_model(self) -> None:
        assert dump_args(schema_tool().parse('{"toName": "a", "count": 2, "tags": ["x"]}')) == {
            "toName": "a",
            "count": 2,
            "tags": ["x"],
        }
        for wrong in ('{"count": 1}', '{"toName": "a", "other": 1}', '{"toName": "a", "count": 0}', '{"toName": 3}'):
            with pytest.raises(ArgumentsInvalid, match=r"mcp\.post\.send: at \$"):
                schema_tool().parse(wrong)

    def test_reads_typed_texts_as_the_schema_wants_them(self) -> None:
        args = schema_tool().validate({"toName": "7", "count": "2", "tags": '["x"]', "either": "null"})
        assert dump_args(args) == {"toName": "7", "count": 2, "tags": ["x"], "either": "null"}
        with pytest.raises(ArgumentsInvalid, match="'two' is not of type 'integer'"):
            schema_tool().validate({"toName": "7", "count": "two"})

    def test_a_stored_call_is_read_back_and_has_one_digest(self) -> None:
        made = schema_tool()
        args = made.parse('{"toName": "a", "count": 2}')
        assert made.parse(write_given(args)) == args
        assert digest_call(made, args) == digest_call(made, made.parse('{"count": 2, "toName": "a"}'))
        assert digest_call(made, args) != digest_call(made, made.parse('{"toName": "b", "count": 2}'))

    def test_refers_to_no_other_document(self) -> None:
        made = schema_tool({"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/schema.json"}}})
        with pytest.raises(ArgumentsInvalid, match="which it does not have"):
            made.parse('{"a": 1}')

    def test_needs_both(self) -> None:
        with pytest.raises(ConfigError, match="both JsonArgs and a schema"):
            Tool("a.b", "Do it.", JsonArgs, schema_tool().run)
