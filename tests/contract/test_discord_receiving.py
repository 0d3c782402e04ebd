"""Receiving from Discord: discord.py's own client against a server of ours. What people do, and what we hear of it."""

from __future__ import annotations

from bubbot.ports.channel import Reaction
from tests.fakes.discord_channel import receiving
from tests.fakes.discordapi.server import Server


async def test_a_direct_message_is_received_with_who_wrote_it() -> None:
    async with Server() as server, receiving(server) as (_, heard):
        ada = server.user("Ada")
        said = server.dm(ada).say(ada, "hello")
        await heard.until("hello")
        (one,) = heard.inbounds
        assert (one.channel, one.chat, one.thread) == ("dc", str(server.dm(ada).id), "")
        assert (one.sender.id, one.sender.name, one.sender.bot, one.sender.roles) == (str(ada.id), "Ada", False, ())
        assert (one.message, one.external_id) == (str(said.id), f"m{said.id}")
        assert one.direct
        assert one.addressed
        assert one.space == ""


async def test_a_message_in_a_server_has_its_space_the_roles_and_the_name_used_there() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        place = server.guild("Guild", ada, [ada])
        crew = place.role("crew")
        place.give(crew, ada)
        place.nick(ada, "Countess")
        room = place.text("general")
        async with receiving(server) as (_, heard):
            room.say(ada, "anybody here?")
            await heard.until("anybody here?")
            (one,) = heard.inbounds
            assert (one.chat, one.thread, one.space) == (str(room.id), "", str(place.id))
            assert (one.sender.name, one.sender.roles) == ("Countess", (str(crew.id),))
            assert not one.direct
            assert not one.addressed


async def test_who_mentions_the_bot_means_it_and_its_name_is_taken_from_the_front() -> None:
    async with Server() as server:
        ada, bob = server.user("Ada"), server.user("Bob")
        place = server.guild("Guild", ada, [ada, bob])
        room = place.text("general")
        async with receiving(server) as (_, heard):
            mine = next(role for role in place.guild.roles.values() if role.managed_by)
            room.say(ada, f"{server.bot.mention}, what is up?")
            room.say(ada, f"{mine.mention} by its role")
            room.say(ada, f"ask {server.bot.mention} about {bob.mention} in {room.mention}")
            room.say(ada, "@everyone look")
            room.say(ada, f"{bob.mention} hello")
            await heard.until(
                "what is up?", "by its role", "ask @Bubbot about @Bob in #general", "@everyone look", "@Bob hello"
            )
            assert [one.addressed for one in heard.inbounds] == [True, True, True, False, False]


async def test_a_thread_is_a_thread_of_its_parent() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        before = room.thread("old topic", by=ada)
        async with receiving(server) as (_, heard):
            before.say(ada, "in the old one")
            topic = room.thread("topic", room.say(ada, "starter"))
            topic.say(ada, "in the new one")
            await server.until(lambda: len(heard.inbounds) == 3)
            found = {one.text: (one.chat, one.thread) for one in heard.inbounds}
            assert found == {
                "in the old one": (str(room.id), str(before.id)),
                "starter": (str(room.id), ""),
                "in the new one": (str(room.id), str(topic.id)),
            }


async def test_a_thread_that_slept_is_asked_for() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        topic = room.thread("topic", by=ada)
        topic.archive()
        async with receiving(server) as (_, heard):
            server.gateway.odd("MESSAGE_CREATE", _plain(server, ada, topic.id, room.channel.guild.id))  # type: ignore[union-attr]
            await heard.until("awake")
            assert (heard.inbounds[0].chat, heard.inbounds[0].thread) == (str(room.id), str(topic.id))
            assert server.calls("GET /channels/{}")


async def test_a_forum_post_begins_with_its_title() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        forum = server.guild("Guild", ada, [ada]).forum("help")
        async with receiving(server) as (_, heard):
            post = forum.post("It does not work", "Nothing happens.", ada)
            post.say(ada, "still nothing")
            await heard.until("It does not work\n\nNothing happens.", "still nothing")
            assert {(one.chat, one.thread) for one in heard.inbounds} == {(str(forum.channel.id), str(post.id))}


