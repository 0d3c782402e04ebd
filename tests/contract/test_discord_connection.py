"""The connection to Discord: what breaks it, what is read again after it, and what only people can mend."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from bubbot.channel import ChannelEvent, CommandInfo, Inbound, Known
from bubbot.errors import ChannelRefused
from tests.discord_channel import Heard, opened, receiving, with_pace
from tests.discordapi.faults import Drop, Html, Refuse
from tests.discordapi.server import Server

HISTORY = "GET /channels/{}/messages"


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
        assert channel.health().ready
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
        await server.until(lambda: not channel.health().ready)
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
        await server.until(lambda: not channel.health().ready)
        room.say(ada, "meanwhile")
        await server.until(lambda: channel.health().ready)
        room.say(ada, "after")
        await heard.until("before", "meanwhile", "after")
        assert server.gateway.identified == 1
        (session,) = server.gateway.sessions.values()
        assert session.resumed == 1


async def test_what_was_missed_by_a_session_that_is_gone_is_fetched_in_order_and_once() -> None:
    async with Server() as server:
        ada, bob = server.user("Ada"), server.user("Bob")
        place = server.guild("Guild", ada, [ada, bob])
        crew = place.role("crew")
        place.give(crew, ada)
        place.give(crew, bob)
        room, topic = place.text("general"), place.text("other").thread("topic", by=ada)
        async with receiving(server) as (channel, heard):
            room.say(ada, "one")
            topic.say(ada, "t one")
            await server.until(lambda: len(heard.texts) == 2)
            server.gateway.refuse_resume = True
            server.gateway.drop()
            await server.until(lambda: not channel.health().ready)
            for number in range(120):
                room.say(bob, f"missed {number}")
            topic.say(ada, "t missed")
            await server.until(lambda: server.gateway.identified == 2)
            room.say(ada, "last")
            await server.until(lambda: "last" in heard.texts and "t missed" in heard.texts)
            said = [one.text for one in heard.inbounds if one.chat == str(room.id)]
            assert said == ["one", *(f"missed {number}" for number in range(120)), "last"]
            assert [one.text for one in heard.inbounds if one.thread] == ["t one", "t missed"]
            assert {one.sender.roles for one in heard.inbounds} == {(str(crew.id),)}
            assert len(server.calls("GET /guilds/{}/members/{}")) == 1


async def test_a_restart_answers_what_was_said_meanwhile() -> None:
    async with Server() as server:
        ada, bob, eve = server.user("Ada"), server.user("Bob"), server.user("Eve")
        place = server.guild("Guild", ada, [ada])
        room, quiet = place.text("general"), place.text("quiet")
        room.say(ada, "long before")
        async with receiving(server) as (_, heard):
            room.say(ada, "one")
            server.dm(bob).say(bob, "dm one")
            await server.until(lambda: len(heard.texts) == 2)
            known = heard.known(people=(str(eve.id),))
        room.say(ada, "missed")
        quiet.say(ada, "missed in a chat nobody spoke in before")
        server.dm(bob).say(bob, "dm missed")
        server.dm(eve).say(eve, "first words")
        async with receiving(server, known) as (_, again):
            await server.until(lambda: len(again.texts) == 4 or len(again.texts) > 4)
            await asyncio.sleep(0.05)
            assert sorted(again.texts) == [
                "dm missed", "first words", "missed", "missed in a chat nobody spoke in before",
            ]  # fmt: skip
            direct = {one.text: one.direct for one in again.inbounds}
            assert direct["dm missed"]
            assert direct["first words"]
            assert not direct["missed"]


async def test_a_new_bot_does_not_answer_what_was_said_before_it_came() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        room.say(ada, "old")
        server.dm(ada).say(ada, "old, too")
        server.world.clock.advance(1)
        async with receiving(server) as (_, heard):
            room.say(ada, "new")
            server.dm(ada).say(ada, "new, too")
            await server.until(lambda: len(heard.texts) == 2)
            assert sorted(heard.texts) == ["new", "new, too"]
            assert not server.calls(HISTORY)


async def test_only_so_much_and_nothing_too_old_is_fetched() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        place = server.guild("Guild", ada, [ada])
        room, old = place.text("general"), place.text("old")
        first, other = room.say(ada, "first"), old.say(ada, "first")
        known = Known({(str(room.id), ""): str(first.id), (str(old.id), ""): str(other.id)}, first.timestamp)
        old.say(ada, "too old")
        server.world.clock.advance(7200)
        old.say(ada, "new enough")
        for number in range(7):
            room.say(ada, str(number))
        async with receiving(server, known, with_pace(most_missed=5, oldest=3600.0)) as (_, heard):
            await server.until(lambda: len(heard.texts) >= 6)
            room.say(ada, "live")
            await server.until(lambda: "live" in heard.texts)
            assert [one.text for one in heard.inbounds if one.chat == str(old.id)] == ["new enough"]
            assert [one.text for one in heard.inbounds if one.chat == str(room.id)] == [*"01234", "live"]


async def test_a_chat_whose_messages_cannot_be_had_waits_and_the_others_go_on() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        first = room.say(ada, "first")
        room.say(ada, "missed")
        server.fail(HISTORY, Refuse(503, "Service Unavailable"), times=3)
        server.fail(HISTORY, Drop(), times=2)
        known = Known({(str(room.id), ""): str(first.id)}, first.timestamp)
        async with receiving(server, known, with_pace(first_wait=0.1)) as (channel, heard):
            bob = server.user("Bob")
            await server.until(lambda: server.calls(HISTORY))
            room.say(ada, "live")
            await server.until(lambda: "cannot be fetched" in channel.health().note)
            await server.until(lambda: heard.texts)
            assert heard.texts[0] == "missed"
            await heard.until("missed", "live")
            server.dm(bob).say(bob, "hi")
            await heard.until("missed", "live", "hi")
            assert channel.health().note == ""


async def test_a_channel_that_may_not_be_read_holds_nothing_up() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        first = room.say(ada, "first")
        room.say(ada, "missed")
        server.fail(HISTORY, Refuse(403, "Missing Access", 50001))
        known = Known({(str(room.id), ""): str(first.id)}, first.timestamp)
        async with receiving(server, known) as (_, heard):
            await server.until(lambda: server.calls(HISTORY))
            room.say(ada, "live")
            await heard.until("live")


async def test_a_deaf_connection_is_noticed_and_made_anew() -> None:
    async with Server(heartbeat=0.1) as server, receiving(server, pace=with_pace(silent=0.3, margin=0.1)) as (_, heard):
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


async def test_a_lane_that_overflows_is_read_again_and_loses_no_message() -> None:
    async with Server() as server:
        ada, bob = server.user("Ada"), server.user("Bob")
        go = asyncio.Event()
        heard = Heard(server)

        async def hold(event: ChannelEvent) -> None:
            if isinstance(event, Inbound) and event.sender.id == str(ada.id):
                await go.wait()

        heard.hold = hold
        async with receiving(server, pace=with_pace(room=10), heard=heard):
            for number in range(35):
                server.dm(ada).say(ada, str(number))
            server.dm(bob).say(bob, "not held up")
            await heard.until("not held up")
            go.set()
            await server.until(lambda: len(heard.texts) >= 36)
            assert [one.text for one in heard.inbounds if one.sender.id == str(ada.id)] == [
                str(number) for number in range(35)
            ]


async def test_what_cannot_be_made_durable_ends_the_run_and_the_next_one_has_it() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.dm(ada)
        heard = Heard(server)

        async def hold(event: ChannelEvent) -> None:
            if isinstance(event, Inbound) and event.text == "two":
                raise RuntimeError("the disk is full")

        heard.hold = hold
        async with opened(server) as channel:
            task = asyncio.create_task(channel.run(heard))
            await server.until(lambda: channel.health().ready)
            room.say(ada, "one")
            await heard.until("one")
            room.say(ada, "two")
            room.say(ada, "three")
            with pytest.raises(RuntimeError, match="the disk is full"):
                await task
        async with receiving(server, heard.known()) as (_, again):
            await again.until("two", "three")


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


async def test_the_gateways_own_refusals_are_told() -> None:
    async with Server() as server, opened(server) as channel:
        task = asyncio.create_task(channel.run(Heard(server)))
        await server.until(lambda: channel.health().ready)
        server.bot.content_intent = False
        server.gateway.refuse_resume = True
        server.gateway.drop()
        with pytest.raises(ChannelRefused, match="Message Content Intent"):
            await task
        assert server.gateway.closes == [4014]
    async with Server() as server, opened(server) as channel:
        task = asyncio.create_task(channel.run(Heard(server)))
        await server.until(lambda: channel.health().ready)
        server.bot.token = f"{server.bot.id}.other.token"
        server.gateway.drop()
        with pytest.raises(ChannelRefused, match="token was refused"):
            await task
        assert server.gateway.closes == [4004]
        assert not channel.health().ready


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
        assert not channel.health().ready
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_health_tells_when_something_was_last_heard() -> None:
    async with Server(heartbeat=0.05) as server, receiving(server) as (channel, _):
        first = channel.health().heard
        assert first
        await server.until(lambda: channel.health().heard > first)
        server.gateway.drop()
        await server.until(lambda: not channel.health().ready)
        assert channel.health().note


async def test_two_channels_of_one_process_do_not_share_their_gateway() -> None:
    async with Server() as one, Server() as two, receiving(one) as (_, first), receiving(two) as (_, second):
        ada = one.user("Ada")
        one.dm(ada).say(ada, "to one")
        bob = two.user("Bob")
        two.dm(bob).say(bob, "to two")
        await first.until("to one")
        await second.until("to two")


async def test_a_server_that_the_bot_joins_is_not_read_from_before() -> None:
    async with Server() as server:
        ada, eve = server.user("Ada"), server.user("Eve")
        server.dm(eve).say(eve, "hi")
        async with receiving(server, Known({}, "2020-01-01T00:00:00+00:00")) as (_, heard):
            place = server.guild("Guild", ada, [ada], bot=False)
            room = place.text("general")
            room.say(ada, "among ourselves")
            server.world.clock.advance(1)
            place.join(server.bot.user)
            room.say(ada, "welcome")
            await server.until(lambda: "welcome" in heard.texts)
            assert "among ourselves" not in heard.texts


async def test_a_thread_that_fell_asleep_meanwhile_is_read_as_well() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        topic = server.guild("Guild", ada, [ada]).text("general").thread("topic", by=ada)
        async with receiving(server) as (_, heard):
            topic.say(ada, "one")
            await heard.until("one")
            known = heard.known()
        topic.say(ada, "missed")
        topic.archive()
        async with receiving(server, known) as (_, again):
            await again.until("missed")
            assert again.inbounds[0].thread == str(topic.id)


async def test_a_slash_command_is_taken_and_shown_to_be_worked_on() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        async with receiving(server, commands=lambda: [CommandInfo("status", "Say how it is.")]) as (_, heard):
            await server.until(lambda: server.bot.commands)
            used = server.slash(room, ada, "status")
            await heard.until(",status")
            assert heard.inbounds[0].chat == str(room.id)
            room.say(ada, "not held up by it")
            await heard.until(",status", "not held up by it")
            assert not used.deferred
            await server.until(lambda: used.deferred)


async def test_a_slash_command_that_is_not_taken_up_is_not_answered() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        heard = Heard(server, taken=False)
        async with receiving(server, heard=heard, commands=lambda: [CommandInfo("status", "Say how it is.")]):
            await server.until(lambda: server.bot.commands)
            server.slash(server.dm(ada), ada, "status")
            await heard.until(",status")
            server.dm(ada).say(ada, "next")
            await heard.until(",status", "next")
            await asyncio.sleep(0.1)
            assert not server.calls("POST /interactions/{}/{}/callback")


async def test_nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    before = {thread.name for thread in threading.enumerate()}
    async with Server(heartbeat=0.05) as server, receiving(server) as (channel, _):
        for _ in range(3):
            server.gateway.drop()
            await server.until(lambda: not channel.health().ready)
            await server.until(lambda: channel.health().ready)
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
            assert not channel.health().ready
            server.gateway.resume_url = tell
            await server.until(lambda: channel.health().ready)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("code", [4000, 4001, 4002, 4003, 4005, 4007, 4008, 4009])
async def test_every_other_code_is_survived(code: int) -> None:
    async with Server() as server, receiving(server) as (channel, heard):
        ada = server.user("Ada")
        server.gateway.close(code)
        await server.until(lambda: not channel.health().ready)
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
