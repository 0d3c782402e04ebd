"""The Discord server for tests: what people do, as discord.py hears it, and what stays of it."""

from __future__ import annotations

import discord
import pytest

from tests.fakes.discordapi.client import Library, raw, running
from tests.fakes.discordapi.server import Server

TALK = """\
== #general (Home) ==
Ada #1: hello @Bubbot, see #side
Bo #2: (to #1) look [file cat.png, 3 bytes] [sticker Wave]
Bo edited #2 2 times: (to #1) look again [file cat.png, 3 bytes] [sticker Wave]
Ada to #2: added 👍
Ada to #2: took back 👍
Bubbot is typing
Bubbot #3: (to #1) yes
#1 of Ada was deleted: hello @Bubbot, see #side

== Ada (direct) ==
Ada #1: psst
"""


async def test_a_conversation_is_heard_and_written_down() -> None:
    async with Server(limits=None) as server:
        ada, bo = server.user("Ada"), server.user("Bo")
        guild = server.guild("Home", ada, [bo])
        room, side = guild.text("general"), guild.text("side")
        async with running(server) as client:
            first = room.say(ada, f"hello {server.bot.mention}, see {side.mention}")
            second = room.say(bo, "look", reply_to=first, files=[("cat.png", b"cat", "image/png")], stickers=["Wave"])
            room.edit(second, "look!")
            room.edit(second, "look again")
            room.react(ada, second, "👍")
            room.unreact(ada, second, "👍")
            got = await client.wait_for_messages(2)
            assert client.user is not None
            assert client.user.mentioned_in(got[0])
            assert got[1].reference is not None
            assert isinstance(got[1].reference.resolved, discord.Message)
            assert [one.name for one in got[1].stickers] == ["Wave"]
            assert isinstance(got[1].author, discord.Member)
            assert got[1].type == discord.MessageType.reply
            await got[0].channel.typing()
            await got[0].reply("yes")
            room.delete(first)
            server.dm(ada).say(ada, "psst")
            await server.until(lambda: client.events("message_delete") and client.events("reaction_remove"))
            assert [before.content for before, _ in client.events("message_edit")] == ["look", "look!"]
            await client.wait_for_messages(4)
        assert server.transcript(times=False) == TALK


async def test_a_message_that_only_changes_its_looks_has_no_time_of_edit() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("general")
        async with running(server) as client:
            said = room.say(ada, "https://example.org")
            room.unfurl(said, {"url": "https://example.org", "title": "Example"})
            room.pin(said)
            await server.until(lambda: len(client.payloads("MESSAGE_UPDATE")) == 2)
            updates = client.payloads("MESSAGE_UPDATE")
            assert [one["edited_timestamp"] for one in updates] == [None, None]
            assert updates[0]["embeds"][0]["title"] == "Example"
            room.edit(said, "gone")
            await server.until(lambda: len(client.payloads("MESSAGE_UPDATE")) == 3)
            assert client.payloads("MESSAGE_UPDATE")[2]["edited_timestamp"] is not None


async def test_several_messages_are_deleted_at_once() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("general")
        async with running(server) as client:
            room.delete(*[room.say(ada, str(number)) for number in range(3)])
            await server.until(lambda: client.events("bulk_message_delete"))
            assert [one.content for one in client.events("bulk_message_delete")[0][0]] == ["0", "1", "2"]


async def test_threads_are_opened_by_people_and_by_the_bot() -> None:
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("general")
        async with running(server) as client:
            starter = room.say(ada, "a question")
            thread = room.thread("answers", starter)
            assert thread.id == starter.id
            thread.say(ada, "well")
            loose = room.thread("loose", by=ada)
            got = await client.wait_for_messages(4)
            kinds = [one.type for one in got]
            assert kinds == [
                discord.MessageType.default,
                discord.MessageType.thread_starter_message,
                discord.MessageType.default,
                discord.MessageType.thread_created,
            ]
            assert isinstance(got[2].channel, discord.Thread)
            assert got[2].channel.parent_id == room.id
            assert [one[0].id for one in client.events("thread_create")] == [thread.id, loose.id]
            channel = client.get_channel(room.id)
            assert isinstance(channel, discord.TextChannel)
            made = await channel.create_thread(name="mine", type=discord.ChannelType.public_thread)
            await made.send("in it")
            with pytest.raises(discord.HTTPException) as caught:
                await got[0].create_thread(name="twice")
            assert caught.value.code == 160004
            assert {one.id for one in await channel.guild.active_threads()} == {thread.id, loose.id, made.id}


