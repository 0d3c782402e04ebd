"""Parse modes and entities of the Bot API server for tests, after the examples of the official pages."""

from __future__ import annotations

import pytest

from tests.fakes.botapi.errors import Refusal
from tests.fakes.botapi.markup import parse
from tests.fakes.botapi.text import find, piece, strip, units

Mark = tuple[str, str]


def _read(text: str, mode: str) -> tuple[str, list[Mark]]:
    bare, entities = parse(text, mode)
    return bare, [(one["type"], piece(bare, one)) for one in entities]


@pytest.mark.parametrize(
    ("text", "bare", "marks"),
    [
        ("<b>bold</b>, <strong>bold</strong>", "bold, bold", [("bold", "bold"), ("bold", "bold")]),
        ("<b>b <i>i <u>u</u></i></b>", "b i u", [("bold", "b i u"), ("italic", "i u"), ("underline", "u")]),
        ('<a href="http://a.example/?x=1&amp;y=2">in</a>', "in", [("text_link", "in")]),
        ("<pre><code class='language-python'>x &lt; 1</code></pre>", "x < 1", [("pre", "x < 1")]),
        ("<code>x</code>", "x", [("code", "x")]),
        ("<blockquote expandable>q</blockquote>", "q", [("expandable_blockquote", "q")]),
        ('<span class="tg-spoiler">s</span><tg-spoiler>t</tg-spoiler>', "st", [("spoiler", "s"), ("spoiler", "t")]),
        ("😀 <b>😀</b> &#33; &copy;", "😀 😀 ! &copy;", [("bold", "😀")]),
    ],
)
def test_html(text: str, bare: str, marks: list[Mark]) -> None:
    assert _read(text, "HTML") == (bare, marks)


def test_html_keeps_addresses_and_languages() -> None:
    assert parse('<a href="http://a.example/?x=1&amp;y=2">in</a>', "html")[1][0]["url"] == "http://a.example/?x=1&y=2"
    assert parse("<pre><code class='language-python'>x</code></pre>", "html")[1][0]["language"] == "python"
    assert parse("```python\nx\n```", "MarkdownV2")[1][0]["language"] == "python"


@pytest.mark.parametrize(
    ("text", "bare", "marks"),
    [
        ("*bold \\*text*", "bold *text", [("bold", "bold *text")]),
        (
            "_i_ __u__ ~s~ ||p||",
            "i u s p",
            [("italic", "i"), ("underline", "u"), ("strikethrough", "s"), ("spoiler", "p")],
        ),
        ("*b _i __u__ i_ b*", "b i u i b", [("bold", "b i u i b"), ("italic", "i u i"), ("underline", "u")]),
        ("[in\\!](http://a.example/\\))", "in!", [("text_link", "in!")]),
        ("`a\\`b` ```\nx_y.z\n```", "a`b x_y.z\n", [("code", "a`b"), ("pre", "x_y.z\n")]),
        (">one\n>two\nthree", "one\ntwo\nthree", [("blockquote", "one\ntwo")]),
        (">one\n>two||", "one\ntwo", [("expandable_blockquote", "one\ntwo")]),
        ("a \\> b \\- c\\.", "a > b - c.", []),
    ],
)
def test_markdown_v2(text: str, bare: str, marks: list[Mark]) -> None:
    assert _read(text, "MarkdownV2") == (bare, marks)


@pytest.mark.parametrize(
    ("mode", "text", "said"),
    [
        ("HTML", "</b>", "Unexpected end tag at byte offset 0"),
        ("HTML", "<b><i>x</b></i>", 'Unmatched end tag at byte offset 7, expected "</i>", found "</b>"'),
        ("HTML", "1 < 2", "Unclosed start tag at byte offset 2"),
        ("MarkdownV2", "é *b", "Can't find end of Bold entity at byte offset 3"),
        ("MarkdownV2", "```x", "Can't find end of Pre entity at byte offset 0"),
        ("MarkdownV2", "*a _b* c_", "Can't find end of Italic entity at byte offset 3"),
        ("MarkdownV2", "[x](http://", "Can't find end of a URL at byte offset 0"),
        ("MarkdownV2", "a-b", "Character '-' is reserved and must be escaped with the preceding '\\'"),
        ("Markdown", "a_b", "Can't find end of the entity starting at byte offset 1"),
    ],
)
def test_what_cannot_be_parsed(mode: str, text: str, said: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse(text, mode)
    assert caught.value.description == f"Bad Request: can't parse entities: {said}"


def test_markdown_of_old() -> None:
    assert _read("*b* _i_ `c` [in](http://a.example) \\*", "Markdown") == (
        "b i c in *",
        [("bold", "b"), ("italic", "i"), ("code", "c"), ("text_link", "in")],
    )


def test_a_parse_mode_nobody_knows() -> None:
    with pytest.raises(Refusal, match="unsupported parse_mode"):
        parse("x", "RTF")


def test_what_the_platform_finds_itself() -> None:
    text = "😀 /start@bubbot_bot hi @ada see https://a.example/x?y=1. mail a@b.example #tea no/command a@b"
    found = [(one["type"], piece(text, one)) for one in find(text)]
    assert found == [
        ("bot_command", "/start@bubbot_bot"),
        ("mention", "@ada"),
        ("url", "https://a.example/x?y=1"),
        ("email", "a@b.example"),
        ("hashtag", "#tea"),
    ]
    code = [{"type": "code", "offset": 0, "length": units(text)}]
    assert find(text, code) == code


def test_stripping_moves_and_cuts_entities() -> None:
    text, entities = strip(
        " 😀 hi \n", [{"type": "bold", "offset": 0, "length": 4}, {"type": "italic", "offset": 6, "length": 2}]
    )
    assert (text, entities) == ("😀 hi", [{"type": "bold", "offset": 0, "length": 3}])
