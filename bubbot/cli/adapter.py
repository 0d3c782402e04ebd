"""Click commands made from declared commands: their words, options and help, and the reading of arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem
from msgspec import structs

from bubbot.arguments.fields import Args, ArgumentField, strip_optional
from bubbot.cli.completion.values import complete_value, find_kind
from bubbot.cli.interrupt import raise_on_interrupt
from bubbot.cli.invocation import Invocation, decode_text
from bubbot.cli.local_command import LocalCommand
from bubbot.cli.tree import LeafCommand, WordGroup, complete_file, unmark
from bubbot.errors import ToolRetry
from bubbot.shell_command import Argument, Command, CommandGroup, CommandSyntax
from bubbot.tool import validate_args

EXAMPLE = "example: "
PRINTS_JSON, IS_CONFIRMED = "option_json", "option_yes"
"""The names under which click stores `--json` and `--yes`; no argument has such a name."""
Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def make_click_command(group: CommandGroup[CommandSyntax]) -> click.Command:
    """Make the click command of a word, or the click group of its commands."""
    only = group.commands[0]
    if not only.action:
        return _make_leaf(
            replace(only, help=group.help or only.help, description=group.description or only.description)
        )
    words = WordGroup(group.name, help=group.description)
    for command in group.commands:
        words.add_command(_make_leaf(command))
    return words


def _make_leaf(command: CommandSyntax) -> click.Command:
    examples = (line if "bubbot " in line else f"bubbot {line}" for line in command.example.splitlines())

    def run(ctx: click.Context, /, **typed: Any) -> int:
        as_json, is_confirmed = typed.pop(PRINTS_JSON, False), typed.pop(IS_CONFIRMED, False)
        _refuse_surplus(ctx)
        args = read_arguments(command, typed, ctx)
        invocation = replace(ctx.obj, as_json=as_json, is_confirmed=is_confirmed)
        return _run(command, invocation, args)

    return LeafCommand(
        command.action or command.name,
        params=[*_make_params(command)],
        callback=click.pass_context(run),
        help=command.description or command.help,
        short_help=command.help,
        epilog="\n".join(f"{EXAMPLE}{line}" for line in examples),
    )


def _run(command: CommandSyntax, invocation: Invocation, args: Args) -> int:
    if isinstance(command, LocalCommand):
        raise_on_interrupt()
        return command.run(invocation, args)
    assert isinstance(command, Command)
    # Imported here: `--help` needs none of it.
    from bubbot.cli.typed import run_typed

    raise_on_interrupt()
    return run_typed(invocation, command, args)


def _refuse_surplus(ctx: click.Context) -> None:
    if ctx.args:
        form = [piece for param in ctx.command.params for piece in param.get_usage_pieces(ctx)]
        words = " ".join([ctx.command_path, *form])
        surplus = unmark(ctx.args[0])
        raise click.UsageError(f"unexpected argument {surplus!r}: apart from options, write `{words}`", ctx)


# Declarations


def _make_params(command: CommandSyntax) -> Iterator[click.Parameter]:
    """Make the words and options. Click only reads texts; `read_arguments` reports missing and wrong ones."""
    words, fields = command.words, command.fields
    for name in list_names(command):
        field = fields[name]
        mark, kind = find_mark(field), strip_optional(field.annotation)
        if name in words:
            metavar = mark.metavar or _join_choices(field) or name
            if mark.rest:
                metavar += " ..."
            is_required = command.requires(name)
            if not is_required or (field.choices and not mark.metavar):
                metavar = f"{{{metavar}}}" if is_required else f"[{metavar}]"
            count = -1 if mark.rest else 1
            complete = find_completion(command, name, field)
            yield click.Argument(
                [name], required=False, nargs=count, metavar=metavar, help=mark.help, shell_complete=complete
            )
            continue
        option = format_option(name)
        names = [f"-{mark.short}"] * bool(mark.short) + [option, name]
        if kind is bool:
            yield click.Option(names, is_flag=True, default=None, help=mark.help)
            continue
        metavar = mark.metavar or (f"[{_join_choices(field)}]" if field.choices else name.rstrip("_").upper())
        complete = find_completion(command, option, field)
        yield click.Option(
            names, multiple=mark.repeated, metavar=metavar, help=mark.help, default=None, shell_complete=complete
        )
    if isinstance(command, Command) and command.question is not None and "yes" not in fields:
        yield click.Option(["--yes", IS_CONFIRMED], is_flag=True, help="do not ask before")
    if command.result is not None:
        yield click.Option(["--json", PRINTS_JSON], is_flag=True, help=command.json_help)


def list_names(command: CommandSyntax) -> list[str]:
    """List the argument names: first the words in the order of the form, which may differ from the class."""
    return [*dict.fromkeys([*(command.words if command.form else ()), *command.fields])]


def find_mark(field: ArgumentField) -> Argument:
    """Return the declaration of an argument with its line of help."""
    mark = next((mark for mark in field.marks if isinstance(mark, Argument)), None) or Argument()
    return mark if mark.help else structs.replace(mark, help=field.description)


def format_option(name: str) -> str:
    """Return the option for an argument that is not a word."""
    return f"--{name.rstrip('_').replace('_', '-')}"


def _join_choices(field: ArgumentField) -> str:
    return "|".join(map(str, field.choices))


def find_completion(command: CommandSyntax, name: str, field: ArgumentField) -> Complete | None:
    """Return the function that completes an argument's value, by its typed name; None for free values."""
    if field.choices:
        return partial(_complete_choice, field.choices)
    if strip_optional(field.annotation) is Path or name.endswith("-file"):
        return complete_file
    kind = find_kind(command.name, name)
    if kind == "file":
        return complete_file
    return partial(complete_value, kind) if kind else None


