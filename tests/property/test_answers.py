"""What must hold for every answer: nothing lost, limits kept, looks that the platform takes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import import_module
from itertools import pairwise
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from bubbot.ports.channel import MessagePart, Outbound, OutboundFile
from bubbot.ports.markdown import parse_any, parse_tokens
from channels.markdown.long_blocks import LongBlockLimits, extract_files
from channels.markdown.marked_text import MarkedText, clean_text, count_utf16_units
from channels.markdown.split import split_marked, split_source
from channels.telegram.dialect import parse_markdown
from channels.telegram.text import TelegramLayout, make_parts, strip_markup
from tests.property.markdowns import MARKUP, PEOPLE, Document, documents, noise

CLUSTERS = import_module("regex").compile(r"\X")
"""Somebody else's idea of what one character is."""
limits = st.integers(2, 60)
measures = st.sampled_from([len, count_utf16_units])
layouts = st.builds(
    TelegramLayout,
    st.sampled_from([0, 12, 40]),
    st.builds(LongBlockLimits, st.sampled_from([0, 20, 3000]), st.just(5), st.just(8), st.just(1)),
)


def in_order(wanted: Iterable[str], text: str) -> bool:
    """Whether all of it stands in the text, one after the other."""
    at = 0
    for one in wanted:
        found = text.find(one, at)
        if found < 0:
            return False
        at = found + len(one)
    return True


def letters(text: str) -> str:
    return "".join(char for char in text if char.isalpha())


def inked(text: str) -> str:
    return "".join(text.split())


def tidy(marked: MarkedText) -> bool:
    """Whether its marks are as Telegram wants them, by comparing each with each."""
    for mark in marked.marks:
        if not 0 <= mark.start < mark.end <= len(marked.text):
            return False
    return all(_agree(one, other) for number, one in enumerate(marked.marks) for other in marked.marks[number + 1 :])


def _agree(one: Any, other: Any) -> bool:
    if one.end <= other.start or other.end <= one.start:
        return True
    nested = one.start <= other.start and other.end <= one.end
    kinds = {one.kind, other.kind}
    if not nested or one.kind == other.kind:
        return False
    return kinds.isdisjoint({"pre", "code"}) or ("quote" in kinds and one.kind == "quote")


@given(noise)
def test_any_text_becomes_tidy_text_that_can_be_sent(source: str) -> None:
    marked = parse_markdown(source)
    assert tidy(marked)
    marked.text.encode("utf-8")
    assert "\0" not in marked.text


@given(noise)
@example("| a |\n|---|\n| b | c | d |")
@example("```py x y\nz")
def test_no_letter_of_any_text_is_lost(source: str) -> None:
    source = re.sub(r"[\[&\\<]", "", source)  # titles, addresses, tags and names of characters are written otherwise
    marked = parse_markdown(source)
    shown = list(marked.text)
    for mark in reversed(marked.marks):
        shown.insert(mark.start, mark.language)
    shown_letters = letters("".join(shown))
    wanted = letters(clean_text(source))
    assert in_order(wanted, shown_letters)
    if not re.search(r"\||```|~~~", source):
        assert wanted == shown_letters


@given(noise)
@example("<b>a `</b>` ||b <i>c|| d</i>")
def test_no_letter_of_any_text_is_doubled(source: str) -> None:
    source = re.sub(r"\[|&|<su[bp]>", "", source)
    assert in_order(letters(parse_markdown(source).text), letters(clean_text(source)))


@given(documents(), st.sampled_from([0, 20, 40, 200]))
def test_every_word_of_a_document_is_shown_in_order(document: Document, columns: int) -> None:
    marked = parse_markdown(document.source, table_columns=columns)
    assert tidy(marked)
    # Row by row, the head stands before each cell: words of a table are looked for without it.
    assert in_order(document.words, marked.text) or "|--" in document.source
    assert all(word in marked.text for word in document.words)


@given(
    noise | documents().map(lambda document: document.source),
    st.builds(LongBlockLimits, st.integers(1, 60), st.integers(0, 5), st.integers(0, 12), st.integers(0, 4)),
)
@example("```\na\n```", LongBlockLimits(2, 80))
@example("    a\n\tb", LongBlockLimits(6, 80))
@example("|a|\n|-|\n|b|", LongBlockLimits(3000, 80, 0, 0))
def test_blocks_become_the_same_files_in_a_short_answer_as_in_a_long_one(source: str, long: LongBlockLimits) -> None:
    assert extract_files(source, long)[1] == extract_files("\n" * 100 + source, long)[1]


