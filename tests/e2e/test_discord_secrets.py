"""A planted bot token and API key are nowhere after a run of the daemon on Discord with forced failures."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.e2e.bot import run
from tests.e2e.hurried import BOT
from tests.e2e.on_discord import configured, connected, texts
from tests.e2e.platforms import POST, OnDiscord
from tests.e2e.test_litellm_secrets import forms
from tests.fakes.discordapi.errors import Refuse, TooMany
from tests.fakes.discordapi.server import Server
from tests.fakes.platform.faults import Cut, Drop, Fault, Html

KEY = "sk-planted/in+config==5e2b"
ROUTES = (
    POST,
    "POST /channels/{}/typing",
    "GET /applications/@me",
    "GET /applications/{}/commands",
    "PUT /applications/{}/commands",
    "GET /channels/{}/messages",
    "POST /interactions/{}/{}/callback",
    "file",
)


async def test_a_run_with_every_kind_of_failure_shows_no_token(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        token = server.bot.token
        slow = {"default": [{"text": "You said: {text}", "delay": 0.4}]}  # so that it is shown to type
        configured(home, server, slow, owners=[ada.id], debounce=0, edit_interval=0)
        with (home / "config.toml").open("a") as config:
            config.write('[log]\nlevel = "debug"\n')
        for route in ROUTES:
            faults: tuple[Fault, ...] = (
                Html(502),
                Drop("before"),
                Cut(),
                Refuse(400, f"{token} is odd", 50035),
                TooMany(0.1),
            )
            for place, fault in enumerate(faults[2:] if route == POST else faults):
                server.fail(route, fault, skip=place)
        server.fail("gateway", Html(502))
        room = server.dm(ada)
        async with connected(home, server, target=BOT, env={"BUBBOT_MODEL__API_KEY": KEY}) as daemon:
            await server.until(lambda: server.bot.commands, 60)
            server.gateway.odd("MESSAGE_CREATE", {"id": "odd", "channel_id": str(room.id), "content": 7})
            server.gateway.odd("MESSAGE_CREATE", {"no": "channel"})
            for number in range(4):
                room.say(ada, f"my text is {number}")
            room.say(ada, "", files=[("notes.txt", b"some bytes", "text/plain")])
            used = server.slash(room, ada, "status")
            await server.until(lambda: len(texts(server, room)) >= 5, 40)
            server.gateway.drop()
            await OnDiscord(server).quiet()
            server.gateway.raw("no JSON")
            server.gateway.odd("READY", {})
            await server.until(lambda: "cannot be read" in daemon.errors, 60)
            interaction = used.token
        tapes = [f"discord:{room.id}", "bubbot/inbox/discord", "bubbot/outbox/discord"]
    shown = await asyncio.gather(*(asyncio.to_thread(run, home, "tape", "show", tape, "--json") for tape in tapes))
    export = tmp_path / "export.jsonl"
    assert (await asyncio.to_thread(run, home, "tape", "export", tapes[0], str(export))).returncode == 0
    places = {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file() and path.name != "config.toml"}
    places |= {f"tape {tape}": done.stdout + done.stderr for tape, done in zip(tapes, shown, strict=True)}
    places["chats"] = server.transcript().encode()
    places["export"] = export.read_bytes()
    errors = places[str(home / "errors")]
    assert b"level=debug" in errors
    assert b"action=discord." in errors
    secrets = [form for secret in (token, token.rpartition(".")[2], interaction, KEY) for form in forms(secret)]
    assert [place for place, data in places.items() if any(form in data for form in secrets)] == []
