"""`bubbot reload`: lets the running bot apply changed settings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show, show_record
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.errors import ControlError
from bubbot.home import WriterLock
from bubbot.server.client import connect, run_on_home
from bubbot.shell_command import CommandGroup

RELOAD_TIMEOUT_SECONDS = 120.0
"""Seconds: turns of a removed channel may take 30, and platforms check new tokens."""


class ReloadReport(Struct, frozen=True):
    """What a reload applied.

    Attributes:
        applied: the keys that hold now.
        at_next_start: the keys that take effect at the next start.
        restarted_channels: names of channels that were started or restarted.
        stopped_channels: names of channels that were stopped.
    """

    applied: tuple[str, ...]
    at_next_start: tuple[str, ...]
    restarted_channels: tuple[str, ...]
    stopped_channels: tuple[str, ...]


@local_command("reload", example="reload", result=ReloadReport)
def reload(invocation: Invocation) -> int:
    """Apply changed settings to the running bot.

    Tell the running bot to read its settings again. They are checked first: if one is wrong, the bot keeps its current
    settings and this command reports the problem. Running turns finish with the old settings. SIGHUP does the same. Every
    change is a fact on the tape bubbot/config.
    """
    setup = load_setup(invocation)
    report = asyncio.run(reload_running_bot(setup))
    if report is None:
        raise ControlError("no bot is running for this home: it reads the settings at its next start")
    if setup.as_json:
        show_record(report)
    else:
        print_report(report)
    return 0


async def reload_running_bot(setup: CommandSetup) -> ReloadReport | None:
    """Let the running bot read its settings again; None if no bot runs. Raise `ConfigError` if it refuses them."""

    async def find_no_bot() -> None:
        setup.home.ensure()
        with WriterLock(setup.home):  # if another process has the lock, `run_on_home` asks that process
            return

    async def reload_bot(address: str) -> ReloadReport:
        async with connect(address) as bot:
            reply = await bot.request("reload", {}, timeout=RELOAD_TIMEOUT_SECONDS)
        return ReloadReport(*(tuple(reply[key]) for key in ("now", "later", "begun", "ended")))

    return await run_on_home(setup.home, find_no_bot, reload_bot)


def print_report(result: ReloadReport) -> None:
    lines = [
        *_line("Applied", result.applied),
        *_line("Takes effect at the next start", result.at_next_start),
        *_line("Restarted channels", result.restarted_channels),
        *_line("Stopped channels", result.stopped_channels),
    ]
    show("\n".join(lines) or "Nothing has changed.")


def _line(label: str, names: Sequence[str]) -> list[str]:
    return [f"{label}: {', '.join(names)}."] if names else []


RELOAD_COMMANDS = CommandGroup("reload", (reload,))
