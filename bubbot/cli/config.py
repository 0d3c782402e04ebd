"""`bubbot config`: shows and changes settings, checked before they are written."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from bubbot.app.tapes import new_id, now
from bubbot.cli.arguments import add_json_option, decode_text
from bubbot.cli.output import show, show_record
from bubbot.cli.reload import print_report, reload_running_bot
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.errors import ConfigError, UsageError
from bubbot.log import printable
from bubbot.ops.configuration import ConfigEditor, is_secret, parse_key
from bubbot.ops.onboarding.console import Console, InputEnded
from bubbot.ports.settings import SettingValue
from bubbot.records import dataclass
from bubbot.settings.environment import read_variables


@dataclass(frozen=True, slots=True)
class SettingList:
    """Settings, in the order of the reference.

    Attributes:
        settings: the settings.
    """

    settings: tuple[SettingValue, ...]


RESULTS = {"config list": SettingList, "config get": SettingValue}
"""What `--json` prints."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's help texts and options."""
    parser.description = (
        "Show and change settings. What is written is checked first: if it does not load, the file stays as it is. A "
        "running bot applies it at once, and this command says what takes a restart."
    )
    parser.epilog = "example: bubbot config set tools.web.enabled true"
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="show the settings that are not the default")
    listing.add_argument("--all", action="store_true", help="show all")
    get = actions.add_parser("get", help="show one setting")
    change = actions.add_parser("set", help="write a setting")
    unset = actions.add_parser("unset", help="take a setting back to its default")
    actions.add_parser("edit", help="open config.toml in your editor ($EDITOR), and check it before it is written")
    for action in (get, change, unset):
        action.add_argument("key", metavar="KEY", help="such as bot.name or channels.telegram.groups")
    change.add_argument("value", metavar="VALUE", help="the value; a list as 1,2 or [1, 2]; - asks for a secret")
    for action in (listing, get):
        add_json_option(action)


def run(args: argparse.Namespace) -> int:
    """Run the action; return its exit code."""
    setup = load_setup(args)
    editor = open_editor(setup)
    if args.action == "list":
        values = editor.list_values(all_settings=args.all)
        if setup.as_json:
            show_record(SettingList(tuple(values)))
        else:
            show("\n".join(printable(value.line) for value in values) or "Every setting has its default.", wraps=False)
        return 0
    key = decode_text(getattr(args, "key", ""), "KEY")
    if args.action == "get":
        value = editor.read(key)
        if setup.as_json:
            show_record(value)
        else:
            show(printable(value.text), wraps=False)
        return 0
    before = editor.read(key) if key else None
    for path in _change(args, editor, key):
        show(f"What was there before: {path}")
    if before is not None and before.origin == "file":
        show(printable(f"Before: {before.line}"))
    if key and (variable := editor.find_override(key)):
        show(f"The environment variable {variable} counts more than the file: unset it.")
    asyncio.run(_apply(setup, editor.existing.path))
    return 0


def open_editor(setup: CommandSetup) -> ConfigEditor:
    """Open the settings of a home."""
    return ConfigEditor(setup.home, setup.config, now=lambda: now().strftime("%Y%m%dT%H%M%SZ"), new_id=new_id)


def _change(args: argparse.Namespace, editor: ConfigEditor, key: str) -> list[Path]:
    if args.action == "unset":
        editor.unset(key)
        return []
    if args.action == "edit":
        return _edit(editor)
    value = decode_text(args.value, "VALUE")
    if value == "-" and is_secret(*parse_key(key)):
        console = Console(sys.stdin, sys.stdout, is_unattended=False, on_secret=lambda _: None)
        try:
            return editor.set_secret(key, console.ask_hidden(key))
        except InputEnded:
            raise ConfigError(f"the input ended before {key}: nothing was changed") from None
    editor.set(key, value)
    return []


def _edit(editor: ConfigEditor) -> list[Path]:
    """Let the person edit a copy until it loads or nothing changes, and write it."""
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
