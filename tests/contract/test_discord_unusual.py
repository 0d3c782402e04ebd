"""Messages that are more than text, over a real connection: what people see reaches the bot, and nothing is lost in silence."""

from __future__ import annotations

from datetime import timedelta, timezone
from typing import Any

import pytest

from bubbot.errors import DeliveryFailed
from tests.fakes.discord_channel import receiving
from tests.fakes.discordapi import posting
from tests.fakes.discordapi.server import Server

ROW = {"type": 9, "components": [{"type": 10, "content": "job 7 exited 1"}],
       "accessory": {"type": 2, "style": 5, "label": "Log", "url": "https://example.org/log/7"}}  # fmt: skip
CARD: list[Any] = [{"type": 17, "components": [{"type": 10, "content": "## Deploy failed"}, ROW]}]
CARD_TEXT = "## Deploy failed\njob 7 exited 1\n[button Log (https://example.org/log/7)]"


async def test_an_answer_to_a_card_of_a_program_quotes_the_card() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("general")
        card = posting.post(server.world, room.channel, ada, webhook=77, components=CARD, flags=1 << 15)
        async with receiving(server) as (_, heard):
            room.say(ada, f"{server.bot.mention} why?", reply_to=card)
            await heard.until("why?")
            (one,) = heard.inbounds
            assert one.quote is not None
            assert one.quote.text == CARD_TEXT


async def test_a_message_of_a_kind_that_nobody_knows_is_a_note_in_a_direct_chat() -> None:
    async with Server() as server, receiving(server) as (_, heard):
        ada = server.user("Ada")
        chat = server.dm(ada)
        posting.post(server.world, chat.channel, ada, kind=999)
        posting.post(server.world, chat.channel, ada, more={"hologram": {"url": "x"}})
        posting.post(server.world, chat.channel, ada)
        await heard.until(
            "[unsupported message: type 999]", "[unsupported message: hologram]", "[unsupported message: no content]"
        )
        assert all(one.addressed for one in heard.inbounds)


async def test_what_is_set_aside_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "channels.discord")
    async with Server() as server, receiving(server) as (_, heard):
        ada = server.user("Ada")
        chat = server.dm(ada)
        posting.post(server.world, chat.channel, ada, kind=6)
        chat.say(ada, "bye")
        await heard.until("bye")
    (record,) = [one for one in caplog.records if getattr(one, "action", "") == "discord.set_aside"]
    assert record.getMessage().endswith("type=6")


async def test_a_time_is_that_of_the_bots_time_zone() -> None:
    zone = timezone(timedelta(hours=5, minutes=45))
    async with Server() as server, receiving(server, zone=zone) as (_, heard):
        ada = server.user("Ada")
        server.dm(ada).say(ada, "at <t:1795298000:t>")
        await heard.until("at 2026-11-22 03:38:20+05:45")


async def test_a_forward_is_received_with_its_file_which_is_fetched() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("news")
        origin = room.say(ada, "look", files=[("a.txt", b"hello", "text/plain")])
        file = {"id": "5", "filename": "a.txt", "content_type": "text/plain", "size": 5, "url": origin.files[0].url}
        reference = {"type": 1, "message_id": str(origin.id), "channel_id": str(room.id)}
        inner = {"content": "look", "attachments": [file], "embeds": [], "mentions": []}
        async with receiving(server) as (channel, heard):
            posting.post(
                server.world, server.dm(ada).channel, ada,
                more={"message_reference": reference, "message_snapshots": [{"message": inner}]},
            )  # fmt: skip
            await heard.until("[forwarded from #news]\nlook")
            (one,) = heard.inbounds
            assert await channel.fetch(one.attachments[0], 1000) == b"hello"


async def test_a_picture_that_only_a_component_shows_is_fetched_again_when_its_address_ran_out() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("news")
        stored = posting.store_file(server.world, room.channel, "a.png", b"png", "image/png")
        medium = {"id": "1", "url": stored.url, "proxy_url": stored.url, "attachment_id": str(stored.id),
                  "content_type": "image/png"}  # fmt: skip
        shown: list[Any] = [{"type": 12, "items": [{"media": medium, "description": None, "spoiler": False}]}]
        async with receiving(server) as (channel, heard):
            posting.post(server.world, room.channel, ada, webhook=77, components=shown, flags=1 << 15)
            await heard.until("")
            (file,) = heard.inbounds[0].attachments
            assert (file.name, file.kind) == ("a.png", "image")
            gone = server.world.origin + "/attachments/1/2/gone.png"
            assert await channel.fetch(type(file)(file.reference.replace(stored.url, gone), file.name), 1000) == b"png"


async def test_a_server_is_left() -> None:
    async with Server() as server:
        place = server.guild("Home", server.user("Ada"))
        async with receiving(server) as (channel, _):
            await channel.leave(str(place.id))
            assert server.bot.user.id not in place.guild.members
            with pytest.raises(DeliveryFailed, match="refuses") as caught:
                await channel.leave(str(place.id))
            assert caught.value.permanent
