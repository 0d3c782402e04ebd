"""What goes wrong with Discord while a daemon runs, and while it does not: nothing is lost, nothing doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.e2e.daemon import configure, running, started
from tests.e2e.hurried import BOT
from tests.e2e.on_discord import COUNTED, SCRIPT, answered, configured, connected, texts
from tests.e2e.platforms import EDIT, POST, OnDiscord, OnTelegram
from tests.fakes.botapi.server import Server as BotApi
from tests.fakes.discordapi.errors import TooMany
from tests.fakes.discordapi.server import Server
from tests.fakes.discordapi.world import User
from tests.fakes.platform.faults import Cut, Drop, Fault, Html


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None) as found:
        yield found


@pytest.fixture
def ada(server: Server) -> User:
    return server.user("Ada")


async def test_what_was_said_while_the_bot_was_down_is_answered_in_order_and_once(
    server: Server, ada: User, home: Path
) -> None:
    configured(home, server, owners=[ada.id], debounce=0)
    room, club = server.dm(ada), server.guild("Club", ada)
    general = club.text("general")
    async with connected(home, server):
        room.say(ada, "hello")
        general.say(ada, f"{server.bot.mention} hello")
        await answered(server, room, "You said: hello")
        await answered(server, general, "You said: hello")
    for number in range(3):
        room.say(ada, f"missed {number}")
        general.say(ada, f"{server.bot.mention} missed {number}")
    general.say(ada, "not for the bot")
    thread = general.thread("Roses", general.say(ada, f"{server.bot.mention} last"))
    thread.say(ada, f"{server.bot.mention} in a new thread")
    for _ in range(2):
        async with connected(home, server, target=BOT):
            wanted = [f"You said: missed {number}" for number in range(3)]
            await answered(server, room, "You said: hello", *wanted)
            await answered(server, general, "You said: hello", *wanted, "You said: last")
            await answered(server, thread, "You said: in a new thread")
            await OnDiscord(server).quiet()
    assert (len(texts(server, room)), len(texts(server, general)), len(texts(server, thread))) == (4, 5, 1)


def _drop(server: Server) -> None:
    server.gateway.drop()


def _reconnect(server: Server) -> None:
    server.gateway.reconnect()


def _invalidate(server: Server) -> None:
    server.gateway.invalidate(resumable=False)


async def reconnected(home: Path, breaks: Callable[[Server], None]) -> tuple[list[str], bool, int]:
    """What stands in a chat after a connection broke in mid-answer, whether it was resumed, and how many sessions."""
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        configured(home, server, owners=[ada.id], edit_interval=0.3, debounce=0)
        async with connected(home, server, target=BOT):
            room = server.dm(ada)
            room.say(ada, "count slowly")
            await server.until(lambda: server.calls(EDIT))
            breaks(server)
            room.say(ada, "meanwhile")
            await answered(server, room, COUNTED, "You said: meanwhile")
            await server.until(lambda: server.gateway.connected, 60)
            room.say(ada, "and after")
            await answered(server, room, "You said: and after")
            await OnDiscord(server).quiet()
            resumed = any(one.get("op") == 6 for one in server.gateway.received)
            return texts(server, room), resumed, server.gateway.identified


async def test_a_reconnect_in_mid_answer_loses_and_doubles_nothing(tmp_path: Path) -> None:
    breaks = (_drop, _reconnect, _invalidate)
    found = await asyncio.gather(*(reconnected(tmp_path / str(place), one) for place, one in enumerate(breaks)))
    wanted = [COUNTED, "You said: meanwhile", "You said: and after"]
    assert found == [(wanted, True, 1), (wanted, True, 1), (wanted, False, 2)]


async def test_failures_of_sending_lose_and_double_nothing(server: Server, ada: User, home: Path) -> None:
    configured(home, server, owners=[ada.id], debounce=0)
    faults: tuple[Fault, ...] = (Html(503), TooMany(0.3), Drop("after"), Cut(), TooMany(0.2, scope="global"))
    for place, fault in enumerate(faults):
        server.fail(POST, fault, skip=place)
    async with connected(home, server):
        room = server.dm(ada)
        for number in range(9):
            room.say(ada, f"number {number}")
        await answered(server, room, *[f"You said: number {number}" for number in range(9)], seconds=40)
        await OnDiscord(server).quiet()
        assert len(texts(server, room)) == 9
        assert [rule.fault for rule in server.faults.rules if rule.times] == []


async def test_a_kill_in_mid_answer_is_made_good_in_the_same_message(server: Server, ada: User, home: Path) -> None:
    configured(home, server, owners=[ada.id], edit_interval=0.3)
    room = server.dm(ada)
    daemon = await started(home)
    await server.until(lambda: server.gateway.connected)
    room.say(ada, "count slowly")
    await server.until(lambda: server.calls(EDIT))
    await daemon.kill()
    async with running(home):
        await answered(server, room, COUNTED)
        assert len(texts(server, room)) == 1


async def test_a_token_that_is_refused_is_one_sentence_and_the_end(server: Server, home: Path) -> None:
    configured(home, server, token="123456789." + "A" * 35 + "." + "B" * 35)
    daemon = await started(home)
    assert await daemon.ended() == 6
    assert daemon.errors.count("[channels.discord] token was refused by Discord") <= 2
    assert "A" * 35 not in daemon.errors


async def test_without_the_text_of_messages_the_channel_says_so_and_the_others_go_on(home: Path) -> None:
    async with Server(limits=None, content_intent=False) as server, BotApi(limits=None, conflict_pause=0.1) as other:
        telegram = OnTelegram(other)
        person = telegram.person("Ada")
        keys = {"owners": [person], "debounce": 0}
        configure(home, {"discord": OnDiscord(server).table(), "telegram": {**telegram.table(), **keys}}, SCRIPT)
        async with running(home) as daemon:
            telegram.say(person, "still there?")
            await telegram.until(lambda: telegram.answers(person) == ["You said: still there?"], 60)
            await server.until(lambda: "Message Content Intent" in daemon.errors)
            telegram.say(person, ",status")
            await telegram.until(lambda: len(telegram.answers(person)) == 2, 60)
            assert (
                "discord: refused, and not tried again ([channels.discord] content = " in telegram.answers(person)[-1]
            )
            assert daemon.errors.count("needs the Message Content Intent: turn it on") == 1
            assert "Traceback" not in daemon.errors


async def test_what_is_for_the_bot_is_heard_without_the_text_of_all_messages(ada: User, home: Path) -> None:
    async with Server(limits=None, content_intent=False) as server:
        ada = server.user("Ada")
        configured(home, server, owners=[ada.id], content="mentions")
        room, direct = server.guild("Club", ada).text("general"), server.dm(ada)
        async with connected(home, server):
            room.say(ada, "nobody hears this")
            room.say(ada, f"{server.bot.mention} hello")
            await answered(server, room, "You said: hello")
            room.say(ada, "a reply", reply_to=room.messages[-1])
            await answered(server, room, "You said: hello", "You said: a reply")
            direct.say(ada, "and here")
            await answered(server, direct, "You said: and here")


async def test_of_two_platforms_one_that_is_broken_does_not_hold_up_the_other(
    server: Server, ada: User, home: Path
) -> None:
    async with BotApi(limits=None, conflict_pause=0.1) as other:
        telegram = OnTelegram(other)
        person = telegram.person("Ada")
        other.fail("getUpdates", Html(502), times=1000)
        keys = {"debounce": 0}
        tables = {
            "discord": {**OnDiscord(server).table(), **keys, "owners": [ada.id]},
            "telegram": {**telegram.table(), **keys, "owners": [person]},
        }
        configure(home, tables, SCRIPT)
        async with connected(home, server):
            telegram.say(person, "to the broken one")
            server.dm(ada).say(ada, "to the good one")
            await answered(server, server.dm(ada), "You said: to the good one")
            server.fail("*", Html(502), times=10_000)
            server.fail("gateway", Html(502), times=10_000)
            server.gateway.drop()
            other.faults.clear()
            await telegram.until(lambda: telegram.answers(person) == ["You said: to the broken one"], 60)
            server.dm(ada).say(ada, "through the outage")
            telegram.say(person, "go on")
            await telegram.until(lambda: telegram.answers(person)[-1] == "You said: go on", 60)
            server.faults.clear()
            await answered(server, server.dm(ada), "You said: to the good one", "You said: through the outage")
