"""Help in other languages: each text that a command gives is in the catalogue, and no other."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from bubbot.cli.arguments import list_actions, list_groups, list_lines
from bubbot.cli.help import AREA, EXAMPLE, HelpTranslator
from bubbot.cli.main import COMMANDS, HELP_TOPICS, CommandParser, ShellCommand, load_command, main
from bubbot.texts import Texts
from bubbot.texts.catalogue import read_catalogue

TEXTS = {
    entry.singular for name, entry in read_catalogue("bubbot.texts", AREA, "en").entries.items() if "help." in name
}
OF_CHATS = set(Texts().translate_commands())
"""What chats are told of commands, which a shell is told in the same words."""
DESCRIPTION = "A self-hosted chat bot that records everything on append-only tapes."


def parser_texts(parser: argparse.ArgumentParser) -> Iterator[str | None]:
    """Yield every text of a help, except what `argparse` leaves out."""
    yield from (parser.description, parser.epilog, *(group.title for group in list_groups(parser)))
    for action in [*list_actions(parser), *list_lines(parser)]:
        yield action.help
        if isinstance(action.choices, dict):
            for inner in action.choices.values():
                yield from parser_texts(inner)


def make_sentence(line: str) -> str:
    return f"{line[0].upper()}{line[1:]}."


def _make_line(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:].removesuffix('.')}"


def test_every_text_of_every_help_can_be_translated_and_no_other_is() -> None:
    lines = [text for command in COMMANDS.values() for text in (command.help, command.section)]
    found = {text for name in COMMANDS for text in parser_texts(load_command(name)[0])}
    texts = {text for text in {*found, *lines} if text and text != argparse.SUPPRESS and not text.startswith(EXAMPLE)}
    sentences = {make_sentence(line) for line in TEXTS}
    assert sorted(texts - TEXTS - sentences - OF_CHATS - {_make_line(text) for text in OF_CHATS}) == []
    assert TEXTS - texts == {DESCRIPTION, HELP_TOPICS, ShellCommand("", "").section}


@pytest.mark.parametrize(("tag", "sentence"), [("de", "Einen Auftrag anhalten."), ("zh", "暂停一个任务。")])
def test_a_line_that_is_also_a_sentence_is_translated_once(tag: str, sentence: str) -> None:
    assert HelpTranslator(Texts(tag)).translate("Pause a job.") == sentence


def test_what_a_package_says_stays_as_it_is() -> None:
    translator, parser = HelpTranslator(Texts("de")), CommandParser(prog="bubbot x", description="Juggle.")
    parser.add_argument("--balls", help="how many")
    translator.translate_parser(parser)
    assert "Juggle." in parser.format_help()
    assert "how many" in parser.format_help()
    assert "der Ordner des Bots" in parser.format_help()


def test_other_options_are_refused_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--home", "--help"], ["--hepl"], ["status", "--home"]):
        assert main(words) == 2
    assert capsys.readouterr().out == ""
