"""The checks of a turn, as the explanation says them."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.features.why.formats import find_checks, format_explanation
from bubbot.runtime.turns import TurnRecord
from bubbot.tape.entry import event, message
from bubbot.texts import Texts

CHECK: dict[str, Any] = {
    "call": "c1", "tool": "page.read", "digest": "d", "verdict": "run", "effect": "read, world", "row": "reads_world",
    "columns": [], "role": "owner", "place": "direct", "tainted_by": [["chat", 7]],
}  # fmt: skip


@pytest.mark.parametrize(
    "odd",
    [{"call": 5}, {**CHECK, "tainted_by": 7}, {**CHECK, "role": "king"}, {**CHECK, "place": 5}, {**CHECK, "bits": "1"}],
    ids=str,
)
def test_a_check_that_cannot_be_read_is_left_out_and_hides_no_other(odd: dict[str, Any]) -> None:
    facts = [message("user", "hi"), event("approval.checked", odd), event("approval.checked", CHECK)]
    turn = TurnRecord.of([fact.with_id(place) for place, fact in enumerate(facts, 1)])
    assert [(entry, check.tool) for entry, check in find_checks(turn)] == [(3, "page.read")]
    assert format_explanation(turn, Texts(), None).count("page.read") == 1


def test_a_check_of_a_row_that_this_version_does_not_know_is_said() -> None:
    facts = [message("user", "hi"), event("approval.checked", {**CHECK, "row": "dreams"})]
    turn = TurnRecord.of([fact.with_id(place) for place, fact in enumerate(facts, 1)])
    assert "dreams" in format_explanation(turn, Texts(), None)
