"""How the terminal shows things, without a terminal."""

from __future__ import annotations

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.utils import get_cwidth

from bubbot.ports.channel import CommandInfo, ToolFinished
from channels.terminal.view import CommandCompleter, fold_rows, format_tool_call, neutralise, render_markdown

MAX_ANSWER_COLUMNS = 100


COMMANDS = (
    CommandInfo("tape.search", "Searches everything", ("query", "kinds", "limit")),
    CommandInfo("tape.info", "Tells how large the tape is"),
    CommandInfo("help", "Lists the commands", ("command",)),
)


def completed(text: str) -> list[str]:
    """What the text may become."""
    completer = CommandCompleter(lambda: COMMANDS)
    found = completer.get_completions(Document(text), CompleteEvent())
    return [text[: len(text) + one.start_position] + one.text for one in found]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("a\x1b[31mb\x07\x00", "a\ufffd[31mb\ufffd\ufffd"),
        ("\x9b2J\x85", "\ufffd2J\ufffd"),
        ("one\r\ntwo\rthree", "one\ntwo\ufffdthree"),
        ("\u202eevil\u2066", "\ufffdevil\ufffd"),
        ("10\u202f000\u00a0€", "10\u202f000\u00a0€"),
        ("\U0001f469\u200d\U0001f52c می\u200cخواهم", "\U0001f469\u200d\U0001f52c می\u200cخواهم"),
        ("\ud800", "\ufffd"),
    ],
)
def test_what_a_terminal_would_obey_is_replaced(text: str, shown: str) -> None:
    assert neutralise(text) == shown


def test_markdown_keeps_line_breaks_and_cannot_carry_escape_sequences() -> None:
    shown = render_markdown("one\ntwo\x1b]0;x\x07\n\n[a](http://x.test)", width=80, colour=False)
    assert shown.splitlines() == ["one", "two\ufffd]0;x\ufffd", "", "a (http://x.test)"]


def test_markdown_without_colours_has_no_escape_sequences_and_no_padding() -> None:
    shown = render_markdown(
        "# A\n\n**b** `c`\n\n```python\nprint(1)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |", width=40, colour=False
    )
    assert "\x1b" not in shown
    assert [line for line in shown.splitlines() if line.endswith(" ")] == []


@pytest.mark.parametrize("width", [1, 20, 79, 500])
def test_markdown_is_no_wider_than_the_window_or_what_is_good_to_read(width: int) -> None:
    shown = render_markdown("word " * 200, width=width, colour=False)
    assert max(map(len, shown.splitlines())) <= max(20, min(width, MAX_ANSWER_COLUMNS))


def test_the_rows_of_a_text_being_written_are_its_last_and_none_is_too_wide() -> None:
    assert fold_rows("abcdef\nghi", 4, 9) == ["abcd", "ef", "ghi"]
    assert fold_rows("abcdef\nghi", 4, 2) == ["ef", "ghi"]
    assert fold_rows("日本語", 4, 9) == ["日本", "語"]
    assert fold_rows("日本 語", 4, 9) == ["日本", " 語"]
    assert fold_rows("", 4, 9) == [""]
    assert len(fold_rows("x" * 100_000, 10, 3)) == 3


def test_the_rows_of_a_text_being_written_are_folded_between_words() -> None:
    assert fold_rows("one two three", 9, 9) == ["one two ", "three"]
    assert fold_rows("café naïveté", 10, 9) == ["café ", "naïveté"]
    assert fold_rows("a verylongword", 6, 9) == ["a ", "verylo", "ngword"]
    assert fold_rows("ab 中文字abc", 6, 9) == ["ab 中", "文字ab", "c"]
    assert max(get_cwidth(row) for row in fold_rows("词语 and words 混合 " * 30, 17, 99)) <= 17


def test_a_tool_call_is_one_line() -> None:
    ended = ToolFinished("tape_search", ok=True, size=20_000, spilled=True)
    assert (
        format_tool_call('{"query": "a\nb"}', ended)
        == '· tape_search {"query": "a b"} → 20000 characters, kept aside whole'
    )
    assert format_tool_call("{}", ToolFinished("odd", ok=False, size=3, spilled=False)) == "· odd {} → failed"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (",", [",help", ",tape.info", ",tape.search"]),
        (",tape.s", [",tape.search"]),
        ("tape.s", []),
        ("hello ,ta", []),
        (",tape.search ", [",tape.search query=", ",tape.search kinds=", ",tape.search limit="]),
        (",tape.search sun limit=3 k", [",tape.search sun limit=3 kinds="]),
        (",tape.search kinds=", []),
        (",help ta", [",help tape.info", ",help tape.search"]),
        (",nothing x", []),
    ],
)
def test_commands_and_arguments_are_completed(text: str, found: list[str]) -> None:
    assert completed(text) == found
