"""What people, shells, clients and models see is what was recorded, but for listed changes."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.golden import surfaces
from tests.golden.surfaces import (
    RECORDERS,
    SurfaceChange,
    append_change,
    expect,
    find_differences,
    find_faults,
    list_change,
    read_changes,
    read_recorded,
    record,
)

SHOWN = 5
"""Differences that a failed test shows."""
COUNTS = {"chat": 120, "shell": 100, "http": 50, "tools": 90, "calls": 100, "settings": 200}
"""The least number of values in each file."""


@pytest.mark.parametrize("name", RECORDERS)
def test_a_surface_is_as_it_was_recorded(name: str, tmp_path: Path) -> None:
    differences = find_differences(expect(name), record(name, tmp_path))
    shown = [f"{key}\n- {json.dumps(old)}\n+ {json.dumps(new)}" for key, (old, new) in differences.items()]
    assert not shown, f"{len(shown)} values of {name} differ:\n" + "\n".join(shown[:SHOWN])


@pytest.mark.parametrize("name", RECORDERS)
def test_enough_is_recorded(name: str) -> None:
    assert len(read_recorded(name)) >= COUNTS[name]


def test_every_tool_of_the_reference_is_recorded() -> None:
    page = (ROOT / "docs" / "reference" / "tools.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([a-z]+\.[a-z_]+)` \|", page, re.MULTILINE)
    assert sorted(named) == sorted(expect("tools")["(order)"])


def test_each_listed_change_has_a_reason_and_changes_something() -> None:
    assert list(find_faults(read_changes())) == []


def test_a_listed_change_without_effect_or_reason_is_found() -> None:
    recorded = read_recorded("settings")
    key = next(iter(recorded))
    same = SurfaceChange("settings", key, json.dumps(recorded[key]), "why")
    assert list(find_faults([same])) == [f"settings: {key}: that is the recorded value"]
    bare = SurfaceChange("settings", key, '"another"', " ")
    assert list(find_faults([bare])) == [f"settings: {key}: no reason"]
    gone = SurfaceChange("settings", "no such key", "", "why")
    assert list(find_faults([gone])) == ["settings: no such key: it is not recorded, so it cannot go"]
    assert list(find_faults([SurfaceChange("settings", key, "1", "why")] * 2)) == [f"settings: {key}: listed twice"]
    assert list(find_faults([SurfaceChange("menus", "x", "1", "why")])) == ["menus: x: there is no such file"]


def test_a_change_that_the_recorder_lists_is_read_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surfaces, "CHANGES", tmp_path / "changes.toml")
    text = json.dumps({"said": ['a "b" \\ \n\t\x7f\x00 é 漢字 😀']}, ensure_ascii=False)
    change = SurfaceChange("chat", '1 | ,x "y" \\n', text, "it's wanted")
    append_change(change)
    append_change(replace(change, value=""))
    assert read_changes() == [change, replace(change, value="")]


def test_a_key_that_changes_again_is_listed_once_with_both_reasons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surfaces, "CHANGES", tmp_path / "changes.toml")
    first, other = SurfaceChange("chat", "1 | ,x", "1", "First."), SurfaceChange("shell", "1 | ,x", "1", "Other.")
    for change in (first, other, replace(first, value="2", reason="Second.")):
        list_change(change)
    assert read_changes() == [replace(first, value="2", reason="First. Second."), other]


def test_every_kind_of_difference_is_found() -> None:
    expected = {"same": 1, "other": {"a": 1, "b": 2}, "order": {"a": 1, "b": 2}, "gone": 1}
    actual = {"same": 1, "other": {"a": 1, "b": 3}, "order": {"b": 2, "a": 1}, "new": None}
    assert list(find_differences(expected, actual)) == ["other", "order", "gone", "new"]
