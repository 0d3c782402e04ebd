"""What the bot that runs for the home says of its channels and its disk: a platform may take the token and the bot be
deaf."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from bubbot.control.client import DaemonNotRunning, connected
from bubbot.control.codec import decode
from bubbot.errors import BubbotError
from bubbot.gateway.health.snapshot import HealthSnapshot
from bubbot.home import Home
from bubbot.ops.doctor.finding import Finding, edit, quoted

ANSWER_SECONDS = 3.0
"""What a running bot has to answer; one that is starting or ending is not judged."""


def check_running(home: Home, file: Path) -> Iterator[Finding]:
    """Ask the bot that runs for the home how its channels and its disk are; `file`: the one that is edited to change
    them."""
    snapshot = asyncio.run(_snapshot(home))
    if snapshot is None:
        return
    if snapshot.full:
        cause = (
            f"The running bot waits for room on the disk of {home.path}: nothing is accepted, acknowledged or sent until "
            "there is some; then it goes on by itself."
        )
        yield Finding("disk.full", "problem", cause, f"du -xh {quoted(home.path)} | sort -h | tail -20")
    for one in snapshot.channels:
        fix = edit(file) if f"[channels.{one.name}]" in one.note else "bubbot status"
        if one.state != "" and not one.fine:
            cause = f"The running bot does not hear its channel {one.name}: {one.note or one.state}"
            yield Finding("channel.down", "problem", _sentence(cause), fix)
        elif one.note:
            cause = f"The running bot hears its channel {one.name}, but: {one.note}"
            yield Finding("channel.troubled", "warning", _sentence(cause), fix)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


async def _snapshot(home: Home) -> HealthSnapshot | None:
    address = home.held_by()[1]
    if not address:
        return None
    try:
        async with asyncio.timeout(ANSWER_SECONDS), connected(address) as peer:
            return decode((await peer.request("status", {})).get("snapshot"), HealthSnapshot)
    except (DaemonNotRunning, TimeoutError, OSError, BubbotError):
        return None
