"""What servers offer: digests, differences, names, and a list of tools that stays within its budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.arguments.fields import JsonArgs
from bubbot.features.mcp.child.values import OfferedTool
from bubbot.features.mcp.offers import (
    describe_offer,
    digest_offer,
    find_difference,
    find_offer_problem,
    make_name,
    shown_schema,
)
from bubbot.ports.turn import Turn
from bubbot.runtime.context.tokens import estimate_size
from bubbot.runtime.tool_list import SCHEMA_TOKENS, ToolList
from bubbot.tool import Tool, Toolbox
from tests.all_tools import all_tools

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "key": {"type": "string"}},
    "required": ["text", "key"],
}


def offer(**fields: Any) -> OfferedTool:
    return OfferedTool(**{"name": "send", "title": "", "description": "Send it.", "schema": SCHEMA, **fields})


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "sends"},
        {"description": "Send it. "},
        {"schema": {**SCHEMA, "required": ["text"]}},
        {"annotations": {"readOnlyHint": True}},
        {"annotations": {"destructiveHint": False}},
    ],
)
def test_whatever_an_owner_saw_is_in_the_digest(changed: dict[str, Any]) -> None:
    assert digest_offer(offer(**changed)) != digest_offer(offer())
    assert digest_offer(offer(title="Other", annotations={"title": "x"})) == digest_offer(offer())


def test_a_difference_shows_what_went_and_what_came() -> None:
    before, after = (describe_offer(text, SCHEMA, {}) for text in ("One.\nTwo.", "One.\nThree."))
    assert find_difference(before, after) == ("- Two.", "+ Three.")
    many = find_difference([], [str(number) for number in range(10_000)])
    assert len(many) == 201
    assert many[100] == "…"


def test_a_server_cannot_choose_lines_that_take_long_to_compare() -> None:
    """Similar lines, each a little different: a comparison of them by characters takes minutes."""
    before = [f"line number {number} of the description of this tool" for number in range(20_000)]
    after = [f"line nvmber {number + 7} of this description of the tool" for number in range(20_000)]
    found = find_difference(before, after)
    assert (found[0], found[-1], len(found)) == (f"- {before[0]}", f"+ {after[-1]}", 201)
    assert find_difference(before, before) == ()
    assert len(find_difference(["x" * 5_000], ["x" * 5_000 + "y"])) == 2
    assert find_difference(["---", "+++"], ["+++", "---"]) == ("+ +++", "- +++")


@pytest.mark.parametrize(
    ("fields", "key", "problem"),
    [
        ({"name": "a.b/c:d_e-F9"}, "", ""),
        *[
            ({"name": name}, "", "its name has other characters")
            for name in ("x; rm -rf ~", "a b", "a\nb", "`a`", "a]", "<b>", "ä", "*a*", "$(a)", "")
        ],
        ({}, "", ""),
        ({}, "key", ""),
        ({}, "other", "no argument other"),
        ({"schema": {}}, "", "an object"),
        ({"schema": {"type": "object", "properties": {"a": {"$ref": "https://example.org/a"}}}}, "", "$ref"),
        ({"schema": {"type": "object", "properties": {"a": {"pattern": "("}}}}, "", "JSON Schema"),
        ({"schema": {"type": "object", "properties": 3}}, "", "properties"),
        ({"description": "x" * 20_001}, "", "20000 characters"),
        ({"schema": {"type": "object", "description": "x" * 100_001}}, "", "100000 characters"),
    ],
)
def test_what_cannot_be_pinned(fields: dict[str, Any], key: str, problem: str) -> None:
    found = find_offer_problem(offer(**fields), key)
    assert problem in found if problem else found == ""


def test_models_do_not_see_the_argument_for_keys() -> None:
    shown = shown_schema({**SCHEMA, "$schema": "http://json-schema.org/draft-07/schema#"}, "key")
    assert shown == {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


@given(
    st.lists(
        st.tuples(st.from_regex(r"[a-z0-9_-]{1,32}", fullmatch=True), st.text(min_size=1, max_size=100)), unique=True
    )
)
def test_names_are_what_providers_take_and_no_two_are_the_same(tools: list[tuple[str, str]]) -> None:
    names: list[str] = []
    for server, tool in tools:
        names.append(make_name(server, tool, names))
    forms = [name.replace(".", "_") for name in names]
    assert len({*forms}) == len(forms)
    assert all(
        len(form) <= 64 and form.isascii() and form.replace("_", "").replace("-", "").isalnum() for form in forms
    )


def test_the_list_of_tools_stays_within_its_budget_with_two_hundred_more() -> None:
    async def run(turn: Turn, args: JsonArgs) -> str:
        raise NotImplementedError

    schema = {
        "type": "object",
        "properties": {f"argument{number}": {"type": "string", "description": "words " * 20} for number in range(8)},
    }
    more = [
        Tool(
            make_name("server", f"tool{number}", ()),
            "Does something. " * 20,
            JsonArgs,
            run,
            is_rare=True,
            schema=schema,
        )
        for number in range(200)
    ]
    listed = ToolList(Toolbox([*all_tools(), *more])).specs()
    assert estimate_size(listed.encoded) <= SCHEMA_TOKENS
    assert {"tool_find", "tool_use"} <= {spec.name for spec in listed}
    assert [spec.name for spec in listed] == [spec.name for spec in ToolList(Toolbox([*all_tools(), *more])).specs()]
    everyday = {
        tool.provider_name for tool in all_tools() if tool.for_model and not tool.is_rare and not tool.is_reserved
    }
    assert everyday - {spec.name for spec in listed} == set()
