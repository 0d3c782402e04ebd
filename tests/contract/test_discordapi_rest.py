"""The Discord server for tests: what the bot may send, read and change, judged by discord.py and by plain requests."""

from __future__ import annotations

import io
import json
from typing import Any

import discord
import pytest

from tests.fakes.discordapi.asked import Sizes
from tests.fakes.discordapi.client import Raw, raw, running
from tests.fakes.discordapi.errors import Json
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server
from tests.fakes.discordapi.world import EPOCH

PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (7).to_bytes(4, "big") + (5).to_bytes(4, "big") + b"\x08\x02\0\0\0"


def home(server: Server) -> Room:
    """A guild with Ada and one channel."""
    return server.guild("Home", server.user("Ada")).text("general")


async def test_a_token_is_needed_and_errors_are_json() -> None:
    async with Server() as server, raw(server) as api:
        for auth in ("", "Bot nonsense", server.bot.token):
            assert await api.ask("GET", "/users/@me", auth=auth) == (401, {"message": "401: Unauthorized", "code": 0})
        assert (await api.ask("GET", "/nowhere"))[1] == {"message": "404: Not Found", "code": 0}
        assert (await api.ask("PUT", "/users/@me"))[1] == {"message": "405: Method Not Allowed", "code": 0}
        status, me = await api.ask("GET", "/users/@me")
        assert (status, me["id"], me["bot"]) == (200, str(server.bot.id), True)
        assert (await api.ask("GET", "/gateway", auth=""))[1] == {"url": server.gateway_url}
        limits = (await api.ask("GET", "/gateway/bot"))[1]["session_start_limit"]
        assert (limits["total"], limits["remaining"], limits["max_concurrency"]) == (1000, 1000, 1)


async def test_the_content_type_is_json_to_the_letter() -> None:
    async with Server() as server, raw(server) as api, api.session.get(server.rest_url + "/users/@me") as answer:
        assert answer.headers["Content-Type"] == "application/json"
        assert answer.headers["Via"]


async def test_the_library_logs_in_and_learns_about_its_application() -> None:
    async with Server(presence_intent=True, content_intent=False) as server:
        async with raw(server) as api:
            flags = discord.ApplicationFlags._from_value((await api.ask("GET", "/applications/@me"))[1]["flags"])
        assert flags.gateway_presence_limited
        assert not flags.gateway_message_content_limited
    async with Server() as server, running(server) as client:
        assert client.user is not None
        assert (client.user.id, client.application_id) == (server.bot.id, server.bot.application_id)
        assert client.application_flags.gateway_message_content_limited


def test_ids_have_the_time_in_them_and_grow() -> None:
    server = Server()
    ids = [server.world.ids.next() for _ in range(10_000)]
    assert ids == sorted(set(ids))
    assert abs((ids[0] >> 22) + EPOCH - server.world.clock.now() * 1000) < 5000


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"content": "x" * 2001}, 50035, ("content", "BASE_TYPE_MAX_LENGTH")),
        ({"content": ""}, 50006, None),
        ({"content": " \n "}, 50006, None),
        ({}, 50006, None),
        ({"content": "a", "nonce": "n" * 26}, 50035, ("nonce", "BASE_TYPE_MAX_LENGTH")),
        ({"content": "a", "embeds": [{}] * 11}, 50035, ("embeds", "BASE_TYPE_MAX_LENGTH")),
        (
            {"content": "a", "message_reference": {"message_id": "77"}},
            50035,
            ("message_reference", "REPLIES_UNKNOWN_MESSAGE"),
        ),
        (
            {"content": "a", "allowed_mentions": {"parse": ["users"], "users": ["1"]}},
            50035,
            ("allowed_mentions", "MESSAGE_ALLOWED_MENTIONS_PARSE_EXCLUSIVE"),
        ),
    ],
)
async def test_messages_that_are_refused(body: Json, code: int, field: tuple[str, str] | None) -> None:
    async with Server() as server, raw(server) as api:
        room = home(server)
        status, answer = await api.ask("POST", f"/channels/{room.id}/messages", json=body)
        assert (status, answer["code"]) == (400, code)
        if field is not None:
            assert answer["errors"][field[0]]["_errors"][0]["code"] == field[1]
        assert room.messages == []


