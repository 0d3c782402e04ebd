"""`bubbot status`: the health of the bot that runs for this home, or the state of its database if none runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Annotated, ClassVar

from msgspec import Struct

from bubbot.arguments.fields import Args
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show, show_json, terminal_columns
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.errors import DatabaseLost, StoreUnavailable
from bubbot.formatting import cell_width
from bubbot.gateway.health.formatter import HealthFormatter
from bubbot.gateway.health.snapshot import (
    BackupStatus,
    ChannelState,
    DatabaseStatus,
    HealthSnapshot,
    PendingDeliveries,
    as_json,
)
from bubbot.gateway.health.verdict import format_verdict
from bubbot.home import Home
from bubbot.log import LoggedWarning, printable
from bubbot.ops.doctor.home import is_held
from bubbot.ports.health import FeatureProblem, RuntimeLoad
from bubbot.server.client import DaemonNotRunning, connect, explain_missing_socket
from bubbot.server.protocol import decode
from bubbot.settings.sections import SQLITE_STORE
from bubbot.shell_command import Argument, CommandGroup, IsoTime
from bubbot.texts import Texts
from bubbot.texts.catalogue import SOURCE_LANGUAGE

STATUS_TIMEOUT_SECONDS = 5.0
"""Seconds for a bot to answer; a slower one counts as not running."""
MAX_INTERVAL_SECONDS = 3600.0
POLL_SECONDS = 0.1
LABEL_WIDTH = 16


class StatusReport(Struct, frozen=True, kw_only=True):
    """The state of the bot. Values that are unknown are left out; features add their own.

    Attributes:
        version: that of the program.
        home: the path of the home.
        zone: the time zone of the deployment.
        at: the time of the report.
        pid: the process; absent if no bot runs.
        began: when the bot started.
        channels: the configured channels.
        outcomes: how the newest turns ended, the newest last.
        load: the turns; if no bot runs, the messages that nobody has answered.
        owed: undelivered messages, by channel.
        database: its size; absent if it was not measured.
        backup: the newest backup.
        warnings: warnings logged.
        errors: errors logged.
        newest: the newest of both.
        quarantine: the backup the home was restored from, while nothing is sent to anybody outside.
        features: what is wrong with the features of installed packages.
        full: the bot waits for disk space.
        readonly: it waits because that disk is mounted read-only.
        replaced: the database was removed or replaced under the running bot.
        loading: the models that are still loading.
        running: a bot runs.
        healthy: it runs, receives from every channel, gets answers from its models and can write.
        verdict: the state in one line.
        trouble: the same, if the bot is not healthy.
    """

    is_open: ClassVar[bool] = True
    version: str
    home: str
    zone: str
    at: IsoTime
    pid: int = 0
    began: IsoTime = ""
    channels: tuple[ChannelState, ...]
    outcomes: tuple[str, ...]
    load: RuntimeLoad
    owed: tuple[PendingDeliveries, ...]
    database: DatabaseStatus | None = None
    backup: BackupStatus | None = None
    warnings: int
    errors: int
    newest: tuple[LoggedWarning, ...]
    quarantine: BackupStatus | None = None
    features: tuple[FeatureProblem, ...]
    full: bool
    readonly: bool
    replaced: bool
    loading: tuple[str, ...]
    running: bool
    healthy: bool
    verdict: str
    trouble: str = ""


def parse_wait(text: str) -> float:
    """Parse seconds. Raise `ValueError` with a sentence."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_INTERVAL_SECONDS:
        raise ValueError(f"{text!r} is not a number of seconds above 0 and at most {MAX_INTERVAL_SECONDS:.0f}")
    return seconds


class StatusArgs(Args, frozen=True):
    """The arguments of `bubbot status`."""

    wait: Annotated[float, Argument("how long to wait for an answer (default: 5)", "SECONDS", parse_wait)] = (
        STATUS_TIMEOUT_SECONDS
    )
    quiet: Annotated[bool, Argument("print nothing, only set the exit code")] = False