@given(documents(), st.integers(1, 400))
def test_an_answer_that_is_still_being_written_can_be_shown(document: Document, length: int) -> None:
    assert tidy(parse_markdown(document.source[:length]))


@given(noise | documents().map(lambda document: document.source), limits, measures, st.none() | st.integers(1, 5))
def test_pieces_fit_and_leave_out_white_space_alone(source: str, limit: int, measure: Any, most: int | None) -> None:
    marked = parse_markdown(source)
    pieces = split_marked(marked, limit, measure, max_marks=most)
    assert all(0 < measure(piece.text) <= limit and piece.text.strip() and tidy(piece) for piece in pieces)
    assert inked("".join(piece.text for piece in pieces)) == inked(marked.text)
    assert all(most is None or len(piece.marks) <= most for piece in pieces)
    at = 0
    for piece in pieces:
        found = marked.text.index(piece.text, at)
        assert not marked.text[at:found].strip()
        at = found + len(piece.text)
    assert [again for piece in pieces for again in split_marked(piece, limit, measure, max_marks=most)] == pieces


@given(documents(), limits)
def test_every_character_keeps_its_looks(document: Document, limit: int) -> None:
    marked = parse_markdown(document.source)

    def looks(of: MarkedText) -> list[Any]:
        covered = [
            [(mark.kind, mark.url, mark.language) for mark in of.marks if mark.start <= at < mark.end]
            for at in range(len(of.text))
        ]
        return [(char, look) for char, look in zip(of.text, covered, strict=True) if not char.isspace()]

    assert [look for piece in split_marked(marked, limit) for look in looks(piece)] == looks(marked)


@given(noise | documents().map(lambda document: document.source), measures)
def test_what_fits_is_one_piece_as_it_is(source: str, measure: Any) -> None:
    marked = parse_markdown(source)
    if marked.text.strip():
        assert split_marked(marked, max(2, measure(marked.text)), measure) == [marked]
        assert split_source(source, max(64, measure(clean_text(source))), measure) == [clean_text(source)]
    else:
        assert split_marked(marked, 10_000) == []


@given(st.lists(st.sampled_from([*PEOPLE, " ", "\n", "a"]), max_size=40).map("".join), st.integers(12, 30))
def test_no_character_is_torn(text: str, limit: int) -> None:
    ends = {
        match.end() for match in CLUSTERS.finditer(text) if count_utf16_units(match[0]) <= limit and len(match[0]) < 64
    }
    at = 0
    for piece in split_marked(MarkedText(text), limit):
        found = text.index(piece.text, at)
        at = found + len(piece.text)
        assert found == 0 or found in ends
        assert at in ends


def fences(piece: str) -> list[str]:
    """The fences of a piece that are open at its end, read line by line as CommonMark says."""
    open_now = ""
    for line in piece.split("\n"):
        found = re.match(r"(?:[ \t>]|(?:[-*+]|\d{1,9}[.)])(?=[ \t]))*(`{3,}(?=[^`]*$)|~{3,})(.*)", line)
        if found and not open_now:
            open_now = found[1]
        elif found and found[1].startswith(open_now) and not found[2].strip():
            open_now = ""
    return [open_now] if open_now else []


@given(documents(), st.integers(64, 300), measures)
def test_markdown_is_cut_with_its_fences_closed(document: Document, limit: int, measure: Any) -> None:
    pieces = split_source(document.source, limit, measure)
    assert all(0 < measure(piece) <= limit for piece in pieces)
    assert [found for piece in pieces for found in fences(piece)] == []
    whole = "\n".join(pieces)
    assert in_order([char for word in document.words for char in word], whole)
    assert [again for piece in pieces for again in split_source(piece, limit, measure)] == pieces


@given(noise, st.integers(64, 100), measures)
def test_any_markdown_is_cut_within_the_limit(source: str, limit: int, measure: Any) -> None:
    source = source * 5
    pieces = split_source(source, limit, measure)
    assert all(0 < measure(piece) <= limit for piece in pieces)
    if "```" not in source and "~~~" not in source:
        assert inked("".join(pieces)) == inked(clean_text(source))
    else:
        wanted = [char for char in inked(clean_text(source)) if char not in "`~>-"]
        assert in_order(wanted, "\n".join(pieces))


