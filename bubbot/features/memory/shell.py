"""The commands `bubbot memory`: the memory of a session, of a person or of the workspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec.structs import replace as replace_fields

from bubbot.command import make_group
from bubbot.errors import ConfigError, UsageError
from bubbot.features.memory.arguments import (
    ForgetOwnerArgs,
    ImportArgs,
    ImportFilesArgs,
    OwnerArgs,
    RestoreOwnerArgs,
    SaveOwnerArgs,
    parse_version,
)
from bubbot.features.memory.commands import MemoryCommands
from bubbot.features.memory.files import FILE_LIMIT, read_memory
from bubbot.ports.command import CommandContext, ShellInput

A = TypeVar("A", bound=OwnerArgs)


def _take_word(action: str, args: A, name: str, field: str = "") -> A:
    """Take the first word as what it is, if it cannot be a session.

    Args:
        action: the command after `bubbot memory`.
        args: as they were typed.
        name: the word after the session.
        field: its field, if that has another name.

    Raises:
        UsageError: the word is missing: a text left out must not count as an empty one.
    """
    field = field or name
    if getattr(args, field) is None and (args.user is not None or args.workspace):
        args = replace_fields(args, session=None, **{field: args.session})
    if getattr(args, field) is None:
        raise UsageError(f"memory {action}: the {name} is missing; see `bubbot memory {action} --help`")
    return args


def read_saved_text(args: SaveOwnerArgs, files: ShellInput) -> SaveOwnerArgs:
    """Take the text from the command line or standard input. Raise `ConfigError` if it is none."""
    args = _take_word("save", args, "text", "content")
    typed = args.content or ""
    raw = files.read_stdin(FILE_LIMIT) if typed == "-" else typed.encode("utf-8", "surrogateescape")
    try:
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the text is not UTF-8 (byte {error.start + 1}); nothing was saved") from error
    return replace_fields(args, content=text)


def _take_text(args: ForgetOwnerArgs, _files: ShellInput) -> ForgetOwnerArgs:
    return _take_word("forget", args, "text")


def _take_version(args: RestoreOwnerArgs, _files: ShellInput) -> RestoreOwnerArgs:
    args = _take_word("restore", args, "version")
    try:
        return replace_fields(args, version=parse_version(str(args.version)))
    except ValueError as error:
        raise UsageError(f"memory restore: version: {error}; see `bubbot memory restore --help`") from error


def read_files(args: ImportFilesArgs, files: ShellInput) -> ImportArgs:
    """Read the memory from the files. Raise `ConfigError` if there is none."""
    args = _take_word("import", args, "path")
    found = read_memory(Path(args.path or ""), files)
    if found.memory.is_empty:
        raise ConfigError(f"{args.path} holds no memory")
    return ImportArgs(
        args.session,
        args.user,
        args.workspace,
        long_term=found.memory.long_term,
        notes=tuple((note.date, note.content) for note in found.memory.dailies),
        left_out=found.left_out,
        replace=args.replace,
    )


async def _open_commands(_context: CommandContext) -> MemoryCommands:
    return MemoryCommands()


def _help(text: str, **more: Any) -> dict[str, Any]:
    return {"help": f"{text[:1].lower()}{text[1:-1]}", "description": text, **more}


_OPTIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "show": _help("Print what is remembered, and which versions there are.", is_answered_without_home=False),
        "save": _help("Replace the long-term memory. If lines go, it asks before.", prepare=read_saved_text),
        "forget": _help("Remove every line that contains a text.", prepare=_take_text),
        "restore": _help("Bring an older version back as the newest.", prepare=_take_version),
        "export": {"result": None, "is_answered_without_home": False},
        "import": {"args": ImportFilesArgs, "prepare": read_files, "sent": ImportArgs},
    }
)
"""What only a shell has: most of the words for chats and models speak of one chat."""
_MADE = make_group(
    "memory",
    MemoryCommands,
    _open_commands,
    "Show and change the memory of a session, of a person or of the workspace. `show` and `export` are read-only and work while the bot runs. "
    "Every change is a new version; older versions stay.",
    (),
    help_line="show and change what a session remembers",
    **_OPTIONS,
)
MEMORY_COMMANDS = replace(
    _MADE, commands=tuple(sorted(_MADE.commands, key=lambda each: [*_OPTIONS, "erase"].index(each.action)))
)
