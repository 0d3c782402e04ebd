"""The table of the words of the command line, written from the groups of commands, so that `bubbot --help` imports none.

`python -m tests.docs.command_table` writes bubbot/app/command_table.py; `test_command_table.py` checks that it is up to
date.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module

import bubbot.cli
from bubbot.app.commands import OWN_COMMANDS
from bubbot.ports.command import CommandGroup, CommandSyntax
from tests.docs.pages import ROOT

FILE = ROOT / "bubbot" / "app" / "command_table.py"
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Talk": ("chat", "ask"),
    "Look": ("status", "usage", "context", "why", "explain", "replay", "trace", "doctor", "help"),
    "Change": ("tape", "memory", "schedule", "approvals", "access"),
    "Set up": ("init", "model", "completion", "config"),
    "Operate": ("run", "reload", "service", "backup", "restore"),
}
"""The words in the order of `bubbot --help`, below their headings."""
HEAD = '''"""The words of the command line: written by `python -m tests.docs.command_table` from the groups of commands.

It imports none of them, and so does `bubbot --help`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

PACKAGES = "Installed packages"
"""The heading of the words of installed packages."""


class CommandRow(NamedTuple):
    """A word.

    Attributes:
        section: the heading it stands under in `bubbot --help`.
        help: its line there.
        module: the module with its `CommandGroup`, such as `USAGE_COMMANDS`; empty for one of an installed package.
    """

    section: str
    help: str
    module: str = ""


COMMANDS: Mapping[str, CommandRow] = {
'''


def find_modules() -> dict[str, str]:
    """Find the module with the group of each word: that of a feature, or one of the command line itself."""
    found = {name: own.module for name, own in OWN_COMMANDS.items() if " " not in name}
    for _, name, _ in pkgutil.walk_packages(bubbot.cli.__path__, "bubbot.cli."):
        module = import_module(name)
        groups = [value for value in vars(module).values() if isinstance(value, CommandGroup)]
        found |= {group.name: name for group in groups if hasattr(module, constant_of(group.name))}
    return found


def constant_of(word: str) -> str:
    """Return the name of the group of a word in its module."""
    return f"{word.upper()}_COMMANDS"


def write_table() -> str:
    """Write the module."""
    return HEAD + "".join(_rows()) + "}\n"


def _rows() -> Iterator[str]:
    modules = find_modules()
    for section, words in SECTIONS.items():
        for word in words:
            group: CommandGroup[CommandSyntax] = getattr(import_module(modules[word]), constant_of(word))
            cells = (section, group.help or group.commands[0].help, modules[word])
            line = f"    {json.dumps(word)}: CommandRow({', '.join(map(json.dumps, cells))}),\n"
            if len(line) > 120:
                inner = "".join(f"        {json.dumps(cell)},\n" for cell in cells)
                one = f"        {', '.join(map(json.dumps, cells))}\n"
                line = f"    {json.dumps(word)}: CommandRow(\n{one if len(one) <= 120 else inner}    ),\n"
            yield line


if __name__ == "__main__":
    FILE.write_text(write_table(), encoding="utf-8")
