"""What a message and its answer cost a daemon on a platform, in what no other program changes: function calls."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.e2e import forked
from tests.e2e.daemon import Daemon, configure, running
from tests.e2e.platforms import OnDiscord, OnTelegram, Platform
from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.discordapi.server import Server as DiscordServer

TELEGRAM_CALLS, DISCORD_CALLS = 6_250, 6_300
"""Function calls for a message and its answer at most, those of C and of the threads of the database included: it takes about 5,510 on Telegram. They
were 3,670 while the writer had a thread of functions of its own; aiosqlite takes each statement to its thread and back."""
CROWD = 4
ROUNDS = 12
"""The cheapest of them counts: on a slow machine a turn takes so long that the bot shows that it types."""
WAIT = 60.0

COUNTED = """
import os, signal
from bubbot.cli.main import main
from tests.calls import CallCounter

counter = CallCounter()

def begin(*_):
    counter.start()

def end(*_):
    calls = counter.stop()
    with open(os.environ["CALLS"], "a") as file:
        file.write(f"{calls}\\n")

signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, end)
raise SystemExit(main(["run"]))
"""
"""`bubbot run`, which counts its calls from one signal to the other: those of the thread with the event loop, which takes signals."""


async def calls_of_a_message(platform: Platform, people: Sequence[str], daemon: Daemon, counts: Path) -> float:
    """Return how many calls a message takes if a few people write at the same moment, in the cheapest round."""

    async def talk(text: str) -> None:
        for person in people:
            platform.say(person, text)
        await platform.until(lambda: all(f"You said: {text}" in platform.answers(one) for one in people), WAIT)
        await asyncio.sleep(0.05)  # for receipts, and the poll that follows

    await talk("hello")  # the first turn of a chat reads its window
    found = []
    for number in range(ROUNDS):
        known = read_counts(counts)
        daemon.process.send_signal(signal.SIGUSR1)
        await talk(f"message {number}")
        daemon.process.send_signal(signal.SIGUSR2)
        await platform.until(partial(has_more, counts, known), WAIT)
        found.append(read_counts(counts)[-1])
    return min(found) / len(people)


def read_counts(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().splitlines()]


def has_more(path: Path, known: list[int]) -> bool:
    return len(read_counts(path)) > len(known)


async def test_a_message_makes_few_calls_on_telegram_and_on_discord(tmp_path: Path) -> None:
    home, counts = tmp_path / "home", tmp_path / "counts"
    counts.touch()
    async with TelegramServer(limits=None) as telegram, DiscordServer(limits=None) as discord:
        platforms: list[Platform] = [OnTelegram(telegram), OnDiscord(discord)]
        people = [[platform.person(f"Ada {number}") for number in range(CROWD)] for platform in platforms]
        tables = {
            platform.name: {**platform.table(), "debounce": 0, "poll_timeout": 20, "owners": list(map(int, owners))}
            for platform, owners in zip(platforms, people, strict=True)
        }
        del tables["discord"]["poll_timeout"]
        configure(home, tables, {"default": [{"text": "You said: {text}"}]})
        env = {"CALLS": str(counts)}
        async with running(home, target=forked.PROGRAM, arguments=[COUNTED], env=env) as daemon:
            for platform in platforms:
                await platform.heard()
            on_telegram = await calls_of_a_message(platforms[0], people[0], daemon, counts)
            on_discord = await calls_of_a_message(platforms[1], people[1], daemon, counts)
    assert on_telegram < TELEGRAM_CALLS
    assert on_discord < DISCORD_CALLS
