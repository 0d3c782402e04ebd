"""Arguments as models and people write them: other forms, limits beside `None`, and rules about several."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from msgspec import UNSET, Meta, Struct, UnsetType

from bubbot.arguments.fields import Args, NoArguments, build_schema
from bubbot.tool import ArgumentsInvalid, validate_args


class TeaArgs(Args, frozen=True):
    """Which tea."""

    kind: str = ""
    leaves: str = ""
    with_it: tuple[str, ...] = ()
    cups: Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="how many cups")] = None

    @classmethod
    def normalize(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take a kind in any case."""
        if values.get("kind") == "coffee":
            raise ValueError("coffee is no tea")
        return {**values, "kind": values["kind"].lower()} if "kind" in values else values

    def find_problem(self) -> str:
        """Refuse both."""
        return "give kind or leaves, not both" if self.kind and self.leaves else ""


def problem(**values: object) -> str:
    with pytest.raises(ArgumentsInvalid) as raised:
        validate_args("tea", TeaArgs, values)
    return str(raised.value)


def test_values_come_into_the_forms_of_the_fields() -> None:
    assert validate_args("tea", TeaArgs, {"kind": "Green", "cups": "2"}) == TeaArgs("green", cups=2)
    assert problem(kind="coffee") == "tea: coffee is no tea"


def test_a_rule_about_several_arguments_is_told_once_each_is_right() -> None:
    assert problem(kind="green", leaves="mint") == "tea: give kind or leaves, not both"
    assert "cups" in problem(kind="green", leaves="mint", cups="many")


def test_the_limit_of_an_argument_that_may_be_none_is_checked_and_described() -> None:
    assert "cups" in problem(cups=0)
    assert validate_args("tea", TeaArgs, {"cups": None}) == TeaArgs()
    described = build_schema(TeaArgs)["properties"]["cups"]
    assert described == {"description": "how many cups", "minimum": 1, "type": "integer"}


def test_a_text_that_no_tape_accepts_is_refused_in_a_list_too() -> None:
    assert "half of a surrogate pair" in problem(leaves="\ud800")
    assert "half of a surrogate pair" in problem(with_it=["milk", "\ud800"])


class Milk(StrEnum):
    OAT = "oat"


class Guest(Struct, frozen=True):
    """Who drinks it."""

    name: str


class SchemaArgs(Args, frozen=True):
    """Each kind of type."""

    text: Annotated[str, Meta(min_length=1, max_length=9, pattern="a", description="a text")]
    absent: Annotated[int, Meta(ge=1, le=9)] | UnsetType = UNSET
    ratio: Annotated[Annotated[float, Meta(gt=0.0, lt=1.0)] | None, Meta(description="a part")] = None
    flag: Annotated[bool, "a mark of ours"] = False
    mode: Literal["", "b", "a"] = ""
    modes: list[Literal["b", "a"]] | None = None
    names: Annotated[tuple[str, ...], Meta(min_length=1, max_length=3)] = ("x",)
    deep: tuple[list[int], ...] = ()
    table: dict[str, Any] | None = None
    either: int | str = 1
    anything: Any = None
    milk: Milk = Milk.OAT
    guest: Guest | None = None


def test_a_schema_has_what_a_call_is_written_by_and_nothing_else() -> None:
    assert json.dumps(build_schema(SchemaArgs)) == json.dumps(
        {
            "properties": {
                "text": {"description": "a text", "type": "string"},
                "absent": {"maximum": 9, "minimum": 1, "type": "integer"},
                "ratio": {"description": "a part", "exclusiveMaximum": 1.0, "exclusiveMinimum": 0.0, "type": "number"},
                "flag": {"type": "boolean"},
                "mode": {"enum": ["b", "a"], "type": "string"},
                "modes": {"items": {"enum": ["b", "a"], "type": "string"}, "type": "array"},
                "names": {"items": {"type": "string"}, "maxItems": 3, "minItems": 1, "type": "array"},
                "deep": {"items": {"items": {"type": "integer"}, "type": "array"}, "type": "array"},
                "table": {"additionalProperties": True, "type": "object"},
                "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "anything": {},
                "milk": {"$ref": "#/$defs/Milk"},
                "guest": {"$ref": "#/$defs/Guest"},
            },
            "required": ["text"],
            "type": "object",
            "$defs": {
                "Milk": {"title": "Milk", "enum": ["oat"]},
                "Guest": {
                    "title": "Guest",
                    "description": "Who drinks it.",
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            },
        }
    )
    assert build_schema(NoArguments) == {"properties": {}, "type": "object"}
