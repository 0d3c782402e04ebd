"""Answers as Telegram takes them."""

from __future__ import annotations

import pytest

from bubbot.ports.channel import MessagePart, Outbound, OutboundFile
from channels.markdown.marked_text import count_utf16_units
from channels.telegram.text import TelegramLayout, make_parts, strip_markup


def of(text: str, *files: OutboundFile, reply_to: str = "") -> list[MessagePart]:
    return make_parts(Outbound("telegram", "7", text, thread="3", reply_to=reply_to, files=files))


def test_offsets_are_utf_16() -> None:
    (part,) = of("😀 **粗体😀** [x](https://e.example) ~~s~~\n> q\n```py\nz\n```")
    assert part.text == "😀 粗体😀 x s\nq\nz"
    assert part.markup == {
        "entities": [
            {"type": "bold", "offset": 3, "length": 4},
            {"type": "text_link", "offset": 8, "length": 1, "url": "https://e.example"},
            {"type": "strikethrough", "offset": 10, "length": 1},
            {"type": "blockquote", "offset": 12, "length": 1},
            {"type": "pre", "offset": 14, "length": 1, "language": "py"},
        ]
    }
    assert strip_markup(part) == MessagePart("7", part.text, "3")


def test_nothing_to_see_is_no_part() -> None:
    assert of("") == of(" \n\t ") == of("\u200b\u200d") == of("```\n\n```") == []
    assert [part.file for part in of(" ", OutboundFile("a.txt"))] == [OutboundFile("a.txt")]


def test_the_first_part_replies_and_files_come_last() -> None:
    made = of(
        "x " * 4000 + "\n\n```py\n" + "y = 1\n" * 100 + "```", OutboundFile("code-1.png", digest="d"), reply_to="9"
    )
    assert [part.reply_to for part in made] == ["9", *[""] * (len(made) - 1)]
    assert {(part.chat, part.thread) for part in made} == {("7", "3")}
    assert [part.file.name for part in made if part.file] == ["code-2.py", "code-1.png"]
    assert [bool(part.file) for part in made] == sorted(bool(part.file) for part in made)


@pytest.mark.parametrize(
    ("source", "text", "links"),
    [
        ("[bank.example](https://evil.example/x)", "bank.example (https://evil.example/x)", ["https://evil.example/x"]),
        ("[https://a.example](https://a.example@b.example)", None, ["https://a.example@b.example"]),
        ("[https://a.example/1](https://a.example/2)", "https://a.example/1", ["https://a.example/2"]),
        ("[the page](https://a.example)", "the page", ["https://a.example"]),
        ("[www.a.example](https://a.example)", "www.a.example", ["https://a.example"]),
        ("https://a.example/index.html and <https://b.example/x.y>", None, ["https://a.example/index.html", "https://b.example/x.y"]),
        ("[Ann](tg://user?id=42)", "Ann (tg://user?id=42)", []),
        ("<tg://user?id=42>", "tg://user?id=42", []),
    ],
)  # fmt: skip
def test_a_link_shows_where_it_leads_and_calls_nobody(source: str, text: str | None, links: list[str]) -> None:
    (part,) = of(source)
    assert text is None or part.text == text
    found = part.markup.get("entities", [])
    shown = part.text.encode("utf-16-le")
    assert [one["url"] for one in found] == links
    for one in found:
        if "b.example" in one["url"] or "evil" in one["url"]:
            text_of = shown[2 * one["offset"] : 2 * (one["offset"] + one["length"])].decode("utf-16-le")
            assert text_of == one["url"], "what reads like an address is the one it leads to"


def test_white_space_is_gone_from_both_ends_but_not_from_code() -> None:
    (part,) = of("```\n  x\n```")
    assert (part.text, part.markup["entities"][0]["offset"]) == ("  x", 0)


def test_an_answer_of_20_000_characters_arrives_whole() -> None:
    sentence = "A sentence with **bold 😀** words, 还有中文。 "
    code = "".join(f"print({number})\n" for number in range(70))
    table = "| n | square |\n|---|---|\n" + "".join(f"| {number} | {number * number} |\n" for number in range(30))
    source = "\n\n".join(["# Title", sentence * 210, f"```python\n{code}```", table, "- item\n" * 500, sentence * 190])
    assert len(source) > 20_000
    made = of(source)
    assert all(0 < count_utf16_units(part.text) <= 4096 and part.file is None for part in made)
    whole = "".join("".join(part.text.split()) for part in made)
    assert whole.count("还有中文。") == 400
    assert whole.count("•item") == 500
    assert "".join(code.split()) in whole
    assert whole.count("29|841") == 1
    assert [entity["language"] for part in made for entity in part.markup.get("entities", []) if "language" in entity]


def test_more_than_a_hundred_entities_make_a_shorter_message() -> None:
    made = of("**bold** word `code` " * 100)
    assert [len(part.markup["entities"]) for part in made] == [100, 100]


def test_a_layout_decides_what_a_narrow_table_is() -> None:
    outbound = Outbound("telegram", "7", "| a | b |\n|---|---|\n| c | d |")
    assert make_parts(outbound)[0].markup["entities"][0]["type"] == "pre"
    assert make_parts(outbound, TelegramLayout(table_columns=4))[0].text == "a: c\nb: d"