async def test_an_archived_thread_opens_again_unless_it_is_locked() -> None:
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("general")
        async with running(server) as client:
            thread = room.thread("talk", by=ada)
            await server.until(lambda: client.events("thread_create"))
            found = client.get_channel(thread.id)
            assert isinstance(found, discord.Thread)
            thread.archive()
            assert (await found.send("awake")).content == "awake"
            assert not thread.channel.archived
            thread.archive(locked=True)
            with pytest.raises(discord.HTTPException) as caught:
                await found.send("awake?")
            assert caught.value.code == 50083
            thread.remove()
            await server.until(lambda: client.events("raw_thread_delete"))
            with pytest.raises(discord.NotFound):
                await found.send("anybody?")


async def test_a_forum_has_posts() -> None:
    async with Server(limits=None) as server:
        ada = server.user("Ada")
        forum = server.guild("Home", ada).forum("help")
        async with running(server) as client:
            post = forum.post("It broke", "how so?", ada)
            got = await client.wait_for_messages()
            assert (got[0].id, got[0].channel.id) == (post.id, post.id)
            channel = client.get_channel(forum.id)
            assert isinstance(channel, discord.ForumChannel)
            made = await channel.create_thread(name="News", content="none")
            assert made.message.content == "none"
            assert made.message.id == made.thread.id
        async with raw(server) as api:
            answer = await api.ask("POST", f"/channels/{forum.id}/messages", json={"content": "hi"})
            assert answer[1]["code"] == 50008
        assert "== News (post in #help) ==" in server.transcript()


async def test_guilds_come_and_go() -> None:
    async with Server() as server:
        ada, bo = server.user("Ada"), server.user("Bo")
        home, away = server.guild("Home", ada), server.guild("Away", ada, bot=False)
        async with running(server) as client:
            assert [one.name for one in client.guilds] == ["Home"]
            away.join(server.bot.user)
            away.join(bo)
            cooks = away.role("cooks")
            away.give(cooks, bo)
            away.nick(server.bot.user, "Bub")
            away.text("kitchen").say(bo, "hungry")
            got = await client.wait_for_messages()
            assert isinstance(got[0].author, discord.Member)
            assert [role.name for role in got[0].author.roles] == ["@everyone", "cooks"]
            assert got[0].guild is not None
            assert got[0].guild.me.display_name == "Bub"
            home.outage()
            await server.until(lambda: client.events("guild_unavailable"))
            home.recover()
            await server.until(lambda: [one.name for (one,) in client.events("guild_available")] == ["Home", "Home"])
            away.leave(bo)
            away.leave(server.bot.user)
            await server.until(lambda: client.events("guild_remove"))
            assert [one.name for one in client.guilds] == ["Home"]


async def test_what_the_bot_may_not_see_it_does_not_hear() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        guild = server.guild("Home", ada)
        hidden, room = guild.text("secret"), guild.text("general")
        hidden.deny(server.bot.user, "view_channel")
        async with running(server) as client:
            hidden.say(ada, "hush")
            room.say(ada, "hello")
            hidden.allow(server.bot.user, "view_channel")
            hidden.say(ada, "now")
            assert [one.content for one in await client.wait_for_messages(2)] == ["hello", "now"]


async def test_who_is_not_ready_hears_nothing_of_before() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.dm(ada)
        before = room.say(ada, "before")
        async with running(server, Library(server)) as client:
            room.say(ada, "after")
            assert [one.content for one in await client.wait_for_messages()] == ["after"]
            channel = await client.fetch_channel(room.id)
            assert isinstance(channel, discord.DMChannel)
            assert channel.recipient is not None
            assert channel.recipient.id == ada.id
            assert [one.id async for one in channel.history(limit=5)][-1] == before.id
