"""The greeting of `bubbot run`, while channels connect late or not at all."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from bubbot.cli.run.greeting import greet
from bubbot.ops.service.report import WatchedChannels
from bubbot.ports.channel import ChannelHealth
from bubbot.texts import Texts
from tests.virtual import virtual

CONNECTING = ChannelHealth(is_ready=False, note="connection refused")
KINDS = {"work": "telegram", "discord": "discord", "own": "own"}


def channel(*states: ChannelHealth) -> Any:
    """A channel with these states, one for each look; the last one stays."""
    left = list(states)
    return SimpleNamespace(health=lambda: left.pop(0) if len(left) > 1 else left[0])


def watched(channels: dict[str, Any], **states: str) -> WatchedChannels:
    return WatchedChannels(channels, states, {})


@virtual
async def test_it_waits_for_a_channel_that_connects(capsys: pytest.CaptureFixture[str]) -> None:
    work = channel(CONNECTING, CONNECTING, ChannelHealth(is_ready=False, account="@work_bot"))
    await greet(lambda: watched({"work": work, "own": object()}), KINDS, Texts())
    assert capsys.readouterr().out == "Answering on Own, on Telegram as @work_bot. Ctrl-C stops.\n"


@virtual
async def test_one_that_has_not_connected_is_named_and_greeted_later(capsys: pytest.CaptureFixture[str]) -> None:
    now = {"work": CONNECTING, "discord": ChannelHealth(is_ready=True, account="bubbot")}
    channels = {name: SimpleNamespace(health=lambda name=name: now[name]) for name in now}
    greeting = asyncio.create_task(greet(lambda: watched(channels), KINDS, Texts()))
    await asyncio.sleep(60)
    late = "Answering on Discord as bubbot. Not connected yet: Telegram (connection refused). Ctrl-C stops.\n"
    assert capsys.readouterr().out == late
    now["work"] = ChannelHealth(is_ready=True, account="@work_bot")
    await greeting
    assert capsys.readouterr().out == "Answering on Discord as bubbot, on Telegram as @work_bot. Ctrl-C stops.\n"


@virtual
async def test_one_that_was_refused_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    await greet(lambda: watched({"work": channel(CONNECTING)}, work="refused"), KINDS, Texts())
    assert capsys.readouterr().out == (
        "No channel runs; `bubbot chat` talks with the bot in another terminal. Ctrl-C stops.\n"
    )


@virtual
async def test_it_speaks_the_language_of_the_bot(capsys: pytest.CaptureFixture[str]) -> None:
    work = channel(ChannelHealth(is_ready=True, account="@work_bot"))
    await greet(lambda: watched({"work": work}), KINDS, Texts("zh"))
    assert capsys.readouterr().out == "正在回答：Telegram（@work_bot）。 按 Ctrl-C 停止。\n"
