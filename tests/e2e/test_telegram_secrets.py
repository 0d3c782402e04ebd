"""A planted bot token and API key are nowhere after a run of the daemon with forced failures."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.e2e.bot import run
from tests.e2e.daemon import configured, running
from tests.e2e.test_litellm_secrets import forms
from tests.fakes.botapi import odd
from tests.fakes.botapi.errors import Refuse
from tests.fakes.botapi.server import Server
from tests.fakes.platform.faults import Cut, Drop, Html

KEY = "sk-planted/in+config==5e2b"


async def test_a_run_with_every_kind_of_failure_shows_no_token(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None, conflict_pause=0.1) as server:
        ada = server.user("Ada")
        slow = {"default": [{"text": "You said: {text}", "delay": 0.4}]}  # so that it is shown to type
        configured(home, server, slow, owners=[ada.id], debounce=0)
        with (home / "config.toml").open("a") as config:
            config.write('[log]\nlevel = "debug"\n')
        for method in ("getUpdates", "sendMessage", "sendChatAction", "getFile", "getMe", "setMyCommands"):
            server.fail(method, Html(502))
            server.fail(method, Drop("before"), skip=1)
            server.fail(method, Cut(), skip=2)
            server.fail(method, Refuse(400, f"Bad Request: {server.bot.token} is odd"), skip=3)
        server.odd(odd.poll_of_an_older_server())
        server.odd(odd.date_far_away())
        room = server.private(ada)
        for number in range(4):
            room.say(f"my text is {number}")
        room.document(b"some bytes", "notes.txt")
        env = {"BUBBOT_MODEL__API_KEY": KEY, "PYDANTIC_SETTINGS_DEBUG": "1"}
        async with running(home, env=env) as daemon:
            said = room.chat.messages
            await server.until(lambda: sum(one["from"]["is_bot"] for one in said.values()) >= 5, 40)
            await daemon.quiet(server)
        token = server.bot.token
    tapes = ["telegram:" + str(ada.id), "bubbot/inbox/telegram", "bubbot/outbox/telegram"]
    shown = await asyncio.gather(*(asyncio.to_thread(run, home, "tape", "show", tape, "--json") for tape in tapes))
    export = tmp_path / "export.jsonl"
    assert (await asyncio.to_thread(run, home, "tape", "export", tapes[0], str(export))).returncode == 0
    places = {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file() and path.name != "config.toml"}
    places |= {f"tape {tape}": done.stdout + done.stderr for tape, done in zip(tapes, shown, strict=True)}
    places["export"] = export.read_bytes()
    assert b"action=" in places[str(home / "errors")]
    secrets = [form for secret in (token, token.partition(":")[2], KEY) for form in forms(secret)]
    assert [place for place, data in places.items() if any(form in data for form in secrets)] == []
