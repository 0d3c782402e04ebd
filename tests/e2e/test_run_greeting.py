"""What `bubbot run` says on a terminal once its channels have connected."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.e2e.daemon import configure, running
from tests.e2e.platforms import OnDiscord, OnTelegram
from tests.e2e.terminal import CTRL_C, Terminal
from tests.fakes.botapi.server import Server
from tests.fakes.discordapi.server import Server as DiscordServer


def greeted(home: Path, width: int = 80) -> str:
    """What a terminal shows up to the end of the greeting, which Ctrl-C then ends."""
    with Terminal(home, "run", first="", COLUMNS=str(width)) as terminal:
        shown = terminal.expect("Ctrl-C stops.")
        terminal.type(CTRL_C)
        assert terminal.ended() == 0
    return shown


async def test_it_says_as_whom_the_bot_answers_where_and_how_to_stop(tmp_path: Path) -> None:
    async with Server(limits=None) as telegram, DiscordServer(limits=None) as discord:
        tables = {"telegram": OnTelegram(telegram).table(), "discord": OnDiscord(discord).table()}
        configure(tmp_path / "home", tables)
        shown = await asyncio.to_thread(greeted, tmp_path / "home", 120)
        name, other = telegram.bot.user.username, discord.bot.user.username
    assert f"Answering on Discord as {other}, on Telegram as @{name}. Ctrl-C stops." in shown


async def test_without_a_terminal_there_is_only_the_log(tmp_path: Path) -> None:
    async with Server(limits=None) as telegram:
        configure(tmp_path / "home", {"telegram": OnTelegram(telegram).table()})
        async with running(tmp_path / "home") as daemon:
            await OnTelegram(telegram).heard()
            daemon.process.terminate()
            assert await daemon.ended() == 0
        assert "Ctrl-C" not in daemon.errors
