"""People and groups that an owner lets in with a button: written, asked, pressed, told, answered, with kills in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bubbot.texts import Texts
from tests.e2e import on_discord
from tests.e2e.daemon import configured, running, started
from tests.e2e.kill_harness import KILLED, damage, entries_of
from tests.e2e.kill_talk import CHILD
from tests.e2e.test_buttons import keys, said
from tests.e2e.test_telegram import told_in_shell
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.botapi.world import User
from tests.fakes.discordapi.server import Server as DiscordServer
from tests.fakes.platform.faults import Html

SAY = Texts(command_prefix="/").say
ACCESS = "bubbot/access"


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(limits=None, conflict_pause=0.1, longest_poll=0.3) as found:
        yield found


@pytest.fixture
def ada(server: TelegramServer) -> User:
    return server.user("Ada")


@pytest.fixture
def bob(server: TelegramServer) -> User:
    return server.user("Bob")


def texts(room: Gathering) -> list[str]:
    return [str(message["text"]) for message in said(room)]


async def greeted(server: TelegramServer, ada: User) -> Gathering:
    """The chat of an owner, who has written once."""
    room = server.private(ada)
    room.say("hello")
    await server.until(lambda: len(said(room)) == 1, 60)
    return room


async def asked(server: TelegramServer, room: Gathering, is_card: Callable[[str], bool]) -> dict[str, Any]:
    """The newest message with buttons, once it is there."""

    def cards() -> list[dict[str, Any]]:
        return [message for message in said(room) if keys(message) and is_card(message["text"])]

    await server.until(lambda: bool(cards()), 60)
    return cards()[-1]


async def named(home: Path, name: str) -> list[dict[str, Any]]:
    return [dict(one.payload["data"]) for one in await entries_of(home, ACCESS) if one.name == name]


class TestPeople:
    async def test_a_stranger_is_let_in_by_a_press_told_and_answered(
        self, server: TelegramServer, ada: User, bob: User, home: Path
    ) -> None:
        configured(home, server, owners=[ada.id], debounce=0)
        async with running(home) as daemon:
            owner, room = await greeted(server, ada), server.private(bob)
            room.say("is there cake?")
            card = await asked(server, owner, lambda text: text.startswith(f"Bob ({bob.id}) wants to talk to me"))
            assert list(keys(card)) == ["Let in", "As admin", "No"]
            await server.until(lambda: len(said(room)) == 1, 60)
            assert "I told my owner" in texts(room)[0]
            room.say("hello?")  # reminded, and no second card
            await server.until(lambda: len(said(room)) == 2, 60)
            owner.press(card["message_id"], keys(card)["Let in"])
            await server.until(lambda: len(said(room)) == 4 and len(said(owner)) == 3, 60)
            assert texts(room)[2:] == [SAY("let_in"), "You said: is there cake?"]
            assert owner.message(card["message_id"])["text"].endswith("✓ Let in · Ada")
            room.say("thank you")
            await server.until(lambda: len(said(room)) == 5, 60)
            await daemon.quiet(server)
        assert [(one["id"], one["role"], one["name"]) for one in await named(home, "access/granted")] == [
            (str(bob.id), "member", "Bob")
        ]

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "point",
        [
            "append-inbox:after#2",  # the press is kept, nothing is granted yet
            "append-inbox:before#3",  # granted, and nobody is told
            "append-inbox:after#3",  # told and accepted, and nothing is sent
            pytest.param("receive:before#1", marks=pytest.mark.proof),
            pytest.param("receive:after#1", marks=pytest.mark.proof),
            pytest.param("send:before#1", marks=pytest.mark.proof),
            pytest.param("merge:before#1", marks=pytest.mark.proof),
            pytest.param("merge:after#1", marks=pytest.mark.proof),
        ],
    )
    async def test_a_kill_after_the_press_neither_loses_nor_repeats_anything(
        self, server: TelegramServer, ada: User, bob: User, home: Path, point: str
    ) -> None:
        configured(home, server, owners=[ada.id], debounce=0)
        room = server.private(bob)
        async with running(home):
            owner = await greeted(server, ada)
            room.say("is there cake?")
            card = await asked(server, owner, lambda text: "wants to talk" in text)
            await server.until(lambda: len(said(room)) == 1, 60)
        owner.press(card["message_id"], keys(card)["Let in"])
        daemon = await started(home, target=CHILD, arguments=[str(home), point, ""])
        assert await daemon.ended() == KILLED
        async with running(home) as daemon:
            await server.until(lambda: "You said: is there cake?" in texts(room) and len(said(owner)) >= 3, 60)
            await daemon.quiet(server)
        mark = f"\n\n{SAY('sent_again')}"  # of what was sent just before the kill, and has no receipt
        first = [text for text in texts(room)[1:] if not text.endswith(mark)]
        assert {text.removesuffix(mark) for text in texts(room)[1:]} == {SAY("let_in"), "You said: is there cake?"}
        assert len(first) == len(set(first))
        assert len(await named(home, "access/granted")) == 1
        assert await damage(home) == []

    @pytest.mark.parametrize("way", ["shell", pytest.param("configuration", marks=pytest.mark.proof)])
    async def test_who_is_let_in_while_no_bot_runs_is_told_and_answered_at_the_start_also_if_a_send_fails(
        self, server: TelegramServer, ada: User, bob: User, home: Path, way: str
    ) -> None:
        configured(home, server, owners=[ada.id], debounce=0)
        room = server.private(bob)
        async with running(home) as daemon:
            await greeted(server, ada)
            room.say("is there cake?")
            await server.until(lambda: len(said(room)) == 1, 60)
            await daemon.quiet(server)
        if way == "shell":
            done = await told_in_shell(home, "access", "grant", "telegram", str(bob.id), "member")
            assert done.returncode == 0, done.stderr
        else:
            configured(home, server, owners=[ada.id], members=[bob.id], debounce=0)
        for _ in range(2):  # and the start after that says nothing more
            server.fail("sendMessage", Html(502))
            async with running(home) as daemon:
                await server.until(lambda: len(said(room)) == 3, 60)
                await daemon.quiet(server)
            server.faults.clear()
        assert texts(room)[1:] == [SAY("let_in"), "You said: is there cake?"]

    async def test_no_leaves_a_stranger_out_and_brings_no_further_card(
        self, server: TelegramServer, ada: User, bob: User, home: Path
    ) -> None:
        configured(home, server, owners=[ada.id], members=[bob.id], debounce=0)
        eve = server.user("Eve")
        async with running(home) as daemon:
            owner, room = await greeted(server, ada), server.private(eve)
            room.say("let me in")
            card = await asked(server, owner, lambda text: "wants to talk" in text)
            owner.press(card["message_id"], keys(card)["No"])
            await server.until(lambda: len(said(owner)) == 3, 60)
            room.say("please")
            await daemon.quiet(server)
            assert owner.message(card["message_id"])["text"].endswith("✓ No · Ada")
            assert (len(said(room)), len(said(owner))) == (1, 3)
        assert await named(home, "access/granted") == []
        assert len(await named(home, "access/declined")) == 1


class TestGroups:
    async def test_a_group_is_opened_by_a_press_and_stays_open(
        self, server: TelegramServer, ada: User, bob: User, home: Path
    ) -> None:
        configured(home, server, owners=[ada.id], debounce=0)
        call = f"@{server.bot.user.username} is there cake?"
        async with running(home):
            owner, room = await greeted(server, ada), server.supergroup("Family", [ada, bob])
            room.say(call, bob)
            await server.until(lambda: len(said(room)) == 1, 60)  # the greeting
            card = await asked(server, owner, lambda text: text.startswith(f"Ada ({ada.id}) added me to Family"))
            assert list(keys(card)) == ["Everybody may talk", "Only people I know", "Leave"]
            owner.press(card["message_id"], keys(card)["Everybody may talk"])
            await server.until(lambda: len(said(owner)) == 3, 60)
            assert owner.message(card["message_id"])["text"].endswith("✓ Everybody may talk · Ada")
            assert texts(owner)[2].startswith("Everybody in Family may talk to me now")
            room.say(call, bob)
            await server.until(lambda: len(said(room)) == 2, 60)
        async with running(home):
            room.say(call, bob)
            await server.until(lambda: len(said(room)) == 3, 60)
            owner.say(f"/access_group {room.chat.id} nobody")
            await server.until(lambda: len(said(owner)) == 4, 60)
            room.say(call, bob)
            room.say(call, ada)
            owner.say("/access_group")
            await server.until(lambda: len(said(owner)) == 5, 60)
            assert f"Family (telegram:{room.chat.id}): nobody" in texts(owner)[4]
            assert len(said(room)) == 3
            owner.say(f"/access_grant {room.chat.id} member")
            await server.until(lambda: len(said(owner)) == 6, 60)
            assert f"/access_group telegram:{room.chat.id} everybody" in texts(owner)[5]
        assert [one["audience"] for one in await named(home, "access/group")] == ["everybody", "nobody"]

    async def test_an_owner_who_adds_the_bot_is_asked_and_it_leaves_by_a_press(
        self, server: TelegramServer, ada: User, bob: User, home: Path
    ) -> None:
        configured(home, server, owners=[ada.id], debounce=0)
        async with running(home):
            owner, room = await greeted(server, ada), server.supergroup("Family", [ada, bob], bots=[])
            room.join(server.bot.user, ada)
            card = await asked(server, owner, lambda text: text.startswith(f"Ada ({ada.id}) added me to Family"))
            owner.press(card["message_id"], keys(card)["Leave"])
            await server.until(lambda: room.chat.member(server.bot.user.id) == "left", 60)
            await server.until(lambda: len(said(owner)) == 3, 60)
            assert texts(owner)[2] == "I left Family."

    async def test_a_server_is_opened_by_its_owner_alone_and_left(self, home: Path) -> None:
        async with DiscordServer(limits=None) as server:
            ada, bob = server.user("Ada"), server.user("Bob")
            room, owner = server.guild("Club", ada, [bob]).text("general"), server.dm(ada)
            on_discord.configured(home, server, owners=[ada.id])
            async with on_discord.connected(home, server):
                owner.say(ada, "hello")
                await server.until(lambda: len(on_discord.said(server, owner)) == 1, 60)
                room.say(bob, f"{server.bot.mention} is there cake?")
                await server.until(lambda: len(on_discord.said(server, owner)) == 2, 60)
                card = on_discord.said(server, owner)[-1]
                assert card.content.startswith(f"Bob ({bob.id}) called me on the server Club")
                labels = {part["label"]: part["custom_id"] for row in card.components for part in row["components"]}
                server.press(owner, ada, card, labels["Everybody may talk"])
                await server.until(lambda: len(on_discord.said(server, owner)) == 3, 60)
                room.say(bob, f"{server.bot.mention} is there cake?")
                await server.until(lambda: len(on_discord.said(server, room)) == 1, 60)
                guild = room.channel.guild
                assert guild is not None
                owner.say(ada, f"/access_grant {guild.id} member")
                await server.until(lambda: len(on_discord.said(server, owner)) == 4, 60)
                assert "group discord:" in on_discord.said(server, owner)[-1].content
                owner.say(ada, f"/access_group {guild.id} leave")
                await server.until(lambda: server.bot.id not in guild.members, 60)
