"""Answers as Discord takes them."""

from __future__ import annotations

import re
from collections.abc import Set

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from bubbot.ports.channel import MessagePart, Outbound, OutboundFile
from channels.discord.dialect import render
from channels.discord.text import DiscordLayout, open_at_end, split_answer
from channels.markdown.long_blocks import LongBlockLimits
from channels.markdown.marked_text import clean_text, count_utf16_units
from channels.telegram.dialect import parse_markdown
from tests.fakes.discord_reading import read
from tests.property.markdowns import Document, documents, noise

DISCORD_MESSAGE_LIMIT = 2000


OF_LINES = [
    ("__init__ and _it_", "**init** and *it*"),
    ("***both*** **a *b* c**", "_**both**_ **a *b* c**"),
    ("*a***b**", "_a_**b**"),
    ("**a***b*", "**a**_b_"),
    ("snake_case_name and 2 * 3 * 4", "snake\\_case\\_name and 2 \\* 3 \\* 4"),
    ("~~no~~ ~/home", "~~no~~ ~/home"),
    ("||hidden||", "||hidden||"),
    ("a || b || c", "a \\|\\| b \\|\\| c"),
    ("`co*de`", "`co*de`"),
    ("*a `x_y` b*", "a `x_y` b"),  # Discord would end the italics within the code
    ("**a `x_y` b**", "**a `x_y` b**"),
    ("`` a`b ``", "``a`b``"),
    ("`` `a` ``", "`` `a` ``"),
    ("![alt](https://x.example/a.png)", "[alt](https://x.example/a.png)"),
    ("![](https://x.example/a.png)", "https://x.example/a.png"),
    ("[a [b]](https://x.example/(c))", "[a \\[b\\]](https://x.example/%28c%29)"),
    ("[a](https://x.example \"T\")", "[a](https://x.example) (T)"),
    ("[a **b**](https://x.example) c d **e**", "[a **b**](https://x.example) c d **e**"),
    ("[a **b**](https://x.example)**e**", "[a **b**](https://x.example)**e**"),
    ("**a `b**c` d** *e*", "a `b**c` d *e*"),
    ("[a](/here) [m](mailto:m@x.example)", "a (/here) m (mailto:m@x.example)"),
    ("<https://x.example/a_b> https://x.example/a_b.", "<https://x.example/a_b> https://x.example/a_b."),
    ("https://x.example/a* b", "<https://x.example/a>\\* b"),
    ("\\[a](b)", "[a\\](b)"),
    ("<b>html</b> <p> &amp; &lt;", "**html** <p> & <"),
    ("@everyone <@123> <#4> <t:5> <:a_b:6>", "@everyone <@123> <#4> <t:5> <:a_b:6>"),
    ("C:\\Users\\ and \\*", "C:\\Users\\ and \\*"),
    ("# One", "# One"),
    ("### Three *it*", "### Three *it*"),
    ("#### Four **bold**", "**Four bold**"),
    ("One\ntwo\n===", "# One two"),
    ("Two\n---", "## Two"),
    ("* * *", "————————"),
    ("\\# no\n\\- no\n\\> no\n1990\\. no", "\\# no\n\\- no\n\\> no\n1990\\. no"),
    ("- [ ] open\n- [x] done\n* * star", "- ☐ open\n- ☑ done\n- \n  - star"),
    ("1. a\n1. b\n\n7. c", "1. a\n2. b\n\n7. c"),
    ("- a\n  - b\n\n    c\n- d", "- a\n  - b\n\n    c\n- d"),
    ("- a\n\n      code\n- b", "- a\n\n```\ncode\n```\n- b"),
    ("- # Head", "- **Head**"),
    ("> a\n>\n> b\n\n> c", "> a\n> \n> b\n\n> c"),
    ("- a\n  > b\n  > - c", "- a\n> b\n> - c"),
    ("- > a", "- \n> a"),
    ("~~~py\nx\n~~~", "```py\nx\n```"),
    ("````md\n```py\n```\n````", "```md\n`\u200b`\u200b`py\n`\u200b`\u200b`\n```"),
    ("```py title=x\na\n```", "py title=x\n```py\na\n```"),
    ("```\n```\na", "a"),
    ("|a|b|\n|--|--:|\n|1|22|", "```\na |  b\n--+---\n1 | 22\n```"),
    ("|a|b|\n|--|--|\n|[1](https://x.example)|**2**|", "**a:** [1](https://x.example)\n**b:** **2**"),
    ("a\n\n\n\nb", "a\n\nb"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "shown"), OF_LINES)
