"""`http.json`: what the running bot answers on its socket to the commands of access, approvals and memory."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

from bubbot.cli.run.server import serve
from bubbot.home import Home
from tests.golden.surface_stage import GoldenStage, fixed_world, golden_stage

CALLS = """
access list {}
access pending {}
access approve {"code": "7KQ2"}
access approve {"code": "ZZZZZZZZ", "yes": true}
access approve {"code": "{code44}", "role": "king"}
access approve {"code": "{code44}"}
access approve {"code": "{code44}"}
access grant {}
access grant {"channel": "telegram", "id": "42"}
access grant {"channel": "telegram", "id": "42", "role": "king"}
access grant {"channel": "telegram", "id": "42", "role": "member", "reason": "x"}
access grant {"channel": "telegram", "id": 42, "role": "member"}
access grant {"channel": "nowhere", "id": "42", "role": "member"}
access grant {"channel": "telegram", "id": "42", "role": "member"}
access grant {"channel": "telegram", "id": "42", "role": "member"}
access revoke {"channel": "telegram", "id": "3"}
access revoke {"channel": "telegram", "id": "42"}
access revoke {"channel": "telegram", "id": "42"}
access group {"channel": "telegram", "group": "-200", "who": "everybody"}
access group {"channel": "telegram", "group": "-200", "who": "everybody"}
access group {"channel": "telegram", "group": "-200", "who": "leave"}
access grant-reading {"source": "discord:1", "reader": "telegram:3"}
access grant-reading {"source": "discord:1", "reader": "telegram:3"}
access grant-reading {"source": "discord:1", "reader": "discord:1"}
access revoke-reading {"source": "discord:1", "reader": "telegram:3"}
access revoke-reading {"source": "discord:1", "reader": "telegram:3"}
access grant-audit {"auditor": "anna", "session": "discord:1"}
access grant-audit {"auditor": "Anna!", "session": "discord:1"}
access revoke-audit {"auditor": "anna", "session": "discord:1"}
access revoke-audit {"auditor": "anna", "session": "discord:1"}
access history {}
approvals list {}
approvals approve {"id": "ABCDE"}
approvals approve {"id": "{card}", "scope": "always"}
approvals approve {"id": "{card}"}
approvals deny {"id": "{card}"}
approvals deny {"id": "{card-1}", "reason": "not today"}
approvals revoke {"number": 99}
approvals revoke {"number": "many"}
memory show {"session": "work"}
memory save {"session": "work", "text": "Likes tea."}
memory save {"session": "work", "text": "Likes tea."}
memory save {"session": "work", "text": "Likes water.", "yes": true}
memory save {"session": "work"}
memory save {"session": "work", "text": "x", "workspace": true}
memory save {"user": "telegram:9", "text": "Likes tea."}
memory forget {"session": "work", "text": "zebra"}
memory forget {"session": "work", "text": "water"}
memory restore {"session": "work", "version": 1}
memory restore {"session": "work", "version": 99}
memory restore {"session": "work", "version": "one"}
memory import {"session": "new", "long_term": "Likes cocoa.", "notes": [["2026-11-20", "Swam."]], "left_out": [], "replace": false}
memory import {"session": "new", "long_term": "Likes milk.", "notes": [], "left_out": [], "replace": false}
memory import {"session": "new", "path": "/etc/passwd"}
memory erase {"user": "telegram:9"}
memory erase {}
memory frobnicate {}
os.system {}
"""
"""A command with a space in its name, and its arguments as JSON; in this order over one home."""


class FixedSettings:
    """Settings that nobody changes. See `Reloader`."""

    def __init__(self, stage: GoldenStage) -> None:
        self.current = stage.settings


async def record_http(folder: Path) -> dict[str, Any]:
    """Make the calls; return the answers by call."""
    recorded: dict[str, Any] = {}
    with fixed_world() as clock, tempfile.TemporaryDirectory() as short:  # paths of sockets end at 107 bytes
        async with golden_stage(folder / "http", clock) as stage:
            await stage.say("hello", sender="44", channel="telegram")
            await stage.say("run make")
            await stage.say("post to bob", channel="telegram")
            settings: Any = FixedSettings(stage)
            path = Path(short) / "s"
            async with (
                serve(stage.daemon, settings, stage.settings, Home(folder / "http"), path),
                aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as client,
            ):
                for line in filter(None, CALLS.split("\n")):
                    clock.advance(seconds=10)
                    name, _, text = line.partition(" {")
                    arguments = f"{{{text}"
                    for placeholder, value in stage.names.items():
                        arguments = arguments.replace(f"{{{placeholder}}}", value)
                    answer = await _post(client, {"name": name, "arguments": json.loads(arguments)})
                    await stage.quiet()
                    recorded[f"{len(recorded) + 1:03} {line}"] = answer
    return recorded


async def _post(client: aiohttp.ClientSession, body: object) -> dict[str, Any]:
    headers = {"Bubbot-Protocol": "3"}
    async with client.post("http://bot/api/do/command", json=body, headers=headers) as response:
        return {"status": response.status, "body": json.loads(await response.text())}
