"""Screens of 20 to 200 columns: tables fit, nothing is lost, Chinese text is aligned, and no colour is needed."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest

from bubbot.app.command_table import COMMANDS
from bubbot.formatting import cell_width, format_table
from tests.e2e import bot, inside
from tests.e2e.terminal import Terminal
from tests.e2e.test_json import used_home

TABLES: dict[str, tuple[str, ...]] = {
    "tape list": ("tape", "list"),
    "tape size": ("tape", "size"),
    "access list": ("access", "list"),
    "status": ("status",),
    "usage": ("usage", "--plain"),  # bars otherwise
    "doctor": ("doctor", "--offline"),
    "schedule list": ("schedule", "list"),
    "help": ("help", "environment"),
}
FIRST_CELLS = {
    "tape list": ["bubbot/access"],
    "tape size": ["bytes", "of blobs", "entries", "tape"],
    "access list": ["telegram"],
}
"""The beginning of tables: no other test reads them as people do."""
WIDTHS = ("20", "40", "80", "200")
CHINESE = "茶话会"


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = used_home(tmp_path_factory.mktemp("screens"))
    assert inside.run(home, "ask", "--session", CHINESE, "你好").returncode == 0
    for words in (("access", "grant", "telegram", "42", "member"), ("memory", "save", CHINESE, "喜欢茶")):
        assert inside.run(home, *words).returncode == 0
    return home


def on_terminal(home: Path, *words: str, first: str, **env: str) -> list[str]:
    """The lines that a terminal is sent until the command ends."""
    with Terminal(home, *words, script=None, first=first, **env) as terminal:
        assert terminal.ended() in (0, 1)
        return terminal.sent.replace("\r\n", "\n").splitlines()


def words_of(lines: list[str]) -> set[str]:
    """What stands there, without the times and sizes that change."""
    return {word for line in lines for word in re.split(r"[\s,]+", line) if word and not re.search(r"\d", word)}


def test_tables_begin_with_what_they_are_about(used: Path) -> None:
    for name, cells in FIRST_CELLS.items():
        lines = inside.run(used, *TABLES[name]).stdout.decode().splitlines()
        assert re.split(r" {2,}", lines[0].strip())[: len(cells)] == cells, name
        assert len(lines) > 1, name


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", TABLES)
def test_a_table_fits_every_screen_and_loses_nothing(used: Path, name: str, pytestconfig: pytest.Config) -> None:
    piped = inside.run(used, *TABLES[name]).stdout.decode().splitlines()
    first = next(word for line in piped for word in line.split()[:1])
    expected = words_of(piped)
    for columns in WIDTHS if pytestconfig.getoption("--proof") else WIDTHS[::2]:
        lines = on_terminal(used, *TABLES[name], first=first, COLUMNS=columns, NO_COLOR="1")
        assert not any("\x1b" in line for line in lines)
        titles = {"bytes:", "tape:", "entries:", "blobs:", "of"}  # before the cells if the table does not fit
        assert expected - {"bytes", "blobs", "tape", "entries", "of"} <= words_of(lines) | titles, columns


@pytest.mark.parametrize("columns", WIDTHS)
def test_rows_of_tapes_are_as_wide_as_the_screen_or_a_cell_a_line(used: Path, columns: str) -> None:
    lines = on_terminal(used, "tape", "list", first="entries", COLUMNS=columns)
    assert any(CHINESE in line for line in lines)
    if any(line.startswith("  ") for line in lines):  # a cell a line, which alone may be wider than the screen
        assert all("  " not in line.strip() for line in lines)
    else:
        assert max(map(cell_width, lines)) <= int(columns)
        assert len({cell_width(line[: line.index(" entries")]) for line in lines}) == 1, "numbers end at one column"


def test_columns_are_aligned_by_cells_and_not_by_characters() -> None:
    rows = [("茶话会", "1", "x"), ("tea", "22", "y"), ("é\u0301", "333", "z")]
    lines = format_table(rows, right=(1,))
    assert [cell_width(line) for line in lines] == [6 + 2 + 3 + 2 + 1] * 3
    assert format_table(rows[:2], columns=5, header=("who", "how many", "what")) == [
        "who: 茶话会",
        "  how many: 1",
        "  what: x",
        "who: tea",
        "  how many: 22",
        "  what: y",
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"BUBBOT_PLAIN": "1"}, {"FORCE_COLOR": "1"}])
def test_what_stands_there_does_not_depend_on_colours(used: Path, env: dict[str, str]) -> None:
    for name in ("tape list", "access list"):
        plain = on_terminal(used, *TABLES[name], first="telegram" if "access" in name else "entries")
        assert on_terminal(used, *TABLES[name], first="telegram" if "access" in name else "entries", **env) == plain


def test_a_plain_chat_draws_nothing_twice(used: Path) -> None:
    for words, env in ((("chat", "--plain"), {}), (("chat",), {"BUBBOT_PLAIN": "1"}), (("chat",), {"TERM": "dumb"})):
        with Terminal(used, *words, script=None, first="", **env) as terminal:
            terminal.say("hello")
            terminal.expect("You said: hello")
            terminal.say(",quit")
            assert terminal.ended() == 0
            assert "\x1b" not in terminal.sent


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", COMMANDS)
def test_no_pipe_gets_an_escape_code(used: Path, name: str) -> None:
    env = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "20"}
    for words in (TABLES.get(name, (name, "--help")), (name, "--no-such-option")):
        done = inside.run(used, *words, env=env)
        assert b"\x1b" not in done.stdout + done.stderr


def test_without_utf8_the_rest_is_escaped_and_nothing_fails(used: Path) -> None:
    env = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    for words, shown in ((("memory", "show", CHINESE), rb"\u8336"), (("status",), b"")):
        done = bot.run(used, *words, env=env)
        assert done.stdout.isascii()
        assert shown in done.stdout
        assert done.returncode == (1 if words == ("status",) else 0), done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_wrong_usage_is_one_line_that_names_the_help(used: Path, name: str) -> None:
    done = inside.run(used, name, "--no-such-option")
    error = done.stderr.decode()
    assert done.returncode == 2
    assert re.fullmatch(rf"bubbot: [^\n]*; see `bubbot {name}( \w+)? --help`\n", error), error


def test_every_character_of_a_help_page_can_be_read_aloud(used: Path) -> None:
    """No box, arrow or check mark carries a meaning."""
    for name in COMMANDS:
        text = inside.run(used, name, "--help").stdout.decode()
        assert [char for char in text if unicodedata.category(char) == "So"] == []
