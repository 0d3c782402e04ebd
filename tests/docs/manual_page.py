"""The man page, written from the parsers of the commands, as `--help` is.

`python -m tests.docs.manual_page` writes docs/bubbot.1; `test_manual_page.py` checks that it is up to date.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from bubbot import __version__
from bubbot.cli.arguments import list_actions
from bubbot.cli.main import COMMANDS, CommandParser, load_command
from bubbot.cli.topics import ENVIRONMENT_TEXTS, EXIT_CODE_TEXTS, TOPICS
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "bubbot.1"
COMMON = {word for action in list_actions(CommandParser()) for word in action.option_strings}


def write_manual() -> str:
    """The page as troff with the macros `man`."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield '.\\" Written by python -m tests.docs.manual_page from the declarations of the commands.'
    yield f'.TH BUBBOT 1 "" "bubbot {__version__}" "User Commands"'
    yield from (".SH NAME", "bubbot \\- a self\\-hosted chat bot that records everything on append\\-only tapes")
    yield from (".SH SYNOPSIS", ".B bubbot", "[\\fB\\-\\-home\\fR \\fIPATH\\fR] [\\fB\\-\\-config\\fR \\fIPATH\\fR]")
    yield "\\fICOMMAND\\fR ..."
    yield from (".SH OPTIONS OF EVERY COMMAND", *_options(CommandParser(), own=False))
    section = ""
    for name, command in COMMANDS.items():
        if command.section != section:
            section = command.section
            yield f'.SH "{section.upper()}"'
        yield from _command(load_command(name)[0])
    yield from (".SH TOPICS", *_rows({f"bubbot help {name}": text for name, text in TOPICS.items()}))
    yield from (".SH EXIT STATUS", *_rows({str(code): text for code, text in EXIT_CODE_TEXTS.items()}))
    yield from (".SH ENVIRONMENT", *_rows(dict(ENVIRONMENT_TEXTS)))


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f'.SS "{_text(parser.prog)}"'
    yield _text(parser.description or "")
    yield from _options(parser, own=True)
    if parser.epilog:
        yield from (".PP", _text(parser.epilog))
    for action in list_actions(parser):
        if isinstance(action.choices, dict):
            for inner in action.choices.values():
                yield from _command(inner)


def _options(parser: argparse.ArgumentParser, *, own: bool) -> Iterator[str]:
    for action in list_actions(parser):
        if isinstance(action.choices, dict) or (own and set(action.option_strings) & COMMON):
            continue
        value = "" if action.nargs == 0 else f"\\fI{_text(_value(action))}\\fR"
        options = ", ".join(f"\\fB{_text(option)}\\fR" for option in action.option_strings)
        help_text = "print the version" if action.dest == "version" else action.help or ""
        yield from (".TP", " ".join(filter(None, (options, value))), _text(help_text) or "\\&")


def _value(action: argparse.Action) -> str:
    if action.metavar is None and action.choices is not None:
        return "|".join(map(str, action.choices))
    return str(action.metavar or (action.dest.lstrip("-").upper() if action.option_strings else action.dest))


def _rows(rows: dict[str, str]) -> Iterator[str]:
    for name, text in rows.items():
        yield from (".TP", f"\\fB{_text(name)}\\fR", _text(text))


def _text(text: str) -> str:
    """Escape a text: a backslash, a hyphen that is typed, and a line that would be a request."""
    escaped = re.sub(r"\s+", " ", text).strip().replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    PAGE.write_text(write_manual(), encoding="utf-8")
