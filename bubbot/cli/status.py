"""`bubbot status`: how the bot is that runs for this home, or what its database says where none runs."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator

from bubbot.cli.output import show, show_json
from bubbot.cli.session_names import service
from bubbot.cli.setup import CommandSetup, setup
from bubbot.control.client import DaemonNotRunning, connected
from bubbot.control.codec import decode
from bubbot.errors import StoreUnavailable
from bubbot.gateway.health.formatter import HealthFormatter
from bubbot.gateway.health.snapshot import HealthSnapshot, as_json
from bubbot.home import Home
from bubbot.log import printable
from bubbot.ops.doctor.home import is_held
from bubbot.texts import Texts
from bubbot.wiring.app import now, open_tapes
from bubbot.wiring.health import left_behind, nobody_runs

STATUS_TIMEOUT_SECONDS = 5.0
"""Seconds a bot has to answer; one that does not is as good as none."""
MAX_INTERVAL_SECONDS = 3600.0
POLL_SECONDS = 0.1
WIDTH = 16


def configure(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.description = (
        "Say how the running bot is: its channels, what waits, what comes next, budgets, database and the last errors. "
        "Where none runs, say what the database holds. The exit code is 0 if a bot runs, hears every channel, gets answers "
        "from its models, has room on its disk and is in no quarantine, else 1."
    )
    parser.epilog = "example: bubbot status --quiet || echo 'look after the bot'"
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--wait",
        type=_seconds,
        default=STATUS_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="how long to wait for an answer, 5 where left out",
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing: the exit code tells")


def run(args: argparse.Namespace) -> int:
    """Asks, tells, and returns 0 where all is well."""
    made = setup(args)
    return asyncio.run(_run(made, args))


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= MAX_INTERVAL_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds above 0, at most {MAX_INTERVAL_SECONDS:.0f}"
        )
    return found


async def _run(made: CommandSetup, args: argparse.Namespace) -> int:
    found, trouble = await _asked(made.home, args.wait)
    if found is None:
        if args.quiet:  # nothing is read that nobody is told
            return 1
        found = await _read(made)
    if args.json:
        told = as_json(found) | ({"trouble": trouble} if trouble else {})
        show_json(told)
    elif not args.quiet:
        show("\n".join(printable(line) for line in _lines(found, trouble)))
    return 0 if found.healthy else 1


async def _asked(home: Home, wait: float) -> tuple[HealthSnapshot | None, str]:
    """What the running bot says, and what is wrong about it in one line; None where no bot answers."""
    if not is_held(home):
        return None, "No bot runs for this home; this is what its database says."
    pid, address = home.held_by()
    who = "Another process" if pid is None else f"Process {pid}"
    if pid is not None and address is None:
        return None, f"{who} writes to this home and is no daemon: a chat, or another command."
    try:
        async with asyncio.timeout(wait):
            found = await _answer(home)
    except TimeoutError:
        return None, (
            f"{who} holds this home and gave no answer within {wait:g} seconds: it is starting, ending, or blocked."
        )
    if found.quarantine is not None:
        return found, "In quarantine, with no channel: `bubbot restore --release`, and then a new start, end that."
    deaf = [one.name for one in found.channels if not one.fine]
    silent = [one.name for one in found.failing]
    told = [
        *(["The disk is full: the bot waits for room."] if found.full else []),
        *([f"Not every channel receives: {', '.join(deaf)}."] if deaf else []),
        *([f"No answer comes from {', '.join(silent)}."] if silent else []),
    ]
    return found, " ".join(told)


async def _answer(home: Home) -> HealthSnapshot:
    """Asks until somebody is there: a bot that starts is a moment away."""
    while True:
        address = home.held_by()[1]
        try:
            if address:
                async with connected(address) as peer:
                    return decode((await peer.request("status", {})).get("snapshot"), HealthSnapshot)
        except DaemonNotRunning:
            pass
        await asyncio.sleep(POLL_SECONDS)


async def _read(made: CommandSetup) -> HealthSnapshot:
    """What the database says."""
    try:
        async with open_tapes(made.home) as (store, _):
            return await left_behind(store, lambda name: service(store, name), made.home, made.settings, now=now)
    except StoreUnavailable:
        if made.home.database.exists():
            raise
        return nobody_runs(made.settings, made.home, now)


def _lines(found: HealthSnapshot, trouble: str) -> Iterator[str]:
    if trouble:
        yield trouble
    for row in HealthFormatter(Texts(), found).rows():
        for place, line in enumerate(row.lines):
            yield f"{row.label if place == 0 else '':<{WIDTH}}{line}"
