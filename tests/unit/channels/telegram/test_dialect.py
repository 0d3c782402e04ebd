"""Markdown as text with marks, rule by rule."""

from __future__ import annotations

import sys

import pytest
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline

from channels.markdown.marked_text import MarkedText
from channels.telegram.dialect import parse_markdown

MAX_STEPS_PER_CHAR = 5


def shown(marked: MarkedText) -> list[tuple[str, str]]:
    return [(mark.kind, marked.text[mark.start : mark.end]) for mark in marked.marks]


@pytest.mark.parametrize(
    ("source", "text", "marks"),
    [
        ("**a *b***", "a b", [("bold", "a b"), ("italic", "b")]),
        ("~~gone~~", "gone", [("strike", "gone")]),
        ("**a `b` c**", "a b c", [("bold", "a "), ("code", "b"), ("bold", " c")]),
        ("# Ein *Titel*", "Ein Titel", [("bold", "Ein Titel"), ("italic", "Titel")]),
        ("a\n\n---\nb", "a\n\n————————\nb", []),
        ("[你好](https://e.example)", "你好", [("link", "你好")]),
        ("[`x`](https://e.example)", "x", [("link", "x")]),
        ("[a](notes.md)", "a (notes.md)", []),
        ("[](https://e.example)", "https://e.example", [("link", "https://e.example")]),
        ('[a](https://e.example "T")', "a (T)", [("link", "a")]),
        ("![alt](https://e.example/i.png)", "alt", [("link", "alt")]),
        ("see https://e.example/a_b_(c).", "see https://e.example/a_b_(c).", [("link", "https://e.example/a_b_(c)")]),
        ("见https://e.example/a。好", "见https://e.example/a。好", [("link", "https://e.example/a")]),
        ("<b>x</b> <p> &lt;", "x <p> <", [("bold", "x")]),
        ("||`hid` it|| a || b || c", "hid it a || b || c", [("spoiler", "hid it")]),
        ("> a\n> > b\n\nc", "a\nb\n\nc", [("quote", "a\nb")]),
        ("- a\n  - b\n    c\n- d", "• a\n  • b\n    c\n• d", []),
        ("3. a\n7. b\n1. c", "3. a\n7. b\n8. c", []),
        ("1) a\n   - b", "1) a\n   • b", []),
        ("- [ ] a\n- [x] **b**", "☐ a\n☑ b", [("bold", "b")]),
        ("- ```py\n  x = 1\n    y\n  ```", "•\nx = 1\n  y".replace("•", "• "), [("pre", "x = 1\n  y")]),
        ("```py app.py\nx\n```", "py app.py\nx", [("pre", "x")]),
        ("```py\n```", "py", []),
        ("[a]: https://e.example", "[a]: https://e.example", [("link", "https://e.example")]),
        ("[x][a]\n\n[a]: https://e.example", "x", [("link", "x")]),
        ("a\0b\ud800c\ud83d\ude00", "a\ufffdb\ufffdc\U0001f600", []),
        ("**half `open [link](http", "**half `open [link](http", []),
        ("שלום **עולם**", "שלום עולם", [("bold", "עולם")]),
    ],
)
def test_it_is_shown_as(source: str, text: str, marks: list[tuple[str, str]]) -> None:
    assert (parse_markdown(source).text, shown(parse_markdown(source))) == (text, marks)


def test_code_has_its_language_and_a_link_its_address() -> None:
    assert [mark.language for mark in parse_markdown("```c++\nx\n```").marks] == ["c++"]
    assert [mark.url for mark in parse_markdown("[a](https://e.example/b)").marks] == ["https://e.example/b"]


def test_a_narrow_table_has_columns_as_wide_as_what_is_in_them() -> None:
    marked = parse_markdown("| 名 | n |\n|---|--:|\n| 汉字 | 1 |\n| a | 22 | extra |\n| b |")
    lines = marked.text.split("\n")
    assert lines == ["名   |          n", "-----+-----------", "汉字 |          1", "a    | 22 | extra", "b    |"]
    assert [mark.kind for mark in marked.marks] == ["pre"]


def test_a_wide_table_is_a_block_for_each_row() -> None:
    source = "| Name | What |\n|--|--|\n| **a** | x |\n| b | |"
    assert parse_markdown(source, table_columns=8).text == "Name: a\nWhat: x\n\nName: b\nWhat:"
    assert parse_markdown("| a | b |\n|--|--|", table_columns=1).text == "a | b"


def test_a_table_with_links_keeps_them() -> None:
    assert [mark.kind for mark in parse_markdown("| a |\n|--|\n| [b](https://e.example) |").marks] == ["bold", "link"]


def test_what_is_nested_too_deeply_is_shown_as_it_is_written() -> None:
    assert parse_markdown(">" * 500 + " deep").text.endswith("> deep")


def test_where_the_parser_fails_the_source_is_shown() -> None:
    def deep(left: int) -> MarkedText:
        return deep(left - 1) if left else parse_markdown("> " * 39 + "**x**")

    frames, frame = 0, sys._getframe()
    while frame.f_back:
        frames, frame = frames + 1, frame.f_back
    assert deep(sys.getrecursionlimit() - frames - 60) == MarkedText("> " * 39 + "**x**")


def test_a_paragraph_that_would_take_seconds_is_shown_as_it_is() -> None:
    assert parse_markdown("[" * 100_000).text == "[" * 100_000


@pytest.mark.parametrize("piece", ["![[", "[", "[[](", "![x", "[[a]]("])
def test_brackets_that_never_close_take_few_steps_and_lose_nothing(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, skip = 0, ParserInline.skipToken

    def counted(self: ParserInline, state: StateInline) -> None:
        nonlocal steps
        steps += 1
        skip(self, state)

    monkeypatch.setattr(ParserInline, "skipToken", counted)
    source = piece * (8000 // len(piece))
    assert parse_markdown(source).text == source
    assert steps <= MAX_STEPS_PER_CHAR * (len(source) + 1)


def test_one_paragraph_that_takes_too_many_steps_changes_no_other() -> None:
    marked = parse_markdown("**a** [[b]](https://e.example)\n\n" + "![[" * 2000 + "\n\n**c**")
    assert marked.text == "a [b]\n\n" + "![[" * 2000 + "\n\nc"
    assert shown(marked) == [("bold", "a"), ("link", "[b]"), ("bold", "c")]


def test_descriptions_within_descriptions_count_as_steps() -> None:
    source = "![" * 400 + "](a)" * 400
    assert parse_markdown(source).text == source
