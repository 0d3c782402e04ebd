"""The table of the words of the command line, written from the groups of commands, so that `bubbot --help` imports none.

`python -m tests.docs.command_table` writes bubbot/app/command_table.py; `test_command_table.py` checks that it is up to
date.
"""

from __future__ import annotations

import json
import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import bubbot.cli
from bubbot.app.own_features import find_parts
from bubbot.shell_command import CommandGroup
from tests.docs.pages import ROOT

FILE = ROOT / "bubbot" / "app" / "command_table.py"
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Talk": ("chat", "ask"),
    "Look": ("status", "usage", "agent", "context", "why", "explain", "replay", "trace", "doctor", "help"),
    "Change": ("tape", "memory", "schedule", "approvals", "access"),
    "Set up": ("init", "model", "completion", "config"),
    "Operate": ("run", "reload", "workers", "service", "backup", "restore"),
}
"""The words in the order of `bubbot --help`, below their headings; further ones of features come last."""
SHARED_HEAD = """SHARED: Mapping[str, str] = {
"""
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
        module: the module with its `CommandGroup`: `COMMANDS` of a feature, `RUN_COMMANDS` of the command line; empty for one of an installed
            package.
    """

    section: str
    help: str
    module: str = ""


COMMANDS: Mapping[str, CommandRow] = {
'''


def find_groups() -> dict[str, tuple[str, CommandGroup[Any]]]:
    """Find the groups of words, each with its module: those of the command line itself, and those of features."""
    found: dict[str, tuple[str, CommandGroup[Any]]] = {}
    for _, name, _ in pkgutil.walk_packages(bubbot.cli.__path__, "bubbot.cli."):
        for constant, group in vars(import_module(name)).items():
            if isinstance(group, CommandGroup) and constant == f"{group.name.upper()}_COMMANDS":
                found[group.name] = name, group
    for feature, group in find_parts("commands", "COMMANDS"):
        found.setdefault(group.name, (f"bubbot.features.{feature}.commands", group))
    return found


def find_shared() -> dict[str, str]:
    """Find the commands of features behind a word of the command line itself or of another feature, each with its feature."""
    own = find_groups()
    return {
        command.name: feature
        for feature, group in find_parts("commands", "COMMANDS")
        if own[group.name][0] != f"bubbot.features.{feature}.commands"
        for command in group.commands
    }


def write_table() -> str:
    """Write the module."""
    shared = "".join(f"    {json.dumps(name)}: {json.dumps(feature)},\n" for name, feature in find_shared().items())
    return f"{HEAD}{''.join(_rows())}}}\n{SHARED_HEAD}{shared}}}\n"


def _rows() -> Iterator[str]:
    groups = find_groups()
    listed = {word for words in SECTIONS.values() for word in words}
    for section, words in SECTIONS.items():
        new = [word for word, (_, group) in groups.items() if word not in listed and group.section == section]
        for word in (*(word for word in words if word in groups), *new):
            module, group = groups[word]
            cells = (section, group.help or group.commands[0].help, module)
            line = f"    {json.dumps(word)}: CommandRow({', '.join(map(json.dumps, cells))}),\n"
            if len(line) > 120:
                inner = "".join(f"        {json.dumps(cell)},\n" for cell in cells)
                one = f"        {', '.join(map(json.dumps, cells))}\n"
                line = f"    {json.dumps(word)}: CommandRow(\n{one if len(one) <= 120 else inner}    ),\n"
            yield line


if __name__ == "__main__":
    FILE.write_text(write_table(), encoding="utf-8")
