"""`bubbot chat`: what it does before it connects."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from bubbot.cli.main import main


@pytest.mark.parametrize("interactive", [{"kind": "terminal"}, {}])
def test_only_a_line_editor_handles_signals_so_that_the_terminal_is_restored(
    interactive: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[bool] = []

    async def connect(*_: object, **_named: object) -> None:
        loop = asyncio.get_running_loop()
        handled.extend(loop.remove_signal_handler(number) for number in (signal.SIGTERM, signal.SIGHUP))

    monkeypatch.setattr("bubbot.cli.chat.command.terminal_settings", lambda _: interactive)
    monkeypatch.setattr("bubbot.cli.chat.command.with_chat", connect)
    assert main(["--home", str(tmp_path), "chat"]) == 0
    assert handled == [bool(interactive)] * 2
