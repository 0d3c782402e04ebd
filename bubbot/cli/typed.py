"""Commands of features typed in a shell."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from bubbot.arguments.fields import Args
from bubbot.cli.commands import Shell, read, run_command
from bubbot.cli.invocation import Invocation
from bubbot.cli.output import show_on_stderr
from bubbot.cli.setup import load_setup
from bubbot.errors import ConfigError
from bubbot.shell_command import Command, CommandResult, TypedAnswer


def run_typed(invocation: Invocation, command: Command, arguments: Args) -> int:
    """Run a typed command of a feature, print its answer, and return its exit code."""
    setup = load_setup(invocation)
    if (ask := command.question) is not None and not (invocation.is_confirmed or getattr(arguments, "yes", False)):
        if command.prepare is not None:  # once: standard input can be read only once
            arguments, command = command.prepare(arguments, Shell()), replace(command, prepare=None)
        asks = replace(command, run=ask, on_missing_home=lambda _settings, _args: CommandResult(""))
        question = asyncio.run(read(setup, asks, arguments)).text
        # Outside of an event loop, which would delay Ctrl-C at the question.
        if question and not _confirm(command, question):
            show_on_stderr("Nothing was changed.")
            return 1

    async def type_command(session: str, line: str, model: str) -> TypedAnswer:
        # Imported here: few commands need a bot.
        from bubbot.cli.ask import type_command

        return await type_command(setup, session, line, model)

    return asyncio.run(run_command(setup, command, arguments, type_command=type_command))


def _confirm(command: Command, question: str) -> bool:
    """Ask on the terminal; anything but yes is no. Raise `ConfigError` without a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError(f"{question} There is no terminal to answer on: bubbot {command.name} --yes does not ask")
    show_on_stderr(f"{question} [y/N] ", end="")  # standard output may be a pipe, and with --json is one object
    return sys.stdin.readline().strip().lower() in ("y", "yes")
