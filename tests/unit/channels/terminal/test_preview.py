"""What a running turn leaves on the screen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bubbot.ports.channel.previews import TextDiscarded, TextStreamed, TurnFinished
from channels.terminal.channel import TerminalChannel, _LiveScreen


@pytest.mark.parametrize(
    ("status", "printed", "answer"),
    [("stopped", ["half of it"], ""), ("failed", ["half of it"], ""), ("answered", [], "half of it")],
)
async def test_a_turn_without_an_answer_leaves_the_text_that_people_have_seen(
    status: str, printed: list[str], answer: str
) -> None:
    lines: list[str] = []
    channel: Any = object.__new__(TerminalChannel)
    channel.name, channel._chat, channel._colour = "terminal", "default", False
    channel._live, channel._idle = _LiveScreen(busy=True), asyncio.Event()
    channel._put, channel._redraw, channel._forget_erased = lines.append, lambda: None, lambda: None
    thought = TextStreamed("They are in a hurry."), TextDiscarded()
    for event in (*thought, TextStreamed("half "), TextStreamed("of it"), TurnFinished(status)):
        channel.preview("terminal:default", event)
    assert (lines, channel._live.answer, channel._idle.is_set()) == (printed, answer, True)
