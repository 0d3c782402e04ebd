"""Artifacts: what of a model's text counts, and what it is told about the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bubbot.features.tasks.contracts import (
    MAX_TRIES,
    ArtifactInvalid,
    find_contract_problems,
    parse_artifact,
)
from bubbot.json_schema import MAX_PROBLEMS

CONTRACT: dict[str, Any] = {
    "type": "object",
    "required": ["items"],
    "properties": {"items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
    "$defs": {"item": {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}}},
}
GOOD = {"items": [{"title": "Rain"}]}
TEXT = json.dumps(GOOD)


def refused(text: str, contract: dict[str, Any] = CONTRACT) -> tuple[str, ...]:
    with pytest.raises(ArtifactInvalid) as caught:
        parse_artifact(text, contract)
    return caught.value.problems


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"\n  {TEXT}\n",
        json.dumps(GOOD, indent=2),
        f"```json\n{TEXT}\n```",
        f"```\n{TEXT}\n```",
        f"Here it is:\n\n```JSON\n{TEXT}\n```\nSee [1] for more.",
        f"The result is {TEXT}. That is all.",
        f"I read [1] and [the manual](page), so: {TEXT}",
    ],
)
def test_one_value_counts_alone_in_a_fence_and_among_words(text: str) -> None:
    assert parse_artifact(text, CONTRACT) == GOOD


def test_a_fence_may_hold_a_value_that_is_no_object() -> None:
    assert parse_artifact("It is:\n```json\n42\n```\n", {"type": "integer"}) == 42


def test_without_a_contract_the_text_itself_is_the_artifact() -> None:
    assert parse_artifact('{"a": 1} and more', None) == '{"a": 1} and more'


def test_the_inner_part_of_an_artifact_that_broke_off_is_no_artifact() -> None:
    problems = refused('{"items": [{"title": "a"}, {"title": ', {"type": "object"})
    assert "broken JSON value" in problems[0]


@pytest.mark.parametrize("text", ["{'items': [1]}", '{"items": [1],', '"items": [1]}', "[1] }", '[1] and {"b": '])
def test_nothing_within_brackets_that_are_no_json_counts(text: str) -> None:
    assert "broken JSON value" in refused(text, {"type": "array"})[0]


def test_of_several_values_the_only_one_that_fits_counts() -> None:
    assert parse_artifact(f'An example is {{"x": 1}}, mine is {TEXT}', CONTRACT) == GOOD


def test_two_values_that_fit_are_refused() -> None:
    assert refused(f"{TEXT} or {TEXT}") == ("the text has 2 JSON values, and must have exactly one",)


def test_a_thousand_brackets_around_a_value_are_allowed_and_no_more() -> None:
    assert parse_artifact("[a]" * (MAX_TRIES - 1) + TEXT, CONTRACT) == GOOD
    assert "write the JSON alone" in refused("[a]" * MAX_TRIES + TEXT)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is not JSON"),
        ("nothing to tell", "is not JSON"),
        ("NaN", "JSON has no number NaN"),
        ("9" * 5000, "is not JSON"),
        ('{"items": [1e999]}', "holds the number inf"),
        ('{"items": ["\\ud800"]}', "half of a surrogate pair"),
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 100 + "1" + "}" * 100, "nested too deep"),
    ],
)
def test_what_is_no_json_is_refused(text: str, expected: str) -> None:
    assert expected in refused(text, {})[0]


def test_a_broken_contract_is_told_in_the_words_of_the_validator_with_the_place() -> None:
    problems = refused('{"items": [{"title": "a"}, {"title": 3}, {}]}')
    assert set(problems) == {
        "at $.items[1].title: 3 is not of type 'string'",
        "at $.items[2]: 'title' is a required property",
    }
    assert problems[0].startswith("at $.items[2]:")


def test_the_text_of_the_error_has_all_its_problems() -> None:
    with pytest.raises(ArtifactInvalid, match=r"- at \$: 'items' is a required property\nAnswer again"):
        parse_artifact("{}", CONTRACT)


def test_at_most_five_problems_are_told_the_outermost_first() -> None:
    contract = {**CONTRACT, "required": ["items", "date"]}
    problems = refused(json.dumps({"items": [{}] * 1000}), contract)
    assert len(problems) == MAX_PROBLEMS
    assert problems[0] == "at $: 'date' is a required property"
    assert problems[1] == "at $.items[0]: 'title' is a required property"


def test_a_value_that_fits_no_part_of_a_union_is_told_why() -> None:
    contract = {"properties": {"n": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 3}]}}}
    assert refused('{"n": 1}', contract) == ("at $.n: 1 is less than the minimum of 3",)
    assert "'x' is not of type 'null'; 'x' is not of type 'integer'" in refused('{"n": "x"}', contract)[0]


def test_a_long_value_is_shortened_and_the_reason_stays() -> None:
    (problem,) = refused(json.dumps({"items": "y" * 10_000}))
    assert len(problem) < 400
    assert problem.endswith("is not of type 'array'")


def test_formats_are_not_checked() -> None:
    assert parse_artifact('"no address"', {"type": "string", "format": "email"}) == "no address"


def test_a_good_contract_has_no_problems() -> None:
    assert find_contract_problems({"$id": "https://example.org/items", **CONTRACT}) == []
    assert find_contract_problems({}) == []


def test_properties_may_be_named_like_keywords() -> None:
    contract = {"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}, "pattern": {"type": "string"}}}
    assert find_contract_problems(contract) == []


@pytest.mark.parametrize(
    ("contract", "expected"),
    [
        (True, "a contract is a JSON Schema"),
        (3, "a contract is a JSON Schema"),
        ({"type": "objct"}, "at $.type of the JSON Schema: 'objct' is not valid"),
        ({"minimum": float("inf")}, "holds the number inf"),
        ({"pattern": "("}, "'(' is not a regular expression"),
        ({"patternProperties": {"(": {}}}, "'(' is not a regular expression"),
        ({"$ref": "https://example.org/items.json"}, "leads out of the JSON Schema"),
        ({"items": {"$ref": "other.json#/x"}}, "leads out of the JSON Schema"),
        ({"$ref": "#/$defs/item"}, "names nothing"),
        ({"required": ["a"], "$ref": "#/required/b"}, "names nothing"),
        ({"required": ["a"], "$ref": "#/required"}, "is no schema itself"),
        ({"properties": {"type": {"type": "string"}}, "items": {"$ref": "#/properties"}}, "is no schema itself"),
        ({"items": {"$id": "https://example.org/inner"}}, "changes what its references mean"),
    ],
)
def test_what_is_no_contract_is_told(contract: object, expected: str) -> None:
    (problem,) = find_contract_problems(contract)
    assert expected in problem


def test_a_contract_that_is_too_deep_is_told_without_a_crash() -> None:
    contract: dict[str, Any] = {}
    for _ in range(100_000):
        contract = {"items": contract}
    (problem,) = find_contract_problems(contract)
    assert "nested too deep" in problem


def test_a_contract_that_only_refers_to_itself_fits_nothing() -> None:
    assert "refers to itself without an end" in refused("1", {"$ref": "#"})[0]


def test_no_reference_is_fetched_even_of_a_contract_that_nobody_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr("urllib.request.urlopen", lambda *address, **_more: asked.append(address))
    assert "which it does not have" in refused("1", {"$ref": "http://127.0.0.1:9/items.json"})[0]
    assert asked == []
