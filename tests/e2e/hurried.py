"""`bubbot` as it is, but for the seconds its connection to Discord waits: for tests in which only the order matters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from bubbot.cli.main import main
from channels.discord import channel
from channels.discord.retry import DiscordReceiveTiming
from tests.e2e import forked

BOT = forked.BOT if forked.ANEW in os.environ else "tests.e2e.hurried:run"
"""With `--proof` it waits as long as people's bots do."""


def hurry() -> None:
    """Shorten the seconds that this process waits for Discord."""
    hurried = partial(DiscordReceiveTiming, initial_backoff=0.1, identify_wait=0.3, guild_list_wait=0.3)
    setattr(channel, "DiscordReceiveTiming", hurried)  # noqa: B010 - the type checker rightly minds


def run(arguments: Sequence[str]) -> int:
    """The process."""
    hurry()
    return main(arguments)
