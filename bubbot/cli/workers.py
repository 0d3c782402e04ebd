"""`bubbot workers`: the processes that share the turns of one PostgreSQL database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from msgspec import Struct

from bubbot.arguments.fields import Args
from bubbot.cli.invocation import Invocation, parse_count
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show, show_record
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.errors import ConfigError
from bubbot.ports.workers import SharesTurns, Worker
from bubbot.shell_command import Argument, CommandGroup


class WorkersReport(Struct, frozen=True):
    """The processes that run turns.

    Attributes:
        workers: the processes, the oldest first.
        waiting: chats that wait for one of them.
    """

    workers: tuple[Worker, ...]
    waiting: int


class WorkersArgs(Args, frozen=True):
    """The arguments of `bubbot workers`."""

    drain: Annotated[
        int, Argument("let this one end: it takes no more chats, and finishes its turns", "NUMBER", parse_count)
    ] = 0


@local_command("workers", example="workers\nworkers --drain 3", result=WorkersReport)
def list_workers(invocation: Invocation, args: WorkersArgs) -> int:
    """List the processes that share the turns.

    List the processes of `bubbot run` that share the turns of one PostgreSQL database, on any machine: since when each runs, its last sign
    of life, and the chats that it works on. With --drain one of them ends as with SIGTERM: others go on with its chats.
    """
    setup = load_setup(invocation)
    report = asyncio.run(_drain(setup, args.drain) if args.drain else _read(setup))
    if setup.as_json:
        show_record(report)
    else:
        show("\n".join(_lines(report.workers, report.waiting)))
    return 0


async def _read(setup: CommandSetup) -> WorkersReport:
    # Imported here: the help needs no store.
    from bubbot.app.tapes import open_tapes

    async with open_tapes(setup.home, setup.settings.store) as (store, _):
        return await _report(store)


async def _drain(setup: CommandSetup, number: int) -> WorkersReport:
    from bubbot.app.stores import open_home_store
    from bubbot.app.tapes import now

    store = await open_home_store(setup.settings.store, setup.home, now=now)
    try:
        report = await _report(store)
        assert isinstance(store, SharesTurns)
        if not await store.drain_worker(number):
            known = ", ".join(str(worker.id) for worker in report.workers) or "none"
            raise ConfigError(f"--drain {number}: there is no such process; those that run: {known}")
        return await _report(store)
    finally:
        await store.aclose()


async def _report(store: object) -> WorkersReport:
    if not isinstance(store, SharesTurns):
        raise ConfigError(
            "one process runs all turns of this home, since its tapes are in SQLite: several share those of a PostgreSQL server, "
            "which [store] url names"
        )
    workers, waiting = await store.list_workers()
    return WorkersReport(tuple(workers), waiting)


def _lines(workers: Sequence[Worker], waiting: int) -> list[str]:
    rows = [
        f"{worker.id}  {worker.host}, process {worker.pid}, bubbot {worker.version}, since {worker.since[:19]}Z: "
        f"{worker.chats} of {worker.places} chats, heard {worker.silent_seconds:g} s ago{', ending' if worker.is_ending else ''}"
        for worker in workers
    ]
    return [*(rows or ["No process runs turns."]), f"Waiting chats: {waiting}."]


WORKERS_COMMANDS = CommandGroup("workers", (list_workers,))
