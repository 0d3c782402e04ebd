"""Sending, against a server that speaks Discord's REST API over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from msgspec import structs

from bubbot.errors import DeliveryFailed
from bubbot.ports.channel import MessagePart, Outbound, Receipt
from channels.discord import text as discord_text
from tests.fakes.discord_sending import CREATE, FAST, Outgoing, outgoing, own
from tests.fakes.discordapi.asked import Sizes
from tests.fakes.discordapi.errors import Refuse, TooMany
from tests.fakes.discordapi.limits import Limits
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server
from tests.fakes.platform.faults import Cut, Drop, Html, Wedge


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None, sizes=Sizes(upload=100_000)) as made:
        yield made


@pytest.fixture
def room(server: Server) -> Room:
    return server.guild("Home", server.user("Ann")).text("general")


@pytest.fixture
async def out(server: Server) -> AsyncIterator[Outgoing]:
    async with outgoing(server) as made:
        yield made


async def held_call(out: Outgoing, room: Room) -> asyncio.Task[None]:
    """Return a call that a limit holds: calls go through until the answer with the limit has been read."""
    for _ in range(100):
        typing = asyncio.create_task(out.sending.typing(str(room.id), ""))
        if await asyncio.wait({typing}, timeout=0.2) == (set(), {typing}):
            return typing
    raise AssertionError("no limit holds a call")


class TestSending:
    async def test_a_message_arrives_as_it_is_and_calls_nobody(self, server: Server, room: Room, out: Outgoing) -> None:
        ann = server.world.users[max(server.world.users)]
        asked = room.say(ann, "hi")
        text = f"@everyone <@{ann.id}> **hello**  `x`"
        receipt = await out.sending.send(MessagePart(str(room.id), text, reply_to=str(asked.id)))
        sent = room.messages[-1]
        assert receipt == Receipt(str(sent.id))
        assert (sent.content, sent.mentions, sent.mention_everyone) == (text, [], False)
        assert sent.reference == (room.channel, asked.id)
        assert sent.flags == 1 << 2

    async def test_links_are_unfolded_where_that_is_wanted(self, server: Server, room: Room) -> None:
        async with outgoing(server, link_previews=True) as out:
            await out.sending.send(MessagePart(str(room.id), "https://x.example"))
        assert room.messages[-1].flags == 0

    async def test_a_part_may_go_without_link_previews_where_others_have_them(self, server: Server, room: Room) -> None:
        async with outgoing(server, link_previews=True) as out:
            sent = await out.sending.send(MessagePart(str(room.id), "https://x.example", has_no_link_previews=True))
            assert room.messages[-1].flags == 1 << 2
            await out.sending.edit(sent.external_id, MessagePart(str(room.id), "https://y.example"))
            assert room.messages[-1].flags == 0
            part = MessagePart(str(room.id), "https://z.example", has_no_link_previews=True)
            await out.sending.edit(sent.external_id, part)
            assert room.messages[-1].flags == 1 << 2

    async def test_a_part_with_a_key_is_one_message_however_often_it_is_sent(
        self, server: Server, room: Room, out: Outgoing
    ) -> None:
        part = MessagePart(str(room.id), "once", key="k" * 25)
        first = await out.sending.send(part)
        assert await out.sending.send(part) == first
        async with outgoing(server) as again:
            assert await again.sending.send(part) == first
        assert own(server, room) == ["once"]

    async def test_a_message_that_was_deleted_is_not_sent_again(
        self, server: Server, room: Room, out: Outgoing
    ) -> None:
        server.fail(CREATE, Refuse(404, "Unknown Message", 10008))
        assert await out.sending.send(MessagePart(str(room.id), "once", key="k")) == Receipt()

    @pytest.mark.parametrize("fault", [Drop("after"), Cut(), Html(503, effect="after")])
    async def test_an_answer_that_is_lost_costs_no_second_message(
        self, server: Server, room: Room, out: Outgoing, fault: Drop | Cut | Html
    ) -> None:
        server.fail(CREATE, fault)
        part = MessagePart(str(room.id), "once", key="key-1")
        with suppress(DeliveryFailed):
            await out.sending.send(part)
        receipt = await out.sending.send(part)
        assert receipt.external_id == str(room.messages[-1].id)
        assert own(server, room) == ["once"]

    async def test_what_the_library_repeats_by_itself_is_one_message_without_a_key(
        self, server: Server, room: Room, out: Outgoing
    ) -> None:
        server.fail(CREATE, Refuse(500, effect="after"))
        await out.sending.send(MessagePart(str(room.id), "once"))
        assert own(server, room) == ["once"]
        assert len(server.calls(CREATE)) == 2

    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            (Drop(), "the connection failed"),
            (Html(503), "it has an internal error (503)"),
            (Html(403), "answered with a page (403)"),
            (Html(404), "answered with a page (404)"),
            (Html(200), "its answer is a page and not JSON"),
            (Refuse(503), "it has an internal error (503)"),
            (Refuse(404, "404: Not Found"), "(404): 404: Not Found"),
            (Refuse(401, "401: Unauthorized"), "(401): 401: Unauthorized"),
        ],
    )
    async def test_what_may_pass_is_tried_again_later(
        self, server: Server, room: Room, out: Outgoing, fault: Drop | Html | Refuse, said: str
    ) -> None:
        server.fail(CREATE, fault)
        with pytest.raises(DeliveryFailed) as caught:
            await out.sending.send(MessagePart(str(room.id), "hello", key="k"))
        assert said in str(caught.value)
        assert not caught.value.permanent
        assert caught.value.maybe == (not isinstance(fault, Refuse) or fault.status >= 500)

    async def test_a_wedged_connection_is_given_up(self, server: Server, room: Room) -> None:
        server.fail(CREATE, Wedge())
        async with outgoing(server, structs.replace(FAST, call_timeout=0.2)) as out:
            with pytest.raises(DeliveryFailed, match=r"within 0.2 s") as caught:
                await out.sending.send(MessagePart(str(room.id), "hello"))
            assert not caught.value.permanent
            await out.sending.send(MessagePart(str(room.id), "hello again"))
        assert own(server, room) == ["hello again"]

    async def test_a_short_limit_is_waited_for(self, server: Server, room: Room, out: Outgoing) -> None:
        server.fail(CREATE, TooMany(0.1))
        await out.sending.send(MessagePart(str(room.id), "hello"))
        assert own(server, room) == ["hello"]

    @pytest.mark.parametrize("scope", ["user", "global"])
    async def test_a_long_limit_comes_back_at_once(self, server: Server, room: Room, out: Outgoing, scope: str) -> None:
        server.fail(CREATE, TooMany(45.5, scope="global" if scope == "global" else "user"))
        with pytest.raises(DeliveryFailed) as caught:
            await out.sending.send(MessagePart(str(room.id), "hello"))
        assert caught.value.retry_after == 45.5
        assert not caught.value.permanent

    async def test_a_call_that_is_given_up_in_a_global_limit_does_not_hold_the_others(
        self, server: Server, room: Room
    ) -> None:
        server.fail(CREATE, TooMany(5.0, scope="global"))
        async with outgoing(server, structs.replace(FAST, call_timeout=0.1, max_rate_limit_wait=10.0)) as out:
            with pytest.raises(DeliveryFailed):
                await out.sending.send(MessagePart(str(room.id), "hello"))
            await out.sending.typing(str(room.id), "")

    async def test_a_global_limit_holds_every_other_call(self, server: Server, room: Room) -> None:
        server.fail(CREATE, TooMany(5.0, scope="global"))
        async with outgoing(server, structs.replace(FAST, call_timeout=30, max_rate_limit_wait=10.0)) as out:
            limited = asyncio.create_task(out.sending.send(MessagePart(str(room.id), "hello")))
            await server.until(lambda: [call.status for call in server.calls(CREATE)] == [429])
            typing = await held_call(out, room)
            limited.cancel()
            await typing

    async def test_of_two_global_limits_the_last_to_end_lets_the_others_go_on(self, server: Server, room: Room) -> None:
        server.fail(CREATE, TooMany(5.0, scope="global"), times=2)
        other = server.guild("Work", server.user("Bo")).text("general")
        async with outgoing(server, structs.replace(FAST, call_timeout=30, max_rate_limit_wait=10.0)) as out:
            await out.sending.typing(str(room.id), "")
            first, last = (
                asyncio.create_task(out.sending.send(MessagePart(str(place.id), "hello"))) for place in (room, other)
            )
            await server.until(lambda: [call.status for call in server.calls(CREATE)] == [429, 429])
            typing = await held_call(out, room)
            first.cancel()
            assert await asyncio.wait({typing}, timeout=0.2) == (set(), {typing})
            last.cancel()
            await typing

    @pytest.mark.parametrize("scope", ["user", "global"])
    @pytest.mark.parametrize("seconds", [float("nan"), float("inf")])
    async def test_a_limit_whose_length_cannot_be_true_stops_no_later_call(
        self, server: Server, room: Room, out: Outgoing, seconds: float, scope: str
    ) -> None:
        server.fail(CREATE, TooMany(seconds, scope="global" if scope == "global" else "user"))
        with pytest.raises(DeliveryFailed) as caught:
            await out.sending.send(MessagePart(str(room.id), "hello"))
        assert caught.value.retry_after == 1.0
        await out.sending.send(MessagePart(str(room.id), "hello again"))
        assert own(server, room) == ["hello again"]

    async def test_a_ban_of_the_address_is_not_hammered(self, server: Server, room: Room, out: Outgoing) -> None:
        server.fail("*", TooMany(30, banned=True))
        for _ in range(3):
            with pytest.raises(DeliveryFailed) as caught:
                await out.sending.send(MessagePart(str(room.id), "hello"))
            assert 25 < (caught.value.retry_after or 0) <= 31
        assert len(server.log) == 1

    async def test_a_token_that_was_refused_is_not_hammered(self, server: Server, room: Room, out: Outgoing) -> None:
        server.fail(CREATE, Refuse(401, "401: Unauthorized"))
        for _ in range(3):
            with pytest.raises(DeliveryFailed, match="401"):
                await out.sending.send(MessagePart(str(room.id), "hello"))
        assert len(server.log) == 1
        await asyncio.sleep(FAST.token_refused_pause)
        await out.sending.send(MessagePart(str(room.id), "hello"))

    async def test_many_messages_at_once_keep_to_the_limits(self) -> None:
        async with Server(limits=Limits(messages=(5, 0.5))) as server:
            room = server.guild("Home", server.user("Ann")).text("general")
            async with outgoing(server, structs.replace(FAST, call_timeout=9, max_rate_limit_wait=6)) as out:
                parts = [MessagePart(str(room.id), f"{number}", key=f"k{number}") for number in range(7)]
                await asyncio.gather(*(out.sending.send(part) for part in parts))
            assert sorted(own(server, room)) == [f"{number}" for number in range(7)]
            assert [call.status for call in server.calls(CREATE)].count(429) <= 1


class TestRefusals:
    async def test_too_long_a_text_is_refused_for_good(self, room: Room, out: Outgoing) -> None:
        with pytest.raises(DeliveryFailed, match="Must be 2000 or fewer") as caught:
            await out.sending.send(MessagePart(str(room.id), "x" * 2001))
        assert caught.value.permanent

    async def test_every_piece_of_a_long_answer_is_taken(self, server: Server, room: Room, out: Outgoing) -> None:
        text = "# Title\n\n" + "A sentence of *some* words. " * 300 + "\n\n```py\n" + "print('😀')\n" * 70 + "```\nEnd."
        parts = discord_text.split_answer(Outbound("discord", str(room.id), text))
        assert len(parts) > 4
        for part in parts:
            await out.sending.send(part)
        assert own(server, room) == [part.text for part in parts]

    async def test_nothing_to_see_needs_no_message(self, server: Server, room: Room, out: Outgoing) -> None:
        for text in ("", " \n", "\u200b"):
            assert await out.sending.send(MessagePart(str(room.id), text)) == Receipt()
        server.fail(CREATE, Refuse(400, "Cannot send an empty message", 50006))
        assert await out.sending.send(MessagePart(str(room.id), "\u3164")) == Receipt()
        assert own(server, room) == []

    async def test_what_cannot_be_mended_by_waiting_is_refused_for_good(
        self, server: Server, room: Room, out: Outgoing
    ) -> None:
        ann = server.user("Berta")
        hidden, mute, gone = (server.guild(name, ann).text("x") for name in ("A", "B", "C"))
        hidden.deny(server.world.guilds[hidden.channel.guild.id].roles[hidden.channel.guild.id], "VIEW_CHANNEL")  # type: ignore[union-attr]
        mute.deny(server.world.guilds[mute.channel.guild.id].roles[mute.channel.guild.id], "SEND_MESSAGES")  # type: ignore[union-attr]
        gone.remove()
        direct = server.dm(ann)
        direct.block()
        for place, said in (
            (hidden, "403/50001): the bot may not see the channel"),
            (mute, "403/50013): the bot lacks a permission in the channel"),
            (gone, "404/10003): the channel or thread is gone"),
            (direct, "403/50007): this person takes no direct messages from the bot"),
        ):
            with pytest.raises(DeliveryFailed) as caught:
                await out.sending.send(MessagePart(str(place.id), "hello"))
            assert said in str(caught.value)
            assert caught.value.permanent
            assert caught.value.gone == (place is not mute)
        for chat in ("", "general", "1/../2"):
            with pytest.raises(DeliveryFailed, match="is not a Discord channel"):
                await out.sending.send(MessagePart(chat, "hello"))

    async def test_a_reply_that_is_refused_costs_only_the_reply(
        self, server: Server, room: Room, out: Outgoing
    ) -> None:
        ann = server.user("Berta")
        asked = room.say(server.world.guilds[room.channel.guild.id].owner, "hi")  # type: ignore[union-attr]
        room.delete(asked)
        await out.sending.send(MessagePart(str(room.id), "to nothing", reply_to=str(asked.id)))
        place = server.guild("Other", ann)
        other = place.text("x")
        asked = other.say(ann, "hi")
        other.deny(place.everyone, "READ_MESSAGE_HISTORY")
        await out.sending.send(MessagePart(str(other.id), "without", reply_to=str(asked.id), key="k"))
        assert own(server, room) == ["to nothing"]
        assert own(server, other) == ["without"]

    async def test_an_archived_thread_is_opened_and_a_locked_one_is_left(
        self, server: Server, room: Room, out: Outgoing
    ) -> None:
        guild = room.channel.guild
        assert guild is not None
        thread = room.thread("talk", by=guild.owner)
        sent = await out.sending.send(MessagePart(str(room.id), "one", str(thread.id)))
        thread.archive()
        await out.sending.send(MessagePart(str(room.id), "two", str(thread.id)))
        thread.archive()
        await out.sending.edit(sent.external_id, MessagePart(str(room.id), "one!", str(thread.id)))
        assert own(server, thread) == ["one!", "two"]
        thread.archive(locked=True)
        with pytest.raises(DeliveryFailed, match=r"archived and locked") as caught:
            await out.sending.send(MessagePart(str(room.id), "three", str(thread.id)))
        assert caught.value.permanent
        thread.remove()
        with pytest.raises(DeliveryFailed, match="10003") as caught:
            await out.sending.send(MessagePart(str(room.id), "four", str(thread.id)))
        assert caught.value.permanent
