"""Receiving from Discord: discord.py's own client against a server of ours."""

from __future__ import annotations

from tests.discord_channel import Heard, receiving
from tests.discordapi.server import Server


async def test_a_direct_message_is_received_with_who_wrote_it() -> None:
    async with Server() as server, receiving(server) as (_, heard):
        ada = server.user("Ada")
        said = server.dm(ada).say(ada, "hello")
        await heard.until("hello")
        (one,) = heard.inbounds
        assert (one.channel, one.chat, one.thread) == ("dc", str(server.dm(ada).id), "")
        assert (one.sender.id, one.sender.name, one.sender.bot, one.sender.roles) == (str(ada.id), "Ada", False, ())
        assert (one.message, one.external_id) == (str(said.id), f"m{said.id}")
        assert one.direct and one.addressed and one.space == ""
