"""The schema of arguments is that of pydantic, whoever writes it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from annotated_types import MultipleOf
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from bubbot.arguments.fields import Args
from bubbot.arguments.schema import build_schema, describe_by_pydantic, describe_fields
from bubbot.models.scripted import ScriptedModel
from bubbot.tool import ToolArgs
from tests.turns import toolbox


class PlainArgs(ToolArgs):
    """Every declaration that is written without pydantic."""

    text: str = Field(min_length=1, max_length=9, pattern="a", description="a text")
    count: int = Field(default=1, ge=1, le=9)
    ratio: float | None = Field(default=None, gt=0, lt=1, description="a part")
    flag: Annotated[bool, "a mark of ours"] = False
    mode: Literal["", "a", "b"] = ""
    either: Literal["a", "b"] | None = None
    names: Annotated[list[str] | None, BeforeValidator(str)] = Field(default=None, min_length=1, max_length=3)
    ids: Annotated[tuple[int, ...], AfterValidator(tuple)] = ()
    deep: list[list[int]] = Field(default=[])
    table: dict[str, Any] | None = None
    any_number: str = Field(default="", coerce_numbers_to_str=True)


class Nested(BaseModel):
    """Another model."""

    x: int = 0


class ExtraArgs(ToolArgs):
    """A class that says more than its fields."""

    model_config = ConfigDict(json_schema_extra={"x": 1})
    text: str = ""


def one_field(kind: Any, field: Any = "") -> type[ToolArgs]:
    """A class of arguments with one field of this type."""
    return type("OneArgs", (ToolArgs,), {"__annotations__": {"field": kind}, "field": field})


def test_plain_fields_are_described_as_by_pydantic() -> None:
    described = describe_fields(PlainArgs)
    assert described is not None
    assert json.dumps(described) == json.dumps(describe_by_pydantic(PlainArgs))


@pytest.mark.parametrize(
    "args",
    [
        ExtraArgs,
        one_field(Nested, Nested()),
        one_field(Literal["only"], "only"),
        one_field(Literal[1, 2], 1),
        one_field(int | str),
        one_field(tuple[str, int], ("", 1)),
        one_field(Annotated[int, MultipleOf(3)], 0),
        one_field(list[Annotated[int, Field(ge=1)]], []),
        one_field(Annotated[str, BeforeValidator(str, json_schema_input_type=int)]),
        one_field(Annotated[str, WithJsonSchema({"type": "x"})]),
        one_field(str, Field(default="", examples=["a"])),
        one_field(str, Field(default="", alias="other")),
        one_field(str, Field(default="", deprecated=True)),
        one_field(str, Field(default="", json_schema_extra={"x": 1})),
    ],
)
def test_pydantic_is_asked_for_what_else_it_knows(args: type[ToolArgs]) -> None:
    assert describe_fields(args) is None
    assert build_schema(args) == describe_by_pydantic(args)


def test_no_tool_of_ours_needs_pydantic_for_its_schema() -> None:
    for one in toolbox(ScriptedModel()):
        if issubclass(one.args, Args):
            continue
        assert json.dumps(describe_fields(one.args)) == json.dumps(describe_by_pydantic(one.args)), one.name
