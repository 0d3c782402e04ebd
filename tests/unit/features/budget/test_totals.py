"""The totals of budgets: what a checkpoint holds of them, and that it is decoded when it is needed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.features.budget import totals as module
from bubbot.features.budget.totals import SpentTotals
from bubbot.ports.usage import SpentTotal, TotalKey

DAY, MONTH = "2026-11-22", "2026-11"
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NUMBERS = st.integers(0, 10**18)


def totals_of(values: dict[TotalKey, SpentTotal]) -> SpentTotals:
    totals = SpentTotals()
    totals.update(values)
    return totals


@given(
    st.dictionaries(
        st.builds(TotalKey, st.sampled_from(("bot", "chat")), NAMES, st.sampled_from((DAY, MONTH))),
        st.builds(SpentTotal, NUMBERS, NUMBERS, NUMBERS),
    )
)
def test_what_was_stored_is_read_again(values: dict[TotalKey, SpentTotal]) -> None:
    stored = json.loads(json.dumps(totals_of(values).encode()))
    again = SpentTotals.decode(stored)
    assert len(again) == len(values)
    assert again.encode() == stored, "what nobody asked for is stored as it was"
    assert again == values
    assert again.encode() == stored


def test_a_group_is_decoded_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [TotalKey("chat", name, period) for name in ("a", "b") for period in (DAY, MONTH)]
    stored = totals_of(dict.fromkeys(keys, SpentTotal(1, 2, 3))).encode()
    read, decode = list[str](), module._read_line

    def decoded(line: str) -> tuple[str, list[int]]:
        read.append(line)
        return decode(line)

    monkeypatch.setattr(module, "_read_line", decoded)
    again = SpentTotals.decode(stored)
    assert (len(again), read) == (4, [])
    assert again.get(TotalKey("chat", "b", DAY)) == SpentTotal(1, 2, 3)
    assert len(read) == 2
    again.keep_periods(lambda period: period == MONTH)
    assert (len(again), len(read)) == (2, 2)


def test_rows_of_earlier_checkpoints_are_read() -> None:
    assert SpentTotals.decode([["chat", "a", DAY, 1, 2, 3]]) == {TotalKey("chat", "a", DAY): SpentTotal(1, 2, 3)}


@pytest.mark.parametrize("lines", ["", "1\t2\t3\ta", "1\t2\ta\n", "1\t2\tx\ta\n", "1\t2\t3\ta\tb\n", "-1\t2\t3\ta\n"])
def test_damaged_lines_are_found_before_they_are_needed(lines: str) -> None:
    with pytest.raises(ValueError, match="damaged"):
        SpentTotals.decode([["chat", DAY, lines]])