async def test_texts_are_stripped_and_2000_characters_pass() -> None:
    async with Server() as server, raw(server) as api:
        room = home(server)
        for text in ("  hi \n there \n", "😀" * 2000):
            assert (await api.ask("POST", f"/channels/{room.id}/messages", json={"content": text}))[0] == 200
        assert room.texts() == ["hi \n there", "😀" * 2000]


async def test_an_enforced_nonce_sends_once_for_a_while() -> None:
    async with Server(sizes=Sizes(nonce=60)) as server, raw(server) as api:
        room = home(server)
        body = {"content": "once", "nonce": "a1", "enforce_nonce": True}
        first, second = [(await api.ask("POST", f"/channels/{room.id}/messages", json=body))[1] for _ in range(2)]
        assert first["id"] == second["id"]
        assert second["nonce"] == "a1"
        await api.ask("POST", f"/channels/{room.id}/messages", json={"content": "loose", "nonce": "a1"})
        server.world.clock.advance(61)
        await api.ask("POST", f"/channels/{room.id}/messages", json=body)
        assert room.texts() == ["once", "loose", "once"]


async def test_a_reply_to_nothing_is_sent_where_that_is_allowed() -> None:
    async with Server() as server, raw(server) as api:
        room = home(server)
        asked = room.say(server.user("Bo"), "?")
        reference = {"message_id": str(asked.id), "fail_if_not_exists": False}
        body = {"content": "a", "message_reference": reference, "allowed_mentions": {"parse": []}}
        answer = (await api.ask("POST", f"/channels/{room.id}/messages", json=body))[1]
        assert (answer["type"], answer["referenced_message"]["content"], answer["mentions"]) == (19, "?", [])
        room.delete(asked)
        answer = (await api.ask("POST", f"/channels/{room.id}/messages", json=body))[1]
        assert answer["type"] == 0
        assert "message_reference" not in answer
        earlier = (await api.ask("GET", f"/channels/{room.id}/messages"))[1][1]
        assert earlier["message_reference"]["message_id"] == str(asked.id)
        assert earlier["referenced_message"] is None


async def test_who_is_mentioned_follows_from_the_text_and_what_is_allowed() -> None:
    async with Server() as server, raw(server) as api:
        ada = server.user("Ada")
        guild = server.guild("Home", ada)
        room, cooks = guild.text("general"), guild.role("cooks")
        text = f"{ada.mention} {cooks.mention} @everyone"

        async def sent(**more: object) -> tuple[list[str], list[str], bool]:
            one = (await api.ask("POST", f"/channels/{room.id}/messages", json={"content": text, **more}))[1]
            return [user["username"] for user in one["mentions"]], one["mention_roles"], one["mention_everyone"]

        assert await sent() == (["ada"], [str(cooks.id)], True)
        assert await sent(allowed_mentions={"parse": []}) == ([], [], False)
        assert await sent(allowed_mentions={"parse": ["roles"], "users": [str(ada.id)]}) == (
            ["ada"],
            [str(cooks.id)],
            False,
        )


async def test_files_go_up_and_come_down() -> None:
    async with Server() as server, running(server) as client:
        room = home(server)
        await server.until(lambda: client.get_channel(room.id))
        channel = client.get_channel(room.id)
        assert isinstance(channel, discord.TextChannel)
        files = [
            discord.File(io.BytesIO(PNG), "my cat.png", description="a cat"),
            discord.File(io.BytesIO("é".encode()), "a.txt"),
        ]
        sent = await channel.send("two", files=files)
        picture, words = sent.attachments
        assert (picture.filename, picture.width, picture.height) == ("my_cat.png", 7, 5)
        assert (picture.content_type, picture.description, picture.size) == ("image/png", "a cat", len(PNG))
        assert words.content_type == "text/plain; charset=utf-8"
        assert await words.read() == "é".encode()
        edited = await sent.edit(content="one", attachments=[words])
        assert [one.filename for one in edited.attachments] == ["a.txt"]
        await edited.add_files(discord.File(io.BytesIO(b"new"), "b.bin"))
        assert [one.name for one in room.messages[0].files] == ["a.txt", "b.bin"]
        assert [call.status for call in server.calls("file")] == [200]