async def test_a_reply_to_the_bot_means_it_and_quotes_what_it_said() -> None:
    async with Server() as server:
        ada, bob = server.user("Ada"), server.user("Bob")
        room = server.guild("Guild", ada, [ada, bob]).text("general")
        async with receiving(server) as (_, heard):
            ours = room.say(server.bot.user, f"Ask {bob.mention}.")
            room.say(ada, "why?", reply_to=ours, mention_author=False)
            his = room.say(bob, "mine", files=[("a.txt", b"hi", "text/plain")])
            room.say(ada, "no", reply_to=his)
            await heard.until("why?", "mine", "no")
            why, mine, no = heard.inbounds
            assert why.addressed
            assert why.quote is not None
            assert (why.quote.own, why.quote.text, why.quote.message) == (True, "Ask @Bob.", str(ours.id))
            assert why.reply_to == str(ours.id)
            assert not no.addressed
            assert no.quote is not None
            assert (no.quote.sender.name, no.quote.own) == ("Bob", False)
            assert [one.name for one in no.quote.attachments] == ["a.txt"]
            assert no.quote.attachments == mine.attachments


async def test_what_bots_say_is_marked_and_what_the_bot_itself_says_is_not_heard() -> None:
    async with Server() as server:
        ada, other = server.user("Ada"), server.user("Other", bot=True)
        room = server.guild("Guild", ada, [ada, other]).text("general")
        async with receiving(server) as (_, heard):
            room.say(server.bot.user, "mine")
            room.say(other, "beep")
            await heard.until("beep")
            assert heard.inbounds[0].sender.bot


async def test_an_edit_is_one_and_an_unfolded_link_is_none() -> None:
    async with Server() as server, receiving(server) as (_, heard):
        ada = server.user("Ada")
        room = server.dm(ada)
        said = room.say(ada, "see https://example.org")
        room.unfurl(said, {"title": "Example"})
        room.pin(said)
        room.edit(said, "see https://example.com")
        room.unfurl(said, {"title": "Other"})
        room.say(ada, "done")
        await server.until(lambda: heard.texts[-1:] == ["done"])
        first = heard.edits[0]
        assert (first.text, first.message, first.chat) == ("see https://example.com", str(said.id), str(room.id))
        assert {one.external_id for one in heard.edits} == {first.external_id}
        assert first.external_id.startswith(f"e{said.id}:")
        assert len(heard.texts) == 2


async def test_deletions_are_told_one_by_one() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Guild", ada, [ada]).text("general")
        async with receiving(server) as (_, heard):
            one, two, three = (room.say(ada, text) for text in ("one", "two", "three"))
            room.delete(one)
            room.delete(two, three)
            await server.until(lambda: len(heard.deletions) == 3)
            assert {(gone.message, gone.external_id) for gone in heard.deletions} == {
                (str(said.id), f"d{said.id}") for said in (one, two, three)
            }
            assert {gone.chat for gone in heard.deletions} == {str(room.id)}


async def test_reactions_tell_what_somebody_now_shows() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        place = server.guild("Guild", ada, [ada])
        crew = place.role("crew")
        place.give(crew, ada)
        room = place.text("general")
        async with receiving(server) as (_, heard):
            said = room.say(ada, "look")
            room.react(ada, said, "👍")
            room.react(ada, said, "🎉")
            room.unreact(ada, said, "👍")
            room.unreact(ada, said, "🎉")
            await server.until(lambda: len(heard.reactions) == 4)
            assert [one.emojis for one in heard.reactions] == [("👍",), ("👍", "🎉"), ("🎉",), ()]
            assert {one.sender.id for one in heard.reactions} == {str(ada.id)}
            assert {one.sender.roles for one in heard.reactions} == {(str(crew.id),)}
            assert len({one.external_id for one in heard.reactions}) == 4
            assert isinstance(heard.events[-1], Reaction)
            assert heard.events[-1].message == str(said.id)


async def test_the_roles_of_somebody_who_takes_a_reaction_back_are_asked_for() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        place = server.guild("Guild", ada, [ada])
        crew = place.role("crew")
        place.give(crew, ada)
        room = place.text("general")
        said = room.say(ada, "look")
        room.react(ada, said, "👍")
        async with receiving(server) as (_, heard):
            room.unreact(ada, said, "👍")
            await server.until(lambda: heard.reactions)
            assert heard.reactions[0].emojis == ()
            assert heard.reactions[0].sender.roles == (str(crew.id),)


def _plain(server: Server, user: object, channel: int, guild: int) -> dict[str, object]:
    return {
        "id": str(server.world.ids.next()), "channel_id": str(channel), "guild_id": str(guild), "type": 0,
        "content": "awake", "timestamp": "2026-01-01T00:00:00+00:00",
        "author": {"id": str(user.id), "username": "ada"}, "member": {"roles": []},  # type: ignore[attr-defined]
    }  # fmt: skip
