"""Files, edits, what is found again, and the connections, against a server that speaks Discord's REST API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from msgspec import structs

from bubbot.errors import DeliveryFailed, FetchFailed
from bubbot.ports.channel import Attachment, CommandInfo, MessagePart, OutboundFile
from channels.discord.content import read_attachments
from channels.discord.errors import DiscordApiError, DiscordUnavailable
from channels.discord.files import fetch_attachment
from channels.discord.retry import DiscordReceiveTiming, RetryingDiscordApi
from channels.discord.slash_commands import sync_commands
from tests.fakes.connections import accepting
from tests.fakes.discord_sending import CREATE, EDIT, FAST, Outgoing, long_ago, outgoing, own
from tests.fakes.discordapi import shapes
from tests.fakes.discordapi.asked import Sizes
from tests.fakes.discordapi.errors import Refuse, TooMany
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server
from tests.fakes.platform.faults import Cut, Drop, Fault, Html, Slow, Wedge


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


class TestFiles:
    async def test_a_file_is_sent_with_its_name_and_type(self, server: Server, room: Room, out: Outgoing) -> None:
        out.blobs["d1"] = b"\x89PNG" + bytes(50_000)
        await out.sending.send(
            MessagePart(str(room.id), "", file=OutboundFile("a b.png", "image/png", digest="d1"), key="f")
        )
        await out.sending.send(MessagePart(str(room.id), "", file=OutboundFile('c"\n/é.txt', text="ünï"), key="g"))
        first, second = (message.files[0] for message in room.messages[-2:])
        assert (first.name, first.content, first.mime) == ("a_b.png", out.blobs["d1"], "image/png")
        assert second.content == "ünï".encode()
        assert second.mime.startswith("text/plain")

    async def test_a_file_comes_whole_also_at_the_second_try(self, server: Server, room: Room, out: Outgoing) -> None:
        server.fail(CREATE, TooMany(0.05))
        part = MessagePart(str(room.id), "", file=OutboundFile("a.txt", text="x" * 70_000), key="f")
        assert await out.sending.send(part) == await out.sending.send(part)
        assert [file.content for message in room.messages for file in message.files] == [b"x" * 70_000]

    async def test_a_file_that_is_too_large_is_named_instead(self, server: Server, room: Room, out: Outgoing) -> None:
        receipt = await out.sending.send(
            MessagePart(str(room.id), "", file=OutboundFile("big.txt", text="x" * 200_000), key="f")
        )
        assert own(server, room) == ["📎 `big.txt` (200 kB) is too large for Discord here."]
        assert receipt.external_id == str(room.messages[-1].id)

    async def test_a_file_that_came_is_fetched_without_the_token(
        self, server: Server, room: Room, out: Outgoing
    ) -> None:
        guild = room.channel.guild
        assert guild is not None
        message = room.say(guild.owner, "look", files=[("a.txt", b"hello" * 1000, "text/plain")])
        (file,) = read_attachments(shapes.message(server.world, message), str(room.id), str(message.id))
        assert await fetch_attachment(out.api, file, 5000) == b"hello" * 1000
        assert [call.auth for call in server.calls("file")] == [""]
        for limit, given in ((4999, file), (4999, structs.replace(file, size=None))):
            with pytest.raises(FetchFailed, match=r"at most|larger than") as caught:
                await fetch_attachment(out.api, given, limit)
            assert caught.value.permanent

    async def test_an_address_that_ran_out_is_asked_for_again(self, server: Server, room: Room, out: Outgoing) -> None:
        guild = room.channel.guild
        assert guild is not None
        message = room.say(guild.owner, "look", files=[("a.txt", b"hello", "text/plain")])
        (file,) = read_attachments(shapes.message(server.world, message), str(room.id), str(message.id))
        known = json.loads(file.reference)
        old = structs.replace(
            file, reference=json.dumps({**known, "url": f"{server.world.origin}/attachments/1/2/a.txt"})
        )
        assert await fetch_attachment(out.api, old, 100) == b"hello"
        room.delete(message)
        with pytest.raises(FetchFailed, match="the message that the file came with is gone") as caught:
            await fetch_attachment(out.api, old, 100)
        assert caught.value.permanent

    @pytest.mark.parametrize("fault", [Drop(), Cut(), Html(500), Html(429)])
    async def test_a_download_that_breaks_may_be_tried_again(
        self, server: Server, room: Room, out: Outgoing, fault: Drop | Cut | Html
    ) -> None:
        guild = room.channel.guild
        assert guild is not None
        message = room.say(guild.owner, "look", files=[("a.txt", b"hello" * 100, "text/plain")])
        (file,) = read_attachments(shapes.message(server.world, message), str(room.id), str(message.id))
        server.fail("file", fault, times=2)  # what reads only is asked again once on a new connection
        with pytest.raises(FetchFailed) as caught:
            await fetch_attachment(out.api, file, 1000)
        assert not caught.value.permanent
        server.faults.clear()
        assert await fetch_attachment(out.api, file, 1000) == b"hello" * 100

    async def test_a_download_that_takes_too_long_may_be_tried_again(self, server: Server, room: Room) -> None:
        guild = room.channel.guild
        assert guild is not None
        message = room.say(guild.owner, "look", files=[("a.txt", b"hello", "text/plain")])
        (file,) = read_attachments(shapes.message(server.world, message), str(room.id), str(message.id))
        server.fail("file", Wedge())
        async with outgoing(server, structs.replace(FAST, download_timeout=0.05)) as out:
            with pytest.raises(FetchFailed, match=r"not there within 0\.05 s") as caught:
                await fetch_attachment(out.api, file, 1000)
        assert not caught.value.permanent

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_a_redirect_is_not_followed(self, server: Server, room: Room, out: Outgoing, status: int) -> None:
        asked: list[str] = []

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split()[1])
            moved = f"HTTP/1.1 {status} Moved\r\nLocation: /secret\r\nContent-Length: 0\r\n"
            found = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n"
            text = (
                f"{found}Connection: close\r\n\r\nsecret"
                if asked[-1] == "/secret"
                else f"{moved}Connection: close\r\n\r\n"
            )
            writer.write(text.encode())
            await writer.drain()

        async with accepting(answer) as port:
            url = f"http://127.0.0.1:{port}/a.txt"
            with pytest.raises(DiscordApiError) as caught:
                await out.api.download(url, 1000)
            reference = json.dumps({"url": url, "channel": "", "message": "", "id": "1"})
            with pytest.raises(FetchFailed) as failed:
                await fetch_attachment(out.api, Attachment(reference), 1000)
        assert (caught.value.status, failed.value.permanent, asked) == (status, True, ["/a.txt", "/a.txt"])

    @pytest.mark.parametrize(
        "reference", ["", "x", "[]", "{}", '{"url":"file:///etc/passwd","channel":"1","message":"2","id":"3"}']
    )
    async def test_an_odd_reference_is_a_failure_for_good(self, out: Outgoing, reference: str) -> None:
        with pytest.raises(FetchFailed) as caught:
            await fetch_attachment(out.api, Attachment(reference), 1000)
        assert caught.value.permanent


class TestEditing:
    async def test_a_message_is_changed(self, server: Server, room: Room, out: Outgoing) -> None:
        sent = await out.sending.send(MessagePart(str(room.id), "one"))
        for text in ("two", "two", "@everyone"):
            await out.sending.edit(sent.external_id, MessagePart(str(room.id), text))
        message = room.messages[-1]
        assert (own(server, room), message.mention_everyone, message.flags) == (["@everyone"], False, 1 << 2)

    async def test_a_message_that_is_gone_or_is_none_of_ours_cannot_be(
        self, server: Server, room: Room, out: Outgoing
    ) -> None:
        guild = room.channel.guild
        assert guild is not None
        sent, theirs = await out.sending.send(MessagePart(str(room.id), "one")), room.say(guild.owner, "mine")
        room.delete(room.messages[0])
        file = MessagePart(str(room.id), "", file=OutboundFile("a.txt", text="a"))
        for message, part in (
            (sent.external_id, MessagePart(str(room.id), "two")), (str(theirs.id), MessagePart(str(room.id), "two")),
            ("nothing", MessagePart(str(room.id), "two")), ("", MessagePart(str(room.id), "two")), (sent.external_id, file),
        ):  # fmt: skip
            with pytest.raises(DeliveryFailed) as caught:
                await out.sending.edit(message, part)
            assert caught.value.permanent

    async def test_a_limit_on_edits_says_how_long(self, server: Server, room: Room, out: Outgoing) -> None:
        sent = await out.sending.send(MessagePart(str(room.id), "one"))
        server.fail(EDIT, TooMany(12.5))
        with pytest.raises(DeliveryFailed) as caught:
            await out.sending.edit(sent.external_id, MessagePart(str(room.id), "two"))
        assert caught.value.retry_after == 12.5

    async def test_typing_is_shown(self, server: Server, room: Room, out: Outgoing) -> None:
        await out.sending.typing(str(room.id), "")
        assert "typing" in [one.what for one in server.world.happenings]
        with pytest.raises(DeliveryFailed):
            await out.sending.typing("5", "")


class TestFinding:
    async def test_own_messages_with_the_same_text_are_found_oldest_first(
        self, server: Server, room: Room, out: Outgoing
    ) -> None:
        guild = room.channel.guild
        assert guild is not None
        asked, since = room.say(guild.owner, "hello"), long_ago()
        part = MessagePart(str(room.id), "hello ", reply_to=str(asked.id))
        assert list(await out.sending.find(part, since)) == []
        sent = [(await out.sending.send(part)).external_id for _ in range(2)]
        await out.sending.send(MessagePart(str(room.id), "hello there"))
        room.say(guild.owner, "hello")
        assert list(await out.sending.find(part, since)) == sent
        assert list(await out.sending.find(structs.replace(part, reply_to=""), since)) == sent
        server.world.clock.advance(3600)
        late = datetime.fromtimestamp(server.world.clock.now(), UTC).isoformat()
        assert list(await out.sending.find(structs.replace(part, reply_to=""), late)) == []

    async def test_files_are_found_by_their_names(self, server: Server, room: Room, out: Outgoing) -> None:
        part = MessagePart(str(room.id), "", file=OutboundFile("my file (1).py", text="x"))
        since = long_ago()
        await out.sending.send(structs.replace(part, file=OutboundFile("other.py", text="x")))
        sent = await out.sending.send(part)
        assert list(await out.sending.find(part, since)) == [sent.external_id]
        assert list(await out.sending.find(structs.replace(part, text="x", file=None), since)) == []

    async def test_it_looks_through_several_pages_and_no_more_than_five(
        self, server: Server, room: Room, out: Outgoing
    ) -> None:
        guild = room.channel.guild
        assert guild is not None
        since = long_ago()
        for number in range(350):
            room.say(guild.owner, f"{number}")
        sent = await out.sending.send(MessagePart(str(room.id), "hello"))
        assert list(await out.sending.find(MessagePart(str(room.id), "hello"), since)) == [sent.external_id]
        for number in range(500):  # the search goes on where the last one ended
            room.say(guild.owner, f"{number}")
        await out.sending.send(MessagePart(str(room.id), "last"))
        server.log.clear()
        assert list(await out.sending.find(MessagePart(str(room.id), "last"), since)) == []
        assert len(server.calls("GET /channels/{}/messages")) == 5
        assert len(await out.sending.find(MessagePart(str(room.id), "last"), since)) == 1
        assert len(server.calls("GET /channels/{}/messages")) == 6

    async def test_without_the_history_looking_is_useless(self, server: Server, out: Outgoing) -> None:
        ann = server.user("Berta")
        place = server.guild("Other", ann)
        room = place.text("x")
        asked = room.say(ann, "hi")
        room.deny(place.everyone, "READ_MESSAGE_HISTORY")
        with pytest.raises(DeliveryFailed, match=r"history") as caught:
            await out.sending.find(MessagePart(str(room.id), "hello", reply_to=str(asked.id)), long_ago())
        assert caught.value.permanent
        room.deny(place.everyone, "VIEW_CHANNEL")
        with pytest.raises(DeliveryFailed, match="50001") as caught:
            await out.sending.find(MessagePart(str(room.id), "hello"), long_ago())
        assert caught.value.permanent


class TestConnections:
    async def test_commands_are_registered_once(self, server: Server, out: Outgoing) -> None:
        infos = [
            CommandInfo("help", "Helps.", ("topic",), in_menu=True),
            CommandInfo("new", "Begins anew.", in_menu=True),
        ]
        application = str(server.bot.application_id)
        for _ in range(2):
            await sync_commands(out.api, application, infos)
        put = server.calls("PUT /applications/{}/commands")
        assert len(put) == 1
        await sync_commands(out.api, application, infos[:1])
        assert [one["name"] for one in server.bot.commands] == ["help"]
        server.fail("GET /applications/{}/commands", Drop(), times=2)
        await sync_commands(out.api, application, infos)
        assert [one["name"] for one in server.bot.commands] == ["help"]

    async def test_a_closed_channel_asks_nothing_and_closes_twice(self, server: Server) -> None:
        async with outgoing(server) as out:
            await out.sending.typing(str(server.guild("Home", server.user("Ann")).text("x").id), "")
        await out.api.aclose()
        with pytest.raises(DiscordUnavailable, match="closed"):
            await out.api.call("GET", "/users/@me")

    async def test_two_channels_have_limits_and_addresses_of_their_own(self, server: Server) -> None:
        async with Server(limits=None) as other, outgoing(server) as one, outgoing(other) as two:
            found = [await each.api.call("GET", "/users/@me") for each in (one, two)]
        assert [each["id"] for each in found] == [str(server.bot.id), str(other.bot.id)]

    async def test_everything_goes_through_a_proxy(self, server: Server) -> None:
        asked: list[list[str]] = []

        async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n"))
            body = b'{"id": "42"}'
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
            await writer.drain()

        async with accepting(proxy) as port, outgoing(server, proxy=f"http://me:pass@127.0.0.1:{port}") as out:
            assert await out.api.call("GET", "/users/@me") == {"id": "42"}
            assert await out.api.download(f"{server.world.origin}/attachments/1/2/a", 100) == b'{"id": "42"}'
        assert [lines[0] for lines in asked] == [
            f"GET {server.rest_url}/users/@me HTTP/1.1", f"GET {server.world.origin}/attachments/1/2/a HTTP/1.1",
        ]  # fmt: skip
        assert all("Proxy-Authorization: Basic bWU6cGFzcw==" in lines for lines in asked)
        assert [any(line.startswith("Authorization:") for line in lines) for lines in asked] == [True, False]
        assert server.log == []

    async def test_an_answer_in_the_middle_of_which_it_ends_is_no_answer(self, server: Server, out: Outgoing) -> None:
        server.fail("GET /users/@me", Cut())
        with pytest.raises(DiscordUnavailable):
            await out.api.call("GET", "/users/@me")
        server.fail("GET /users/@me", Slow(0.1))
        assert (await out.api.call("GET", "/users/@me"))["id"] == str(server.bot.id)
        with pytest.raises(DiscordApiError):
            await out.api.call("GET", "/nowhere")


class TestAskingUntilThereIsAnAnswer:
    @pytest.mark.parametrize(
        "fault", [Refuse(401, "401: Unauthorized"), Refuse(408, "Request Timeout"), TooMany(0.5), Refuse(503), Drop()]
    )
    async def test_what_may_pass_is_asked_again(self, server: Server, out: Outgoing, fault: Fault) -> None:
        persistent = RetryingDiscordApi(out.api, "discord", DiscordReceiveTiming(initial_backoff=0.05))
        server.fail("GET /users/@me", fault, times=2)
        assert (await persistent("GET", "/users/@me"))["id"] == str(server.bot.id)
        assert persistent.last_errors == {}

    @pytest.mark.parametrize("status", [400, 403, 404])
    async def test_what_is_refused_for_good_is_not(self, server: Server, out: Outgoing, status: int) -> None:
        persistent = RetryingDiscordApi(out.api, "discord", DiscordReceiveTiming(initial_backoff=0.05))
        server.fail("GET /users/@me", Refuse(status, "no"))
        with pytest.raises(DiscordApiError) as caught:
            await persistent("GET", "/users/@me")
        assert (caught.value.status, len(server.calls("GET /users/@me")), persistent.last_errors) == (status, 1, {})

    async def test_it_waits_as_long_as_it_is_told_to(self, server: Server, out: Outgoing) -> None:
        server.fail("GET /users/@me", TooMany(3600.0))
        persistent = RetryingDiscordApi(out.api, "discord", DiscordReceiveTiming(initial_backoff=0.0))
        asking = asyncio.create_task(persistent("GET", "/users/@me"))
        await server.until(lambda: persistent.last_errors)
        for _ in range(3):
            await out.api.call("GET", "/gateway/bot")
        assert (asking.done(), len(server.calls("GET /users/@me"))) == (False, 1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert persistent.last_errors == {}
