"""Completion scripts: a table of every command and option, made from the parsers, and a template for each shell.

A row is `path|word|values|help`. The path is the command (`tape show`), empty for the program itself. The word is a
command, an option, or the number of an argument (`1`; `*` for it and all later ones). The values are `command` for a
command, empty for an option without a value, a list after `=`, or a kind: `session`, `chat`, `terminal`, `tape`
and `job` are asked of `bubbot __complete`; for `file` the shell lists files; anything else is typed by hand.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path

SHELLS = ("bash", "zsh", "fish")
KINDS: Mapping[str, str] = {
    "session": "session", "--session": "session", "--to": "chat", "--chat": "chat", "tape": "tape", "job": "job",
    "--home": "file", "--config": "file", "file": "file", "path": "file", "target": "file", "backup": "file",
}  # fmt: skip
"""The kinds of values by the name of the argument or option; options that end in `-file` take files, too."""
SESSION_KINDS: Mapping[str, str] = {"schedule": "chat", "ask": "terminal", "chat": "terminal"}
"""Commands that take other sessions: with their channel, or those of the terminal alone."""


def write_script(shell: str, parsers: Mapping[str, tuple[str, argparse.ArgumentParser]]) -> str:
    """Write the completion script of a shell.

    Args:
        shell: one of `SHELLS`.
        parsers: the help and the parser of each command.
    """
    template = (files("bubbot.cli.completion") / "templates" / f"bubbot.{shell}").read_text(encoding="utf-8")
    table = "\n".join(list_rows(parsers))
    quoted = "'" + table.replace("\\", "\\\\").replace("'", "\\'") + "'" if shell == "fish" else shlex.quote(table)
    return template.replace("@TABLE@", quoted)


def list_rows(parsers: Mapping[str, tuple[str, argparse.ArgumentParser]]) -> Iterator[str]:
    """List the rows of the table."""
    yield from _list_options("", argparse.ArgumentParser())
    for option, text in (("--home", "the home folder"), ("--config", "a config.toml")):
        yield _row("", option, "file", text)
    yield _row("", "--plain", "", "print lines only")
    yield _row("", "--version", "", "print the version")
    for name, (text, _) in parsers.items():
        yield _row("", name, "command", text)
    for name, (_, parser) in parsers.items():
        yield from _list_command(name, parser)


def list_actions(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    """List the options and arguments of a parser."""
    return parser._actions  # noqa: SLF001 - argparse has no public list of them


def list_groups(parser: argparse.ArgumentParser) -> Sequence[argparse._ArgumentGroup]:
    """List the groups of options of a parser, which have headings."""
    return parser._action_groups  # noqa: SLF001 - as above


def list_lines(parser: argparse.ArgumentParser) -> Sequence[argparse.Action]:
    """List the lines of help of the subcommands of a parser."""
    inner = [action for action in list_actions(parser) if isinstance(action, argparse._SubParsersAction)]  # noqa: SLF001 - as above
    return [choice for action in inner for choice in action._choices_actions]  # noqa: SLF001 - as above


def _list_command(path: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from _list_options(path, parser)
    number = 0
    for action in list_actions(parser):
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - as above
            texts = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001 - as above
            for name, inner in action.choices.items():
                yield _row(path, name, "command", texts.get(name, ""))
                yield from _list_command(f"{path} {name}", inner)
        elif not action.option_strings:
            number += 1
            yield _row(path, "*" if action.nargs == "+" else str(number), _values(path, action), action.help or "")


def _list_options(path: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in list_actions(parser):
        for option in action.option_strings:
            yield _row(path, option, "" if action.nargs == 0 else _values(path, action), action.help or "")


def _values(path: str, action: argparse.Action) -> str:
    """Return how the value of an argument or an option is completed."""
    if action.choices is not None:
        return "=" + " ".join(map(str, action.choices))
    name = action.option_strings[-1] if action.option_strings else action.dest
    if action.type is Path or name.endswith("-file"):
        return "file"
    kind = KINDS.get(name, "text")
    return SESSION_KINDS.get(path.split(maxsplit=1)[0], kind) if kind == "session" else kind


def _row(path: str, word: str, values: str, text: str) -> str:
    return "|".join((path, word, values, " ".join(text.replace("|", "/").split())))
