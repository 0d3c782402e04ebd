"""`bubbot` as it is, but for the seconds it waits for its platforms and for room: for tests in which only the order matters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from bubbot.app import channels, daemon
from bubbot.cli.main import main
from channels.discord import channel
from channels.discord.retry import DiscordReceiveTiming
from tests.e2e import forked

BOT = forked.BOT if forked.ANEW in os.environ else "tests.e2e.hurried:run"
"""With `--proof` it waits as long as people's bots do."""


def hurry() -> None:
    """Shorten the seconds that this process waits for Discord, and for room on a full disk."""
    hurried = partial(DiscordReceiveTiming, initial_backoff=0.1, identify_wait=0.3, guild_list_wait=0.3)
    setattr(channel, "DiscordReceiveTiming", hurried)  # noqa: B010 - the type checker rightly minds
    setattr(daemon, "ROOM_RETRY_SECONDS", 0.5)  # noqa: B010


def run(arguments: Sequence[str]) -> int:
    """The process."""
    hurry()
    setattr(channels, "RETRY_DELAYS_SECONDS", (0.2, 0.4, 0.8, 1.6, 2.4))  # noqa: B010
    return main(arguments)
