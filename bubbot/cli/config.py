"""`bubbot config`: shows and changes settings, checked before they are written."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from msgspec import Struct

from bubbot.app.tapes import new_id, now
from bubbot.arguments.fields import Args
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show, show_record
from bubbot.cli.reload import print_report, reload_running_bot
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.errors import ConfigError, UsageError
from bubbot.log import printable
from bubbot.ops.configuration import ConfigEditor, is_secret, parse_key
from bubbot.ops.onboarding.console import Console, InputEnded
from bubbot.ports.settings import SettingValue
from bubbot.settings.environment import read_variables
from bubbot.shell_command import Argument, CommandGroup


class SettingList(Struct, frozen=True):
    """Settings, in the order of the reference.

    Attributes:
        settings: the settings.
    """

    settings: tuple[SettingValue, ...]


class ListSettingsArgs(Args, frozen=True):
    """The arguments of `bubbot config list`."""

    all: Annotated[bool, Argument("show all")] = False


class ConfigKeyArgs(Args, frozen=True):
    """The name of a setting."""

    key: Annotated[str, Argument("such as bot.name or channels.telegram.groups", "KEY")]


class ConfigSetArgs(ConfigKeyArgs, frozen=True):
    """The arguments of `bubbot config set`."""

    value: Annotated[str, Argument("the value; a list as 1,2 or [1, 2]; - asks for a secret", "VALUE")]


@local_command("config list", result=SettingList)
def list_settings(invocation: Invocation, args: ListSettingsArgs) -> int:
    """Show the settings that are not the default."""
    values = open_editor(load_setup(invocation)).list_values(all_settings=args.all)
    if invocation.as_json:
        show_record(SettingList(tuple(values)))
    else:
        show("\n".join(printable(value.line) for value in values) or "Every setting has its default.", wraps=False)
    return 0


@local_command("config get", result=SettingValue)
def get_setting(invocation: Invocation, args: ConfigKeyArgs) -> int:
    """Show one setting."""
    value = open_editor(load_setup(invocation)).read(args.key)
    if invocation.as_json:
        show_record(value)
    else:
        show(printable(value.text), wraps=False)
    return 0


@local_command("config set", example="config set tools.web.enabled true")
def set_setting(invocation: Invocation, args: ConfigSetArgs) -> int:
    """Write a setting."""
    return _change(invocation, args.key, lambda editor: _set(editor, args.key, args.value))


@local_command("config unset")
def unset_setting(invocation: Invocation, args: ConfigKeyArgs) -> int:
    """Take a setting back to its default."""

    def unset(editor: ConfigEditor) -> list[Path]:
        editor.unset(args.key)
        return []

    return _change(invocation, args.key, unset)


@local_command("config edit")
def edit_settings(invocation: Invocation) -> int:
    """Open config.toml in your editor ($EDITOR), and check it before it is written."""
    return _change(invocation, "", _edit)


def _change(invocation: Invocation, key: str, change: Callable[[ConfigEditor], list[Path]]) -> int:
    """Change a setting (any if `key` is empty), print the old value, and let the running bot apply the change.

    `change` returns the paths of backup copies.
    """
    setup = load_setup(invocation)
    editor = open_editor(setup)
    before = editor.read(key) if key else None
    for path in change(editor):
        show(f"What was there before: {path}")
    if before is not None and before.origin == "file":
        show(printable(f"Before: {before.line}"))
    if key and (variable := editor.find_override(key)):
        show(f"The environment variable {variable} counts more than the file: unset it.")
    asyncio.run(_apply(setup, editor.existing.path))
    return 0


def open_editor(setup: CommandSetup) -> ConfigEditor:
    return ConfigEditor(setup.home, setup.config, now=lambda: now().strftime("%Y%m%dT%H%M%SZ"), new_id=new_id)


def _set(editor: ConfigEditor, key: str, value: str) -> list[Path]:
    if value == "-" and is_secret(*parse_key(key)):
        console = Console(sys.stdin, sys.stdout, is_unattended=False, on_secret=lambda _: None)
        try:
            return editor.set_secret(key, console.ask_hidden(key))
        except InputEnded:
            raise ConfigError(f"the input ended before {key}: nothing was changed") from None
    editor.set(key, value)
    return []


def _edit(editor: ConfigEditor) -> list[Path]:
    """Let the person edit a copy until it loads or nothing changes, then write it."""
    variables = read_variables()
    program = shlex.split(variables.get("VISUAL") or variables.get("EDITOR") or "vi")
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError("config edit needs a terminal; `bubbot config set KEY VALUE` changes one setting")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "config.toml"
        copy.write_text(editor.existing.base_text, encoding="utf-8")
        while True:
            try:
                subprocess.run([*program, str(copy)], check=True)  # noqa: S603 - the person's own editor
                text = copy.read_text(encoding="utf-8")
                if text == editor.existing.base_text:
                    show("Nothing has changed.")
                    return []
                return editor.replace(text)
            except (OSError, subprocess.CalledProcessError) as error:
                raise ConfigError(f"the editor {program[0]!r} failed ({error}): set EDITOR to another one") from None
            except (ConfigError, UnicodeDecodeError) as error:
                show(printable(str(error)))
                show("Enter opens the editor again; Ctrl-C leaves everything as it is.")
                if not sys.stdin.readline():
                    raise ConfigError("nothing was changed") from None


async def _apply(setup: CommandSetup, path: Path) -> None:
    show(f"Written: {path}", flush=True)
    if (report := await reload_running_bot(setup)) is None:
        show("No bot runs for this home: it holds from the next start on.")
    else:
        print_report(report)


CONFIG_COMMANDS = CommandGroup(
    "config",
    (list_settings, get_setting, set_setting, unset_setting, edit_settings),
    "Show and change settings. What is written is checked first: if it does not load, the file stays as it is. A running "
    "bot applies it at once, and this command says what takes a restart.",
    "show and change settings",
)
