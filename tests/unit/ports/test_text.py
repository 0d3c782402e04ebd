"""Small operations on texts."""

from __future__ import annotations

import pytest

from bubbot.ports.text import clean_json, did_you_mean, format_bytes


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (102_400, "102 kB"), (2_500_000, "2.5 MB"), (2.5e9, "2.5 GB")],
)
def test_sizes(size: float, text: str) -> None:
    assert format_bytes(size) == text


def test_half_a_surrogate_pair_is_replaced_anywhere_in_a_json_value() -> None:
    assert clean_json({"a\ud83d": ["\ude00b", 1, None, "😀"]}) == {"a\ufffd": ["\ufffdb", 1, None, "😀"]}


def test_the_closest_name_is_offered_and_none_that_is_far() -> None:
    assert did_you_mean("telegrm", ["discord", "telegram"]) == "did you mean 'telegram'?"
    assert did_you_mean("x", ["discord", "telegram"]) == ""
