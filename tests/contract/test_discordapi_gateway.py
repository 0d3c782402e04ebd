"""The gateway of the Discord server for tests: who gets in, what is told, and how a session goes on or ends."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import discord
import pytest

from tests.fakes.discordapi.client import Library, running
from tests.fakes.discordapi.errors import Json
from tests.fakes.discordapi.events import CONTENT, KNOWN, MEMBERS, PRESENCES
from tests.fakes.discordapi.frames import zstd
from tests.fakes.discordapi.server import Server
from tests.fakes.platform.faults import Drop, Fault, Html, Slow

MESSAGES = 1 << 0 | 1 << 9 | 1 << 12


class Line:
    """A websocket without a library."""

    def __init__(self, server: Server, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.server = server
        self.socket = socket

    async def send(self, op: int, data: object = None) -> None:
        await self.socket.send_json({"op": op, "d": data})

    async def get(self) -> Json:
        """The next payload."""
        payload: Json = json.loads((await self.socket.receive(timeout=5)).data)
        return payload

    async def until(self, name: str) -> list[Json]:
        """All payloads up to a dispatch."""
        got = [await self.get()]
        while got[-1]["t"] != name:
            got.append(await self.get())
        return got

    async def identify(self, intents: int = MESSAGES, **more: object) -> None:
        await self.send(2, {"token": self.server.bot.token, "properties": {}, "intents": intents, **more})

    async def closed(self) -> int | None:
        """The code with which the server closes."""
        while (await self.socket.receive(timeout=5)).type != aiohttp.WSMsgType.CLOSE:
            pass
        return self.socket.close_code


@asynccontextmanager
async def line(server: Server, query: str = "?v=10&encoding=json") -> AsyncIterator[Line]:
    """A connection on which HELLO has come."""
    async with aiohttp.ClientSession() as session, session.ws_connect(server.gateway_url + query) as socket:
        one = Line(server, socket)
        assert (await one.get())["op"] == 10
        yield one


@pytest.mark.parametrize(
    ("payloads", "code"),
    [
        ([(2, {"token": "wrong", "properties": {}, "intents": 0})], 4004),
        ([(2, {"token": "", "intents": 0})], 4002),
        ([(2, {"token": "", "properties": {}, "intents": KNOWN + 1})], 4013),
        ([(2, {"token": "", "properties": {}})], 4013),
        ([(2, {"token": "", "properties": {}, "intents": MEMBERS})], 4014),
        ([(2, {"token": "", "properties": {}, "intents": PRESENCES})], 4014),
        ([(2, {"token": "", "properties": {}, "intents": CONTENT})], 4014),
        ([(2, {"token": "", "properties": {}, "intents": 0, "shard": [1, 1]})], 4010),
        ([(2, {"token": "", "properties": {}, "intents": 0})] * 2, 4005),
        ([(3, {})], 4003),
        ([(2, {"token": "", "properties": {}, "intents": 0}), (77, {})], 4001),
    ],
)
async def test_who_is_not_let_in(payloads: list[tuple[int, Json]], code: int) -> None:
    async with Server(members_intent=False, content_intent=False) as server, line(server) as one:
        for op, data in payloads:
            await one.send(op, {**data, "token": data["token"] or server.bot.token} if "token" in data else data)
        assert await one.closed() == code
        assert server.gateway.closes == [code]


async def test_what_is_no_payload_ends_the_connection() -> None:
    async with Server() as server:
        async with line(server) as one:
            await one.socket.send_str("{")
            assert await one.closed() == 4002
        async with line(server) as one:
            for _ in range(121):
                await one.send(1)
            assert await one.closed() == 4008
        async with line(server, "?v=9") as one:
            assert await one.closed() == 4012


@pytest.mark.parametrize(
    ("changes", "code"), [({"session_id": "gone"}, None), ({"seq": 99}, 4007), ({"token": "wrong"}, 4004)]
)
async def test_a_resume_has_to_fit(changes: Json, code: int | None) -> None:
    async with Server() as server:
        async with line(server) as one:
            await one.identify()
            ready = (await one.until("READY"))[-1]["d"]
            server.gateway.drop()
        given = {"token": server.bot.token, "session_id": ready["session_id"], "seq": 1, **changes}
        async with line(server) as one:
            await one.send(6, given)
            if code is None:
                assert await one.get() == {"t": None, "s": None, "op": 9, "d": False}
            else:
                assert await one.closed() == code


async def test_what_was_missed_comes_with_a_resume_in_order() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("general")
        async with line(server) as one:
            await one.identify()
            ready, guild = await one.until("GUILD_CREATE")
            assert ready["d"]["guilds"] == [{"id": guild["d"]["id"], "unavailable": True}]
            assert ready["d"]["resume_gateway_url"].startswith(server.gateway_url)
            room.say(ada, "first")
            seen = (await one.until("MESSAGE_CREATE"))[-1]["s"]
            server.gateway.drop()
        await server.until(lambda: not server.gateway.connected)
        room.say(ada, "second")
        room.say(ada, "third")
        async with line(server, "/resume?v=10") as one:
            data = {"token": server.bot.token, "session_id": ready["d"]["session_id"], "seq": seen}
            await one.send(6, data)
            got = await one.until("RESUMED")
        assert [each["t"] for each in got] == ["MESSAGE_CREATE", "MESSAGE_CREATE", "RESUMED"]
        assert [each["s"] for each in got] == [seen + 1, seen + 2, seen + 3]


async def test_a_session_cannot_be_resumed_for_ever_and_not_after_a_goodbye() -> None:
    async with Server(lifetime=0.05) as server:
        for goodbye in (False, True):
            async with line(server) as one:
                await one.identify()
                ready = (await one.until("READY"))[-1]["d"]
                if goodbye:
                    await one.socket.close(code=1000)
                else:
                    server.gateway.drop()
            await server.until(lambda: not server.gateway.connected)
            if not goodbye:
                await asyncio.sleep(0.06)
            async with line(server) as one:
                await one.send(6, {"token": server.bot.token, "session_id": ready["session_id"], "seq": 1})
                assert (await one.get())["op"] == 9


async def test_a_client_that_does_not_beat_is_put_out() -> None:
    async with Server(heartbeat=0.05) as server, line(server) as one:
        await one.identify()
        assert await one.closed() == 4009


async def test_beats_are_acknowledged_and_can_be_asked_for() -> None:
    async with Server() as server, line(server) as one:
        await one.send(1)
        assert (await one.get())["op"] == 11
        server.gateway.ask_beat()
        assert (await one.get())["op"] == 1


@pytest.mark.parametrize("compress", ["zlib-stream", "zstd-stream"])
async def test_compressed_streams_are_one_stream(compress: str) -> None:
    context: Any = zlib.decompressobj()
    async with Server() as server, aiohttp.ClientSession() as session:
        url = f"{server.gateway_url}?v=10&compress={compress}"
        if compress == "zstd-stream":
            library = zstd()
            if library is None:
                with pytest.raises(aiohttp.WSServerHandshakeError):
                    await session.ws_connect(url)
                return
            context = library.ZstdDecompressor()
            context = context.decompressobj() if hasattr(context, "decompressobj") else context
        async with session.ws_connect(url) as socket:
            assert json.loads(context.decompress(await socket.receive_bytes()))["op"] == 10
            await socket.send_json({"op": 2, "d": {"token": server.bot.token, "properties": {}, "intents": 1}})
            assert json.loads(context.decompress(await socket.receive_bytes()))["t"] == "READY"


async def test_an_unknown_compression_is_refused() -> None:
    async with Server() as server, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(f"{server.gateway_url}?v=10&compress=best")


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, []),
        (1 << 9, ["MESSAGE_CREATE", "MESSAGE_DELETE"]),
        (1 << 12, ["MESSAGE_CREATE"]),
        (1 << 10, ["MESSAGE_REACTION_ADD"]),
        (1 << 11, ["TYPING_START"]),
        (1 << 0, ["READY", "CHANNEL_UPDATE"]),
    ],
)
async def test_intents_choose_the_events(bits: int, names: list[str]) -> None:
    async with Server() as server:
        ada = server.user("Ada")
        guild = server.guild("Home", ada)
        room = guild.text("general")
        async with line(server) as one:
            await one.identify(bits)
            await one.until("GUILD_CREATE" if bits & 1 else "READY")
            said = room.say(ada, "hi")
            room.react(ada, said, "👍")
            room.typing(ada)
            room.rename("other")
            if bits != 1 << 12:
                room.delete(said)
            server.dm(ada).say(ada, "psst")
            server.gateway.odd("END", {})
            got = [each["t"] for each in await one.until("END")][:-1]
        if bits == 1 << 12:
            assert got == ["MESSAGE_CREATE"]
        else:
            assert got == [name for name in names if name != "READY"]


async def test_content_is_withheld_unless_it_is_meant_for_the_bot() -> None:
    async with Server(content_intent=False, limits=None) as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("general")
        intents = discord.Intents(guilds=True, messages=True)
        async with running(server, Library(server, intents)) as client:
            room.say(ada, "secret", files=[("a.txt", b"a", "text/plain")])
            room.say(ada, f"{server.bot.mention} hear")
            server.dm(ada).say(ada, "psst")
            channel = client.get_channel(room.id)
            assert isinstance(channel, discord.TextChannel)
            await channel.send("own")
            got = await client.wait_for_messages(4)
            assert [one.content for one in got] == ["", f"{server.bot.mention} hear", "psst", "own"]
            assert got[0].attachments == []
            assert [one.content async for one in channel.history(oldest_first=True)] == ["", got[1].content, "own"]


async def test_a_privileged_intent_that_is_off_ends_the_client() -> None:
    async with Server(content_intent=False) as server:
        with pytest.raises(discord.PrivilegedIntentsRequired):
            async with running(server):
                pass
    async with Server() as server:
        server.bot.token, client = "changed", Library(server)
        with pytest.raises(discord.LoginFailure):
            await client.start("old")
        await client.close()


async def test_the_library_resumes_after_a_broken_connection() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("general")
        async with running(server) as client:
            breaks: list[Callable[[], None]] = [
                server.gateway.drop,
                server.gateway.reconnect,
                lambda: server.gateway.close(4000),
                lambda: server.gateway.close(1000),
                lambda: server.gateway.invalidate(resumable=True),
            ]
            for number, break_it in enumerate(breaks, start=1):
                break_it()
                room.say(ada, f"while away {number}")
                await client.wait_for_events("resumed", number)
                got = await client.wait_for_messages(number)
                assert got[-1].content == f"while away {number}"
            assert len(client.events("ready")) == 1
            assert server.gateway.identified == 1


async def test_the_library_begins_anew_after_an_invalid_session() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("general")
        async with running(server) as client:
            server.gateway.invalidate()
            room.say(ada, "lost")
            await server.until(lambda: len(client.events("ready")) == 2)
            server.gateway.refuse_resume = True
            server.gateway.drop()
            await server.until(lambda: len(client.events("ready")) == 3)
            assert (server.gateway.identified, client.events("resumed")) == (3, [])
            room.say(ada, "heard")
            assert [one.content for one in await client.wait_for_messages()] == ["heard"]


async def test_the_library_leaves_a_connection_that_has_gone_deaf() -> None:
    async with Server(heartbeat=0.5) as server:
        ada = server.user("Ada")
        room = server.guild("Home", ada).text("general")
        async with running(server, Library(server, heartbeat_timeout=0.7)) as client:
            await server.until(lambda: client.latency < 5)
            server.gateway.deaf()
            room.say(ada, "unheard")
            await client.wait_for_messages()
            assert client.events("resumed")


async def test_events_can_be_held_back() -> None:
    async with Server() as server:
        room = server.dm(server.user("Ada"))
        async with running(server) as client:
            server.gateway.hold()
            room.say(room.channel.recipients[1], "one")
            room.say(room.channel.recipients[1], "two")
            server.gateway.ask_beat()
            await asyncio.sleep(0.05)
            assert client.events("message") == []
            server.gateway.release()
            assert [one.content for one in await client.wait_for_messages(2)] == ["one", "two"]


async def test_an_event_that_the_library_cannot_read_ends_it() -> None:
    async with Server() as server:
        breaks: list[Callable[[], None]] = [
            lambda: server.gateway.odd("MESSAGE_CREATE", {"id": "1"}),
            lambda: server.gateway.raw("no json"),
            lambda: server.gateway.raw(b"no stream\x00\x00\xff\xff"),
        ]
        for broken in breaks:
            client = Library(server)
            task = asyncio.create_task(client.start(server.bot.token))
            await client.wait_for_events("ready")
            broken()
            await asyncio.wait({task}, timeout=5)
            assert type(task.exception()).__name__ in ("KeyError", "JSONDecodeError", "error", "ZstdError")
            await client.close()


async def test_an_unknown_event_changes_nothing() -> None:
    async with Server() as server:
        ada = server.user("Ada")
        async with running(server) as client:
            server.gateway.odd("HOLOGRAM_CREATE", {"id": "1"})
            server.dm(ada).say(ada, "hi")
            assert [one.content for one in await client.wait_for_messages()] == ["hi"]


@pytest.mark.parametrize("fault", [Html(502), Drop(), Slow(0.05)])
async def test_the_gateway_can_be_out_of_order(fault: Fault) -> None:
    async with Server() as server:
        times = 2 if isinstance(fault, Drop) else 1  # aiohttp itself asks once more where a GET got nothing
        server.fail("gateway", fault, times=times)
        async with aiohttp.ClientSession() as session:
            if isinstance(fault, Slow):
                await (await session.ws_connect(server.gateway_url + "?v=10")).close()
            else:
                with pytest.raises(aiohttp.ClientError):
                    await session.ws_connect(server.gateway_url + "?v=10")
        async with line(server) as one:
            await one.identify()
            await one.until("READY")
        assert [call.fault for call in server.calls("gateway")] == [*[fault] * times, None]