@local_command("status", example="bubbot status --quiet || echo 'look after the bot'", result=StatusReport)
def show_status(invocation: Invocation, args: StatusArgs) -> int:
    """Show the state of the running bot.

    Show the state of the running bot: its channels, waiting messages, next jobs, budgets, database and the last errors. If
    no bot runs, show what the database holds. The exit code is 0 if a bot runs, receives from every channel, gets answers
    from its models, has disk space and is not in quarantine, else 1.
    """
    return asyncio.run(_run(load_setup(invocation), args))


async def _run(setup: CommandSetup, args: StatusArgs) -> int:
    texts = Texts(SOURCE_LANGUAGE if setup.as_json else setup.settings.bot.language)
    snapshot, verdict = await _query_bot(setup.home, args.wait, texts)
    if snapshot is None:
        if args.quiet:  # without output there is nothing to read
            return 1
        snapshot, loss = await _read(setup, texts)
        verdict = loss or verdict
    if setup.as_json:
        show_json(as_json(snapshot) | {"verdict": verdict} | ({} if snapshot.is_healthy else {"trouble": verdict}))
    elif not args.quiet:
        show("\n".join(printable(line) for line in _lines(snapshot, verdict, texts)))
    return 0 if snapshot.is_healthy else 1


async def _query_bot(home: Home, wait: float, texts: Texts) -> tuple[HealthSnapshot | None, str]:
    """Query the running bot for its health and the one-line verdict; None if no bot answers."""
    if not is_held(home):
        return None, texts.say("verdict_no_bot")
    pid, address = home.read_lock_holder()
    holder = texts.say("verdict_another") if pid is None else texts.say("verdict_process", pid=pid)
    not_daemon = texts.say("verdict_not_daemon", holder=holder)
    if pid is not None and address is None:
        return None, not_daemon
    try:
        async with asyncio.timeout(wait):
            snapshot = await _request_snapshot(home, texts)
    except TimeoutError:
        if address and (reason := explain_missing_socket(address, texts)):
            return None, texts.say("verdict_silent_because", holder=holder, seconds=wait, reason=reason)
        return None, texts.say("verdict_silent", holder=holder, seconds=wait)
    return (None, not_daemon) if snapshot is None else (snapshot, format_verdict(snapshot, texts))


async def _request_snapshot(home: Home, texts: Texts) -> HealthSnapshot | None:
    """Request the health until a bot answers: a starting one needs a moment. None if the process is a chat."""
    while True:
        address = home.read_lock_holder()[1]
        try:
            if address:
                async with connect(address) as bot:
                    reply = await bot.request("status", {"language": texts.language})
                    return None if reply.get("chat") else decode(reply.get("snapshot"), HealthSnapshot)
        except DaemonNotRunning:
            pass
        await asyncio.sleep(POLL_SECONDS)


async def _read(setup: CommandSetup, texts: Texts) -> tuple[HealthSnapshot, str]:
    """Read the health from the database, and a sentence if the home's database is missing."""
    # Imported here: mostly a running bot answers, without these.
    from bubbot.app.offline import offline_snapshot
    from bubbot.app.tapes import now, open_tapes

    read = partial(
        offline_snapshot, home=setup.home, settings=setup.settings, now=now, config=setup.config, texts=texts
    )
    try:
        async with open_tapes(setup.home, setup.settings.store) as (store, _):
            return await read(store), ""
    except DatabaseLost as error:
        loss = texts.say("verdict_lost", reason=error)
    except StoreUnavailable:
        if setup.settings.store.kind != SQLITE_STORE or setup.home.has_database:
            raise
        loss = ""
    return await read(None), loss


def _lines(snapshot: HealthSnapshot, verdict: str, texts: Texts) -> Iterator[str]:
    yield verdict
    narrow = 0 < terminal_columns() < 2 * LABEL_WIDTH
    rows = [*HealthFormatter(texts, snapshot).rows()]
    width = max(LABEL_WIDTH, *(cell_width(row.label) + 1 for row in rows))
    for row in rows:
        if narrow:
            yield row.label
            yield from (f"  {line}" for line in row.lines)
            continue
        for index, line in enumerate(row.lines):
            label = row.label if index == 0 else ""
            yield f"{label}{' ' * (width - cell_width(label))}{line}"


STATUS_COMMANDS = CommandGroup("status", (show_status,))
