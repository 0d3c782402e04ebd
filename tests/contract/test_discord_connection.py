"""The connection to Discord: what breaks it, and what only people can mend."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from typing import Any

import pytest

from bubbot.errors import ChannelRefused, DeliveryFailed
from bubbot.ports.channel import CommandInfo, MessagePart, Outbound
from tests.fakes.discord_channel import Heard, opened, receiving, with_pace
from tests.fakes.discordapi.errors import Refuse, TooMany
from tests.fakes.discordapi.server import Server
from tests.fakes.platform.faults import Drop, Fault, Html


async def test_what_discord_says_in_a_form_nobody_knows_is_set_aside_and_the_rest_is_heard() -> None:
    async with Server() as server, receiving(server) as (channel, heard):
        ada = server.user("Ada")
        room = server.dm(ada)
        odd: list[tuple[str, Any]] = [
            ("MESSAGE_CREATE", {"channel_id": str(room.id), "id": "77", "author": "nobody"}),
            ("MESSAGE_CREATE", {"id": "78"}),
            ("MESSAGE_CREATE", ["a", "list"]),
            ("MESSAGE_REACTION_ADD", {"channel_id": str(room.id), "emoji": 7}),
            ("GUILD_CREATE", {"id": [], "channels": 7, "roles": [None, {"id": "1", "tags": 3}]}),
            ("CHANNEL_UPDATE", None),
            ("TYPING_START", "x"),
            ("SOMETHING_NEW", {"a": 1}),
        ]
        for name, data in odd:
            server.gateway.odd(name, data)
        room.say(ada, "still there?")
        await heard.until("still there?")
        await server.until(lambda: len(heard.unparsed) == 4)
        assert {one.chat for one in heard.unparsed} == {str(room.id), ""}
        assert any(b'"nobody"' in one.raw and one.external_id == "um77" for one in heard.unparsed)
        assert channel.health().is_ready
        assert server.gateway.identified == 1


async def test_a_frame_that_is_no_json_is_set_aside() -> None:
    async with Server() as server, receiving(server) as (_, heard):
        ada = server.user("Ada")
        connection = server.gateway.connections[0]
        connection.raw("{broken")
        server.dm(ada).say(ada, "after it")
        await heard.until("after it")
        await server.until(lambda: heard.unparsed)
        assert server.gateway.identified == 1


async def test_a_broken_stream_is_left_and_taken_up_again() -> None:
    async with Server() as server, receiving(server) as (channel, heard):
        ada = server.user("Ada")
        server.gateway.raw(b"\x00\x01nonsense\x00\x00\xff\xff")
        await server.until(lambda: not channel.health().is_ready)
        server.dm(ada).say(ada, "after it")
        await heard.until("after it")
        assert server.gateway.identified == 1


@pytest.mark.parametrize("how", ["drop", "reconnect", "close"])
async def test_a_connection_that_ends_is_resumed_and_nothing_is_lost_or_doubled(how: str) -> None:
    async with Server() as server, receiving(server) as (channel, heard):
        ada = server.user("Ada")
        room = server.dm(ada)
        room.say(ada, "before")
        await heard.until("before")
        if how == "drop":
            server.gateway.drop()
        elif how == "reconnect":
            server.gateway.reconnect()
        else:
            server.gateway.close(4000)
        await server.until(lambda: not channel.health().is_ready)
        room.say(ada, "meanwhile")
        await server.until(lambda: channel.health().is_ready)
        room.say(ada, "after")
        await heard.until("before", "meanwhile", "after")
        assert server.gateway.identified == 1
        (session,) = server.gateway.sessions.values()
        assert session.resumed == 1


@pytest.mark.parametrize(("silent", "margin"), [(0.3, 60.0), (60.0, -59.7)], ids=["by the library", "by us"])
async def test_a_deaf_connection_is_noticed_and_made_anew(silent: float, margin: float) -> None:
    pace = with_pace(silence_timeout=silent, silence_margin=margin)
    async with Server(heartbeat=0.1) as server, receiving(server, pace=pace) as (_, heard):
        ada = server.user("Ada")
        server.dm(ada).say(ada, "before")
        await heard.until("before")
        server.gateway.deaf()
        server.dm(ada).say(ada, "meanwhile")
        await heard.until("before", "meanwhile")
        assert server.gateway.identified == 1


async def test_the_bot_says_goodbye_when_it_ends() -> None:
    async with Server() as server:
        async with receiving(server):
            assert len(server.gateway.sessions) == 1
        await server.until(lambda: not server.gateway.sessions)


async def test_without_the_intent_for_texts_the_operator_is_told_before_anything_is_tried() -> None:
    async with Server(content_intent=False) as server, opened(server) as channel:
        with pytest.raises(ChannelRefused, match=r'Message Content Intent.*content = "mentions"'):
            await channel.run(Heard(server))
        assert server.gateway.identified == 0
        assert not server.gateway.closes
    async with Server(content_intent=False) as server, receiving(server, content="mentions") as (_, heard):
        ada = server.user("Ada")
        server.dm(ada).say(ada, "hello")
        await heard.until("hello")


async def test_a_refusal_at_the_start_is_for_the_operator() -> None:
    async with Server() as server, opened(server) as channel:
        task = asyncio.create_task(channel.run(Heard(server)))
        await server.until(lambda: server.calls("GET /applications/@me"))
        server.bot.token = f"{server.bot.id}.other.token"
        with pytest.raises(ChannelRefused, match="token was refused"):
            await asyncio.wait_for(task, 5)
        assert server.gateway.closes == [4004]


async def test_a_bot_that_was_ready_outlives_a_refusal_and_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with Server() as server, receiving(server) as (channel, heard):
        token, ada = server.bot.token, server.user("Ada")
        server.bot.token = f"{server.bot.id}.other.token"
        server.gateway.drop()
        await server.until(lambda: 4004 in server.gateway.closes)
        await server.until(lambda: "token was refused" in channel.health().note)
        assert not channel.health().is_ready
        server.bot.token = token
        await server.until(lambda: channel.health().is_ready)
        server.dm(ada).say(ada, "still there?")
        await heard.until("still there?")
    actions = [str(getattr(record, "action", "")) for record in caplog.records]
    assert [one for one in actions if one.startswith("channel.")] == ["channel.doubted", "channel.up"]


@pytest.mark.parametrize("fault", [Refuse(401, "401: Unauthorized"), TooMany(60.0, banned=True)])
async def test_a_bot_that_hears_and_may_send_nothing_shows_it(fault: Fault) -> None:
    """Discord may refuse a token, or block an address, before it ends the connection."""
    async with Server() as server, receiving(server) as (channel, _):
        server.fail("POST /channels/{channel}/messages", fault)
        part = MessagePart(str(server.dm(server.user("Ada")).id), "hello")
        with pytest.raises(DeliveryFailed):
            await channel.send(part)
        assert channel.health().is_ready
        assert channel.health().note.startswith("nothing can be sent: ")
        assert ("[channels.dc] token" in channel.health().note) is isinstance(fault, Refuse)


async def test_an_intent_that_is_taken_away_is_shown_until_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with Server() as server, receiving(server) as (channel, _):
        server.bot.content_intent = False
        server.gateway.refuse_resume = True
        server.gateway.drop()
        await server.until(lambda: "Message Content Intent" in channel.health().note)
        assert server.gateway.closes == [4014]
        await server.until(lambda: "channel.down" in [getattr(one, "action", "") for one in caplog.records])
        assert not channel.health().is_ready
        server.bot.content_intent = True
        await server.until(lambda: channel.health().is_ready)


async def test_a_wrong_token_is_told() -> None:
    async with Server() as server, opened(server, token=f"{server.bot.id}.wrong.{'x' * 20}") as channel:
        with pytest.raises(ChannelRefused, match="token was refused"):
            await channel.run(Heard(server))
        assert "token was refused" in channel.health().note


async def test_a_first_login_that_fails_is_tried_again() -> None:
    async with Server() as server:
        server.fail("GET /applications/@me", Drop())
        server.fail("GET /applications/@me", Html(503))
        server.fail("GET /applications/@me", Refuse(500))
        async with receiving(server) as (_, heard):
            ada = server.user("Ada")
            server.dm(ada).say(ada, "hello")
            await heard.until("hello")


async def test_a_gateway_that_is_not_there_is_waited_for() -> None:
    async with Server() as server, opened(server, gateway_url="ws://127.0.0.1:1/gateway") as channel:
        task = asyncio.create_task(channel.run(Heard(server)))
        await server.until(lambda: "cannot be reached" in channel.health().note)
        assert not task.done()
        assert not channel.health().is_ready
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_health_tells_when_something_was_last_heard() -> None:
    async with Server(heartbeat=0.05) as server, receiving(server) as (channel, _):
        first = channel.health().last_seen_at
        assert first
        await server.until(lambda: channel.health().last_seen_at > first)
        server.gateway.drop()
        await server.until(lambda: not channel.health().is_ready)
        assert channel.health().note


async def test_two_channels_of_one_process_do_not_share_their_gateway() -> None:
    async with Server() as one, Server() as two, receiving(one) as (_, first), receiving(two) as (_, second):
        ada = one.user("Ada")
        one.dm(ada).say(ada, "to one")
        bob = two.user("Bob")
        two.dm(bob).say(bob, "to two")
        await first.until("to one")
        await second.until("to two")


async def test_a_slash_command_is_taken_and_shown_to_be_worked_on() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        async with receiving(server, commands=lambda: [CommandInfo("status", "Say how it is.", in_menu=True)]) as (
            _,
            heard,
        ):
            await server.until(lambda: server.bot.commands)
            used = server.slash(room, ada, "status")
            await heard.until(",status")
            assert heard.inbounds[0].chat == str(room.id)
            room.say(ada, "not held up by it")
            await heard.until(",status", "not held up by it")
            assert not used.deferred
            await server.until(lambda: used.deferred)


async def test_every_part_of_an_answer_about_the_bot_is_for_its_user_alone() -> None:
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("general")
        infos = [CommandInfo("status", "How I am.", in_menu=True, is_shared=False)]
        async with receiving(server, commands=lambda: infos, slash=True) as (channel, heard):
            await server.until(lambda: server.bot.commands)
            used = server.slash(room, ada, "status")
            await server.until(lambda: heard.inbounds)
            outbound = Outbound("dc", str(room.id), "word " * 1000, reply_to=str(used.id))
            for part in channel.parts(outbound):
                await channel.send(part)
        said = [one for one in room.messages if one.author.id == server.bot.user.id]
        assert len(said) > 2
        assert all(one.ephemeral for one in said)


async def test_a_slash_command_that_is_not_taken_up_is_not_answered() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        heard = Heard(server, taken=False)
        async with receiving(
            server, heard=heard, commands=lambda: [CommandInfo("status", "Say how it is.", in_menu=True)]
        ):
            await server.until(lambda: server.bot.commands)
            server.slash(server.dm(ada), ada, "status")
            await heard.until(",status")
            server.dm(ada).say(ada, "next")
            await heard.until(",status", "next")
            await asyncio.sleep(0.1)
            assert not server.calls("POST /interactions/{}/{}/callback")


async def test_a_slash_command_to_which_nothing_will_be_said_is_confirmed_to_its_user_alone() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        heard = Heard(server, taken=None)
        async with receiving(server, heard=heard, commands=lambda: [CommandInfo("stop", "Stop it.", in_menu=True)]):
            await server.until(lambda: server.bot.commands)
            used = server.slash(server.dm(ada), ada, "stop")
            await server.until(lambda: used.acknowledged)
            assert not used.deferred
            [call] = server.calls("POST /interactions/{}/{}/callback")
            assert call.json == {"type": 4, "data": {"content": "✓", "flags": 64}}


async def test_nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    before = {thread.name for thread in threading.enumerate()}
    async with Server(heartbeat=0.05) as server, receiving(server) as (channel, _):
        for _ in range(3):
            server.gateway.drop()
            await server.until(lambda: not channel.health().is_ready)
            await server.until(lambda: channel.health().is_ready)
    await asyncio.sleep(0.1)
    assert {thread.name for thread in threading.enumerate()} <= before
    assert len([task for task in asyncio.all_tasks() if not task.done()]) == 1
    assert "voice" not in caplog.text


async def test_a_session_that_never_gets_ready_is_given_up() -> None:
    async with Server(heartbeat=0.05) as server:
        tell, server.gateway.resume_url = server.gateway.resume_url, lambda: 7  # type: ignore[assignment, return-value]
        async with opened(server) as channel:
            task = asyncio.create_task(channel.run(Heard(server)))
            await server.until(lambda: server.gateway.identified >= 3)
            assert "cannot be read" in channel.health().note
            assert not channel.health().is_ready
            server.gateway.resume_url = tell
            await server.until(lambda: channel.health().is_ready)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("code", [4000, 4001, 4002, 4003, 4005, 4007, 4008, 4009])
async def test_every_other_code_is_survived(code: int) -> None:
    async with Server() as server, receiving(server) as (channel, heard):
        ada = server.user("Ada")
        server.gateway.close(code)
        await server.until(lambda: not channel.health().is_ready)
        server.dm(ada).say(ada, "still there?")
        await heard.until("still there?")


async def test_a_session_declared_invalid_is_begun_anew() -> None:
    async with Server() as server, receiving(server) as (_, heard):
        ada = server.user("Ada")
        room = server.dm(ada)
        room.say(ada, "one")
        await heard.until("one")
        server.gateway.invalidate()
        room.say(ada, "two")
        await heard.until("one", "two")
        assert server.gateway.identified == 2
        server.gateway.invalidate(resumable=True)
        room.say(ada, "three")
        await heard.until("one", "two", "three")
        assert server.gateway.identified == 2


async def test_hundreds_of_odd_events_do_not_end_the_connection() -> None:
    chance = random.Random(7)
    words = ("id", "guild_id", "channel_id", "type", "channels", "threads", "roles", "role", "author", "member", "user",
             "content", "message_id", "user_id", "emoji", "ids", "joined_at", "data", "token", "application_id")  # fmt: skip

    def odd(depth: int = 0) -> Any:
        kind = chance.randrange(9 if depth < 3 else 6)
        if kind >= 7:
            return {chance.choice(words): odd(depth + 1) for _ in range(chance.randrange(6))}
        if kind == 6:
            return [odd(depth + 1) for _ in range(chance.randrange(3))]
        return [None, True, -1, "\ud800", str(chance.randrange(9)), "0001-01-01T00:00:00"][kind]

    names = ("MESSAGE_CREATE", "MESSAGE_UPDATE", "MESSAGE_DELETE", "MESSAGE_DELETE_BULK", "MESSAGE_REACTION_ADD",
             "MESSAGE_REACTION_REMOVE", "MESSAGE_REACTION_REMOVE_ALL", "INTERACTION_CREATE", "GUILD_CREATE",
             "GUILD_UPDATE", "GUILD_DELETE", "GUILD_ROLE_CREATE", "CHANNEL_CREATE", "CHANNEL_DELETE", "THREAD_CREATE",
             "THREAD_UPDATE", "THREAD_LIST_SYNC", "GUILD_MEMBER_UPDATE", "NEVER_HEARD_OF")  # fmt: skip
    async with Server() as server, receiving(server) as (channel, heard):
        ada = server.user("Ada")
        for _ in range(600):
            server.gateway.odd(chance.choice(names), odd())
        server.dm(ada).say(ada, "still there?")
        await server.until(lambda: "still there?" in heard.texts)
        assert channel.health().is_ready
        assert server.gateway.identified == 1
        assert heard.unparsed


async def test_commands_that_change_are_registered_and_recognized_at_once() -> None:
    commands = [CommandInfo("help", "Help.", in_menu=True)]
    async with Server() as server:
        ann = server.user("Ann")
        room = server.dm(ann)
        registered = "PUT /applications/{}/commands"
        async with receiving(server, commands=lambda: commands) as (channel, heard):
            await server.until(lambda: server.calls(registered))
            room.say(ann, "/undo first")
            await heard.until("/undo first")
            commands.append(CommandInfo("undo", "Undo.", in_menu=True))
            for _ in range(2):
                await channel.update_commands()
            room.say(ann, "/undo second")
            await heard.until("/undo first", ",undo second")
        assert [item["name"] for item in server.bot.commands] == ["help", "undo"]
        assert len(server.calls(registered)) == 2
