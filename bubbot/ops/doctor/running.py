"""The running bot's own report: it may fail to receive although its token is valid, or have lost its database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from bubbot.errors import BubbotError
from bubbot.gateway.health.snapshot import HealthSnapshot
from bubbot.home import Home
from bubbot.ports.checks import Finding, edit_command, shell_quote
from bubbot.server.client import DaemonNotRunning, connect
from bubbot.server.protocol import decode

ANSWER_SECONDS = 3.0
"""The time for the answer; a bot that is starting or ending gets no finding."""


def check_running(home: Home, file: Path, *, is_on_server: bool) -> Iterator[Finding]:
    """Ask the running bot for the state of its channels, disk and database.

    Args:
        file: the configuration to edit.
        is_on_server: its tapes are in a database on a server.
    """
    snapshot = asyncio.run(request_snapshot(home))
    if snapshot is None:
        return
    if snapshot.full and is_on_server:
        cause = (
            "The running bot waits for room on the disk of the PostgreSQL server: nothing is accepted, acknowledged or sent until "
            "there is some; then it continues by itself. The command, on the server, shows what takes it."
        )
        yield Finding("server.full", "problem", cause, "df -h \"$(psql -Atc 'SHOW data_directory')\"")
    elif snapshot.full and not snapshot.readonly:  # the home has a finding of its own then
        cause = (
            f"The running bot waits for disk space for {home.path}: nothing is accepted, acknowledged or sent until "
            "space is freed; then it continues by itself."
        )
        yield Finding("disk.full", "problem", cause, f"du -xh {shell_quote(home.path)} | sort -h | tail -20")
    if snapshot.replaced:
        cause = (
            f"{home.database} was removed or replaced while the bot has it open: nothing is accepted, acknowledged or "
            "sent. Put the old file back, and the bot goes on; or stop the bot and start it again with what is there."
        )
        yield Finding("database.replaced", "problem", cause, f"kill {snapshot.pid}")
    for problem in snapshot.features:
        outcome = "is left out" if problem.is_left_out else "has failed"
        cause = f"The installed feature {problem.name} {outcome} in the running bot: {problem.reason}"
        yield Finding("plugin.failed", "warning", _sentence(cause), "bubbot status")
    for channel in snapshot.channels:
        fix = edit_command(file) if f"[channels.{channel.name}]" in channel.note else "bubbot status"
        if channel.state != "" and not channel.is_receiving:
            cause = f"The running bot does not receive from its channel {channel.name}: {channel.note or channel.state}"
            yield Finding("channel.down", "problem", _sentence(cause), fix)
        elif channel.note:
            cause = f"The running bot receives from its channel {channel.name}, but: {channel.note}"
            yield Finding("channel.troubled", "warning", _sentence(cause), fix)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


async def request_snapshot(home: Home) -> HealthSnapshot | None:
    """Return the state of the home's running bot; None if none runs or it does not answer."""
    address = home.read_lock_holder()[1]
    if not address:
        return None
    try:
        async with asyncio.timeout(ANSWER_SECONDS), connect(address) as bot:
            return decode((await bot.request("status", {})).get("snapshot"), HealthSnapshot)
    except (DaemonNotRunning, TimeoutError, OSError, BubbotError):
        return None
