"""Rich messages: what a person reads, from top to bottom, as one text with entities."""

from __future__ import annotations

from typing import Any

import pytest

from bubbot.ports.channel import Inbound, UnparsedUpdate
from channels.telegram.inbound import read_update
from channels.telegram.inbound_text import TelegramBotUser

ME = TelegramBotUser(4242, "our_bot", frozenset({"help"}))
FILE = {"file_id": "F", "file_unique_id": "f"}
PHOTO = [{**FILE, "width": 1, "height": 1}]


def paragraph(text: Any) -> dict[str, Any]:
    return {"type": "paragraph", "text": text}


def read(*blocks: dict[str, Any], chat: str = "private", **more: Any) -> Any:
    message = {
        "message_id": 9, "from": {"id": 77, "is_bot": False, "first_name": "Kim"}, "date": 1_795_000_000,
        "chat": {"id": 77, "type": chat}, "rich_message": {"blocks": list(blocks)}, **more,
    }  # fmt: skip
    return read_update("tg", ME, {"update_id": 5, "message": message})


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (paragraph(["Buy ", {"type": "bold", "text": ["mi", {"type": "italic", "text": "lk"}]}]), "Buy milk"),
        ({"type": "heading", "size": 2, "text": "Plan"}, "## Plan"),
        ({"type": "heading", "size": 99, "text": "Plan"}, "###### Plan"),
        ({"type": "pre", "text": "print(1)", "language": "python"}, "```python\nprint(1)\n```"),
        ({"type": "pre", "text": "x"}, "```\nx\n```"),
        ({"type": "footer", "text": "the end"}, "the end"),
        ({"type": "divider"}, "---"),
        ({"type": "mathematical_expression", "expression": "x^2"}, "x^2"),
        (paragraph({"type": "mathematical_expression", "expression": "x^2"}), "x^2"),
        (paragraph([{"type": "custom_emoji", "custom_emoji_id": "1", "alternative_text": "🎲"}, "!"]), "🎲!"),
        (paragraph([{"type": "anchor", "name": "a"}, "here"]), "here"),
        (paragraph({"type": "newer", "text": "said"}), "said"),
        (paragraph({"type": "url", "text": "article", "url": "https://example.org/42"}), "article (https://example.org/42)"),
        (paragraph({"type": "date_time", "text": "then", "unix_time": 1_795_000_000, "date_time_format": ""}),
         "then (2026-11-18 11:06 UTC)"),
        (paragraph(["👩‍👩‍👧 ", {"type": "strikethrough", "text": "no"}, " yes"]), "👩‍👩‍👧 ~~no~~ yes"),
        (
            {
                "type": "list",
                "items": [
                    {"label": "1.", "blocks": [paragraph("one"), paragraph("more")]},
                    {"label": "", "blocks": [paragraph("two")], "has_checkbox": True, "is_checked": True},
                    {
                        "label": "3.", "has_checkbox": True,
                        "blocks": [{"type": "list", "items": [{"label": "a", "blocks": [paragraph("deep")]}]}],
                    },
                ],
            },
            "1. one\n  more\n• [x] two\n3. [ ] a deep",
        ),
        (
            {"type": "blockquote", "blocks": [paragraph("so"), paragraph("it is")], "credit": "Ada"},
            "> so\n> it is\n> — Ada",
        ),
        ({"type": "pullquote", "text": "so", "credit": ["A", "da"]}, "> so\n> — Ada"),
        (
            {
                "type": "table", "caption": "Prices",
                "cells": [[{"text": "tea"}, {"text": {"type": "bold", "text": "2"}}], [{"text": "all"}, {}]],
            },
            "Prices\ntea | 2\nall | ",
        ),
        ({"type": "details", "summary": "More", "blocks": [paragraph("secret")]}, "More\nsecret"),
        ({"type": "map", "location": {"latitude": 1.5, "longitude": 2.5}, "zoom": 1}, "[map 1.5, 2.5]"),
        ({"type": "hologram"}, "[hologram]"),
        ({"type": "hologram", "blocks": [paragraph("in it")]}, "[hologram]\nin it"),
    ],
)  # fmt: skip
def test_a_block_in_words(block: dict[str, Any], text: str) -> None:
    assert read(block).text == text
    assert read(paragraph("before"), block, paragraph("after")).text == f"before\n{text}\nafter"


def test_blocks_without_words_are_left_out() -> None:
    assert read({"type": "anchor", "name": "a"}, paragraph("one"), {"type": "thinking", "text": "x"}).text == "one"


def test_files_come_along_in_order_with_their_captions() -> None:
    event = read(
        {"type": "photo", "photo": PHOTO, "caption": {"text": "the cat", "credit": "Kim"}},
        {"type": "collage", "blocks": [{"type": "video", "video": {**FILE, "file_id": "V"}}], "caption": {"text": "both"}},
        {"type": "list", "items": [{"label": "•", "blocks": [{"type": "voice_note", "voice_note": {**FILE, "duration": 3}}]}]},
    )  # fmt: skip
    assert event.text == "[photo]\nthe cat\n— Kim\n[collage]\n[video]\nboth\n• [voice note]"
    assert [(file.reference, file.kind) for file in event.attachments] == [
        ("F", "image"),
        ("V", "video"),
        ("F", "voice"),
    ]


def test_it_is_addressed_and_a_command_like_any_text() -> None:
    mention = {"type": "mention", "text": "@our_bot", "username": "our_bot"}
    event = read(paragraph([mention, ", hello"]), chat="supergroup")
    assert (event.text, event.addressed) == ("hello", True)
    assert not read(paragraph("hello"), chat="supergroup").addressed
    command = {"type": "bot_command", "text": "/help", "bot_command": "/help"}
    assert read(paragraph([command, " me"])).text == ",help me"


def test_a_reply_quotes_it() -> None:
    quoted = {**read_message(paragraph("so it is"))}
    event = read(paragraph("why?"), reply_to_message=quoted)
    assert isinstance(event, Inbound)
    assert event.quote is not None
    assert event.quote.text == "so it is"


def read_message(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {
        "message_id": 3, "from": {"id": 78, "is_bot": False, "first_name": "Bo"}, "date": 1_795_000_000,
        "chat": {"id": 77, "type": "private"}, "rich_message": {"blocks": list(blocks)},
    }  # fmt: skip


@pytest.mark.parametrize("levels", [30, 3000])
def test_however_deep_it_is_nothing_is_lost(levels: int) -> None:
    text: Any = "deep"
    for _ in range(levels):
        text = {"type": "bold", "text": text}
    event = read(paragraph(text))
    assert isinstance(event, UnparsedUpdate) or event.text == "deep"
    assert isinstance(event, UnparsedUpdate) == (levels == 3000)
