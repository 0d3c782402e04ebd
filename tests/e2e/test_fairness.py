"""One person writes thousands of messages at once: nobody else waits for them, and none of them is lost or doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bubbot.gateway.inbox import inbox_tape
from tests.e2e.daemon import configure, started
from tests.e2e.kill_harness import damage, entries_of
from tests.e2e.platforms import OnDiscord, OnTelegram, Platform
from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.discordapi.server import Server as DiscordServer
from tests.fakes.platform.faults import Wedge

SECONDS = 12.0
"""What somebody else waits at most, on a machine that does other things besides: a promise of three, four times over. Each
test is made so that the flood, or the chat that takes nothing, would last longer."""
SCRIPT = {
    "rules": [{"when": "flood", "steps": [{"text": "read: {text}", "delay": 1.0}]}],
    "default": [{"text": "You said: {text}"}],
}
NO_LIMITS = {"messages_per_minute": 0, "messages_per_hour": 0, "bytes_per_day": 0}


@pytest.fixture(params=[OnTelegram, pytest.param(OnDiscord, marks=pytest.mark.proof)])
async def platform(request: pytest.FixtureRequest) -> AsyncIterator[Platform]:
    if request.param is OnTelegram:
        async with TelegramServer(limits=None, conflict_pause=0.1) as telegram:
            yield OnTelegram(telegram)
    else:
        async with DiscordServer(limits=None) as discord:
            yield OnDiscord(discord)


def set_up(home: Path, platform: Platform, owner: str, *members: str, **keys: Any) -> None:
    table = {**platform.table(), "debounce": 0.05, "live": False, "owners": [int(owner)]}
    configure(home, {platform.name: {**table, "members": [*map(int, members)], **keys}}, SCRIPT)


@asynccontextmanager
async def killed(home: Path, platform: Platform) -> AsyncIterator[None]:
    """A bot for the block, that receives; an orderly end would wait for what a chat does not take."""
    daemon = await started(home)
    try:
        await platform.heard()
        yield
    finally:
        await daemon.kill()


async def answered(platform: Platform, person: str, text: str) -> None:
    """Somebody asks, and has the answer soon."""
    platform.say(person, text)
    await platform.until(lambda: f"You said: {text}" in platform.answers(person), SECONDS)


async def received(home: Path, platform: Platform, sender: str) -> list[str]:
    """What somebody said, as the inbox has it."""
    entries = await entries_of(home, inbox_tape(platform.name))
    data = [entry.payload["data"] for entry in entries if entry.name == "inbox/received"]
    return [item["text"] for item in data if item["sender"]["id"] == sender]


@pytest.mark.parametrize("count", [1_000, pytest.param(5_000, marks=[pytest.mark.proof, pytest.mark.timeout(900)])])
async def test_a_flood_of_one_person_delays_nobody_else_and_survives_a_kill(
    platform: Platform, home: Path, count: int
) -> None:
    if platform.name == "discord":
        count = min(count, 900)  # so many missed messages of a chat are fetched
    ann, flo = platform.person("Ann"), platform.person("Flo")
    set_up(home, platform, ann, flo, **NO_LIMITS)
    said = [f"flood {number}" for number in range(count)]
    async with killed(home, platform):
        await answered(platform, ann, "hello")
        for text in said:
            platform.say(flo, text)
        await answered(platform, ann, "while it comes")
        assert len(platform.answers(flo)) < count / 40, "half of the flood was answered first"
    async with killed(home, platform):
        await answered(platform, ann, "while it waits")
        assert len(platform.answers(flo)) < count / 40, "half of the flood was answered first"
        async with asyncio.timeout(300):
            while len(await received(home, platform, flo)) < count:  # noqa: ASYNC110 - it comes in another process
                await asyncio.sleep(0.2)
    assert await received(home, platform, flo) == said
    assert await received(home, platform, ann) == ["hello", "while it comes", "while it waits"]
    assert [fault for fault in await damage(home) if "open still" not in fault] == []


async def test_a_flood_of_a_stranger_delays_nobody_and_leaves_the_traces_of_a_code_and_its_reminder(
    platform: Platform, home: Path
) -> None:
    owner, ann, stranger = platform.person("Olga"), platform.person("Ann"), platform.person("Sam")
    set_up(home, platform, owner, ann)
    platform.server.fail(platform.sends[0], Wedge())  # the pairing code or the owner's card is not taken
    async with killed(home, platform):
        for number in range(1_000):
            platform.say(stranger, f"flood {number}")
        await answered(platform, ann, "hello")
        await platform.quiet()
    names = [entry.name for entry in await entries_of(home, inbox_tape(platform.name))]
    assert names.count("inbox/refused") == 2
    assert await received(home, platform, stranger) == []


async def test_a_chat_that_takes_no_notice_delays_nobody_else(platform: Platform, home: Path) -> None:
    ann, flo = platform.person("Ann"), platform.person("Flo")
    set_up(home, platform, ann, flo, messages_per_minute=1, debounce=0)
    async with killed(home, platform):
        platform.server.fail(platform.sends[0], Wedge())
        platform.say(flo, "number 0")
        await platform.until(lambda: platform.server.calls(platform.sends[0]), SECONDS)
        for number in range(1, 10):
            platform.say(flo, f"number {number}")
        await answered(platform, ann, "hello")
        assert platform.answers(flo) == []
        await platform.quiet()
    assert await received(home, platform, flo) == ["number 0"]
