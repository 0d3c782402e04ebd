"""The receiving side of one run: what fails beside the events ends the run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bubbot.ports.channel import BackfillCursor, ChannelOptions
from channels.discord.receiver import DiscordReceiver
from tests.fakes.discord_channel import FAST

NOW = "2026-11-22T10:00:00+00:00"
UNUSED: Any = None


async def test_a_background_task_that_fails_ends_the_run_with_its_error() -> None:
    options = ChannelOptions("dc", Path(), lambda: NOW, lambda: "id")
    receiver = DiscordReceiver(options, UNUSED, UNUSED, UNUSED, UNUSED, cursor=BackfillCursor(), timing=FAST)

    async def fail(reason: str) -> None:
        raise ValueError(reason)

    tasks = [receiver.start_task(fail("first")), receiver.start_task(fail("second"))]
    with pytest.raises(ValueError, match="first"):
        await asyncio.wait_for(receiver.failure, 5)
    await asyncio.gather(*tasks, return_exceptions=True)
    await receiver.close()