def test_what_discord_reads(source: str, shown: str) -> None:
    assert render(source) == shown


def test_a_wide_table_is_a_list_of_its_rows() -> None:
    source = "|head|other|\n|--|--|\n|" + "word " * 20 + "|x|\n|a|b|"
    assert render(source) == f"**head:** {('word ' * 20).strip()}\n**other:** x\n\n**head:** a\n**other:** b"


def test_a_short_answer_is_one_part_that_replies() -> None:
    assert split_answer(Outbound("discord", "1", "Hi.", "2", "3")) == [MessagePart("1", "Hi.", "2", "3")]


def test_an_answer_in_which_nothing_can_be_seen_has_no_part() -> None:
    for text in ("", " \n", "\u200b", "&nbsp;", "#", "```\n```", "> "):
        assert split_answer(Outbound("discord", "1", text)) == []
    file = OutboundFile("a.txt", text="a")
    assert split_answer(Outbound("discord", "1", "", "2", "3", (file,))) == [MessagePart("1", "", "2", "3", file=file)]


def test_long_blocks_are_files_after_the_text() -> None:
    own = OutboundFile("code-1.py", text="mine")
    code = "print()\n" * 500
    made = split_answer(Outbound("discord", "1", f"Look:\n\n```py\n{code}```\nDone.", files=(own,)))
    assert [part.text for part in made] == ["Look:\n\n📎 code-2.py\n\nDone.", "", ""]
    assert [part.file and part.file.name for part in made] == [None, "code-2.py", "code-1.py"]


def test_code_over_the_limit_is_cut_at_a_line_with_its_fence() -> None:
    code = "\n".join(f"line({number})" for number in range(300))
    made = split_answer(
        Outbound("discord", "1", f"A\n\n```py\n{code}\n```"), DiscordLayout(long_blocks=LongBlockLimits(0))
    )
    assert len(made) == 2
    assert all(part.text.count("```") == 2 and "```py\n" in part.text and part.text.endswith("```") for part in made)
    assert "".join(re.findall(r"line\(\d+\)", "".join(part.text for part in made))) == code.replace("\n", "")


def test_what_is_astral_counts_twice() -> None:
    made = split_answer(Outbound("discord", "1", "😀" * 1500))
    assert all(count_utf16_units(part.text) <= 2000 for part in made)
    assert "".join(part.text for part in made) == "😀" * 1500


def test_looks_that_a_cut_goes_through_are_closed_and_opened_again() -> None:
    words = "some words that go on. " * 120 + "end"
    one, two = in_pieces(f"**bold *both {words}* ~~{words}~~ end**")[:2]
    assert one.endswith("***")
    assert two.startswith("***some")
    last = in_pieces(f"> __bold {words}__ and a_b_c https://x.example/_a `x")[-1]
    assert last.startswith("**")
    assert last.endswith("** and a\\_b\\_c https://x.example/_a \\`x")
    first, *_, end = in_pieces("`" + "code " * 900 + "`")
    assert (first[0], first[-1], end[0], end[-1]) == ("`", "`", "`", "`")


def test_an_escape_is_not_parted_from_what_it_escapes() -> None:
    for shift in range(4):
        made = in_pieces("x" * shift + "\\*" * 2_000)
        assert len(made) > 1
        assert all(re.fullmatch(r"x*(\\\*)+", piece) for piece in made)


