"""What people and the operator see on Telegram: pairing, access, help by role and language, groups."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bot import entries
from tests.e2e.daemon import configured, running, started
from tests.e2e.test_telegram import said, texts, told_in_shell
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.fakes.platform.faults import Wedge

CANARY = "PURPLE-CANARY"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None, privacy=False) as server:
        yield server


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def _has_texts(room: Gathering, count: int) -> bool:
    return len(texts(room)) == count


def masked(transcript: str) -> str:
    """The transcript without codes, times and ids that differ from run to run."""
    same = re.sub(r"(?<=approve )\w{8}|(?<=code is )\w{8}", "CODE", transcript)
    return re.sub(r"\d\d:\d\d", "HH:MM", same)


def names(home: Path, tape: str) -> list[str]:
    return [str(payload["name"]) for entry in entries(home, tape) if "name" in (payload := _payload(entry))]


def _payload(entry: Any) -> dict[str, Any]:
    payload: dict[str, Any] = entry["payload"]
    return payload


async def test_the_first_owner_and_the_first_member(server: Server, home: Path) -> None:
    ada, bob = server.user("Ada"), server.user("Bob")
    configured(home, server, live=False)
    hers, his = server.private(ada), server.private(bob)
    async with running(home) as daemon:
        hers.say(f"hello? {CANARY}")
        await server.until(lambda: texts(hers))
        hers.say(f"anybody? {CANARY}")
        await server.until(lambda: len(texts(hers)) == 2)
        hers.say("third")
        await daemon.quiet(server)
        code = re.search(r"approve (\w{8}) --role owner$", texts(hers)[0])
        assert code
        done = await told_in_shell(home, "access", "approve", code[1], "--role", "owner", "--yes")
        assert done.returncode == 0, done.stderr
        await server.until(lambda: len(texts(hers)) == 4)  # she is told, and her first message is answered
        assert texts(hers)[3] == f"You said: hello? {CANARY}"
        his.say("may I?")
        await server.until(lambda: texts(his) and len(texts(hers)) == 5)
        hers.say("/access")
        await server.until(lambda: len(texts(hers)) == 6)
        code = re.search(r"code is (\w{8}),", texts(his)[0])
        assert code
        hers.say(f"/access_approve {code[1]}")
        await server.until(lambda: len(texts(hers)) == 7 and len(texts(his)) == 3)
        his.say("and now?")
        await server.until(lambda: len(texts(his)) == 4)
    shown = masked(server.transcript(times=False))
    for line in (
        "I do not know you yet, and nobody is my owner here. Your code is CODE, good for one hour: whoever runs me can make you",
        "bubbot access approve CODE --role owner",
        "The code I sent at HH:MM works until HH:MM. If it did not arrive, write again after HH:MM for another one.",
        "I do not know you yet. I told my owner that you want to talk to me, and I answer as soon as you are let in. Your code is CODE",
        f"Bob ({bob.id}) wants to talk to me on telegram.",
        f"telegram {bob.id} (Bob), until HH:MM",
        f"Done: {bob.id} (Bob), member on telegram. /access_revoke {bob.id} channel=telegram takes it back.",
    ):
        assert line in shown
    actions = re.findall(r"action=(access\.\w+)", daemon.errors)
    assert actions == [
        "access.code", "access.code_used", "access.role", "access.code", "access.code_used", "access.role",
    ]  # fmt: skip
    assert len(re.findall(r"action=turn\.end .*outcome=answered .*trace=\w{8}", daemon.errors)) == 5
    assert "action=receive.strangers" in daemon.errors  # the third message
    assert CANARY not in daemon.errors
    assert code[1] not in daemon.errors


async def test_a_reminder_survives_a_kill_between_the_fact_and_the_notice(server: Server, home: Path) -> None:
    configured(home, server, live=False)
    eve = server.user("Eve")
    room = server.private(eve)
    daemon = await started(home)
    room.say("hello?")
    await server.until(lambda: texts(room))
    await daemon.quiet(server)
    sent = len(server.calls("sendMessage"))
    server.fail("sendMessage", Wedge())
    room.say("hello??")
    await server.until(
        lambda: len(server.calls("sendMessage")) > sent or "access/code_reminded" in names(home, "bubbot/access")
    )
    await daemon.kill()
    server.faults.clear()
    async with running(home) as daemon:
        await server.until(lambda: len(texts(room)) == 2)
        room.say("hello???")
        await daemon.quiet(server)
    assert "works until" in texts(room)[1]
    assert len(texts(room)) == 2
    assert names(home, "bubbot/access") == ["access/code", "access/code_reminded"]


async def test_groups(server: Server, home: Path) -> None:
    ada, bob, eve = server.user("Ada"), server.user("Bob"), server.user("Eve")
    configured(home, server, owners=[ada.id], live=False)
    hers = server.private(ada)
    family, club = server.supergroup("Family", [ada, bob], bots=[]), server.supergroup("Club", [eve], bots=[])
    async with running(home) as daemon:
        hers.say("good morning")
        await server.until(lambda: texts(hers))
        family.join(server.bot.user, ada)
        club.join(server.bot.user, eve)
        await server.until(lambda: texts(family))
        for number in range(3):
            family.say(f"@bubbot_bot hello {number}", bob)
        await server.until(lambda: len(texts(hers)) == 3)
        family.promote(server.bot.user, ada)
        await daemon.quiet(server)
    async with running(home) as daemon:
        family.say("@bubbot_bot still there?", bob)
        club.say("just talking", eve)
        await daemon.quiet(server)
        club.say("@bubbot_bot are you there?", eve)
        await daemon.quiet(server)
        assert len(texts(hers)) == 3
    assert said(club) == []
    (greeting,) = texts(family)
    assert f"/access_group telegram:{family.chat.id} everybody" in greeting
    first, second = texts(hers)[1:]
    assert first.startswith(f"Ada ({ada.id}) added me to Family on telegram")
    assert second.startswith(f"Eve ({eve.id}) added me to Club on telegram")
    facts = [name for name in names(home, "bubbot/inbox/telegram") if name in ("inbox/added", "inbox/called")]
    assert facts == ["inbox/added", "inbox/called", "inbox/called"]


async def test_menu_and_help_by_role_and_language(server: Server, home: Path) -> None:
    ada, bob = server.user("Ada"), server.user("Bob", language_code="zh")
    configured(home, server, owners=[ada.id], members=[bob.id], live=False)
    hers, his = server.private(ada), server.private(bob)
    async with running(home) as daemon:
        for room in (hers, his):
            room.say("/help all")
            await server.until(partial(_has_texts, room, 1))
        await daemon.quiet(server)  # a whole help may take two messages
        hers_helped, his_helped = ("\n".join(texts(room)) for room in (hers, his))
        for room in (hers, his):
            room.say("/access")
        await daemon.quiet(server)
    assert "/access" in hers_helped
    assert "/access" not in his_helped
    assert texts(hers)[-1].startswith("No code is open.")
    assert "No code is open" not in texts(his)[-1]
    menus = {
        (json.loads(call.params["scope"])["type"], call.params.get("language_code", "")): json.loads(
            call.params["commands"]
        )
        for call in server.calls("setMyCommands")
    }
    commands = {key: [one["command"] for one in menu] for key, menu in menus.items()}
    assert commands["all_private_chats", ""] == commands["all_private_chats", "zh"]
    assert "help" in commands["all_private_chats", ""]
    english, chinese = (
        {one["command"]: one["description"] for one in menus["all_private_chats", tag]} for tag in ("", "zh")
    )
    assert all(english[name] != chinese[name] for name in english)
    assert all(re.search(r"[\u4e00-\u9fff]", text) for text in chinese.values())
