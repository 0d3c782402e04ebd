"""Commands that write: done here, or by the bot that runs for this home, through the same function."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

from bubbot.access import AccessService
from bubbot.cli.output import show
from bubbot.cli.session_names import session_of
from bubbot.cli.setup import CommandSetup
from bubbot.control.client import beside, connected
from bubbot.control.codec import JsonObject, decode, encode
from bubbot.errors import ConfigError, ControlError
from bubbot.schedule.store import ScheduleStore
from bubbot.settings.loader import Settings
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.wiring.app import open_tapes

WRITE_TIMEOUT_SECONDS = 300.0
"""Seconds a command waits for the turn that runs in its session."""


@dataclass(frozen=True, slots=True)
class CommandContext:
    """What a writing command works on. `exclusive` keeps the turns of a session away for the time of its block;
    `access` and `schedules` are the running bot's own records of who may speak, and of jobs."""

    store: SqliteStore
    workspace: str
    settings: Settings
    exclusive: Callable[[str], AbstractAsyncContextManager[None]]
    access: AccessService | None = None
    schedules: ScheduleStore | None = None

    @asynccontextmanager
    async def alone(self, tape: str, session: str = "") -> AsyncIterator[None]:
        """The only one to write to a tape until the block ends. Raises `ConfigError` after five minutes."""
        session = session or await session_of(self.store, tape)
        if not session:  # an archive, or a tape of the system: no turn runs there
            yield
            return
        held = self.exclusive(session)
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
                await held.__aenter__()
        except TimeoutError as error:
            raise ConfigError(
                f"a turn of {session} has been running for {WRITE_TIMEOUT_SECONDS / 60:.0f} minutes: ,stop ends it; nothing was written"
            ) from error
        try:
            yield
        finally:
            await held.__aexit__(None, None, None)


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command prints, and its exit code."""

    text: str
    code: int = 0


Work: TypeAlias = Callable[[CommandContext, Any], Awaitable[CommandResult]]


@dataclass(frozen=True, slots=True)
class WriteCommand:
    """A command that writes: the module with its arguments, a frozen dataclass of plain values, and its function."""

    module: str
    arguments: str
    work: str


WRITING: Mapping[str, WriteCommand] = {
    "memory save": WriteCommand("bubbot.cli.memory.change", "SaveMemory", "save"),
    "memory forget": WriteCommand("bubbot.cli.memory.change", "ForgetMemory", "forget"),
    "memory restore": WriteCommand("bubbot.cli.memory.change", "RestoreMemory", "restore"),
    "memory import": WriteCommand("bubbot.cli.memory.change", "ImportMemory", "take"),
    "tape archive": WriteCommand("bubbot.cli.tape.change", "ArchiveTape", "archive"),
    "tape gc": WriteCommand("bubbot.cli.tape.gc_change", "CollectTapes", "collect"),
    "tape import": WriteCommand("bubbot.cli.tape.change", "ImportTape", "take"),
    "restore release": WriteCommand("bubbot.cli.restore_change", "ReleaseHome", "release"),
    "tape index": WriteCommand("bubbot.cli.tape.index", "RebuildIndex", "make"),
    "schedule": WriteCommand("bubbot.cli.schedule_change", "ChangeSchedule", "change"),
    "access": WriteCommand("bubbot.cli.access_change", "ChangeAccess", "change"),
}
"""Every command that writes and ends; a module is loaded when its command is asked for."""


async def perform(made: CommandSetup, name: str, arguments: object, *, here: Work | None = None) -> int:
    """Does a command of `WRITING`, prints what it says, and returns its exit code.

    `here`: a function to use instead in this process, where something is known already. Raises what the command
    raises, wherever it ran; `HomeLocked` where another process writes that takes no requests.
    """

    async def in_this_process() -> CommandResult:
        async with open_tapes(made.home, write=True) as (store, workspace):
            return await (here or _loaded(name)[1])(CommandContext(store, workspace, made.settings, _alone), arguments)

    async def in_the_bot(address: str) -> CommandResult:
        async with connected(address) as peer:
            told = await peer.request("command", {"name": name, "arguments": encode(arguments)})
        return decode(told.get("told"), CommandResult)

    told = await beside(made.home, in_this_process, in_the_bot)
    show(told.text, end="")
    return told.code


async def answer(desk: CommandContext, body: JsonObject) -> JsonObject:
    """What the running bot answers to the request `command`."""
    name = body.get("name")
    if not isinstance(name, str) or name not in WRITING:
        raise ControlError(f"the running bot has no command {name!r}: restart it after an update")
    kind, work = _loaded(name)
    return {"told": encode(await work(desk, decode(body.get("arguments"), kind)))}


def _loaded(name: str) -> tuple[type[Any], Work]:
    writing = WRITING[name]
    module = import_module(writing.module)
    return getattr(module, writing.arguments), getattr(module, writing.work)


@asynccontextmanager
async def _alone(_session: str) -> AsyncIterator[None]:
    """This process holds the lock and runs no turns."""
    yield
