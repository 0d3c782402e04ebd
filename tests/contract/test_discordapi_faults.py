"""The Discord server for tests: what goes wrong on the wire, and rate limits, as discord.py meets them."""

from __future__ import annotations

import asyncio

import aiohttp
import discord
import pytest

from tests.fakes.discordapi.client import Library, raw, running
from tests.fakes.discordapi.errors import Refuse, TooMany
from tests.fakes.discordapi.limits import Limits
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server
from tests.fakes.platform.faults import Cut, Drop, Fault, Html, Slow, Wedge

SEND = "POST /channels/{}/messages"


async def _channel(client: Library, room: Room) -> discord.DMChannel:
    channel = await client.fetch_channel(room.id)
    assert isinstance(channel, discord.DMChannel)
    return channel


@pytest.mark.parametrize(
    ("fault", "error", "arrived"),
    [
        (Refuse(503), discord.DiscordServerError, False),
        (Refuse(503, effect="after"), discord.DiscordServerError, True),
        (Refuse(403, "Missing Access", 50001), discord.Forbidden, False),
        (Html(503), discord.DiscordServerError, False),
        (TooMany(5, banned=True), discord.HTTPException, False),
        (Drop(), aiohttp.ServerDisconnectedError, False),
        (Drop("after"), aiohttp.ServerDisconnectedError, True),
        (Cut(), aiohttp.ClientPayloadError, True),
        (Wedge(), TimeoutError, False),
        (Wedge("after"), TimeoutError, True),
    ],
)
async def test_what_reaches_the_caller(fault: Fault, error: type[Exception], arrived: bool) -> None:
    async with Server() as server, running(server) as client:
        room = server.dm(server.user("Ada"))
        channel = await _channel(client, room)
        server.fail(SEND, fault)
        with pytest.raises(error):
            await asyncio.wait_for(channel.send("hi"), 0.3 if isinstance(fault, Wedge) else 10)
        assert room.texts() == (["hi"] if arrived else [])
        assert server.calls(SEND)[0].fault == fault
        await channel.send("again")


@pytest.mark.parametrize(
    "fault", [TooMany(0.02), TooMany(0.02, "global"), TooMany(0.02, "shared", effect="after"), Slow(0.05)]
)
async def test_what_the_library_rides_out(fault: Fault) -> None:
    async with Server() as server, running(server) as client:
        room = server.dm(server.user("Ada"))
        channel = await _channel(client, room)
        server.fail(SEND, fault)
        await channel.send("hi")
        assert room.texts() == ["hi"]  # the nonce of the library keeps a repetition from showing twice


@pytest.mark.parametrize("status", [500, 502, 504, 524])
async def test_what_the_library_asks_again_after_a_second(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def at_once(seconds: float) -> None:
        slept.append(seconds)

    async with Server() as server, running(server) as client:
        room = server.dm(server.user("Ada"))
        channel = await _channel(client, room)
        server.fail(SEND, Refuse(status), times=2)
        with monkeypatch.context() as patched:
            patched.setattr("discord.http.asyncio.sleep", at_once)
            await channel.send("hi")
        assert [seconds for seconds in slept if seconds >= 1] == [1, 3]
        assert [call.status for call in server.calls(SEND)] == [status, status, 200]


async def test_faults_wait_their_turn_and_end() -> None:
    async with Server() as server, raw(server) as api:
        room = server.dm(server.user("Ada"))
        server.fail(SEND, Refuse(500), skip=1, times=2)
        asked = [await api.ask("POST", f"/channels/{room.id}/messages", json={"content": "x"}) for _ in range(4)]
        assert [status for status, _ in asked] == [200, 500, 500, 200]
        server.fail("*", Refuse(502, "Bad gateway"))
        assert await api.ask("GET", "/users/@me") == (502, {"message": "Bad gateway", "code": 0})


async def test_a_download_can_fail() -> None:
    async with Server() as server, running(server) as client:
        ada = server.user("Ada")
        server.dm(ada).say(ada, "", files=[("a.txt", b"x" * 10_000, "text/plain")])
        (file,) = (await client.wait_for_messages())[0].attachments
        server.fail("file", Refuse(404, "gone"))
        with pytest.raises(discord.NotFound):
            await file.read()
        server.fail("file", Cut())
        with pytest.raises(aiohttp.ClientPayloadError):
            await file.read()
        assert len(await file.read()) == 10_000


async def test_a_channel_takes_so_many_messages_and_says_when_to_go_on() -> None:
    async with Server(limits=Limits(messages=(2, 5.0))) as server, raw(server) as api:
        room, other = server.dm(server.user("Ada")), server.dm(server.user("Bo"))
        url = f"{server.rest_url}/channels/{room.id}/messages"
        headers = {"Authorization": f"Bot {server.bot.token}"}
        told = []
        for _ in range(3):
            async with api.session.post(url, headers=headers, json={"content": "x"}) as answer:
                told.append((answer.status, answer.headers, await answer.json()))
        assert [status for status, _, _ in told] == [200, 200, 429]
        assert [told[place][1]["X-RateLimit-Remaining"] for place in range(3)] == ["1", "0", "0"]
        last, body = told[2][1], told[2][2]
        assert (last["X-RateLimit-Limit"], last["X-RateLimit-Scope"], body["global"]) == ("2", "user", False)
        assert 0 < body["retry_after"] <= 5
        assert 0 < float(last["X-RateLimit-Reset-After"]) <= 5
        assert (await api.ask("POST", f"/channels/{other.id}/messages", json={"content": "x"}))[0] == 200
        assert (await api.ask("GET", f"/channels/{room.id}"))[0] == 200


async def test_there_is_a_limit_for_everything() -> None:
    async with Server(limits=Limits(everything=(2, 30.0))) as server, raw(server) as api:
        asked = [await api.ask("GET", "/users/@me") for _ in range(3)]
        assert [status for status, _ in asked] == [200, 200, 429]
        assert asked[2][1]["global"] is True
        server.world.clock.advance(31)
        assert (await api.ask("GET", "/users/@me"))[0] == 200


async def test_the_library_waits_before_a_limit_is_met() -> None:
    async with Server(limits=Limits(messages=(2, 0.2))) as server, running(server) as client:
        room = server.dm(server.user("Ada"))
        channel = await _channel(client, room)
        for number in range(4):
            await channel.send(str(number))
        assert room.texts() == ["0", "1", "2", "3"]
        assert {call.status for call in server.calls(SEND)} == {200}
