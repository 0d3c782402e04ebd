"""Commands only for shells: they run in the shell's process, read its files and print their own output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, get_type_hints

from bubbot.arguments.fields import NoArguments
from bubbot.cli.invocation import Invocation
from bubbot.shell_command import CommandSyntax

RunLocal: TypeAlias = Callable[[Invocation, Any], int]
"""Run with the arguments, and return the exit code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCommand(CommandSyntax):
    """A command only for shells, made by the decorator `local_command`.

    Attributes:
        run: does the work, and returns the exit code.
    """

    run: RunLocal


def local_command(name: str, **options: Any) -> Callable[[Callable[..., int]], LocalCommand]:
    """Make a `LocalCommand` of `def f(invocation: Invocation, args: SomeArgs) -> int`; both parameters are optional.

    The first paragraph of its docstring is its line in a list of commands, the second one the beginning of its help; a
    single one is both. `options` are further fields of `LocalCommand`.
    """

    def decorate(run: Callable[..., int]) -> LocalCommand:
        first, _, second = (" ".join(part.split()) for part in (run.__doc__ or "").partition("\n\n"))
        line = first[:1].lower() + first[1:].removesuffix(".")
        hints = get_type_hints(run)
        described = {"args": hints.get("args", NoArguments), "help": line, "description": second or first}

        def run_with(invocation: Invocation, args: Any) -> int:
            given = {"invocation": invocation, "args": args}
            return run(**{parameter: value for parameter, value in given.items() if parameter in hints})

        return LocalCommand(name=name, run=run_with, **{**described, **options})

    return decorate
