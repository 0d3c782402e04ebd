"""Who calls a command, in tests, and what a refusal says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from bubbot.app.commands import find_command
from bubbot.cli.commands import Shell
from bubbot.command import BoundCommand, Caller, Surface, explain
from bubbot.errors import CommandRefused, ConfigError
from bubbot.shell_command import CommandContext, CommandResult
from bubbot.texts import Texts

R = TypeVar("R")


def by(giver: str, pressed_value: str = "") -> Caller:
    """Return the caller of this id, `terminal` or `channel:id`, who may call every command; the service decides the rest."""
    return Caller(id=giver, has_confirmed=True, pressed_value=pressed_value)


async def run(command: BoundCommand[Any, Any, R], caller: Caller, *args: Any, **fields: Any) -> R:
    """Run a command of a service with these arguments, in their order or by name."""
    return await command(caller, command.spec.args(*args, **fields))


async def run_shell(name: str, context: CommandContext, *args: Any, **fields: Any) -> CommandResult:
    """Run a command of a feature by its whole name, as a shell does that has read these arguments."""
    command = find_command(name)
    assert command is not None, name
    return await command.run(context, command.args(*args, **fields))


async def ask_shell(name: str, context: CommandContext, *args: Any, **fields: Any) -> Any:
    """Return what a command of this whole name asks in a shell before it runs with these arguments."""
    command = find_command(name)
    assert command is not None, name
    assert command.question is not None, name
    return await command.question(context, command.args(*args, **fields))


def read_shell(name: str, *args: Any, **fields: Any) -> Any:
    """Return the arguments as a command of this whole name takes them, if a shell has read these."""
    command = find_command(name)
    assert command is not None, name
    assert command.prepare is not None, name
    return command.prepare(command.args(*args, **fields), Shell())


@contextmanager
def refused(match: str = "") -> Iterator[None]:
    """Expect that a command is refused with a sentence in English that has this pattern in it."""
    with pytest.raises((CommandRefused, ConfigError)) as caught:
        yield
    error = caught.value
    text = explain(error, "it", Texts(), Surface.SHELL) if isinstance(error, CommandRefused) else str(error)
    assert re.search(match, text), text
