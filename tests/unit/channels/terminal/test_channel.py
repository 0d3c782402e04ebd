"""The chat in a terminal, with keys that come through a pipe."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input

from bubbot.ports.channel import (
    ChannelOptions,
    MessagePart,
    TextDiscarded,
    TextStreamed,
    TurnFinished,
)
from channels.terminal.channel import TerminalChannel
from tests.doubles import CountingIds

CTRL_D = "\x04"
SECONDS = 20
"""How long a test waits for what does not come."""


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as keys, create_app_session(input=keys):
        yield keys


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """What is written to standard output."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="utf-8"))
    return written


@pytest.fixture
def channel(screen: io.BytesIO, keys: PipeInput, tmp_path: Path) -> TerminalChannel:
    options = ChannelOptions("stdin", tmp_path, lambda: "now", CountingIds())
    return TerminalChannel(options)


async def test_an_answer_that_comes_after_the_end_is_printed(
    channel: TerminalChannel, keys: PipeInput, screen: io.BytesIO
) -> None:
    async def receive(_: object) -> None:
        raise AssertionError("nothing was typed")

    keys.send_text(CTRL_D)
    async with asyncio.timeout(SECONDS):
        await channel.run(receive)
        await channel.send(MessagePart("default", "a late answer"))
    assert screen.getvalue().endswith(b"a late answer\r\n")


@pytest.mark.parametrize(("status", "is_printed"), [("stopped", True), ("failed", True), ("answered", False)])
async def test_a_turn_without_an_answer_leaves_the_text_that_people_have_seen(
    status: str, is_printed: bool, channel: TerminalChannel, keys: PipeInput, screen: io.BytesIO
) -> None:
    async def receive(_: object) -> None:
        raise AssertionError("nothing was typed")

    thought = TextStreamed("They are in a hurry."), TextDiscarded()
    for event in (*thought, TextStreamed("half "), TextStreamed("of it"), TurnFinished(status)):
        channel.preview("stdin:default", event)
    keys.send_text(CTRL_D)
    async with asyncio.timeout(SECONDS):
        await channel.run(receive)
    assert (b"half of it" in screen.getvalue()) is is_printed
    assert b"hurry" not in screen.getvalue()
