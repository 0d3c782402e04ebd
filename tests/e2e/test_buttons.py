"""Buttons of a real daemon on both platforms: the echo of a schedule, presses, and kills between a press and its outcome."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bubbot.texts import Texts
from tests.e2e import on_discord
from tests.e2e.daemon import configured, running, started
from tests.e2e.kill_harness import KILLED, damage, entries_of
from tests.e2e.kill_talk import CHILD
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.botapi.world import User
from tests.fakes.discordapi.server import Server as DiscordServer

SAY = Texts().say
ANSWERED = "answerCallbackQuery"
INBOX = "bubbot/inbox/telegram"


@pytest.fixture
async def server() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(limits=None, conflict_pause=0.1, longest_poll=0.3) as found:
        yield found


@pytest.fixture
def ada(server: TelegramServer) -> User:
    return server.user("Ada")


def said(room: Gathering) -> list[dict[str, Any]]:
    """The messages of the bot, as they stand now."""
    return [one for one in room.chat.messages.values() if one.get("from", {}).get("is_bot")]


def keys(message: dict[str, Any]) -> dict[str, str]:
    """The data of the buttons below a message, by label."""
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    return {key["text"]: key["callback_data"] for row in rows for key in row}


async def echoed(server: TelegramServer, room: Gathering, text: str, by: User | None = None) -> dict[str, Any]:
    """Asks for a job, and returns the confirmation with its buttons."""
    before = len(said(room))
    room.say(text, by)
    await server.until(lambda: len(said(room)) > before and keys(said(room)[-1]), 60)
    return said(room)[-1]


class TestTelegram:
    async def test_the_echo_of_a_schedule_offers_the_other_reading_and_removal(
        self, server: TelegramServer, ada: User, home: Path
    ) -> None:
        configured(home, server, owners=[ada.id], debounce=0)
        async with running(home):
            room = server.private(ada)
            first = await echoed(server, room, "/remind at 5: call Ann")
            other, remove = keys(first)
            assert (other[-8:], remove) == (" instead", "Remove")
            room.press(first["message_id"], keys(first)[other])
            await server.until(lambda: not keys(room.message(first["message_id"])) and len(said(room)) == 2, 60)
            assert room.message(first["message_id"])["text"] == f"{first['text']}\n\n✓ {other}"
            second = said(room)[1]
            assert second["text"].startswith("Changed")
            # By day the other reading is of the next day, and has its date before the time.
            assert other.removesuffix(" instead").rpartition(" ")[2] in second["text"]
            room.press(second["message_id"], keys(second)["Remove"])
            await server.until(lambda: len(said(room)) == 3, 60)
            await server.until(lambda: not server.world.callbacks, 60)
            assert [call.params.get("text") for call in server.calls(ANSWERED)] == [None, None]

    async def test_second_foreign_and_forged_presses_get_a_short_answer(
        self, server: TelegramServer, ada: User, home: Path
    ) -> None:
        bob = server.user("Bob")
        configured(home, server, owners=[ada.id], members=[bob.id], debounce=0)
        async with running(home):
            room = server.supergroup("Club", [ada, bob])
            echo = await echoed(server, room, f"/remind@{server.bot.user.username} at 17:00: call Ann", ada)
            data = keys(echo)["Remove"]
            room.press(echo["message_id"], data, bob)
            forged = {**echo, "reply_markup": {"inline_keyboard": [[{"text": "x", "callback_data": ",reset erase"}]]}}
            room.chat.messages[echo["message_id"]] = forged
            room.press(echo["message_id"], ",reset erase", ada)
            room.chat.messages[echo["message_id"]] = echo
            await server.until(lambda: len(server.calls(ANSWERED)) == 2, 60)
            room.press(echo["message_id"], data, ada)
            room.press(echo["message_id"], data, ada)
            await server.until(lambda: len(server.calls(ANSWERED)) == 4, 60)
            texts = [call.params.get("text") for call in server.calls(ANSWERED)]
            assert texts == [SAY("press_foreign"), SAY("press_expired"), None, SAY("press_taken")]
            await server.until(lambda: not keys(room.message(echo["message_id"])), 60)
            assert room.message(echo["message_id"])["text"].endswith("✓ Remove · Ada")

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        "point",
        [
            "receive:before#1",  # the press is nowhere kept: Telegram delivers it again
            "append-inbox:after#2",  # kept with the change of the message, not acknowledged
            pytest.param("receive:after#1", marks=pytest.mark.proof),
            pytest.param("edit:before#1", marks=pytest.mark.proof),
            "edit:after#1",  # changed, without a receipt
            pytest.param("open-fork:after#1", marks=pytest.mark.proof),
            "merge:before#1",
            pytest.param("merge:after#1", marks=pytest.mark.proof),
        ],
    )
    async def test_a_kill_neither_loses_nor_repeats_a_press(
        self, server: TelegramServer, ada: User, home: Path, point: str
    ) -> None:
        configured(home, server, owners=[ada.id], debounce=0)
        room = server.private(ada)
        async with running(home):
            echo = await echoed(server, room, "/remind at 17:00: call Ann")
        room.press(echo["message_id"], keys(echo)["Remove"])
        daemon = await started(home, target=CHILD, arguments=[str(home), point, ""])
        assert await daemon.ended() == KILLED
        async with running(home) as daemon:
            await server.until(lambda: len(said(room)) >= 2 and not keys(room.message(echo["message_id"])), 60)
            await daemon.quiet(server)
        assert room.message(echo["message_id"])["text"] == f"{echo['text']}\n\n✓ Remove"
        assert len(said(room)) == 2
        inbox = await entries_of(home, INBOX)
        presses = [one.id for one in inbox if (one.key or "").startswith("press:")]
        done = [number for one in inbox if one.name == "inbox/done" for number in one.payload["data"]["inbounds"]]
        assert (len(presses), done.count(presses[0])) == (1, 1)
        removed = [one for one in await entries_of(home, "bubbot/schedule") if one.name == "schedule/removed"]
        assert len(removed) == 1
        assert not [one for one in inbox if one.name == "inbox/press-refused"]
        assert await damage(home) == []

    @pytest.mark.proof
    async def test_the_kills_find_a_bot_that_acknowledges_too_early(
        self, server: TelegramServer, ada: User, home: Path
    ) -> None:
        configured(home, server, owners=[ada.id], debounce=0)
        room = server.private(ada)
        async with running(home):
            echo = await echoed(server, room, "/remind at 17:00: call Ann")
        room.press(echo["message_id"], keys(echo)["Remove"])
        daemon = await started(home, target=CHILD, arguments=[str(home), "append-inbox:before#2", "early-ack"])
        assert await daemon.ended() == KILLED
        async with running(home) as daemon:
            await daemon.quiet(server)
        assert keys(room.message(echo["message_id"]))  # the press is lost
        assert not [one for one in await entries_of(home, INBOX) if (one.key or "").startswith("press:")]


class TestDiscord:
    async def test_presses_are_acknowledged_in_time_and_done_once(self, home: Path) -> None:
        async with DiscordServer(limits=None) as server:
            ada, bob = server.user("Ada"), server.user("Bob")
            room = server.guild("Club", ada, [bob]).text("general")
            on_discord.configured(home, server, owners=[ada.id], members=[bob.id])
            async with on_discord.connected(home, server):
                room.say(ada, f"{server.bot.mention} /remind at 5: call Ann")
                await server.until(lambda: [one for one in on_discord.said(server, room) if one.components], 60)
                echo = on_discord.said(server, room)[-1]
                labels = {part["label"]: part["custom_id"] for row in echo.components for part in row["components"]}
                assert [label.endswith(" instead") for label in labels] == [True, False]
                text = echo.content
                foreign = server.press(room, bob, echo, labels["Remove"])
                await server.until(lambda: foreign.acknowledged, 60)
                assert foreign.text == SAY("press_foreign")
                first = server.press(room, ada, echo, labels["Remove"])
                second = server.press(room, ada, echo, labels["Remove"])
                await server.until(lambda: first.acknowledged and second.acknowledged, 60)
                assert second.text == SAY("press_taken")
                await server.until(lambda: not echo.components, 60)
                assert echo.content == f"{text}\n\n✓ Remove · Ada"
                assert "failed" not in {one.state for one in (foreign, first, second)}
            facts = on_discord.named(home, "bubbot/inbox/discord", "inbox/press-refused")
            assert [fact["reason"] for fact in facts] == ["foreign", "taken"]
            removed = on_discord.named(home, "bubbot/schedule", "schedule/removed")
            assert len(removed) == 1

    @pytest.mark.sampled(2)
    @pytest.mark.parametrize(
        ("point", "is_kept"),
        [
            ("receive:before#1", False),  # the press is nowhere kept, and Discord does not deliver it again
            pytest.param("append-inbox:before#2", False, marks=pytest.mark.proof),
            ("receive:after#1", True),
            pytest.param("merge:before#1", True, marks=pytest.mark.proof),
        ],
    )
    async def test_a_press_that_a_kill_left_unacknowledged_fails_and_the_next_one_counts(
        self, home: Path, point: str, *, is_kept: bool
    ) -> None:
        async with DiscordServer(limits=None) as server:
            ada = server.user("Ada")
            room = server.dm(ada)
            on_discord.configured(home, server, owners=[ada.id])
            async with on_discord.connected(home, server):
                room.say(ada, "/remind at 17:00: call Ann")
                await server.until(lambda: [one for one in on_discord.said(server, room) if one.components], 60)
            daemon = await started(home, target=CHILD, arguments=[str(home), point, ""])
            await server.until(lambda: server.gateway.connected, 60)
            echo = on_discord.said(server, room)[-1]
            [remove] = [
                part["custom_id"] for row in echo.components for part in row["components"] if part["label"] == "Remove"
            ]
            first = server.press(room, ada, echo, remove)
            assert await daemon.ended() == KILLED
            await server.until(lambda: first.state != "waiting", 60)
            async with on_discord.connected(home, server):
                if not is_kept:
                    assert (first.state, bool(echo.components)) == ("failed", True)  # Discord says so
                    second = server.press(room, ada, echo, remove)
                    await server.until(lambda: second.acknowledged, 60)
                await server.until(lambda: not echo.components and len(on_discord.said(server, room)) == 2, 60)
            assert len(on_discord.named(home, "bubbot/schedule", "schedule/removed")) == 1
            inbox = await entries_of(home, "bubbot/inbox/discord")
            assert len([one for one in inbox if (one.key or "").startswith("press:")]) == 1
            assert not [one for one in inbox if one.name == "inbox/press-refused"]
            assert await damage(home) == []