def _complete_choice(
    choices: tuple[Any, ...], _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(choice) for choice in map(str, choices) if choice.startswith(incomplete)]


# Reading


def read_arguments(command: CommandSyntax, typed: Mapping[str, Any], ctx: click.Context) -> Args:
    """Read the typed arguments. Raise click's `UsageError` with everything that is missing or wrong."""
    words, fields = command.words, {name: command.fields[name] for name in list_names(command)}
    given = {name: value for name, value in typed.items() if value not in (None, ())}
    missing = [_label(name, field, words) for name, field in fields.items() if _is_missing(command, name, given)]
    problems = [f"missing: {', '.join(missing)}"] if missing else []
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name in given:
            try:
                values[name] = _read_value(given[name], field, _label(name, field, words))
            except ValueError as error:
                problems.append(str(error))
    if problems:
        raise click.UsageError("; ".join(problems), ctx)
    try:
        # Arguments that were not typed are absent: the model knows the defaults and which fields are set.
        return validate_args(command.name, command.args, values)
    except ToolRetry as error:
        raise click.UsageError(str(error), ctx) from error


def _is_missing(command: CommandSyntax, name: str, given: Mapping[str, Any]) -> bool:
    is_word = name in command.words
    return name not in given and (command.requires(name) if is_word else command.fields[name].is_required)


def _label(name: str, field: ArgumentField, words: tuple[str, ...]) -> str:
    return find_mark(field).metavar or name if name in words else format_option(name)


def _read_value(typed: Any, field: ArgumentField, label: str) -> Any:
    """Convert a typed argument. Raise `ValueError` with a sentence."""
    if isinstance(typed, bool):
        return typed
    mark = find_mark(field)
    if mark.repeated:
        return [_read_text(text, field, label) for text in typed]
    return _read_text(" ".join(map(unmark, typed)) if mark.rest else typed, field, label)


def _read_text(typed: str, field: ArgumentField, label: str) -> Any:
    kind, choices, parse = strip_optional(field.annotation), field.choices, find_mark(field).parse
    if parse is not None:
        try:
            value = parse(unmark(typed))
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from error
        return decode_text(value, label) if isinstance(value, str) else value
    if kind is Path:
        return Path(unmark(typed))  # its name may not be UTF-8
    text = decode_text(unmark(typed), label)
    if choices and text not in choices:
        *others, last = map(str, choices)
        named = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{label} is {text!r}, but must be {named}")
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError as error:
            raise ValueError(f"{label} is {text!r}, but must be a number") from error
    return text
