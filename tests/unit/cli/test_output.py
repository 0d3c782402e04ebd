"""What commands print: nothing that controls a terminal, and nothing lost without a word."""

from __future__ import annotations

import ast
import io
import json
import os
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.cli.output import AnswerPrinter, raw_output, show, show_json, show_line, show_on_stderr
from bubbot.errors import OutputFailed
from bubbot.formatting import escape_json, replace_controls
from tests.docs.pages import ROOT

PIPE_CHARACTERS = 4096


HOSTILE = "a\x1b]52;c;ZXZpbA==\x07\x9b2J\r\u202etxt\u2066\u200f\u2028\ud800z"
PRINTERS = {
    "bubbot/cli/output.py",
    "bubbot/cli/main.py",
    "bubbot/features/mcp/login.py",
    "bubbot/features/mcp/serve/commands.py",
    "bubbot/features/usage/draw.py",
}
"""The files that write to a standard stream themselves: the printing function, the end of the program, and processes of their own
whose output is for the bot or for other programs."""


@given(st.text())
def test_no_text_keeps_what_a_terminal_obeys_and_nothing_else_changes(text: str) -> None:
    found = replace_controls(text)
    for char in found:
        assert char in "\n\t\u200c\u200d" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
    plain = text.replace("\r\n", "\n")
    assert len(found) == len(plain)
    assert all(new in (old, "\ufffd") for old, new in zip(plain, found, strict=True))
    assert replace_controls(found) == found


@pytest.mark.parametrize(
    "text", ["é漢字\u3000かな\u00a0👍🏽 👨\u200d👩\u200d👧 می\u200cخواهم\tx\n", "\ue000\U0001fae8\u0378"]
)
def test_ordinary_text_of_any_script_stays(text: str) -> None:
    assert replace_controls(text) == text


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_escaped_json_is_printable_and_says_the_same(data: object) -> None:
    found = escape_json(json.dumps(data, ensure_ascii=False))
    assert found.isprintable()
    assert json.loads(found) == data


def test_every_way_to_print_takes_the_controls_out(capsys: pytest.CaptureFixture[str]) -> None:
    show(HOSTILE)
    show_line(HOSTILE)
    show_json({"x": HOSTILE})
    show_on_stderr(HOSTILE)
    with raw_output(replace_controls) as write:
        write(b"as it is \x1b\n")
    out, err = capsys.readouterr()
    lines = out.split("\n")
    assert all(line.isprintable() for line in (*lines[:3], *err.rstrip("\n").split("\n")))
    assert json.loads(lines[2]) == {"x": HOSTILE}
    assert lines[3] == "as it is \x1b"


def test_an_export_is_cleaned_for_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    with raw_output(escape_json) as write:
        write(json.dumps({"x": "\x9b2J\u202e"}, ensure_ascii=False).encode() + b"\n")
    assert terminal.getvalue() == '{"x": "\\u009b2J\\u202e"}\n'


def test_what_the_stream_cannot_encode_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    show("é漢", flush=True)
    show_json(["é漢"], flush=True)
    assert raw.getvalue() == b'\\xe9\\u6f22\n["\\u00e9\\u6f22"]\n'


class TestLostOutput:
    def test_a_closed_output_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdout", None)
        with pytest.raises(OutputFailed, match="standard output is closed") as found:
            show("x")
        assert not found.value.reader_left
        with pytest.raises(OutputFailed), raw_output(replace_controls) as write:
            write(b"x")

    def test_a_reader_that_left_is_told_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        read, write = os.pipe()
        os.close(read)
        with os.fdopen(write, "w") as stream:
            monkeypatch.setattr(sys, "stdout", stream)
            with pytest.raises(OutputFailed, match="Broken pipe") as found:
                show("x", flush=True)
        assert found.value.reader_left

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no disk that is always full")
    def test_after_a_lost_answer_no_later_one_is_printed_in_its_place(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        printer, there = AnswerPrinter(), tmp_path / "there"
        with Path("/dev/full").open("w") as full, there.open("w") as file:
            monkeypatch.setattr(sys, "stdout", full)
            with pytest.raises(OutputFailed, match="No space left"):
                printer("first")
            monkeypatch.setattr(sys, "stdout", file)
            with pytest.raises(OutputFailed, match="No space left"):
                printer("second")
            with pytest.raises(OutputFailed, match="`bubbot tape show 'stdin:a b' --last 5` shows it"):
                printer.check("stdin:a b")
        assert there.read_text() == ""

    def test_a_reader_that_took_something_and_stopped_has_lost_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for answers, is_read in ((["x" * 2 * PIPE_CHARACTERS], False), (["short", "y" * 10], True)):
            read, write = os.pipe()
            printer = AnswerPrinter()
            with os.fdopen(write, "w") as pipe:
                monkeypatch.setattr(sys, "stdout", pipe)
                if is_read:
                    printer(answers.pop(0))
                    assert os.read(read, 100) == b"short\n"
                os.close(read)
                with pytest.raises(OutputFailed) as lost:
                    printer(answers.pop())
                with pytest.raises(OutputFailed) as found:
                    printer.check("stdin:default")
            assert lost.value.reader_left
            assert found.value.reader_left is is_read
            assert ("bubbot tape show" in str(found.value)) is not is_read

    def test_nothing_lost_is_no_error(self, capsys: pytest.CaptureFixture[str]) -> None:
        printer = AnswerPrinter()
        printer("fine")
        printer.check("stdin:default")
        assert capsys.readouterr().out == "fine\n"


def _prints(code: str) -> list[str]:
    """Where code writes to a standard stream: calls of print, and of methods of `sys.stdout` and `sys.stderr`."""
    found: list[str] = []
    if not any(word in code for word in ("print", "stdout", "stderr")):
        return found
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called == "print" or called.startswith(("sys.stdout.buffer", "sys.stdout.write", "sys.stderr.write")):
                found.append(f"{node.lineno}: {called}")
    return found


def test_nothing_of_bubbot_prints_but_through_the_one_function() -> None:
    wrong = {
        name: found
        for path in sorted((ROOT / "bubbot").rglob("*.py"))
        if (name := path.relative_to(ROOT).as_posix()) not in PRINTERS
        if (found := _prints(path.read_text(encoding="utf-8")))
    }
    assert wrong == {}


class Screen(io.StringIO):
    """A terminal of 20 columns."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("printer", [show, show_on_stderr, AnswerPrinter()], ids=["show", "stderr", "answer"])
def test_a_terminal_gets_lines_broken_between_words_and_a_pipe_whole_ones(
    monkeypatch: pytest.MonkeyPatch, printer: Callable[[str], None]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    text = "one two three four five\n    code that is long"
    for stream, expected in (
        (Screen(), "one two three four\nfive\n    code that is\n    long\n"),
        (io.StringIO(), f"{text}\n"),
    ):
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        printer(text)
        assert stream.getvalue() == expected


def test_what_programs_read_stays_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    show_json({"sentence": "one two three four five"})
    assert screen.getvalue() == '{"sentence": "one two three four five"}\n'
