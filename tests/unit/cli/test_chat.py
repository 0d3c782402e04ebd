"""`bubbot chat`: what it does before it connects."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from bubbot.cli.chat import command as chat
from bubbot.cli.output import AnswerPrinter
from bubbot.cli.setup import CommandSetup
from bubbot.home import Home
from bubbot.settings.loader import Settings


@pytest.mark.parametrize("interactive", [{"kind": "terminal"}, {}])
async def test_only_a_line_editor_handles_signals_so_that_the_terminal_is_restored(
    interactive: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect(*_: object, **_named: object) -> None: ...

    monkeypatch.setattr(chat, "terminal_settings", lambda _: interactive)
    monkeypatch.setattr(chat, "with_chat", connect)
    await chat._chat(CommandSetup(Settings(), Home(tmp_path)), "stdin:default", AnswerPrinter(), [])
    loop = asyncio.get_running_loop()
    handled = [loop.remove_signal_handler(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    assert handled == [bool(interactive)] * 2
