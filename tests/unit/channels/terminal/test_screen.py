"""Lines that others print while the line editor is on, and the file of what was typed."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from bubbot import log
from bubbot.ports.channel import session_folder
from channels.terminal.history import LineHistory
from channels.terminal.screen import get_window_size, print_above


async def lines_of(history: LineHistory) -> list[str]:
    """What the arrow keys would find, newest first."""
    return [line async for line in history.load()]


@contextmanager
def one_terminal(path: Path) -> Iterator[None]:
    """Standard output and standard error are the same file; the log is afterwards as it was before."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    with path.open("w", encoding="utf-8") as out, redirect_stdout(out), redirect_stderr(out):
        yield
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
    root.setLevel(level)
    for name in ("bubbot", "channels"):
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.mark.parametrize(("reported", "used"), [((50, 10), (50, 10)), ((0, 0), (80, 24)), ((0, 10), (80, 10))])
def test_a_terminal_that_does_not_say_how_large_it_is_has_the_usual_size(
    reported: tuple[int, int], used: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda *_: os.terminal_size(reported))
    size = get_window_size()
    assert (size.columns, size.rows) == used


class TestPrintedAbove:
    async def test_whole_lines_of_any_thread_are_handed_on_and_the_rest_at_the_end(self, tmp_path: Path) -> None:
        printed: list[str] = []
        with one_terminal(tmp_path / "tty"), print_above(printed.append):
            print("one\ntwo")
            print("thr", end="", flush=True)
            assert printed == ["one", "two"]
            thread = threading.Thread(target=print, args=("aside",), kwargs={"file": sys.stderr})
            thread.start()
            await asyncio.to_thread(thread.join)
            await asyncio.sleep(0)
        assert printed == ["one", "two", "aside", "thr"]

    async def test_the_log_follows_and_hides_secrets_as_ever(self, tmp_path: Path) -> None:
        printed: list[str] = []
        with one_terminal(tmp_path / "tty"):
            log.setup("info", secrets=["planted-secret"])
            with print_above(printed.append):
                logging.getLogger("bubbot.test").warning("it was planted-secret")
        assert len(printed) == 1
        assert "it was [redacted]" in printed[0]

    async def test_a_standard_error_that_is_elsewhere_stays_where_it_is(self, tmp_path: Path) -> None:
        printed: list[str] = []
        with one_terminal(tmp_path / "tty"), (tmp_path / "log").open("w") as file, redirect_stderr(file):
            log.setup("info")
            with print_above(printed.append):
                logging.getLogger("bubbot.test").warning("to the file")
                print("to the screen")
        assert printed == ["to the screen"]
        assert "to the file" in (tmp_path / "log").read_text()


class TestTypedLines:
    async def test_lines_of_one_session_are_not_those_of_another(self, tmp_path: Path) -> None:
        one, other = (LineHistory(session_folder(tmp_path, session)) for session in ("stdin:a/b", "stdin:a_b"))
        one.append_string("first")
        one.append_string("second")
        assert await lines_of(one) == ["second", "first"]
        assert await lines_of(other) == []

    async def test_lines_whose_file_was_removed_are_gone_and_it_is_told_once(self, tmp_path: Path) -> None:
        typed = LineHistory(tmp_path)
        typed.append_string("secret")
        assert not typed.was_erased()
        (tmp_path / "terminal_history").unlink()
        typed.append_string("typed ahead")
        assert (typed.was_erased(), typed.was_erased()) == (True, False)
        assert await lines_of(typed) == ["typed ahead"]

    async def test_a_file_that_cannot_be_used_costs_the_lines_only(self, tmp_path: Path) -> None:
        (tmp_path / "terminal_history").mkdir()
        typed = LineHistory(tmp_path)
        typed.append_string("lost")
        assert await lines_of(typed) == []
