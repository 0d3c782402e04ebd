"""`bubbot help`: topics that agree with the program."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from bubbot.app.command_table import COMMANDS
from bubbot.cli.main import main
from bubbot.cli.topics import ENVIRONMENT_TEXTS, EXIT_CODE_TEXTS, TOPICS
from tests.command_line import json_commands
from tests.docs.pages import ROOT


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_is_printed(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", topic]) == 0
    assert len(capsys.readouterr().out.splitlines()) > 3


def test_the_exit_codes_are_those_of_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)] == list(EXIT_CODE_TEXTS)


def test_every_variable_that_is_read_by_its_name_is_explained() -> None:
    folder = ROOT / "bubbot"
    read = {
        name
        for file in folder.rglob("*.py")
        for name in re.findall(
            r'read_variables\(\)\.get\("(\w+)"|user_folder\("(\w+)"', file.read_text(encoding="utf-8")
        )
        for name in name
        if name
    }
    assert {"BUBBOT_HOME", "XDG_DATA_HOME", "NO_COLOR"} <= read
    assert read - ENVIRONMENT_TEXTS.keys() == set()


def test_every_command_with_json_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "json"]) == 0
    assert re.findall(r"^bubbot (.+?)  ", capsys.readouterr().out, re.MULTILINE) == json_commands()


@pytest.mark.parametrize("words", [["tape"], ["tape", "show"], ["usage"]])
def test_a_command_is_explained_as_by_its_own_option(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--help"]) == 0
    expected = capsys.readouterr().out
    assert main(["help", *words]) == 0
    assert capsys.readouterr().out == expected


def test_alone_it_is_the_overview_which_has_sections(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^(\w[\w ]*):$", out, re.MULTILINE)[:-2] == list(dict.fromkeys(_sections()))


def test_an_unknown_topic(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "exit-code"]) == 2
    assert (
        capsys.readouterr().err
        == "bubbot: there is no command or topic 'exit-code': did you mean 'exit-codes'? See `bubbot --help`\n"
    )


def _sections() -> Iterator[str]:
    return (command.section for command in COMMANDS.values())
