"""Where answers are cut, rule by rule."""

from __future__ import annotations

import pytest

from channels.markdown.cuts import is_boundary
from channels.markdown.long_blocks import LongBlockLimits, extract_files
from channels.markdown.marked_text import MarkedText, TextMark, count_utf16_units, limit_marks
from channels.markdown.split import split_marked, split_source
from channels.telegram.dialect import parse_markdown


def texts(text: str, limit: int) -> list[str]:
    return [piece.text for piece in split_marked(MarkedText(text), limit, count_utf16_units)]


@pytest.mark.parametrize(
    ("text", "limit", "pieces"),
    [
        ("one two\n\nthree. four\nfive", 20, ["one two", "three. four\nfive"]),
        ("one. two\nthree four", 14, ["one. two", "three four"]),
        ("one. two three four", 14, ["one.", "two three four"]),
        ("one two three four", 14, ["one two three", "four"]),
        ("abcdefghij", 4, ["abcd", "efgh", "ij"]),
        ("今天很好。明天也很好。", 8, ["今天很好。", "明天也很好。"]),
        ("ok\n\n" + "x" * 30, 20, ["ok", "x" * 20, "x" * 10]),
        ("a\n   \n\n  b c", 6, ["a", "  b c"]),
        ("😀😀😀", 5, ["😀😀", "😀"]),
        ("👩‍👩‍👧👩‍👩‍👧", 12, ["👩‍👩‍👧", "👩‍👩‍👧"]),
        ("e\u0301e\u0301e\u0301", 5, ["e\u0301e\u0301", "e\u0301"]),
        ("שלום לכולם", 6, ["שלום", "לכולם"]),
        ("\ud83d\ude00\ud83d\ude00", 3, ["\ud83d\ude00", "\ud83d\ude00"]),
        ("a" + "\u0301" * 70, 40, ["a" + "\u0301" * 39, "\u0301" * 31]),
        ("   \n ", 20, []),
    ],
)
def test_it_is_cut_at(text: str, limit: int, pieces: list[str]) -> None:
    assert texts(text, limit) == pieces


def test_a_mark_is_closed_and_opened_again_with_all_it_has() -> None:
    pieces = split_marked(parse_markdown("abc\n\n```py\none\n  two\n\n three\n```\nend"), 9, count_utf16_units)
    assert [piece.text for piece in pieces] == ["abc", "one\n  two", "\n three", "end"]
    assert pieces[1].marks == (TextMark(0, 9, "pre", "py"),)
    assert pieces[2].marks == (TextMark(0, 7, "pre", "py"),)
    links = split_marked(MarkedText("ab cd", (TextMark(0, 5, "link", url="u"),)), 3, count_utf16_units)
    assert [piece.marks for piece in links] == [(TextMark(0, 3, "link", url="u"),), (TextMark(0, 2, "link", url="u"),)]


def test_a_piece_ends_before_it_has_too_many_marks() -> None:
    text = "ab " * 30
    marks = tuple(TextMark(at, at + 2, "bold") for at in range(0, 90, 3))
    pieces = split_marked(MarkedText(text, marks), 60, max_marks=10)
    assert [len(piece.marks) for piece in pieces] == [10, 10, 10]


@pytest.mark.parametrize(("begins", "size"), [(9, 80), (10, 10), (11, 11)])
def test_a_piece_is_not_cut_for_its_marks_if_little_of_it_would_be_left(begins: int, size: int) -> None:
    """An eighth of the limit is the least: a mark more than there may be is left out instead."""
    marks = (TextMark(0, 2, "bold"), TextMark(begins, begins + 1, "italic"))
    assert len(split_marked(MarkedText("x" * 200, marks), 80, max_marks=1)[0].text) == size
    later = tuple(TextMark(mark.start + 80, mark.end + 80, mark.kind) for mark in marks)
    assert len(split_marked(MarkedText("x" * 200, (TextMark(0, 80, "bold"), *later)), 80, max_marks=1)[1].text) == size


def test_marks_that_say_least_are_left_out_first() -> None:
    marks = (TextMark(0, 1, "italic"), TextMark(1, 2, "bold"), TextMark(2, 3, "link", url="u"))
    assert [mark.kind for mark in limit_marks(MarkedText("abc", marks), 2).marks] == ["bold", "link"]


def test_a_limit_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match=r"limit is 1: .* use 2 or more"):
        split_marked(MarkedText("a"), 1)
    with pytest.raises(ValueError, match=r"limit is 63: .* use 64 or more"):
        split_source("a", 63)


def code(marker: str, lines: int, lead: str = "") -> str:
    body = "\n".join(f"{lead}line {number}" for number in range(lines))
    return f"{lead}{marker}py\n{body}\n{lead}{marker}"


@pytest.mark.parametrize("marker", ["```", "~~~", "`````"])
def test_a_fence_is_closed_and_opened_again(marker: str) -> None:
    pieces = split_source(f"Look:\n\n{code(marker, 30)}\n\nDone.", 100)
    assert len(pieces) == 3
    assert pieces[0].startswith(f"Look:\n\n{marker}py\nline 0\n")
    assert all(piece.startswith(f"{marker}py\nline") for piece in pieces[1:])
    assert all(piece.endswith(f"\n{marker}") for piece in pieces[:-1])
    assert pieces[-1].endswith(f"line 29\n{marker}\n\nDone.")


def test_a_block_that_fits_is_kept_whole() -> None:
    assert split_source("word " * 14 + "\n\n" + code("```", 8), 90) == [("word " * 14).rstrip(), code("```", 8)]


