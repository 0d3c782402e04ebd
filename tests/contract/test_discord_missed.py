"""What nobody heard when it was said: it is fetched before anything else is taken, in order, and once."""

from __future__ import annotations

import asyncio

import pytest

from bubbot.ports.channel import BackfillCursor, ChannelEvent, Inbound, MessagePart
from tests.fakes.discord_channel import Heard, opened, receiving, with_pace
from tests.fakes.discordapi.errors import Refuse
from tests.fakes.discordapi.server import Server
from tests.fakes.platform.faults import Drop

HISTORY = "GET /channels/{}/messages"


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
            await server.until(lambda: not channel.health().is_ready)
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


async def test_a_chat_in_which_the_bot_spoke_last_has_missed_nothing() -> None:
    async with Server() as server, receiving(server) as (channel, heard):
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        room.say(ada, "one")
        await heard.until("one")
        await channel.send(MessagePart(str(room.id), "an answer"))
        room.say(ada, "two")
        await heard.until("one", "two")
        await channel.send(MessagePart(str(room.id), "another answer"))
        server.dm(ada).say(ada, "elsewhere")  # comes after the answer, so that was taken
        await heard.until("one", "two", "elsewhere")
        server.gateway.refuse_resume = True
        server.gateway.drop()
        await server.until(lambda: server.gateway.identified == 2 and channel.health().is_ready)
        room.say(ada, "three")
        await heard.until("one", "two", "elsewhere", "three")
        assert not server.calls(HISTORY)


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
        known = BackfillCursor({(str(room.id), ""): str(first.id), (str(old.id), ""): str(other.id)}, first.timestamp)
        old.say(ada, "too old")
        server.world.clock.advance(7200)
        old.say(ada, "new enough")
        for number in range(7):
            room.say(ada, str(number))
        async with receiving(server, known, with_pace(max_missed_messages=5, max_message_age=3600.0)) as (_, heard):
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
        known = BackfillCursor({(str(room.id), ""): str(first.id)}, first.timestamp)
        async with receiving(server, known, with_pace(initial_backoff=0.1)) as (channel, heard):
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
        known = BackfillCursor({(str(room.id), ""): str(first.id)}, first.timestamp)
        async with receiving(server, known) as (_, heard):
            await server.until(lambda: server.calls(HISTORY))
            room.say(ada, "live")
            await heard.until("live")


async def test_what_is_said_first_in_a_chat_waits_for_what_was_missed_there() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.dm(ada)
        room.say(ada, "one")
        server.world.clock.advance(1)
        known = BackfillCursor({}, server.world.clock.stamp())
        room.say(ada, "missed")
        server.world.clock.advance(1)
        async with receiving(server, known, with_pace(guild_list_wait=60.0, backfill_overlap=0.5)) as (_, heard):
            room.say(ada, "live")
            await heard.until("missed", "live")


async def test_a_lane_that_overflows_is_read_again_and_loses_no_message() -> None:
    async with Server() as server:
        ada, bob = server.user("Ada"), server.user("Bob")
        go = asyncio.Event()
        heard = Heard(server)

        async def hold(event: ChannelEvent) -> None:
            if isinstance(event, Inbound) and event.sender.id == str(ada.id):
                await go.wait()

        heard.hold = hold
        async with receiving(server, pace=with_pace(max_queued_events=10), heard=heard):
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
            await server.until(lambda: channel.health().is_ready)
            room.say(ada, "one")
            await heard.until("one")
            room.say(ada, "two")
            room.say(ada, "three")
            with pytest.raises(RuntimeError, match="the disk is full"):
                await task
        async with receiving(server, heard.known()) as (_, again):
            await again.until("two", "three")


async def test_a_server_that_the_bot_joins_is_not_read_from_before() -> None:
    async with Server() as server:
        ada, eve = server.user("Ada"), server.user("Eve")
        server.dm(eve).say(eve, "hi")
        async with receiving(server, BackfillCursor({}, "2020-01-01T00:00:00+00:00")) as (_, heard):
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


async def test_of_too_many_sleeping_threads_those_that_were_used_last_are_asked_for() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        topics = [room.thread(name, by=ada) for name in ("old", "new")]
        async with receiving(server) as (_, heard):
            for topic in topics:
                topic.say(ada, f"to {topic.name}")
                await server.until(lambda topic=topic: f"to {topic.name}" in heard.texts)  # type: ignore[misc]
        for topic in topics:
            topic.say(ada, f"again to {topic.name}")
            topic.archive()
        async with receiving(server, heard.known(), with_pace(max_checked_chats=1)) as (_, later):
            await later.until("again to new")


async def test_what_was_said_in_an_outage_of_a_server_is_fetched_when_it_is_over() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        place = server.guild("Guild", ada, [ada])
        room = place.text("general")
        async with receiving(server) as (_, heard):
            room.say(ada, "before")
            await heard.until("before")
            place.outage()
            room.say(ada, "meanwhile")
            place.recover()
            room.say(ada, "after")
            await heard.until("before", "meanwhile", "after")
            assert server.gateway.identified == 1


async def test_a_fetched_message_is_the_same_as_the_one_that_was_told() -> None:
    async with Server() as server:
        ada, bob = server.user("Ada"), server.user("Bob")
        place = server.guild("Guild", ada, [ada, bob])
        crew = place.role("crew")
        place.give(crew, ada)
        room, forum = place.text("general"), place.forum("help")
        async with receiving(server) as (_, heard):
            first = room.say(ada, "first")
            await heard.until("first")
            room.say(ada, f"{server.bot.mention} look at this", files=[("a.png", b"x", "image/png")], reply_to=first)
            room.say(bob, "", stickers=["wave"])
            forum.post("Broken", "it is", ada)
            server.dm(ada).say(ada, "a direct one")
            await server.until(lambda: len(heard.inbounds) == 5)
            known = BackfillCursor({(str(room.id), ""): str(first.id)}, heard.inbounds[0].time, (str(ada.id),))
        async with receiving(server, known) as (_, again):
            await server.until(lambda: len(again.inbounds) >= 4)
            told = {one.message: one for one in heard.inbounds[1:]}
            fetched = {one.message: one for one in again.inbounds}
            assert fetched == told
