"""The commands about servers of tools in a shell."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bubbot.command import make_group
from bubbot.errors import ConfigError
from bubbot.features.mcp.feature import McpFeature
from bubbot.features.mcp.results import LoginArgs, SentServerArgs, TypedServerArgs
from bubbot.features.mcp.service import McpRules, McpService
from bubbot.features.mcp.settings import McpSettings
from bubbot.settings.environment import read_variables
from bubbot.shell_command import CommandContext, ShellInput

MAX_SECRET_BYTES = 100_000
HEADER, VARIABLE = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}", r"[A-Za-z_][A-Za-z0-9_]{0,199}"


async def open_mcp(context: CommandContext) -> McpService:
    """Return the running bot's own service, so that a change takes effect at once, or one over the tapes of the home."""
    if (running := context.service(McpFeature)) is not None:
        return await running.open()
    settings: McpSettings = context.settings
    assert context.home is not None
    service = McpService(
        context.open_tape, McpRules(context.home, lambda: settings), projections=context.make_projections()
    )
    await service.load()
    return service


def read_secrets(args: TypedServerArgs, shell: ShellInput) -> SentServerArgs:
    """Read the values of headers and variables where the shell runs: they are sent, and stand in no command line.

    Raises:
        ConfigError: one cannot be read.
    """
    return SentServerArgs(
        args.name,
        args.command,
        args.transport,
        args.network,
        args.read,
        _read_values(args.header, "--header", HEADER, shell),
        _read_values(args.env, "--env", VARIABLE, shell),
        args.login,
    )


def _read_values(typed: Sequence[str], option: str, pattern: str, shell: ShellInput) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in typed:
        name, _, source = text.partition("=")
        if not re.fullmatch(pattern, name):
            raise ConfigError(f"{option} {name!r} is no name: write {option} NAME=@FILE, NAME=env:VARIABLE or NAME")
        if name in found:
            raise ConfigError(f"{option} {name} is there twice: leave one out")
        value = _read_value(name, source, option, shell).strip()
        if not value or not value.isprintable():
            raise ConfigError(
                f"{option} {name}: its value is empty, or has more than one line or characters that cannot be printed"
            )
        found[name] = value
    return found


def _read_value(name: str, source: str, option: str, shell: ShellInput) -> str:
    if source.startswith("@"):
        return shell.read_text(Path(source[1:]).expanduser(), MAX_SECRET_BYTES, f"{option} {name}")
    if source.startswith("env:"):
        value = read_variables().get(source.removeprefix("env:"))
        if value is None:
            raise ConfigError(f"{option} {name}: there is no variable {source.removeprefix('env:')} in this shell")
        return value
    if source:
        raise ConfigError(
            f"{option} {name}: a value does not belong on the command line, where others see it: write {name}=@FILE, "
            f"{name}=env:VARIABLE, or {name} alone to be asked"
        )
    if sys.stdin is None or not sys.stdin.isatty():
        raise ConfigError(f"{option} {name}: there is no terminal to ask on: write {name}=@FILE or {name}=env:VARIABLE")
    # Imported here: it is for one option of one command.
    from getpass import getpass

    return getpass(f"{name}: ")


def read_login(args: LoginArgs, shell: ShellInput) -> LoginArgs:
    """Read the secret of a registration where the shell runs. Raise `ConfigError` if it cannot be read."""
    if not args.client_secret:
        return args
    if not args.client_secret.startswith(("@", "env:")):
        raise ConfigError(
            "--client-secret does not belong on the command line, where others see it: write @FILE or env:VARIABLE"
        )
    return replace(args, client_secret=_read_value("", args.client_secret, "--client-secret", shell).strip())


_ADD: Mapping[str, Any] = {"prepare": read_secrets, "sent": SentServerArgs}

COMMANDS = make_group(
    "mcp",
    McpService,
    open_mcp,
    "Let models use tools of other programs, which speak the Model Context Protocol: add a server, look at its tools, and pin those that "
    "models may call. `[mcp] enabled` switches them on. Other programs may read chats that `client-add` grants to them: `serve` answers them.",
    help_line="use tools of programs, let them read chats",
    add=_ADD,
    login={"prepare": read_login},
)
