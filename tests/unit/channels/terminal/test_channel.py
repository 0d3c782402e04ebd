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

from bubbot.ports.channel import ChannelOptions, CommandInfo, MessagePart
from channels.terminal.channel import TerminalChannel
from tests.doubles import CountingIds

COMMANDS = (CommandInfo("tape.info", "Tells"), CommandInfo("tape.import", "Reads"), CommandInfo("help", "Lists"))
CTRL_D, ENTER, TAB = "\x04", "\r", "\t"
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
    options = ChannelOptions("stdin", tmp_path, lambda: "now", CountingIds(), list_commands=lambda: COMMANDS)
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


async def test_tab_completes_what_all_commands_have_in_common(channel: TerminalChannel, keys: PipeInput) -> None:
    editor, completed = channel._make_editor(), asyncio.Event()
    buffer = editor.default_buffer
    buffer.on_text_changed += lambda _: completed.set() if buffer.text == ",tape.i" else None
    async with asyncio.timeout(SECONDS):
        prompt = asyncio.create_task(editor.prompt_async(default=",ta"))
        keys.send_text(TAB)
        await completed.wait()
        keys.send_text(ENTER)
        assert await prompt == ",tape.i"