@given(documents(), layouts)
def test_long_blocks_move_into_files_and_nothing_else_changes(document: Document, layout: TelegramLayout) -> None:
    text, files = extract_files(document.source, layout.long_blocks)
    assert len({file.name for file in files}) == len(files)
    assert in_order([file.name for file in files], text)
    for file in files:
        text = text.replace(f"📎 {file.name}", file.text, 1)
    assert in_order(document.words, text)
    assert extract_files(document.source, LongBlockLimits(code_characters=0)) == (clean_text(document.source), ())


def sound(part: MessagePart) -> bool:
    """Whether Telegram would take the part as it is: written from its documentation, in UTF-16."""
    units = part.text.encode("utf-16-le")
    ends = set()
    for entity in part.markup.get("entities", []):
        start, end = entity["offset"], entity["offset"] + entity["length"]
        inner = units[2 * start : 2 * end].decode("utf-16-le")  # fails on half a surrogate pair
        if not 0 <= start < end <= len(units) // 2:
            return False
        if entity["type"] not in ("pre", "code") and inner.strip() != inner:
            return False
        if ("url" in entity) != (entity["type"] == "text_link"):
            return False
        ends.add(end)
    return part.text == part.text.strip(" \n") or bool(ends)


@given(noise | documents().map(lambda document: document.source * 4), layouts, st.booleans())
def test_telegram_takes_every_part(source: str, layout: TelegramLayout, with_file: bool) -> None:
    files = (OutboundFile("code-1.py", text="x"),) if with_file else ()
    outbound = Outbound("telegram", "7", source, thread="3", reply_to="12", files=files)
    made = make_parts(outbound, layout)
    assert all(sound(part) and count_utf16_units(part.text) <= 4096 for part in made)
    assert all(len(part.markup.get("entities", [])) <= 100 for part in made)
    assert [part.reply_to for part in made] == ["12", *[""] * (len(made) - 1)][: len(made)]
    assert all(part.thread == "3" and part.chat == "7" for part in made)
    assert all(bool(part.text.strip()) != bool(part.file) for part in made)
    assert [bool(part.file) for part in made] == sorted(bool(part.file) for part in made)
    assert [part.file for part in made][len(made) - len(files) :] == list(files)
    assert all(strip_markup(part).text == part.text and not strip_markup(part).markup for part in made)


@given(documents())
def test_entities_lie_in_each_other_or_apart(document: Document) -> None:
    for part in make_parts(Outbound("telegram", "7", document.source * 3)):
        spans = [(entity["offset"], entity["offset"] + entity["length"]) for entity in part.markup.get("entities", [])]
        for one, other in pairwise(spans):
            assert other[0] >= one[0]
            assert other[0] >= one[1] or other[1] <= one[1]


SIGNS = [
    "&amp;",
    "1. a",
    "2) a",
    "_a_",
    "*a*",
    "`a`",
    "~~a~~",
    "||a||",
    "[a](b)",
    "![a](b)",
    "<https://a.b>",
    "\\*",
    "# a",
    "- a",
]
SIGNS += ["<mailto:a@b.cd>", "\\!"]
SIGNS += [
    "> a",
    "+ a",
    "---",
    "a\n===",
    "a\nb",
    "a\n\nb",
    "http://a.b",
    "a ",
    " a",
    "a  b",
    "    a",
    "\ta",
    "a|b\n-|-\n1|2",
    "```\na",
]
lines = st.lists(
    st.sampled_from("ab1é字 .:/!?=+-#@$%{}()'\",;^\xa0\u2028\u0301\u200b\U0001f600")
    | st.sampled_from([*SIGNS, *MARKUP]),
    max_size=8,
).map("".join)


@given(lines, st.booleans())
def test_a_line_without_markup_is_what_the_parser_makes_of_it(line: str, inline: bool) -> None:
    for start in ("", "a", "a ", "a. "):
        source = clean_text(start + line)
        assert parse_tokens(source, inline=inline) == parse_any(source, inline=inline)


def test_no_sign_of_markup_is_taken_for_text() -> None:
    for start in ("", "a", "a ", "\u0301"):
        for sign in SIGNS:
            source = clean_text(start + sign)
            assert parse_tokens(source) == parse_any(source, inline=True), source
