"""The config of a task: how layers merge, where each value comes from, and what a run may change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from bubbot.features.tasks.config import (
    MAX_CONFIG_BYTES,
    MAX_FILLED_CHARS,
    ConfigValue,
    fill_placeholders,
    find_placeholders,
    layer_config,
    override_config,
)
from bubbot.features.tasks.sources import DefinitionInvalid

PRODUCT = {"version": "1.0", "limits": {"items": 5, "days": [1, 2]}}
CONFIG = layer_config([("product", PRODUCT)])


def refused(*layers: tuple[str, Mapping[str, Any]]) -> list[str]:
    with pytest.raises(DefinitionInvalid) as caught:
        layer_config(layers)
    return [str(problem) for problem in caught.value.problems]


def overridden(*words: str) -> dict[str, ConfigValue]:
    return override_config(CONFIG, words)


def override_refused(*words: str) -> list[str]:
    with pytest.raises(DefinitionInvalid) as caught:
        overridden(*words)
    return [str(problem) for problem in caught.value.problems]


def test_tables_merge_and_scalars_and_lists_are_replaced_with_their_origin() -> None:
    layers: list[tuple[str, Mapping[str, Any]]] = [
        ("product", PRODUCT),
        ("home", {"limits": {"days": [3]}}),
        ("task", {"version": "2.0", "mode": "dry"}),
    ]
    assert layer_config(layers) == {
        "version": ConfigValue("2.0", "task"),
        "limits.items": ConfigValue(5, "product"),
        "limits.days": ConfigValue([3], "home"),
        "mode": ConfigValue("dry", "task"),
    }


def test_a_value_over_a_table_names_the_key_and_both_origins() -> None:
    (problem,) = refused(("product", PRODUCT), ("task", {"limits": 3}))
    assert problem == "config.limits: it is a value in task, and a table in product: keep one form."


def test_a_table_over_a_value_names_the_key_and_both_origins() -> None:
    (problem,) = refused(("product", PRODUCT), ("home", {"version": {"major": 1}}))
    assert problem == "config.version: it is a table in home, and a value in product: keep one form."


def test_an_empty_table_is_a_table_too() -> None:
    assert len(refused(("product", {"a": {}}), ("task", {"a": 1}))) == 1
    assert len(refused(("product", {"a": 1}), ("task", {"a": {}}))) == 1


def test_all_problems_are_told_at_once() -> None:
    problems = refused(
        ("product", PRODUCT),
        ("home", {"limits": 3, "since": date(2026, 1, 1), "a.b": 1}),
        ("task", {"version": {}, "share": float("nan")}),
    )
    assert len(problems) == 5
    assert (
        "config.since: the value in home holds a date, 2026-01-01, which JSON does not have: write it as a text in quotes."
        in problems
    )
    assert "config: home has the key 'a.b': a key has only letters, digits, _ and -." in problems


def test_a_config_may_have_64_kilobytes_of_json() -> None:
    room = MAX_CONFIG_BYTES - len('{"a":""}')
    assert layer_config([("task", {"a": "x" * room})])
    assert "shorten it" in refused(("task", {"a": "x" * (room + 1)}))[0]


def test_a_config_that_is_too_deep_is_refused_without_a_crash() -> None:
    tables: dict[str, Any] = {"a": 1}
    for _ in range(100_000):
        tables = {"a": tables}
    assert "nested too deep" in refused(("task", tables))[0]


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("2", 2), ("2.5", 2.5), ("true", True), ('"2"', "2"), ("[1, 2]", [1, 2]), ("two words", "two words"),
        ("", ""), ("a=b", "a=b"), ("2026-01-01", "2026-01-01"), ("inf", "inf"), ("1 # not a comment", "1 # not a comment"),
        ("1\nlimits = 2", "1\nlimits = 2"), ("[[[", "[[["),
    ],
)  # fmt: skip
def test_an_override_is_a_toml_value_or_else_a_text(typed: str, value: object) -> None:
    found = overridden(f"version={typed}")["version"]
    assert (found, type(found.value)) == (ConfigValue(value, "run"), type(value))


def test_an_override_replaces_one_value_and_keeps_the_rest() -> None:
    assert overridden("limits.items=7") == {**CONFIG, "limits.items": ConfigValue(7, "run")}


def test_an_override_of_a_table_merges() -> None:
    assert overridden("limits={items = 7}") == {**CONFIG, "limits.items": ConfigValue(7, "run")}


def test_an_override_of_an_unknown_key_names_the_nearest() -> None:
    assert override_refused("limits.itmes=7") == [
        "with 'limits.itmes': no layer of the config has this key; did you mean 'limits.items'?"
    ]


def test_all_wrong_overrides_are_told_at_once() -> None:
    problems = override_refused("limits.items", "=3", "zzz=1", "limits={qqq=1}", "version=2")
    assert len(problems) == 4
    assert problems[0] == "with: 'limits.items' is not KEY=VALUE."
    assert (
        problems[2] == "with 'zzz': no layer of the config has this key; there are: version, limits.items, limits.days."
    )


def test_an_override_keeps_the_form_of_its_key() -> None:
    assert "config.limits: it is a value in run, and a table in product" in override_refused("limits=7")[0]
    assert "no layer of the config has this key" in override_refused("version.major=7")[0]


def test_of_two_overrides_of_a_key_the_last_one_counts() -> None:
    assert overridden("version=1", "version=2")["version"] == ConfigValue(2, "run")


def test_placeholders_are_keys_in_braces() -> None:
    text = 'Publish {version} of {limits.items}, {version} again, {{literal}}, {"a": {"b": 1}}, {} and {two words}.'
    assert find_placeholders(text) == ["version", "limits.items"]


def test_placeholders_are_filled_once() -> None:
    config = layer_config([("task", {"a": "{b}", "b": "x", "list": [1, "é"], "yes": True})])
    assert fill_placeholders("{a} {{a}} {list} {yes} {unknown}", config) == '{b} {a} [1,"é"] true {unknown}'


def test_a_text_that_its_values_make_too_long_is_refused_before_it_is_made() -> None:
    config = layer_config([("task", {"k": "x" * 30_000, "list": [1] * 15_000})])
    for text in ("{k}" * 2_000, "{list} {k}" * 4, "{k}" * 4 + "a" * 100_000):
        with pytest.raises(DefinitionInvalid, match=f"and may have {MAX_FILLED_CHARS}: shorten it"):
            fill_placeholders(text, config)
    assert len(fill_placeholders("{k}" * 6 + "{{k}}" + "{unknown}" * 500, config)) == 6 * 30_000 + 3 + 500 * 9