async def test_a_file_over_the_limit_is_refused_whole() -> None:
    async with Server(sizes=Sizes(upload=1000, request=3000)) as server, running(server) as client:
        room = server.dm(server.user("Ada"))
        channel = await client.fetch_channel(room.id)
        assert isinstance(channel, discord.DMChannel)
        for size in (1001, 3001):
            with pytest.raises(discord.HTTPException) as caught:
                await channel.send(file=discord.File(io.BytesIO(bytes(size)), "a.bin"))
            assert (caught.value.status, caught.value.code) == (413, 40005)
        assert room.messages == []


async def _numbers(api: Raw, room: Room, query: str) -> list[int]:
    known = {str(one.id): number for number, one in enumerate(room.messages)}
    answer = (await api.ask("GET", f"/channels/{room.id}/messages?{query}"))[1]
    return [known[one["id"]] for one in answer]


async def test_history_is_read_from_every_side() -> None:
    async with Server() as server, raw(server) as api:
        room, ada = home(server), server.user("Bo")
        ids = [room.say(ada, f"{number}").id for number in range(120)]
        assert await _numbers(api, room, "") == list(range(119, 69, -1))
        assert await _numbers(api, room, "limit=100") == list(range(119, 19, -1))
        assert await _numbers(api, room, f"before={ids[10]}&limit=3") == [9, 8, 7]
        assert await _numbers(api, room, f"after={ids[10]}&limit=3") == [13, 12, 11]
        assert await _numbers(api, room, f"around={ids[10]}&limit=3") == [11, 10, 9]
        for query in ("limit=101", "limit=0", "limit=x", "after=x"):
            assert (await api.ask("GET", f"/channels/{room.id}/messages?{query}"))[1]["code"] == 50035


async def test_the_library_pages_through_history() -> None:
    async with Server(limits=None) as server, running(server) as client:
        room, bo = home(server), server.user("Bo")
        made = [room.say(bo, str(number)) for number in range(230)]
        channel = await client.fetch_channel(room.id)
        assert isinstance(channel, discord.TextChannel)
        newer = [
            one.id async for one in channel.history(after=discord.Object(made[4].id), limit=None, oldest_first=True)
        ]
        assert newer == [one.id for one in made[5:]]
        assert len([one async for one in channel.history(limit=None)]) == 230


async def test_reactions_are_added_listed_and_taken_back() -> None:
    async with Server(limits=None) as server, running(server) as client:
        room, ada = home(server), server.user("Bo")
        said = room.say(ada, "hi")
        room.react(ada, said, "👍")
        channel = await client.fetch_channel(room.id)
        assert isinstance(channel, discord.TextChannel)
        message = await channel.fetch_message(said.id)
        await message.add_reaction("👍")
        await message.add_reaction("🎉")
        message = await channel.fetch_message(said.id)
        assert [(str(one.emoji), one.count, one.me) for one in message.reactions] == [("👍", 2, True), ("🎉", 1, True)]
        assert {user.name async for user in message.reactions[0].users()} == {"Bubbot", "bo"}
        assert client.user is not None
        await message.remove_reaction("🎉", client.user)
        assert list(said.reactions["🎉"]) == []
        with pytest.raises(discord.HTTPException) as caught:
            await message.add_reaction("nonsense")
        assert caught.value.code == 10014


async def _code(api: Raw, method: str, path: str, **named: Any) -> tuple[int, int]:
    status, body = await api.ask(method, path, **named)
    return status, body["code"]


