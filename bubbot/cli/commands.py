"""Commands of features and writing commands of the shell: one function runs them here or in the running bot."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from zoneinfo import ZoneInfo

from msgspec import structs

from bubbot.app.commands import bind_context, find_command
from bubbot.app.tapes import new_id, now, open_tapes, tape_service
from bubbot.arguments.fields import Args, dump_args, dump_given, fields_of
from bubbot.cli.files import open_output
from bubbot.cli.output import drawing_width, show, show_on_stderr, show_record, show_table
from bubbot.cli.setup import CommandSetup
from bubbot.errors import ConfigError, ConfirmationNeeded, ControlError, StoreUnavailable, ToolRetry
from bubbot.formatting import replace_controls
from bubbot.new_files import create_folder
from bubbot.ports.channel import TERMINAL_CHANNEL
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.server.client import connect, run_on_home
from bubbot.server.protocol import JsonObject, decode, encode
from bubbot.settings.loader import Settings
from bubbot.settings.sources import read_text
from bubbot.shell_command import (
    Command,
    CommandContext,
    CommandFailure,
    CommandGroup,
    CommandResult,
    FolderResult,
    RunCommand,
    TableResult,
    TypeCommand,
)
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.lease import InProcessLease
from bubbot.tape.service import session_tape
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from bubbot.tool import validate_args

WRITE_COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "tape import": ("bubbot.cli.tape.change", "IMPORT_TAPE"),
        "restore release": ("bubbot.cli.restore_change", "RELEASE_HOME"),
    }
)
"""The writing commands that belong to no feature, by module and name; they get all settings."""
STORE_COMMANDS = ("bubbot.cli.tape.commands", "STORE_COMMANDS")
"""The module and the name of the store's commands in the group `tape`; they get all settings, too."""
STORE_ACTIONS = frozenset({"tape list", "tape size", "tape verify", "tape archive", "tape index", "tape gc"})
"""Their names."""


class Shell:
    """Files and standard input of this process. See `ShellInput`."""

    def read_text(self, path: Path, limit: int, subject: str) -> str:
        return read_text(path, limit, subject)

    def read_stdin(self, limit: int) -> bytes:
        return sys.stdin.buffer.read(limit)


async def run_command(
    setup: CommandSetup,
    command: Command,
    arguments: Args,
    *,
    run_here: RunCommand | None = None,
    type_command: TypeCommand | None = None,
) -> int:
    """Run a command, print its answer, and return its exit code. See `carry_out` for arguments and errors."""
    result = await carry_out(setup, command, arguments, run_here=run_here, type_command=type_command)
    if setup.as_json and result.data is None:
        raise ControlError("the running bot is an older one and knows no JSON for this: restart it after an update")
    if result.file is not None or (result.raw and not setup.as_json):
        with open_output(result.file, replace_controls) as write:
            write(result.content or result.text.encode())
    if isinstance(result, FolderResult):
        create_folder(Path(result.folder), result.files)
    if setup.as_json:
        show_record(result.data)
        return result.code
    if isinstance(result, CommandFailure):
        show_on_stderr(f"bubbot: {result.text}", end="")
        return result.code
    if result.rows:
        right, header = (result.right, result.header) if isinstance(result, TableResult) else ((), ())
        show_table(result.rows, right=right, header=header)
    if result.content or not (result.raw or result.file is not None):
        show(result.text, end="")
    if result.file is not None:
        show(f"Exported to {result.file}.")
    if isinstance(result, FolderResult):
        show(f"Exported to {result.folder}.")
    return result.code


async def carry_out(
    setup: CommandSetup,
    command: Command,
    arguments: Args,
    *,
    run_here: RunCommand | None = None,
    type_command: TypeCommand | None = None,
) -> CommandResult:
    """Run a command and return its answer.

    Args:
        arguments: as typed.
        run_here: replaces the command in this process, if the caller has intermediate results.
        type_command: see `CommandContext`.

    Raises:
        HomeLocked: a process that accepts no requests writes to the home.
        BubbotError: any error of the command, here or in the running bot.
    """
    if command.prepare is not None:
        arguments = command.prepare(arguments, Shell())
    with _show_progress(setup, command, arguments) as on_progress:
        if command.writes and not (command.only_reads and command.only_reads(arguments)):
            return await _write(setup, command, arguments, run_here or command.run, on_progress)
        return await read(setup, command, arguments, on_progress, type_command)


def _show_progress(setup: CommandSetup, command: Command, arguments: Args) -> AbstractContextManager[OnProgress]:
    if command.progress is None:
        return nullcontext(ignore_progress)
    # Imported here: few commands take so long.
    from bubbot.cli.progress import show_progress

    label, unit = command.progress
    return show_progress(label.format_map(dump_args(arguments)), unit, plain=setup.is_plain)


FIRST_SESSION, FIRST_COMMAND = f"{TERMINAL_CHANNEL}:default", ",help"
"""What makes a home that a command needs: a command that changes nothing, in the chat of a terminal."""


