"""Help in other languages: each text that a command gives is in the catalogue, and no other."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from bubbot.app.command_table import COMMANDS
from bubbot.cli.help import HelpTranslator
from bubbot.cli.invocation import Invocation
from bubbot.cli.main import build_root, main
from bubbot.cli.tree import HelpfulCommand
from bubbot.texts import Texts
from bubbot.texts.catalogue import read_catalogue

ABOUT = "A self-hosted chat bot that records everything on append-only tapes."
HELP_TOPICS = (
    "`bubbot help COMMAND` explains one command, and `bubbot help exit-codes`, `environment` or `json` a topic."
)


TEXTS = {
    entry.singular for name, entry in read_catalogue("bubbot.texts", "help", "en").entries.items() if "help." in name
}
OF_CHATS = set(Texts().translate_commands())
"""What chats are told of commands, which a shell is told in the same words."""


def help_texts(command: click.Command) -> Iterator[str]:
    """Yield the texts of a help, and those of the commands behind it."""
    yield from filter(None, (command.help, command.short_help, *(command.epilog or "").splitlines()))
    yield from (param.help or "" for param in command.params if isinstance(param, (click.Option, click.Argument)))
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            yield from help_texts(inner)


def make_sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _make_line(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:].removesuffix('.')}"


def test_every_text_of_every_help_can_be_translated_and_no_other_is() -> None:
    root = build_root()
    context = click.Context(root)
    lines = [text for row in COMMANDS.values() for text in (row.help, row.section)]
    found = {text for word in COMMANDS if (command := root.get_command(context, word)) for text in help_texts(command)}
    every = {*found, *lines, "positional arguments", "options", "options of every command", "actions"}
    texts = {text for text in every if text and not text.startswith("example: ")}
    sentences = {make_sentence(line) for line in TEXTS}
    assert sorted(texts - TEXTS - sentences - OF_CHATS - {_make_line(text) for text in OF_CHATS}) == []
    assert TEXTS - texts == {ABOUT, HELP_TOPICS, "Installed packages"}


@pytest.mark.parametrize(("tag", "sentence"), [("de", "Einen Auftrag anhalten."), ("zh", "暂停一个任务。")])
def test_a_line_that_is_also_a_sentence_is_translated_once(tag: str, sentence: str) -> None:
    assert HelpTranslator(Texts(tag)).translate("Pause a job.") == sentence


def test_what_a_package_says_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUBBOT_BOT__LANGUAGE", "de")
    command = HelpfulCommand("x", params=[click.Option(["--balls"], help="how many")], help="Juggle.")
    text = command.get_help(click.Context(command, info_name="bubbot x", obj=Invocation()))
    assert "Juggle." in text
    assert "how many" in text
    assert "der Ordner des Bots" in text


def test_other_options_are_refused_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--home", "--help"], ["--hepl"], ["status", "--home"]):
        assert main(words) == 2
    assert capsys.readouterr().out == ""
