"""Arguments as models and people write them: other forms, limits beside `None`, and rules about several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from msgspec import Meta

from bubbot.arguments.fields import Args
from bubbot.arguments.schema import build_schema
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