async def read(
    setup: CommandSetup,
    command: Command,
    arguments: Args,
    on_progress: OnProgress = ignore_progress,
    type_command: TypeCommand | None = None,
) -> CommandResult:
    """Run a command that only reads, in this process."""
    try:
        opened = (
            open_tapes(setup.home, setup.settings.store) if command.needs_home else nullcontext((InMemoryStore(), ""))
        )
        async with opened as (store, workspace):
            width = 0 if setup.is_plain else drawing_width()
            context = CommandContext(
                store,
                workspace,
                now,
                new_id,
                terminal_width=width,
                type_command=type_command,
                on_progress=on_progress,
                home=setup.home.path,
            )
            return await command.run(_bind(context, command, setup.settings), arguments)
    except StoreUnavailable:
        if command.begins_home and type_command is not None and not setup.home.has_database:
            await type_command(FIRST_SESSION, FIRST_COMMAND, "")
            return await read(setup, replace(command, begins_home=False), arguments, on_progress, type_command)
        is_answered = command.is_answered_without_home or command.on_missing_home is not None
        if not is_answered or setup.home.has_database:
            raise
        without = CommandContext(InMemoryStore(), "", now, new_id, home=setup.home.path)
        context = _bind(without, command, setup.settings)
        if command.on_missing_home is not None:
            return command.on_missing_home(context.settings, arguments)
        return await command.run(context, arguments)


async def _write(
    setup: CommandSetup, command: Command, arguments: Args, run_here: RunCommand, on_progress: OnProgress
) -> CommandResult:
    async def in_this_process() -> CommandResult:
        async with open_tapes(setup.home, setup.settings.store, write=True) as (store, workspace):
            exclusive = partial(_take_up, store, workspace)
            context = CommandContext(
                store, workspace, now, new_id, exclusive=exclusive, on_progress=on_progress, home=setup.home.path
            )
            result = await run_here(_bind(context, command, setup.settings), arguments)
            # Imported here: most commands change nothing.
            from bubbot.app.forgetting import finish_forgetting

            await finish_forgetting(store, setup.home, workspace)
            return result

    async def in_the_bot(address: str) -> CommandResult:
        body = {"name": command.name, "arguments": dump_given(arguments), "confirmed": True}  # the shell has asked
        async with connect(address) as bot:
            reply = await bot.request("command", body)
        return decode(reply.get("told"), CommandResult)

    return await run_on_home(setup.home, in_this_process, in_the_bot)


async def answer_command(context: CommandContext, settings: Settings, body: JsonObject) -> JsonObject:
    """Answer the request `command` in the running bot; `body` has `name`, `arguments`, and `confirmed` after a
    question.

    Raises:
        ConfigError: the arguments are wrong, with a sentence for each.
        ConfirmationNeeded: the command needs a confirmation; the text is the question.
        BubbotError: any error of the command.
    """
    name = body.get("name")
    command = _find_write_command(name) if isinstance(name, str) else None
    if command is None:
        raise ControlError(f"the running bot has no command {name!r}: restart it after an update")
    arguments = body.get("arguments")
    if not isinstance(arguments, Mapping):
        raise ControlError(f"the arguments of {name} are {type(arguments).__name__}, not an object")
    kind, bound = command.sent or command.args, _bind(context, command, settings)
    is_confirmed = body.get("confirmed") is True or arguments.get("yes") is True
    if "yes" not in fields_of(kind):
        arguments = {key: value for key, value in arguments.items() if key != "yes"}
    try:
        parsed = validate_args(command.name, kind, arguments)
    except ToolRetry as error:
        raise ConfigError(f"{error} (if this comes from bubbot itself, restart the bot after an update)") from error
    if command.question is not None and not is_confirmed and (question := (await command.question(bound, parsed)).text):
        raise ConfirmationNeeded.with_text(question)
    return {"told": encode(await command.run(bound, parsed))}


@asynccontextmanager
async def _take_up(store: TapeStore, workspace: str, session: str) -> AsyncIterator[None]:
    """Merge the open forks of a session; this process must hold the home's lock and run no turns."""
    name = session_tape(workspace, session)
    lease = await InProcessLease(store, partial(session_tape, workspace)).hold(session)
    if await store.forks(name):
        # Imported here: features of packages may load the whole kernel, and few sessions have open forks.
        from bubbot.app.installed import load_features
        from bubbot.runtime.recovery import merge_open_forks

        tape = tape_service(store, name, session, references=load_features().references)
        tape.write_under(lease)
        await merge_open_forks(tape)
    yield


def _find_write_command(name: str) -> Command | None:
    if name in WRITE_COMMANDS:
        module, constant = WRITE_COMMANDS[name]
        own: Command = getattr(import_module(module), constant)
        return own
    if name in STORE_ACTIONS:
        group: CommandGroup = getattr(import_module(STORE_COMMANDS[0]), STORE_COMMANDS[1])
        command = group.find(name)
    else:
        command = find_command(name)
    return command if command is not None and command.writes else None


def _bind(context: CommandContext, command: Command, settings: Settings) -> CommandContext:
    if command.name in WRITE_COMMANDS or command.name in STORE_ACTIONS:
        zone, texts = ZoneInfo(settings.bot.timezone), Texts(settings.bot.language)
        return structs.replace(context, settings=settings, zone=zone, texts=texts)
    return bind_context(context, command.name, settings)