def test_the_looks_of_every_piece_are_complete() -> None:
    text = " ".join(
        f"**bold {n} *it* `code {n}`** ~~gone~~ ||hidden|| [link {n}](https://x.example/{n})" for n in range(150)
    )
    made = in_pieces(text)
    assert len(made) > 4
    for piece in made:
        for mark in ("**", "~~", "||", "`"):
            assert piece.count(mark) % 2 == 0, (mark, piece)


def letters(text: str) -> str:
    return "".join(char for char in text if char.isalpha())


def in_pieces(source: str) -> list[str]:
    return [
        part.text
        for part in split_answer(Outbound("discord", "1", source), DiscordLayout(long_blocks=LongBlockLimits(0)))
    ]


def see_that_it_fits(pieces: list[str]) -> None:
    for piece in pieces:
        assert 0 < count_utf16_units(piece) <= DISCORD_MESSAGE_LIMIT
        assert piece.strip()
        fences = re.findall(r"^(?:> )*```", piece, re.MULTILINE)
        assert len(fences) % 2 == 0


@given(documents())
def test_every_word_of_a_document_is_there_in_order(document: Document) -> None:
    pieces = in_pieces(document.source)
    see_that_it_fits(pieces)
    text, at = "\n".join(pieces), 0
    for word in document.words:
        # Row by row, the head of a table stands before each cell.
        at = text.find(word, 0 if "|--" in document.source else at)
        assert at >= 0, word


@given(noise, st.integers(1, 12))
@example("```\n" * 3, 60)
@example("> " * 50 + "a\n", 30)
def test_whatever_comes_fits_and_keeps_its_letters(source: str, times: int) -> None:
    pieces = in_pieces(source * times)
    see_that_it_fits(pieces)
    if not re.search(
        r"[\[&\]<|:`~]", source
    ):  # links, entities, tables and the languages of code are written otherwise
        assert letters("".join(pieces)) == letters(clean_text(source * times))


LOOKS = {"bold", "italic", "underline", "strike", "spoiler", "code"}
SIGNS = [
    "**",
    "*",
    "_",
    "__",
    "~~",
    "||",
    "`",
    "``",
    "\\",
    "a",
    "b",
    "c_d",
    " ",
    " ",
    " ",
    ".",
    "(",
    "é",
    "e__f",
    "2",
    "字",
    "：",
    "（",
    "”",
    "<b>",
    "</b>",
    "<u>",
    "</u>",
    "|",
    "~",
]


@given(st.lists(st.sampled_from(SIGNS), max_size=24).map("".join))
def test_discord_shows_what_commonmark_means(line: str) -> None:
    source = f"x {line} x"
    assume(not re.search(r"\\[~|]", source))  # no backslash helps before the end of what is struck out or hidden
    assume(not re.search(r"`[^`]*[*_~|][^`]*`", source))  # what stands around such code loses its looks
    marked = parse_markdown(source)
    meant = [
        (char, simple({mark.kind for mark in marked.marks if mark.start <= at < mark.end} & LOOKS))
        for at, char in enumerate(marked.text)
        if not char.isspace()
    ]
    shown = [(char, simple(looks)) for char, looks in read(render(source)) if not char.isspace() and char != "\u200b"]
    assert shown == meant, render(source)


def simple(looks: Set[str]) -> Set[str]:
    """Code is nothing else, but where it is hidden: then it is only that."""
    return looks & {"spoiler"} or looks & {"code"} or looks


def test_underlined_text_that_is_cut_stays_underlined() -> None:
    pieces = in_pieces(f"<u>{'word ' * 1000}</u>end")
    assert len(pieces) > 1
    assert all(piece.startswith("__") and piece.rpartition("__")[2] in ("", " end") for piece in pieces)


@pytest.mark.parametrize(("backslashes", "torn"), [(0, ""), (1, "\\"), (2, ""), (3, "\\"), (4, "")])
def test_an_odd_backslash_at_the_end_of_a_piece_belongs_to_the_next_one(backslashes: int, torn: str) -> None:
    assert open_at_end("**word" + "\\" * backslashes) == (["**"], torn)