async def test_what_is_not_there_or_not_allowed() -> None:
    async with Server(limits=None) as server, raw(server) as api:
        ada = server.user("Ada")
        guild = server.guild("Home", ada)
        away = server.guild("Away", ada, bot=False).text("far")
        room, hidden, mute = guild.text("general"), guild.text("secret"), guild.text("mute")
        hidden.deny(guild.everyone, "view_channel")
        hidden.deny(guild.guild.roles[guild.guild.members[server.bot.id].roles[0]], "view_channel")
        mute.deny(server.bot.user, "send_messages")
        said, words = room.say(ada, "mine"), {"content": "hi"}
        here = f"/channels/{room.id}/messages"
        assert await _code(api, "GET", "/channels/1") == (404, 10003)
        assert await _code(api, "GET", "/channels/abc") == (400, 50035)
        assert await _code(api, "GET", f"/channels/{away.id}") == (403, 50001)
        assert await _code(api, "POST", f"/channels/{hidden.id}/messages", json=words) == (403, 50001)
        assert await _code(api, "POST", f"/channels/{mute.id}/messages", json=words) == (403, 50013)
        assert await _code(api, "GET", f"{here}/1") == (404, 10008)
        assert await _code(api, "PATCH", f"{here}/{said.id}", json=words) == (403, 50005)
        assert await _code(api, "DELETE", f"{here}/{said.id}") == (403, 50013)
        assert await _code(api, "POST", "/users/@me/channels", json={"recipient_id": "5"}) == (400, 50033)
        assert await _code(api, "GET", "/guilds/5") == (404, 10004)
        assert await _code(api, "GET", f"/guilds/{guild.id}/members/{server.user('Bo').id}") == (404, 10007)
        assert await _code(api, "POST", here, data=b"{}") == (400, 50035)
        assert await _code(api, "POST", here, data=b"{", headers={"Content-Type": "application/json"}) == (400, 50109)


async def test_permissions_come_from_roles_and_overwrites() -> None:
    async with Server(limits=None) as server, raw(server) as api:
        ada = server.user("Ada")
        guild = server.guild("Home", ada)
        room, keepers = guild.text("general"), guild.role("keepers", "manage_messages")
        said = room.say(ada, "mine")
        path = f"/channels/{room.id}/messages/{said.id}"
        assert (await api.ask("DELETE", path))[0] == 403
        guild.give(keepers, server.bot.user)
        room.deny(keepers, "manage_messages")
        assert (await api.ask("DELETE", path))[0] == 403
        room.allow(server.bot.user, "manage_messages")
        assert (await api.ask("DELETE", path))[0] == 204
        room.deny(server.bot.user, "read_message_history")
        room.say(ada, "more")
        assert await api.ask("GET", f"/channels/{room.id}/messages") == (200, [])


async def test_direct_messages_have_one_place_and_can_be_closed() -> None:
    async with Server() as server, running(server) as client:
        ada, other = server.user("Ada"), server.user("rival", bot=True)
        user = await client.fetch_user(ada.id)
        assert (await user.create_dm()).id == server.dm(ada).id
        sent = await user.send("hi")
        assert sent.guild is None
        server.dm(ada).block()
        with pytest.raises(discord.Forbidden) as caught:
            await user.send("hi")
        assert caught.value.code == 50007
        server.dm(ada).unblock()
        await user.send("again")
        assert server.dm(ada).texts() == ["hi", "again"]
        with pytest.raises(discord.HTTPException) as refused:
            await (await client.fetch_user(other.id)).send("hi")
        assert refused.value.code == 50007


async def test_messages_are_edited_and_deleted() -> None:
    async with Server(limits=None) as server, running(server) as client:
        room = home(server)
        channel = await client.fetch_channel(room.id)
        assert isinstance(channel, discord.TextChannel)
        sent = await channel.send("one", embed=discord.Embed(title="t", description="d"))
        assert sent.edited_at is None
        edited = await sent.edit(content="two", embed=None)
        assert (edited.content, edited.embeds) == ("two", [])
        assert edited.edited_at is not None
        with pytest.raises(discord.HTTPException) as caught:
            await sent.edit(content="")
        assert caught.value.code == 50006
        await sent.delete()
        assert room.messages == []
        with pytest.raises(discord.NotFound) as gone:
            await sent.edit(content="three")
        assert gone.value.code == 10008
        assert server.transcript(times=False) == (
            "== #general (Home) ==\nBubbot #1: one [embed: t]\nBubbot edited #1: two\n#1 of Bubbot was deleted: two\n"
        )


async def test_the_request_log_tells_route_body_status_and_token() -> None:
    async with Server() as server, running(server) as client:
        room = server.dm(server.user("Ada"))
        channel = await client.fetch_channel(room.id)
        assert isinstance(channel, discord.DMChannel)
        await channel.send("hi", nonce=5)
        (call,) = server.calls("POST /channels/{channel_id}/messages")
        assert (call.status, call.auth) == (200, f"Bot {server.bot.token}")
        assert json.loads(json.dumps(call.json))["nonce"] == "5"
        assert server.calls("GET /channels/{}")[0].path == f"/api/v10/channels/{room.id}"
