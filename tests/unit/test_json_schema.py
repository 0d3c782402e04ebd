"""JSON and JSON Schemas of other people: what is wrong is said, and nothing takes long, though none of these is timed."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.expressions import MAX_EXPRESSION_CHARS, compile_search
from bubbot.json_schema import find_fences, find_misfits, find_non_json, find_schema_problems

SLOW, SLOW_TEXT = "(a|aa)+$", "a" * 60 + "b"


def test_a_search_finds_a_part_or_the_whole_and_tells_nothing_from_an_empty_find() -> None:
    assert compile_search("b+")("abbc") == "bb"
    assert compile_search("B+", ignore_case=True)("abbc") == "bb"
    assert compile_search("b+", whole=True)("abbc") is None
    assert compile_search("x*")("abc") == ""
    assert compile_search("x")("abc") is None


def test_a_search_that_takes_too_long_says_so() -> None:
    with pytest.raises(TimeoutError):
        compile_search(SLOW)(SLOW_TEXT)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("(", "not a regular expression"),
        ("a{99999999999999999999}", "not a regular expression"),
        ("(" * 5_000 + ")" * 5_000, "nested too deep"),
        ("((a{1000}){1000}){1000}", "too large"),
        ("a" * (MAX_EXPRESSION_CHARS + 1), "shorten it"),
    ],
)
def test_what_is_no_expression_or_too_large_is_refused_in_words(expression: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        compile_search(expression)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": SLOW}, SLOW_TEXT),
        ({"patternProperties": {SLOW: True}}, {SLOW_TEXT: 1}),
        ({"patternProperties": {SLOW: True}, "additionalProperties": False}, {SLOW_TEXT: 1}),
        ({"items": {"pattern": "^(a|aa)+$"}}, ["a" * 24 + "b"] * 10_000),
    ],
)
def test_a_pattern_that_takes_too_long_is_no_verdict(schema: dict[str, Any], value: Any) -> None:
    assert find_schema_problems(schema) == []
    with pytest.raises(TimeoutError):
        find_misfits(value, schema)


@pytest.mark.parametrize(
    ("schema", "fits", "misfit", "message"),
    [
        ({"pattern": "^a"}, "abc", "b", "at $: 'b' does not match '^a'"),
        ({"pattern": "^a"}, 3, "b", "at $: 'b' does not match '^a'"),
        (
            {"patternProperties": {"^n": {"type": "integer"}}},
            {"n1": 1, "x": "y"},
            {"n1": "1"},
            "at $.n1: '1' is not of type 'integer'",
        ),
        (
            {"properties": {"a": True}, "patternProperties": {"^n": True}, "additionalProperties": False},
            {"a": 1, "n": 2},
            {"a": 1, "b": 2, "c": 3},
            "at $: Additional properties are not allowed ('b', 'c' were unexpected)",
        ),
        (
            {"patternProperties": {"^n": True}, "additionalProperties": {"type": "string"}},
            {"n": 1, "b": "c"},
            {"n": 1, "b": 2},
            "at $.b: 2 is not of type 'string'",
        ),
        ({"additionalProperties": True}, {"n": 1}, None, ""),
    ],
)
def test_the_keywords_with_patterns_mean_what_the_standard_says(
    schema: dict[str, Any], fits: Any, misfit: Any, message: str
) -> None:
    assert find_misfits(fits, schema) == []
    assert find_misfits(misfit, schema) == ([message] if message else [])


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ([], "it is a list, and must be a JSON Schema"),
        ({"const": float("nan")}, "holds the number nan"),
        ({"const": 10**5_000}, "more than 1000 digits"),
        ({"pattern": "("}, "of the JSON Schema, '(' is not a regular expression"),
        (
            {"properties": {"a": {"patternProperties": {"(": {}}}}},
            "of the JSON Schema, '(' is not a regular expression",
        ),
        ({"patternProperties": {"a": {}}, "unevaluatedProperties": False}, "write additionalProperties"),
        ({"type": "text"}, "at $.type of the JSON Schema"),
        ({"$ref": "https://example.org/schema"}, "nothing is fetched"),
    ],
)
def test_what_is_no_schema_is_told(schema: object, problem: str) -> None:
    (found,) = find_schema_problems(schema)
    assert problem in found


def test_what_a_value_holds_is_no_schema() -> None:
    assert (
        find_schema_problems({"const": {"pattern": "("}, "enum": [{"pattern": "("}], "properties": {"pattern": {}}})
        == []
    )


def test_each_part_of_a_schema_is_checked_once_however_often_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from jsonschema import Draft202012Validator

    checked = list[object]()

    def note(self: Draft202012Validator, instance: object) -> bool:
        checked.append(instance)
        return True

    monkeypatch.setattr(Draft202012Validator, "is_valid", note)
    names = {f"a{number}": {"$ref": "#/$defs/%61" if number % 2 else "#/$defs/a"} for number in range(200)}
    assert find_schema_problems({"properties": names, "$defs": {"a": {"type": "string"}}}) == []
    assert len(checked) == 1


def test_a_number_of_thousands_of_digits_is_no_json() -> None:
    assert "1000 digits" in find_non_json({"a": [10**4_400]})
    assert find_non_json(10**999) == ""


def test_fences_without_a_language_and_of_json_count() -> None:
    assert find_fences("```\n1\n```\n```json\n2\n  ```  \r\n```python\n3\n```\n") == ["1\n", "2\n"]
    assert find_fences("```json\nnever closed\n") == []
    assert find_fences("```\n" * 20_001) == ["" for _ in range(10_000)]
