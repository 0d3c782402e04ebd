"""Answers to slash commands, against a server that gives them three seconds and their tokens a life."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec import structs

from bubbot.errors import DeliveryFailed
from bubbot.ports.channel import CommandInfo, MessagePart, OutboundFile
from channels.discord.slash_commands import build_commands, read_interaction
from tests.fakes.discord_sending import FAST, STORED, Outgoing, outgoing
from tests.fakes.discordapi.desk import FAILED, Interaction
from tests.fakes.discordapi.errors import Refuse
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server
from tests.fakes.discordapi.world import User
from tests.fakes.platform.faults import Cut, Drop, Html

CALLBACK = "POST /interactions/{}/{}/callback"
ORIGINAL = "PATCH /webhooks/{}/{}/messages/{}"
CREATE = "POST /channels/{}/messages"
EDIT = "PATCH /channels/{}/messages/{}"
INFOS = [
    CommandInfo("note", "Adds a note.", ("text",), in_menu=True),
    CommandInfo("status", "How I am.", in_menu=True, is_shared=False),
]


@dataclass(slots=True)
class Scene:
    """Somebody in a channel, and our half of it."""

    server: Server
    room: Room
    ann: User
    out: Outgoing

    async def used(self, text: str = "x", *, at_once: bool = True) -> Interaction:
        """Somebody uses a command; `at_once`: it is not shown yet that an answer is worked on."""
        one = self.server.slash(self.room, self.ann, "note", {"text": text})
        if at_once:
            self.out.interactions.remember(one.payload)
        else:
            await self.out.interactions.defer(one.payload)
        return one

    def part(self, one: Interaction, text: str = "done", **more: Any) -> MessagePart:
        return MessagePart(str(self.room.id), text, reply_to=str(one.id), **more)

    @property
    def said(self) -> list[str]:
        return self.room.texts(by=self.server.bot.user)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with Server(limits=None) as server, outgoing(server, list_commands=lambda: INFOS) as out:
        ann = server.user("Ann")
        room = server.guild("Home", ann).text("general")
        await out.api.call("PUT", f"/applications/{server.bot.application_id}/commands", json=build_commands(INFOS))
        yield Scene(server, room, ann, out)


async def test_an_interaction_that_is_over_is_not_asked_for_again(scene: Scene) -> None:
    scene.server.fail(CALLBACK, Refuse(404, "Unknown interaction", 10062))
    one = await scene.used(at_once=False)
    await scene.out.sending.send(scene.part(one, key="k"))
    assert (scene.said, len(scene.server.calls(CALLBACK))) == (["done"], 1)


async def test_an_answer_that_is_there_at_once_is_the_first_answer(scene: Scene) -> None:
    one = await scene.used()
    waiting = asyncio.create_task(scene.out.interactions.defer(one.payload))
    receipt = await scene.out.sending.send(scene.part(one, key="k"))
    await waiting
    assert (one.state, one.text, scene.said) == ("answered", "done", ["done"])
    assert receipt.external_id == str(scene.room.messages[-1].id)
    assert [call.route for call in scene.server.log[1:]] == [CALLBACK]
    assert await scene.out.sending.send(scene.part(one, key="k")) == receipt
    assert scene.said == ["done"]


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
async def test_only_its_user_sees_the_answer_to_a_command_that_groups_are_not_offered(
    scene: Scene, is_late: bool
) -> None:
    one = scene.server.slash(scene.room, scene.ann, "status")
    if is_late:
        await scene.out.interactions.defer(one.payload)
    else:
        scene.out.interactions.remember(one.payload)
    assert scene.out.interactions.is_private(str(one.id))
    receipts = [await scene.out.sending.send(scene.part(one, text, key=text)) for text in ("first", "second")]
    seen = [message for message in scene.room.messages if message.author.id == scene.server.bot.user.id]
    assert [(message.content, message.ephemeral) for message in seen] == [("first", True), ("second", True)]
    assert await scene.out.sending.send(scene.part(one, "second", key="second")) == receipts[1]
    await scene.out.sending.edit(receipts[0].external_id, scene.part(one, "changed"))
    assert scene.said == ["changed", "second"]


async def test_in_a_direct_chat_nobody_else_reads_along(scene: Scene) -> None:
    one = scene.server.slash(scene.server.dm(scene.ann), scene.ann, "status")
    scene.out.interactions.remember(one.payload)
    assert not scene.out.interactions.is_private(str(one.id))


async def test_an_answer_that_takes_long_replaces_the_notice(scene: Scene) -> None:
    one = await scene.used(at_once=False)
    assert one.deferred
    receipt = await scene.out.sending.send(scene.part(one))
    assert (one.state, one.text, scene.said) == ("answered", "done", ["done"])
    assert receipt.external_id == str(scene.room.messages[-1].id)


async def test_nobody_is_called_and_files_come_along(scene: Scene) -> None:
    one = await scene.used()
    await scene.out.sending.send(scene.part(one, "@everyone", key="a"))
    message = scene.room.messages[-1]
    assert (message.mention_everyone, message.flags & 1 << 2) == (False, 1 << 2)
    two = await scene.used()
    await scene.out.sending.send(scene.part(two, "", file=OutboundFile("a.txt", text="hello"), key="b"))
    assert [file.content for file in scene.room.messages[-1].files] == [b"hello"]
    assert two.state == "answered"


async def test_further_parts_are_messages_of_the_channel(scene: Scene) -> None:
    one = await scene.used()
    for number in range(3):
        await scene.out.sending.send(scene.part(one, f"{number}", key=f"k{number}"))
    await scene.out.sending.send(MessagePart(str(scene.room.id), "3", key="k3"))
    assert scene.said == ["0", "1", "2", "3"]
    assert len(scene.server.calls(CREATE)) == 3


async def test_where_the_bot_may_only_answer_further_parts_follow_the_answer(scene: Scene) -> None:
    guild = scene.room.channel.guild
    assert guild is not None
    scene.room.deny(guild.roles[guild.id], "SEND_MESSAGES")
    with pytest.raises(DeliveryFailed, match="50013"):
        await scene.out.sending.send(MessagePart(str(scene.room.id), "nobody asked"))
    one = await scene.used()
    parts = [scene.part(one, "0", key="k0"), MessagePart(str(scene.room.id), "1", key="k1")]
    for part in (*parts, *parts):
        await scene.out.sending.send(part)
    assert scene.said == ["0", "1"]
    assert len(one.followups) == 1


async def test_a_live_answer_is_changed_through_its_token_and_later_in_the_channel(scene: Scene) -> None:
    one = await scene.used()
    live = await scene.out.sending.send(scene.part(one, "…"))
    await scene.out.sending.edit(live.external_id, scene.part(one, "half"))
    assert len(scene.server.calls(ORIGINAL)) == 1
    scene.server.world.clock.advance(901)
    await scene.out.sending.edit(live.external_id, scene.part(one, "whole"))
    assert (one.text, scene.said) == ("whole", ["whole"])
    scene.room.delete(scene.room.messages[-1])
    with pytest.raises(DeliveryFailed) as caught:
        await scene.out.sending.edit(live.external_id, scene.part(one, "gone"))
    assert caught.value.permanent


@pytest.mark.parametrize("deferred", [True, False])
async def test_after_the_token_ran_out_the_answer_is_an_ordinary_message(scene: Scene, deferred: bool) -> None:
    one = await scene.used(at_once=not deferred)
    scene.server.world.clock.advance(901)
    receipt = await scene.out.sending.send(scene.part(one, key="k"))
    assert receipt.external_id == str(scene.room.messages[-1].id)
    assert scene.said[-1:] == ["done"]
    assert len(scene.server.calls(CREATE)) == 1


async def test_our_own_clock_ends_a_token_without_asking() -> None:
    async with Server(limits=None) as server, outgoing(server, structs.replace(FAST, interaction_lifetime=0.0)) as out:
        ann = server.user("Ann")
        room = server.guild("Home", ann).text("general")
        server.bot.commands = [{**one, **STORED} for one in build_commands(INFOS)]
        scene = Scene(server, room, ann, out)
        one = await scene.used()
        await out.interactions.defer(one.payload)
        await out.sending.send(scene.part(one))
        assert [call.route for call in server.log] == [CREATE]


async def test_the_end_of_one_token_is_not_the_end_of_another() -> None:
    seconds = 0.0
    timing = structs.replace(FAST, monotonic=lambda: seconds)
    async with Server(limits=None) as server, outgoing(server, timing) as out:
        ann = server.user("Ann")
        room = server.guild("Home", ann).text("general")
        server.bot.commands = [{**one, **STORED} for one in build_commands(INFOS)]
        scene = Scene(server, room, ann, out)
        first = await out.sending.send(scene.part(await scene.used(), "…"))
        seconds = 600.0
        second = await out.sending.send(scene.part(await scene.used(), "…"))
        seconds = 1000.0
        for answer in (first, second):
            await out.sending.edit(answer.external_id, MessagePart(str(room.id), "whole"))
        assert scene.said == ["whole", "whole"]
        assert [call.route for call in server.log[-2:]] == [EDIT, ORIGINAL]


async def test_another_process_answers_in_the_channel(scene: Scene) -> None:
    one = await scene.used(at_once=False)
    async with outgoing(scene.server) as again:
        await again.sending.send(scene.part(one))
        await again.sending.edit(str(scene.room.messages[-1].id), scene.part(one, "changed"))
    assert scene.said[-1] == "changed"
    assert len(scene.server.calls(CREATE)) == 1


async def test_an_interaction_that_came_too_late_is_answered_in_the_channel(scene: Scene) -> None:
    one = await scene.used()
    scene.server.world.clock.advance(5)
    await scene.out.interactions.defer(one.payload)
    await scene.out.sending.send(scene.part(one))
    assert scene.said == ["done"]
    assert len(scene.server.calls(CREATE)) == 1


@pytest.mark.parametrize("fault", [Drop("after"), Cut(), Html(503, effect="after")])
@pytest.mark.parametrize("deferred", [True, False])
async def test_an_answer_whose_outcome_nobody_heard_is_not_given_twice(
    scene: Scene, fault: Drop | Cut | Html, deferred: bool
) -> None:
    one = await scene.used(at_once=not deferred)
    scene.server.fail(ORIGINAL if deferred else CALLBACK, fault)
    with pytest.raises(DeliveryFailed) as caught:
        await scene.out.sending.send(scene.part(one, key="k"))
    assert not caught.value.permanent
    receipt = await scene.out.sending.send(scene.part(one, key="k"))
    assert receipt.external_id == str(scene.room.messages[-1].id)
    assert (one.text, scene.said) == ("done", ["done"])


async def test_a_notice_whose_outcome_nobody_heard_is_still_answered(scene: Scene) -> None:
    scene.server.fail(CALLBACK, Drop("after"))
    one = await scene.used(at_once=False)
    assert one.deferred
    await scene.out.sending.send(scene.part(one, key="k"))
    assert (one.text, scene.said) == ("done", ["done"])
    scene.server.fail(CALLBACK, Drop())
    two = await scene.used(at_once=False)
    await scene.out.sending.send(scene.part(two, key="l"))
    assert (two.state, two.text) == ("answered", "done")


async def test_a_notice_that_gets_no_answer_is_taken_back(scene: Scene) -> None:
    later, first = await scene.used(at_once=False), await scene.used()
    for one in (later, first):
        await scene.out.sending.dismiss(str(scene.room.id), "", str(one.id))
    assert scene.said == []
    assert FAILED not in later.saw + first.saw
    assert (later.state, first.state) == ("answered", "answered")
    await scene.out.sending.dismiss(str(scene.room.id), "", "5")
    answered = await scene.used()
    await scene.out.sending.send(scene.part(answered))
    await scene.out.sending.dismiss(str(scene.room.id), "", str(answered.id))
    assert scene.said == ["done"]


async def test_a_refusal_of_the_answer_itself_is_told(scene: Scene) -> None:
    one = await scene.used()
    with pytest.raises(DeliveryFailed, match="Must be 2000") as caught:
        await scene.out.sending.send(scene.part(one, "x" * 2001))
    assert caught.value.permanent
    scene.server.fail(CALLBACK, Refuse(401, "Invalid Webhook Token", 50027))
    await scene.out.sending.send(scene.part(one))
    assert scene.said == ["done"]  # and the bot's own token is not taken for refused


async def test_in_a_thread_and_in_a_direct_chat(scene: Scene) -> None:
    thread = scene.room.thread("talk", by=scene.ann)
    for room in (thread, scene.server.dm(scene.ann)):
        one = scene.server.slash(room, scene.ann, "note", {"text": 'say "hi"\nthere'})
        scene.out.interactions.remember(one.payload)
        said = read_interaction("discord", str(scene.server.bot.id), one.payload)
        assert said is not None
        assert said.text == ',note text="say ""hi""\nthere"'
        assert room.id == int(said.thread or said.chat)
        assert said.direct == (room is not thread)
        await scene.out.sending.send(MessagePart(said.chat, "done", said.thread, said.message))
        assert (one.text, room.texts(by=scene.server.bot.user)) == ("done", ["done"])


async def test_an_answer_in_a_thread_that_was_archived_since_is_changed(scene: Scene) -> None:
    thread = scene.room.thread("talk", by=scene.ann)
    one = scene.server.slash(thread, scene.ann, "note", {"text": "x"})
    scene.out.interactions.remember(one.payload)
    live = await scene.out.sending.send(MessagePart(str(scene.room.id), "half", str(thread.id), str(one.id)))
    thread.archive()
    scene.server.fail(ORIGINAL, Refuse(400, "Thread is archived", 50083))
    await scene.out.sending.edit(live.external_id, MessagePart(str(scene.room.id), "whole", str(thread.id)))
    assert thread.texts(by=scene.server.bot.user) == ["whole"]


async def test_the_notice_counts_from_when_the_interaction_came() -> None:
    ahead = 0.0
    timing = structs.replace(FAST, defer_after=600.0, monotonic=lambda: time.monotonic() + ahead)
    async with Server(limits=None) as server, outgoing(server, timing) as out:
        ann = server.user("Ann")
        room = server.guild("Home", ann).text("general")
        server.bot.commands = [{**one, **STORED} for one in build_commands(INFOS)]
        one = await Scene(server, room, ann, out).used()
        ahead = 600.0
        async with asyncio.timeout(30):  # counted from now it would take 600
            await out.interactions.defer(one.payload)
        assert one.deferred


async def test_odd_interactions_are_left_alone(scene: Scene) -> None:
    odd: list[Any] = [None, [], {}, {"id": "1"}, {"id": "1", "token": "a/b", "application_id": "1", "channel_id": "1"}]
    for raw in odd:
        await scene.out.interactions.defer(raw)
    assert len(scene.server.log) == 1


async def test_only_so_many_are_remembered(scene: Scene) -> None:
    first = await scene.used()
    for number in range(1_001):
        scene.out.interactions.remember({"id": str(number + 1), "token": "t", "application_id": "1", "channel_id": "1"})
    await scene.out.sending.send(scene.part(first))
    assert len(scene.server.calls(CREATE)) == 1
