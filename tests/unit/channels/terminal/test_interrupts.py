"""Ctrl-C after the line editor is closed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bubbot.ports.channel import ChannelOptions
from channels.terminal.channel import TerminalChannel


async def test_the_channel_stops_the_turn_only_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channel = TerminalChannel(ChannelOptions("terminal", tmp_path, lambda: "now", lambda: "id"))
    stopped: list[int] = []

    async def read_to_the_end(_: TerminalChannel) -> bool:
        channel._live.busy = True
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        return False

    def stop(_: TerminalChannel) -> None:
        stopped.append(1)
        channel._idle.set()

    @asynccontextmanager
    async def no_helpers(_: TerminalChannel, _receive: object) -> AsyncIterator[None]:
        yield

    async def receive(_: object) -> None:
        raise AssertionError("nothing was typed")

    monkeypatch.setattr(TerminalChannel, "_read_lines", read_to_the_end)
    monkeypatch.setattr(TerminalChannel, "_ask_to_stop", stop)
    monkeypatch.setattr(TerminalChannel, "_running_helpers", no_helpers)
    before = signal.getsignal(signal.SIGINT)
    await channel.run(receive)
    assert stopped
    assert signal.getsignal(signal.SIGINT) is before
