"""The options of commands that features declare: made from the model of the arguments, and read back into it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bubbot.cli.arguments import add_json_option, decode_text, usage_error
from bubbot.cli.loading import loading
from bubbot.errors import ToolRetry
from bubbot.ports.arguments import AnyArgs, ArgumentField, strip_optional
from bubbot.ports.command import Argument, Command, CommandGroup
from bubbot.ports.tool import validate_args


class GroupCommand:
    """The commands of a group, as `cli/main` uses a command."""

    def __init__(self, group: CommandGroup) -> None:
        self._group = group

    @property
    def results(self) -> Mapping[str, type]:
        """What `--json` prints, by the whole name of the command."""
        return {command.name: command.result for command in self._group.commands if command.result is not None}

    @property
    def rows(self) -> Mapping[str, tuple[str, str]]:
        """The key of the list that `--json` prints, and what it is a list of, by the whole name of the command."""
        return {command.name: (command.rows, command.description) for command in self._group.commands if command.rows}

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the help texts, and the subcommands or options."""
        parser.description = self._group.description
        only = self._group.commands[0]
        if not only.action:
            parser.epilog = f"example: bubbot {only.example}" if only.example else None
            _add_options(parser, only)
            return
        subparsers = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
        for command in self._group.commands:
            add_command(subparsers, command)

    def run(self, args: argparse.Namespace) -> int:
        """Run the command; return its exit code."""
        # Imported here: `--help` needs none of it.
        with loading():
            from bubbot.cli.typed import run_typed

        action = getattr(args, "action", "")
        command = next(command for command in self._group.commands if command.action == action)
        return run_typed(args, command, read_arguments(command, args))


def add_command(subparsers: argparse._SubParsersAction[argparse.ArgumentParser], command: Command) -> None:
    """Add a subcommand with its help texts and options."""
    parser = subparsers.add_parser(
        command.action,
        help=command.help,
        description=command.description,
        epilog=f"example: bubbot {command.example}" if command.example else None,
    )
    _add_options(parser, command)


def read_arguments(command: Command, args: argparse.Namespace) -> AnyArgs:
    """Read the arguments that were typed. Raise `UsageError` with each wrong one."""
    typed = vars(args)
    values = {}
    for name, field in command.fields.items():
        key = name if name in command.words else _option(name)
        if typed.get(key) is not None:
            value = " ".join(typed[key]) if _argument(field).rest else typed[key]
            values[name] = decode_text(value, key) if isinstance(value, str) else value
    try:
        return validate_args(command.name, command.args, values)
    except ToolRetry as error:
        raise usage_error(f"bubbot {command.name}", str(error)) from error


def _option(name: str) -> str:
    return f"--{name.rstrip('_').replace('_', '-')}"


def _argument(field: ArgumentField) -> Argument:
    return next((mark for mark in field.marks if isinstance(mark, Argument)), None) or Argument(field.description)


def _add_options(parser: argparse.ArgumentParser, command: Command) -> None:
    words, fields = command.words, command.fields
    # A form has the order of the words, which may not be that of the class.
    for name in dict.fromkeys([*(words if command.form else ()), *fields]):
        field = fields[name]
        argument = _argument(field)
        # What was not typed is absent: the model knows the defaults, and which fields were set.
        options: dict[str, Any] = {"help": argument.help, "default": argparse.SUPPRESS}
        kind, choices = strip_optional(field.annotation), field.choices
        if kind is bool and name not in words:
            parser.add_argument(_option(name), dest=_option(name), action="store_true", **options)
            continue
        if choices:
            options |= {"choices": choices}
        if argument.parse or kind in (int, float, Path):
            options |= {"type": _type(argument.parse) if argument.parse else kind}
        if name in words:
            options["nargs"] = "+" if argument.rest else None if command.requires(name) else "?"
            options["default"] = None  # of a word that may be absent, argparse would check any other default
            parser.add_argument(name, metavar=argument.metavar, **options)
        else:
            metavar = argument.metavar or (None if choices else name.rstrip("_").upper())
            short = [f"-{argument.short}"] if argument.short else []
            parser.add_argument(*short, _option(name), dest=_option(name), metavar=metavar, **options)
    if command.question is not None and "yes" not in fields:
        parser.add_argument("--yes", dest="--yes", action="store_true", help="do not ask before")
    if command.result is not None:
        add_json_option(parser)


def _type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return convert
