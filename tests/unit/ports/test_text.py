"""Small operations on texts."""

from __future__ import annotations

import pytest

from bubbot.ports.text import clean_json, did_you_mean, format_bytes, wrap_words


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


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("one two", ["one two"]),
        ("one two three", ["one two", "three"]),
        ("  one two three", ["  one two", "three"]),
        ("/a/path/that/is/wide one", ["/a/path/that/is/wide", "one"]),
        ("一二 三四五 六", ["一二", "三四五 六"]),
        ("一二三四五六七", ["一二三四五六七"]),
        ("", [""]),
        (" " * 12, [""]),
    ],
)
def test_a_line_breaks_between_words(line: str, rows: list[str]) -> None:
    assert wrap_words(line, 9).split("\n") == rows
    assert wrap_words(line, 0) == line


def test_the_rows_after_the_first_are_indented() -> None:
    assert wrap_words("problem  it is so and so", 16, " " * 9) == "problem  it is\n         so and\n         so"
