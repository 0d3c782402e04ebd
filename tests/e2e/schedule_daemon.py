"""A real daemon whose clock on the wall begins at a moment of our choice, and which may kill itself: see kill_daemon.py.

Arguments: HOME [POINT [START]]; START is ISO 8601, now where left out.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

from apscheduler.schedulers import base

from bubbot.app import bot, daemon, tapes
from tests.e2e.kill_daemon import main


def shifted(start: str) -> None:
    """Puts the clock of the bot, and that of its scheduler, to this moment."""
    forward = datetime.fromisoformat(start) - datetime.now(UTC) if start else timedelta()

    class Shown(datetime):
        """The time on the wall."""

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return (datetime.now(UTC) + forward).astimezone(tz or UTC)

    def now() -> datetime:
        return datetime.now(UTC) + forward

    base.datetime = Shown
    bot.now = daemon.now = tapes.now = now  # type: ignore[attr-defined]


def run(arguments: Sequence[str]) -> int:
    """The process."""
    os.umask(0o077)
    home, point, start = [*arguments, "", "", ""][:3]
    shifted(start)
    asyncio.run(main(Path(home), point, ""))
    return 0
