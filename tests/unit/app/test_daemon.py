"""Where the daemon and its clients meet: which channel is theirs, and what one of them waits for."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from bubbot.app.daemon import COLLECTION_THRESHOLDS, open_daemon
from bubbot.cli.chat_service import chat_service
from bubbot.home import Home
from bubbot.ports.channel import MessagePart, Outbound, Receipt
from bubbot.ports.outbox import OutboxMessage
from bubbot.settings.loader import ModelSettings, Settings

SETTINGS = Settings(model=ModelSettings(name="scripted"), channels={"stdin": {"kind": "letters"}})
WAIT = 10.0


async def test_the_adapter_of_terminals_is_theirs_and_not_the_daemons(tmp_path: Path) -> None:
    async with open_daemon(SETTINGS, Home(tmp_path / "home")) as daemon:
        assert [line.channel for line in daemon.bot.channel_runtimes.values()] == [daemon.remote]


async def test_the_garbage_collector_runs_less_often_while_it_is_open(tmp_path: Path) -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    async with open_daemon(SETTINGS, Home(tmp_path / "home")):
        assert gc.get_threshold() == COLLECTION_THRESHOLDS
        assert gc.get_freeze_count() > frozen + 1_000, "what a start has made is not looked at again"
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


async def test_its_sentences_outlive_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package may be upgraded under it."""
    async with open_daemon(SETTINGS, Home(tmp_path / "home")) as daemon:
        texts = daemon.bot.turn_services.texts
        monkeypatch.delattr("bubbot.texts.catalogue._folder")
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