def test_a_block_in_a_list_is_moved_out_where_its_list_is_no_more() -> None:
    pieces = split_source("- " + "word " * 25 + "\n\n" + code("```", 3, "   ") + "\n" + "x" * 90, 100)
    assert pieces[0].startswith("- word")
    assert pieces[1].endswith("word \n\n" + code("```", 3))
    assert pieces[-1] == "x" * 90


def test_half_an_inline_code_does_not_become_a_fence() -> None:
    pieces = split_source("word " * 15 + "``` a ` b " + "word " * 15 + "```", 80)
    assert len(pieces) == 3
    assert not any(line.startswith("```") and "`" not in line[3:] for piece in pieces for line in piece.split("\n"))


def test_a_line_is_not_cut_where_its_rest_would_open_a_fence() -> None:
    pieces = split_source("word " * 12 + "```python a\nb ``` " + "end " * 20, 64)
    assert pieces[1].startswith("word ```python a")


def test_a_long_line_after_a_fence_is_text() -> None:
    pieces = split_source("```py " + "about it " * 20 + "\nx = 1\n```", 64)
    assert " ".join(pieces).split() == ["py", *["about", "it"] * 20, "```py", "x", "=", "1", "```"]


@pytest.mark.parametrize(("run", "marker"), [(8, "`" * 9), (9, "`" * 10), (10, "~~~"), (11, "~~~")])
def test_a_marker_is_longer_than_any_run_in_the_code_or_of_another_sign(run: int, marker: str) -> None:
    """It has at most an eighth of the limit: here that is 10."""
    fence = "`" * (run + 1)
    pieces = split_source(f"{fence}\n{'`' * run}\n{'x = 1' * 80}\n{fence}", 80)
    assert {line for piece in pieces for line in (piece.split("\n")[0], piece.split("\n")[-1])} == {marker}


@pytest.mark.parametrize(
    ("info", "body", "first"),
    [
        ("a`b", "x = 1", "~~~a`b"),
        ("a`bcdefghi", "x = 1", "~~~a`bcdefghi"),
        ("py `cdefgh", "x = 1", "~~~py `cdefgh"),
        ("py `cdefghi", "x = 1", "~~~py"),
        ("py `", "x" + "~" * 12, "```py"),
        ("py b", "x" + "~" * 12, "```py b"),
    ],
)
def test_what_stands_after_a_marker_stays_there_while_it_is_short_and_may(info: str, body: str, first: str) -> None:
    pieces = split_source(f"~~~{info}\n{body}\n{'x = 1' * 80}\n~~~", 80)
    assert next(line for piece in pieces for line in piece.split("\n") if line.startswith(("~~~", "```"))) == first
    assert info in pieces[0].replace("\\", "")


@pytest.mark.parametrize("info", ["`x", "x~", "x`"])
def test_a_long_line_after_a_fence_opens_none_itself(info: str) -> None:
    first = split_source(f"~~~{info} " + "about it " * 20 + "\nx = 1\n~~~", 64)[0]
    assert first.startswith(f"\\{info} about" if info[0] == "`" else f"{info} about")


def test_a_fence_that_never_ends_is_closed() -> None:
    assert all(piece.count("```") == 2 for piece in split_source("```py\n" + "x = 1\n" * 40, 100))


def test_long_code_is_a_file_and_short_code_is_none() -> None:
    body = "x = 1\n" * 81
    text, files = extract_files(f"Here:\n```python\n{body}```\nand\n```js\ny\n```")
    assert text == "Here:\n\n📎 code-1.py\n\nand\n```js\ny\n```"
    assert [(file.name, file.media_type, file.text) for file in files] == [("code-1.py", "text/plain", body)]
    assert extract_files("```\n" + "x" * 3001 + "\n```")[1][0].name == "code-1.txt"
    assert extract_files(f"```sh\n{body}```", used_names=["code-1.py"])[1][0].name == "code-2.sh"


def test_long_code_in_a_list_or_a_quote_leaves_its_reference_there() -> None:
    body = "  x = 1\n" * 81
    assert extract_files(f"- ```json\n{body}  ```\n- b")[0] == "- 📎 code-1.json\n\n- b"
    assert extract_files("> a\n> ```\n" + "> x\n" * 81 + "> ```")[0] == "> a\n>\n> 📎 code-1.txt\n>"


def test_a_long_wide_table_is_a_file_with_its_lines() -> None:
    table = "| a | b |\n|---|---|\n" + f"| {'x' * 40} | y |\n" * 21
    text, files = extract_files(f"Look\n\n{table}\nend")
    assert [(file.name, file.media_type, file.text) for file in files] == [("table-1.md", "text/markdown", table)]
    assert parse_markdown(text).text == "Look\n\n📎 table-1.md\n\nend"
    assert extract_files(table, LongBlockLimits(rows=21))[1] == ()


@pytest.mark.parametrize(
    ("cell", "files"), [("x" * 36, 0), ("x" * 37, 1), ("汉" * 18, 0), ("汉" * 19, 1), ("e\u0301" * 36, 0)]
)
def test_the_width_of_a_long_table_is_counted_in_columns(cell: str, files: int) -> None:
    table = "| a |\n|---|\n" + f"| {cell} |\n" * 21
    assert len(extract_files(table)[1]) == files


@pytest.mark.parametrize(
    ("text", "at", "boundary"),
    [
        ("ab", 1, True),
        ("a\u0300", 1, False),
        ("\u0300a", 1, True),
        ("a\u0300b", 2, True),
        ("ab", 0, True),
        ("ab", 2, True),
    ],
)
def test_a_cut_tears_no_combined_character(text: str, at: int, boundary: bool) -> None:
    assert is_boundary(text, at) is boundary
