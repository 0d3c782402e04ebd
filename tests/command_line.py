"""The commands of the command line, as click has them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from bubbot.app.command_table import COMMANDS
from bubbot.cli.main import build_root
from bubbot.cli.tree import CommonOption

ROOT = build_root()


def load_word(word: str) -> click.Command:
    """Load the command of a word."""
    command = ROOT.get_command(click.Context(ROOT), word)
    assert command is not None
    return command


def walk(word: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield the commands and groups of a word, or of all words, by their whole names."""
    for each in [word] if word else COMMANDS:
        command = load_word(each)
        yield each, command
        for name, inner in command.commands.items() if isinstance(command, click.Group) else ():
            yield f"{each} {name}", inner


def own_params(command: click.Command) -> list[click.Parameter]:
    """Return the arguments and options that not every command has."""
    return [param for param in command.params if not isinstance(param, CommonOption) and "--help" not in param.opts]


def json_commands() -> list[str]:
    """Return the whole names of the commands with an option `--json`."""
    return [name for name, command in walk() if any("--json" in param.opts for param in command.params)]
