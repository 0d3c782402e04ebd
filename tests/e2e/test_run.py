"""`bubbot run` in clumsy hands: mistakes in `config.toml`, and a signal too many."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.e2e.bot import run, sentence
from tests.e2e.daemon import configured, running
from tests.fakes.botapi.server import Server

TOKEN = 'token = "4242:planted-token"\nbase_url = "http://127.0.0.1:9"\n'


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (f'[channels.a]\nkind = "telegarm"\n{TOKEN}', "[channels.a] kind: No plugin 'telegarm'"),
        (
            f"[channels.telegram]\n{TOKEN}pairng = false\n",
            "[channels.telegram] pairng is not a key of a Telegram channel",
        ),
        (
            f'[channels.a]\nkind = "telegram"\n{TOKEN}[channels.b]\nkind = "telegram"\n{TOKEN}',
            "[channels.b] token is that of [channels.a]: a bot can be on one channel only",
        ),
    ],
)
def test_a_mistake_is_named_and_nothing_starts(tmp_path: Path, table: str, said: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(table)
    done = run(home, "run")
    assert done.returncode == 2
    assert said in sentence(done)
    assert "planted" not in sentence(done)


async def test_a_second_signal_ends_at_once_without_a_traceback_and_nothing_is_lost(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        room = server.private(ada)
        configured(home, server, {"default": [{"text": "late", "delay": 60}]}, owners=[ada.id])
        async with running(home) as daemon:
            room.say("wait for me")
            await server.until(lambda: server.calls("sendChatAction"))
            daemon.process.terminate()
            await server.until(lambda: "action=run.ending" in daemon.errors)
            daemon.process.terminate()
            assert await daemon.ended() == 130
            assert "Traceback" not in daemon.errors
        configured(home, server, {"default": [{"text": "You said: {text}"}]}, owners=[ada.id])
        async with running(home):
            await server.until(lambda: "You said: wait for me" in server.transcript(times=False), 60)
            await server.until(lambda: daemon.errors.count("action=tape.head") == 2)
    heads = re.findall(r"action=tape\.head .* head=(\S+) ", daemon.errors)
    assert len(heads) == 2
    assert heads[0] != heads[1]
    for head in heads:  # what was logged then is still so
        assert run(home, "tape", "verify", "--head", head).returncode == 0
    assert run(home, "tape", "verify", "--head", heads[0][:-1] + ("0" if heads[0][-1] != "0" else "1")).returncode == 5
