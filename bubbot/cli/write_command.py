"""Commands that write: this process or the running bot carries them out, by the same function."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from bubbot.app.bot import open_tapes
from bubbot.app.events import OWN_REFERENCES
from bubbot.app.installed import load_features
from bubbot.cli.output import show
from bubbot.cli.session_names import read_session, tape_service
from bubbot.cli.setup import CommandSetup
from bubbot.errors import ConfigError, ControlError
from bubbot.features.access.service import AccessService
from bubbot.features.schedule.store import ScheduleStore
from bubbot.runtime.recovery import merge_open_forks
from bubbot.server.client import connect, run_on_home
from bubbot.server.codec import JsonObject, decode, encode
from bubbot.settings.loader import Settings
from bubbot.stores.lease import InProcessLease
from bubbot.tape.service import session_tape
from bubbot.tape.store import TapeStore

WRITE_TIMEOUT_SECONDS = 300.0
"""The longest time a command waits for the running turn of its session."""


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The state that a writing command works on.

    Attributes:
        store: the tapes, open for writing.
        workspace: the workspace of the home's sessions.
        settings: the current settings.
        exclusive: takes up a session, and keeps its turns from running during its block.
        access: the running bot's own access service; None if no bot runs.
        schedules: the running bot's own schedule store; None if no bot runs.
    """

    store: TapeStore
    workspace: str
    settings: Settings
    exclusive: Callable[[str], AbstractAsyncContextManager[None]]
    access: AccessService | None = None
    schedules: ScheduleStore | None = None

    @asynccontextmanager
    async def lock_tape(self, tape: str, session: str = "") -> AsyncIterator[None]:
        """Keep all other writers off a tape until the block ends. Raises `ConfigError` after five minutes."""
        session = session or await read_session(self.store, tape)
        if not session:  # no turn runs on an archive or a tape of the system
            yield
            return
        exclusion = self.exclusive(session)
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
                await exclusion.__aenter__()
        except TimeoutError as error:
            raise ConfigError(
                f"a turn of {session} has been running for {WRITE_TIMEOUT_SECONDS / 60:.0f} minutes: ,stop ends it; nothing was written"
            ) from error
        try:
            yield
        finally:
            await exclusion.__aexit__(None, None, None)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The text that a command prints, and its exit code."""

    text: str
    code: int = 0


Work: TypeAlias = Callable[[CommandContext, Any], Awaitable[CommandResult]]


@dataclass(frozen=True, slots=True)
class WriteCommand:
    """A command that writes.

    Attributes:
        module: the module with the next two.
        arguments: the name of its arguments, a frozen dataclass of plain values.
        work: the name of its function, a `Work`.
    """

    module: str
    arguments: str
    work: str


WRITE_COMMANDS: Mapping[str, WriteCommand] = {
    "memory save": WriteCommand("bubbot.cli.memory.change", "SaveMemory", "save"),
    "memory forget": WriteCommand("bubbot.cli.memory.change", "ForgetMemory", "forget"),
    "memory restore": WriteCommand("bubbot.cli.memory.change", "RestoreMemory", "restore"),
    "memory import": WriteCommand("bubbot.cli.memory.change", "ImportMemory", "import_memory"),
    "tape archive": WriteCommand("bubbot.cli.tape.change", "ArchiveTape", "archive"),
    "tape gc": WriteCommand("bubbot.cli.tape.gc_change", "CollectTapes", "collect"),
    "tape import": WriteCommand("bubbot.cli.tape.change", "ImportTape", "import_tape"),
    "restore release": WriteCommand("bubbot.cli.restore_change", "ReleaseHome", "release"),
    "tape index": WriteCommand("bubbot.cli.tape.index", "RebuildIndex", "rebuild"),
    "schedule": WriteCommand("bubbot.cli.schedule_change", "ChangeSchedule", "change"),
    "access": WriteCommand("bubbot.cli.access_change", "ChangeAccess", "change"),
}
"""Every command that writes and ends; only the module of the requested command is imported."""


async def run_write_command(
    setup: CommandSetup, name: str, arguments: object, *, local_work: Work | None = None
) -> int:
    """Carry out a command of `WRITE_COMMANDS`, print its text, and return its exit code.

    Args:
        setup: the settings and the home of this command.
        name: a key of `WRITE_COMMANDS`.
        arguments: an instance of its arguments class.
        local_work: a function to use in this process instead, if the caller has results already.

    Raises:
        HomeLocked: a process that takes no requests writes to the home.
        BubbotError: any error of the command, wherever it ran.
    """

    async def in_this_process() -> CommandResult:
        async with open_tapes(setup.home, setup.settings.store, write=True) as (store, workspace):
            exclusive = partial(_take_up, store, workspace)
            return await (local_work or _load_command(name)[1])(
                CommandContext(store, workspace, setup.settings, exclusive), arguments
            )

    async def in_the_bot(address: str) -> CommandResult:
        async with connect(address) as bot:
            reply = await bot.request("command", {"name": name, "arguments": encode(arguments)})
        return decode(reply.get("told"), CommandResult)

    result = await run_on_home(setup.home, in_this_process, in_the_bot)
    show(result.text, end="")
    return result.code


async def answer_command(context: CommandContext, body: JsonObject) -> JsonObject:
    """Answer the request `command` in the running bot."""
    name = body.get("name")
    if not isinstance(name, str) or name not in WRITE_COMMANDS:
        raise ControlError(f"the running bot has no command {name!r}: restart it after an update")
    kind, work = _load_command(name)
    return {"told": encode(await work(context, decode(body.get("arguments"), kind)))}


def _load_command(name: str) -> tuple[type[Any], Work]:
    writing = WRITE_COMMANDS[name]
    module = import_module(writing.module)
    return getattr(module, writing.arguments), getattr(module, writing.work)


@asynccontextmanager
async def _take_up(store: TapeStore, workspace: str, session: str) -> AsyncIterator[None]:
    """Take up a session of this process, which holds the home's lock and runs no turns: merge its open forks."""
    name = session_tape(workspace, session)
    references = load_features().references if await store.forks(name) else OWN_REFERENCES
    tape = tape_service(store, name, session, references=references)
    tape.write_under(await InProcessLease(store, partial(session_tape, workspace)).hold(session))
    await merge_open_forks(tape)
    yield
