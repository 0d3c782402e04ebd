"""Where the daemon and its clients meet: which channel is theirs, and what one of them waits for."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from bubbot.app.daemon import Daemon, open_daemon
from bubbot.cli.chat.service import chat_service
from bubbot.home import Home
from bubbot.ports.channel import Inbound, MessagePart, Outbound, Receipt, Sender
from bubbot.ports.outbox import OutboxMessage
from bubbot.settings.loader import ModelSettings, Settings

SETTINGS = Settings(model=ModelSettings(name="scripted"), channels={"stdin": {"kind": "letters"}})
WAIT = 60.0


async def test_the_adapter_of_terminals_is_theirs_and_not_the_daemons(tmp_path: Path) -> None:
    async with open_daemon(SETTINGS, Home(tmp_path / "home")) as daemon:
        assert [line.channel for line in daemon.bot.channel_runtimes.values()] == [daemon.remote]


async def test_the_garbage_collector_runs_less_often_while_it_is_open(tmp_path: Path) -> None:
    before = gc.get_threshold()
    async with open_daemon(SETTINGS, Home(tmp_path / "home")):
        assert gc.get_threshold() == (5_000, 3, 60)
    assert gc.get_threshold() == before


async def test_its_sentences_outlive_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package may be upgraded under it."""
    async with open_daemon(SETTINGS, Home(tmp_path / "home")) as daemon:
        texts = daemon.bot.turn_services.texts
        monkeypatch.delattr("bubbot.texts.catalogue.import_module")
        assert texts.say("stopped") == "Stopped."
        assert texts.say("jobs_none")


async def test_a_client_does_not_wait_for_what_another_chat_is_slow_to_take(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT), open_daemon(SETTINGS, Home(tmp_path / "home")) as daemon:
        line, doors = daemon.bot.channel_runtimes["stdin"], chat_service(daemon.bot, daemon.remote)
        go, sent = asyncio.Event(), list[str]()

        async def send(part: MessagePart) -> Receipt:
            if part.chat == "slow":
                await go.wait()
            sent.append(part.chat)
            return Receipt()

        daemon.remote.send = send  # type: ignore[method-assign]
        for number, chat in enumerate(("slow", "mine")):
            parts = tuple(line.channel.parts(Outbound("stdin", chat, "hi")))
            stored = await line.outbox.enqueue(f"stdin:{chat}", f"k{number}", parts, {})
            assert isinstance(stored, OutboxMessage)
            line.deliverer.enqueue(stored)
        await doors.wait_until_idle("stdin:mine")
        assert sent == ["mine"]
        go.set()
        await doors.wait_until_idle("stdin:slow")
        assert sent == ["mine", "slow"]


async def test_linked_accounts_share_a_memory_in_a_real_home_also_after_a_restart(tmp_path: Path) -> None:
    home, parts = Home(tmp_path / "home"), list[MessagePart]()
    numbers = iter(range(100))

    async def say(daemon: Daemon, text: str, account: str) -> str:
        runtime = daemon.bot.channel_runtimes["stdin"]
        at = "2026-11-24T00:00:00+00:00"
        inbound = Inbound("stdin", f"m{next(numbers)}", f"chat{account}", Sender(account, "Ann"), text, at)
        turn = await runtime.gate.accept(inbound)
        assert turn is not None
        return (await turn).text

    async def send(part: MessagePart) -> Receipt:
        parts.append(part)
        return Receipt()

    async with asyncio.timeout(WAIT), open_daemon(SETTINGS, home) as daemon:
        daemon.remote.send = send  # type: ignore[method-assign]
        await say(daemon, ",memory.save scope=user Likes tea.", "0")
        code = (await say(daemon, ",link", "0")).split("Your code is ")[1][:8]
        await say(daemon, f",link {code}", "5")
        await daemon.bot.channel_runtimes["stdin"].deliverer.wait_until_idle()
        question = next(part for part in parts if "has typed the code" in part.text)
        assert question.chat == "chat0"
        assert "Likes tea." not in await say(daemon, ",memory.recall", "5")
        assert "Linked with 5 (stdin)" in await say(daemon, ",link yes", "0")
        assert "Likes tea." in await say(daemon, ",memory.recall", "5")
    async with asyncio.timeout(WAIT), open_daemon(SETTINGS, home) as daemon:
        daemon.remote.send = send  # type: ignore[method-assign]
        assert "Likes tea." in await say(daemon, ",memory.recall", "5")
        await say(daemon, ",unlink", "5")
        assert "Likes tea." not in await say(daemon, ",memory.recall", "5")
        assert "Likes tea." in await say(daemon, ",memory.recall", "0")
