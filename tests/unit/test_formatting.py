"""Small operations on texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.formatting import (
    cell_width,
    clean,
    clean_json,
    did_you_mean,
    escape_json,
    format_bytes,
    format_table,
    replace_controls,
    wrap_text,
    wrap_words,
)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1 kB"),
        (102_400, "102 kB"),
        (999_000, "999 kB"),
        (1_000_000, "1.0 MB"),
        (2_500_000, "2.5 MB"),
        (1e9, "1.0 GB"),
        (2.5e9, "2.5 GB"),
    ],
)
def test_kilobytes_are_whole_and_larger_units_have_one_decimal(size: float, text: str) -> None:
    assert format_bytes(size) == text


def test_half_a_surrogate_pair_is_replaced_anywhere_in_a_json_value() -> None:
    assert clean_json({"a\ud83d": ["\ude00b", 1, None, "😀"]}) == {"a\ufffd": ["\ufffdb", 1, None, "😀"]}
    whole = {"a": "😀"}
    assert clean_json(whole) is whole


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
        ("一二 三四五 六", ["一二 三四", "五 六"]),
        ("一二三四五六七", ["一二三四", "五六七"]),
        ("一二三四，五六", ["一二三", "四，五六"]),
        ("一二三「四五六", ["一二三", "「四五六"]),
        ("一二三 bubbot", ["一二三", "bubbot"]),
        ("see `a b c d`", ["see", "`a b c d`"]),
        ("a lone ` tick", ["a lone `", "tick"]),
        ("bubbot access approve CODE", ["bubbot access approve CODE"]),
        ("  bin/bubbot chat  talks here", ["  bin/bubbot chat", "talks", "here"]),
        ("bubbot: no home", ["bubbot:", "no home"]),
        ("", [""]),
        (" " * 12, [""]),
    ],
)
def test_a_line_breaks_between_words(line: str, rows: list[str]) -> None:
    assert wrap_words(line, 9).split("\n") == rows
    assert wrap_words(line, 0) == line


def test_the_rows_after_the_first_are_indented() -> None:
    assert wrap_words("problem  it is so and so", 16, " " * 9) == "problem  it is\n         so and\n         so"


def test_a_text_keeps_its_margins_and_what_is_copied() -> None:
    text = "  - one two\n```\nx = 1 + 2 + 3\n```\n# would run: a b c\nlast words"
    assert wrap_text(text, 9).split("\n") == [
        "  - one", "    two", "```", "x = 1 + 2 + 3", "```", "# would run: a b c", "last", "words"
    ]  # fmt: skip
    assert wrap_text(text, 0) == text


@given(st.text(alphabet="a ab中文 \n"), st.integers(4, 30))
def test_wrapping_loses_no_character_and_no_row_is_wider_than_its_words(text: str, columns: int) -> None:
    wrapped = wrap_text(text, columns)
    assert wrapped.replace(" ", "").replace("\n", "") == text.replace(" ", "").replace("\n", "")
    assert all(cell_width(row) <= columns or " " not in row.strip() for row in wrapped.split("\n"))


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("plain", "plain"),
        ("é", "é"),
        ("\ud83d\ude00", "😀"),
        ("a\ud83d b", "a\ufffd b"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
    ],
)
def test_halves_of_surrogate_pairs_are_joined_or_replaced(text: str, stored: str) -> None:
    assert clean(text) == stored


@pytest.mark.parametrize(
    ("text", "cells"),
    [("abc", 3), ("\x1b[1m", 4), ("é", 1), ("e\u0301", 1), ("\u0301", 0), ("一二", 4), ("一\x1b", 2), ("", 0)],
)
def test_how_many_cells_a_text_takes(text: str, cells: int) -> None:
    assert cell_width(text) == cells


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb\rc", "a\nb\ufffdc"),
        ("\x1b]0;title\x07\x9b1m\x7f", "\ufffd]0;title\ufffd\ufffd1m\ufffd"),
        ("a\u202eb\u2066c\u200fd\ufeff", "a\ufffdb\ufffdc\ufffdd\ufffd"),
        ("a\u2028b\u2029c\ud800", "a\ufffdb\ufffdc\ufffd"),
        ("👩\u200d👩 \u200c", "👩\u200d👩 \u200c"),
        ("a\xa0b\u3000c\ue000", "a\xa0b\u3000c\ue000"),  # neither is shown as a letter, and neither is obeyed
        ("plain é 一", "plain é 一"),
    ],
)
def test_what_a_terminal_obeys_is_replaced_and_all_else_stays(text: str, printed: str) -> None:
    assert replace_controls(text) == printed


def test_what_cannot_be_printed_is_escaped_in_json() -> None:
    assert escape_json('{\n  "a": "é\u202e\x7f\u2028"\n}') == '{\n  "a": "é\\u202e\\u007f\\u2028"\n}'


class TestTables:
    ROWS = (("a", "1", "x"), ("bcd", "22", ""), ("一二", "3", "yz"))

    def test_columns_are_as_wide_as_their_widest_cell(self) -> None:
        assert format_table(self.ROWS) == ["a     1   x", "bcd   22", "一二  3   yz"]
        assert format_table(self.ROWS, right=[1], header=("name", "n", "")) == [
            "name   n",
            "a      1  x",
            "bcd   22",
            "一二   3  yz",
        ]

    def test_a_table_that_does_not_fit_has_a_cell_a_line(self) -> None:
        assert format_table(self.ROWS, columns=12) == format_table(self.ROWS)  # 4 + 2 + 2 + 2 + 2
        assert format_table(self.ROWS, columns=11) == ["a", "  1", "  x", "bcd", "  22", "一二", "  3", "  yz"]
        assert format_table(self.ROWS[:2], columns=5, header=("name", "n", "z")) == [
            "name: a", "  n: 1", "  z: x", "name: bcd", "  n: 22"
        ]  # fmt: skip


def test_a_question_stands_between_what_is_given() -> None:
    given = {"rest": "=", "before": "no; ", "after": "!", "otherwise": "none"}
    assert did_you_mean("TELEGRM", ["telegram"], **given) == "no; did you mean 'telegram='!"
    assert did_you_mean("x", ["telegram"], **given) == "none"
