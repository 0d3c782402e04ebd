"""Anchors and the contract of their state."""

from __future__ import annotations

import re
from typing import Any

import pytest

from bubbot.errors import EntryInvalid
from bubbot.tape.anchor import anchor, check_state, find_parents, recalled_ranges
from bubbot.tape.entry import TapeEntry, thaw


def test_an_anchor_carries_its_name_and_state() -> None:
    built = anchor("phase/design", {"phase": "design"}, meta={"turn": 1})
    assert (built.kind, thaw(built.payload)) == ("anchor", {"name": "phase/design", "state": {"phase": "design"}})
    assert thaw(built.meta) == {"turn": 1}


@pytest.mark.law("T11")
def test_an_anchor_says_window_only_where_it_does_not_open_one() -> None:
    assert "window" not in anchor("a").payload
    assert anchor("a", window=False).payload["window"] is False


@pytest.mark.parametrize("name", ["", "  ", "\n"])
def test_an_anchor_without_a_name_is_refused(name: str) -> None:
    with pytest.raises(EntryInvalid, match="needs a name"):
        anchor(name)


def test_what_an_anchor_recalls_comes_back() -> None:
    assert recalled_ranges(anchor("a", recalls=[(1, 2), (4, 4)]).with_id(5)) == ((1, 2), (4, 4))


def test_an_anchor_that_recalls_nothing_says_nothing() -> None:
    assert "recalls" not in anchor("a").payload
    assert recalled_ranges(anchor("a").with_id(5)) == ()


@pytest.mark.parametrize(
    "recalls",
    ["1-2", 7, None, {"from": 1}, [[1]], [[1, 2, 3]], [["1", "2"]], [[1, 2.0]], [[True, True]], [[1, 5]], [[6, 9]]],
)
def test_recalls_that_are_no_ranges_before_the_anchor_are_left_out(recalls: object) -> None:
    assert recalled_ranges(TapeEntry("anchor", {"name": "a", "recalls": recalls}, id=5)) == ()


def test_a_malformed_recall_does_not_take_the_others_with_it() -> None:
    assert recalled_ranges(TapeEntry("anchor", {"name": "a", "recalls": [[1, 2], "x", [3, 4]]}, id=5)) == (
        (1, 2),
        (3, 4),
    )


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"phase": "a", "summary": "b", "owner": "human"},
        {"next_steps": [], "source_ids": [1, 9], "parents": [3]},
        {"parents": (3, ["other", 77], ("tape", 9))},
        {"source_ids": (3, ["other", 77], ("tape", 9))},
        {"next_steps": ("one", "two")},
        {"something": object(), "else": 7},
    ],
)
@pytest.mark.law("T7")
def test_a_state_that_keeps_its_contract_passes(state: dict[str, Any]) -> None:
    check_state(state, 9, "tape")
    with pytest.raises(EntryInvalid, match="phase is 7"):  # with the same state and one fault it says so
        check_state({**state, "phase": 7}, 9)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"phase": 7}, "phase is 7"),
        ({"summary": None}, "summary is None"),
        ({"owner": ["human"]}, "owner is"),
        ({"next_steps": "do it"}, "next_steps is 'do it'; it has to be a list of texts"),
        ({"next_steps": ["a", 1]}, "next_steps"),
        ({"source_ids": ["1"]}, "list of entry ids"),
        ({"source_ids": [True]}, "source_ids"),
        ({"source_ids": [0]}, "names entry 0; this tape has entries 1 to 9"),
        ({"source_ids": [1, 10]}, "names entry 10"),
        ({"source_ids": [["other", 2, 3]]}, "source_ids is"),
        ({"source_ids": [["tape", 10]]}, "source_ids names entry 10; this tape has entries 1 to 9"),
        ({"parents": [-1]}, "names entry -1"),
        ({"parents": 3}, "parents is 3; it has to be a list of entry ids, or of pairs of a tape and an id"),
        ({"parents": [1, "2"]}, "parents is"),
        ({"parents": [["other", 2, 3]]}, "parents is"),
        ({"parents": [["other", True]]}, "parents is"),
        ({"parents": [["tape", 10]]}, "parents names entry 10; this tape has entries 1 to 9"),
    ],
)
@pytest.mark.law("T7")
def test_a_state_that_breaks_its_contract_is_refused_naming_key_and_value(state: dict[str, Any], told: str) -> None:
    with pytest.raises(EntryInvalid, match=re.escape(told)):
        check_state(state, 9, "tape")


def test_the_parents_of_a_stored_anchor_are_older_and_well_formed() -> None:
    names = [3, ["other", 70], 3, ["tape", 2], "x", None, [1, 2], 5, ["tape", 6], 0, ["other", 0], True]
    assert find_parents(anchor("a", {"parents": names}).with_id(5), "tape") == (("tape", 3), ("other", 70), ("tape", 2))
    for state in ({}, {"parents": 3}, "text"):
        assert find_parents(TapeEntry("anchor", {"name": "a", "state": state}, id=5), "tape") == ()
