"""The man page, written from the commands of click, as `--help` is.

`python -m tests.docs.manual_page` writes docs/bubbot.1; `test_manual_page.py` checks that it is up to date.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from bubbot import __version__
from bubbot.app.command_table import COMMANDS
from bubbot.cli.topics import ENVIRONMENT_TEXTS, EXIT_CODE_TEXTS, TOPICS
from tests.command_line import ROOT as PROGRAM
from tests.command_line import own_params, walk
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "bubbot.1"


def write_manual() -> str:
    """The page as troff with the macros `man`."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield '.\\" Written by python -m tests.docs.manual_page from the declarations of the commands.'
    yield f'.TH BUBBOT 1 "" "bubbot {__version__}" "User Commands"'
    yield from (".SH NAME", "bubbot \\- a self\\-hosted chat bot that records everything on append\\-only tapes")
    yield from (".SH SYNOPSIS", ".B bubbot", "[\\fB\\-\\-home\\fR \\fIPATH\\fR] [\\fB\\-\\-config\\fR \\fIPATH\\fR]")
    yield "\\fICOMMAND\\fR ..."
    yield from (
        ".SH OPTIONS OF EVERY COMMAND",
        *_options([param for param in PROGRAM.params if param not in own_params(PROGRAM)]),
    )
    section = ""
    for name, command in COMMANDS.items():
        if command.section != section:
            section = command.section
            yield f'.SH "{section.upper()}"'
        for path, inner in walk(name):
            yield from _command(path, inner)
    yield from (".SH TOPICS", *_rows({f"bubbot help {name}": text for name, text in TOPICS.items()}))
    yield from (".SH EXIT STATUS", *_rows({str(code): text for code, text in EXIT_CODE_TEXTS.items()}))
    yield from (".SH ENVIRONMENT", *_rows(dict(ENVIRONMENT_TEXTS)))


def _command(path: str, command: click.Command) -> Iterator[str]:
    yield f'.SS "{_text(f"bubbot {path}")}"'
    yield _text(command.help or "")
    yield from _options(own_params(command))
    for line in (command.epilog or "").splitlines():
        yield from (".PP", _text(line))


def _options(params: list[click.Parameter]) -> Iterator[str]:
    for param in params:
        names = ", ".join(f"\\fB{_text(name)}\\fR" for name in param.opts) if isinstance(param, click.Option) else ""
        value = "" if isinstance(param, click.Option) and param.is_flag else f"\\fI{_text(param.metavar or '')}\\fR"
        yield from (".TP", " ".join(filter(None, (names, value))), _text(getattr(param, "help", "") or "") or "\\&")


def _rows(rows: dict[str, str]) -> Iterator[str]:
    for name, text in rows.items():
        yield from (".TP", f"\\fB{_text(name)}\\fR", _text(text))


def _text(text: str) -> str:
    """Escape a text: a backslash, a hyphen that is typed, and a line that would be a request."""
    escaped = re.sub(r"\s+", " ", text).strip().replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    PAGE.write_text(write_manual(), encoding="utf-8")
