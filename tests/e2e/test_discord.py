"""The daemon on Discord, end to end: a real process, the real client library, real HTTP and WebSocket, our server."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.bot import entries, run
from tests.e2e.on_discord import CODE, COUNTED, answered, configured, connected, named, said, texts
from tests.e2e.platforms import EDIT, OnDiscord
from tests.fakes.discordapi import posting
from tests.fakes.discordapi.server import Server
from tests.fakes.discordapi.world import User

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None) as found:
        yield found


@pytest.fixture
def ada(server: Server) -> User:
    return server.user("Ada")


class TestTalking:
    async def test_messages_are_answered_once_in_order_and_quoted(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server, owners=[ada.id], debounce=0)
        async with connected(home, server):
            room = server.dm(ada)
            first = room.say(ada, "hello")
            for number in range(5):
                room.say(ada, f"number {number}")
            await answered(server, room, *[f"You said: number {number}" for number in range(5)])
            assert texts(server, room)[0] == "You said: hello"
            assert said(server, room)[0].reference == (room.channel, first.id)
            room.say(ada, "call everybody")
            await answered(server, room, "@everyone @here <@&1> come!")
            assert not any(one.mention_everyone or one.mentions for one in said(server, room))

    async def test_a_message_of_a_kind_that_nobody_knows_is_answered(
        self, server: Server, ada: User, home: Path
    ) -> None:
        configured(home, server, owners=[ada.id], debounce=0)
        async with connected(home, server):
            room = server.dm(ada)
            posting.post(server.world, room.channel, ada, kind=999)
            await server.until(lambda: texts(server, room), 60)
            assert "unsupported message: type 999" in texts(server, room)[0]

    async def test_rapid_messages_and_their_files_are_answered_together(
        self, server: Server, ada: User, home: Path
    ) -> None:
        configured(home, server, owners=[ada.id], debounce=0.3)
        async with connected(home, server):
            room = server.dm(ada)
            for word in ("one", "two"):
                room.say(ada, word)
            room.say(
                ada, "three", files=[("a.png", PNG, "image/png"), ("notes.txt", b"the code is 4711", "text/plain")]
            )
            await server.until(lambda: texts(server, room))
            (answer,) = texts(server, room)
            assert all(word in answer for word in ("three", "[image a.png, 28 bytes; ", "notes.txt, text/plain"))
            assert "```\nthe code is 4711\n```" in answer
        assert [one["text"] for one in named(home, "bubbot/inbox/discord", "inbox/received")] == ["one", "two", "three"]

    async def test_a_long_answer_arrives_whole_with_its_code_as_a_file(
        self, server: Server, ada: User, home: Path
    ) -> None:
        configured(home, server, owners=[ada.id], live=False)
        async with connected(home, server):
            room = server.dm(ada)
            room.say(ada, "tell me everything")
            await server.until(lambda: any(one.files for one in said(server, room)), 60)
            shown = "\n\n".join(texts(server, room))
            assert re.findall(r"Paragraph (\d+)", shown) == [str(number) for number in range(30)]
            assert "That is **all**." in shown
            assert all(len(one) <= 2000 for one in texts(server, room))
            ((file,),) = [one.files for one in said(server, room) if one.files]
            assert (file.name, file.content) == ("code-1.py", CODE[len("```python\n") : -len("\n```")].encode() + b"\n")

    async def test_an_answer_grows_in_one_message_and_ends_whole(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server, owners=[ada.id], edit_interval=0.3)
        async with connected(home, server):
            room = server.dm(ada)
            room.say(ada, "count slowly")
            await server.until(lambda: texts(server, room) and texts(server, room)[0].endswith("…"))
            await answered(server, room, COUNTED)
            assert len(texts(server, room)) == 1
            assert 2 <= len(server.calls(EDIT)) <= 15
            assert server.calls("POST /channels/{}/typing")

    async def test_what_people_change_take_back_and_show_is_on_the_tape(
        self, server: Server, ada: User, home: Path
    ) -> None:
        configured(home, server, owners=[ada.id])
        async with connected(home, server):
            room = server.dm(ada)
            lives, secret = room.say(ada, "I live in Bonn"), room.say(ada, "my pin is 1234")
            await server.until(lambda: texts(server, room))
            room.edit(lives, "I live in Berlin")
            room.unfurl(lives, {"title": "Berlin"})
            room.delete(secret)
            room.react(ada, said(server, room)[0], "👍")
            room.unreact(ada, said(server, room)[0], "👍")
            room.react(ada, said(server, room)[0], "🎉")
            room.say(ada, ",context")
            await server.until(lambda: "Berlin" in texts(server, room)[-1])
            assert re.search(r"corrects #\d+, by [^\]]+\] I live in Berlin", texts(server, room)[-1])
        shown = [entry["payload"] for entry in await asyncio.to_thread(entries, home, f"discord:{room.id}")]
        changes: list[Any] = [one for one in shown if one.get("name") in ("correction", "reaction")]  # type: ignore[attr-defined]
        assert [one["data"].get("content") or one["data"].get("emojis") or "" for one in changes] == [
            "I live in Berlin",
            "",
            ["👍"],
            "",
            ["🎉"],
        ]
        assert changes[1]["data"]["hide"]


class TestWhoMaySpeak:
    async def test_a_stranger_gets_a_code_once_and_is_let_in_by_it(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server)
        async with connected(home, server) as daemon:
            room = server.dm(ada)
            room.say(ada, "let me in")
            await server.until(lambda: texts(server, room))
            room.say(ada, "hello?")
            await server.until(lambda: len(texts(server, room)) == 2)
            told, reminder = texts(server, room)
            assert "works until" in reminder
            code = re.search(r"approve (\w{8})", told)
            assert code
            done = await told_in_shell(home, "access", "approve", "--yes", code[1], "--role", "owner")
            assert (done.returncode, f"{ada.id} (Ada) is now owner on discord" in done.stdout.decode()) == (0, True)
            await answered(server, room, "You said: let me in")
            room.say(ada, "and now?")
            await answered(server, room, "You said: and now?")
            await told_in_shell(home, "access", "revoke", "discord", str(ada.id))
            room.say(ada, "still?")
            await quiet(server)
            assert texts(server, room)[-1] == "You said: and now?"
            assert "let me in" not in daemon.errors

    async def test_on_a_server_only_who_is_known_and_means_the_bot_is_answered(
        self, server: Server, ada: User, home: Path
    ) -> None:
        bob = server.user("Bob")
        family = server.guild("Family", ada, [bob])
        room = family.text("general")
        configured(home, server, owners=[ada.id], trigger_names=["小助手"])
        async with connected(home, server):
            room.say(ada, "lovely weather")
            room.say(bob, f"{server.bot.mention} who are you?")
            room.say(ada, f"{server.bot.mention} hello")
            await answered(server, room, "You said: hello")
            first = said(server, room)[0]
            room.say(bob, "and me?", reply_to=first)
            room.say(ada, "小助手，你好")
            await answered(server, room, "You said: hello", "You said: 小助手，你好")
            room.say(ada, "thank you", reply_to=first, mention_author=False)
            await answered(server, room, "You said: hello", "You said: 小助手，你好", "You said: thank you")
            assert not server.dm(bob).messages
        listed = (await told_in_shell(home, "tape", "list")).stdout.decode()
        assert f"discord:{room.id}" in listed

    async def test_each_server_has_its_own_rules(self, server: Server, ada: User, home: Path) -> None:
        bob, eve = server.user("Bob"), server.user("Eve")
        public, club = server.guild("Public", ada, [bob, eve]), server.guild("Club", ada, [bob, eve])
        chat, help_, cave = public.text("chat"), public.text("help"), public.text("cave")
        hall, friends, heads = club.text("hall"), club.role("friend"), club.role("head")
        club.give(friends, bob)
        guilds = {
            str(public.id): {
                "open": True,
                "respond_to_all": [help_.id],
                "ignored": [cave.id],
                "record_only": [chat.id],
            },
            str(club.id): {"roles": [friends.id], "admin_roles": [heads.id], "trigger_names": ["robo"]},
        }
        configured(home, server, owners=[ada.id], guilds=guilds)
        async with connected(home, server):
            for user in (bob, ada):
                cave.say(user, f"{server.bot.mention} psst")
            chat.say(bob, "the key is under the mat")
            help_.say(eve, "no name needed")
            await answered(server, help_, "You said: no name needed")
            chat.say(eve, f"{server.bot.mention} hello")
            await answered(server, chat, "You said: hello")
            hall.say(eve, "robo, let me in")
            hall.say(bob, "robo, are you there?")
            await answered(server, hall, "You said: robo, are you there?")
            club.give(friends, eve)
            club.take(friends, bob)
            hall.say(bob, "robo, and me?")
            hall.say(eve, "robo, and now?")
            await answered(server, hall, "You said: robo, are you there?", "You said: robo, and now?")
            server.dm(eve).say(eve, "and here?")
            await server.until(lambda: texts(server, server.dm(eve)))
            assert "I do not know you yet" in texts(server, server.dm(eve))[0]
            assert texts(server, cave) == []
        kept = (await told_in_shell(home, "tape", "show", f"discord:{chat.id}")).stdout.decode()
        assert "the key is under the mat" in kept
        assert f"discord:{cave.id}" not in (await told_in_shell(home, "tape", "list")).stdout.decode()

    async def test_threads_and_posts_are_sessions_of_their_own(self, server: Server, ada: User, home: Path) -> None:
        club = server.guild("Club", ada)
        general, forum = club.text("general"), club.forum("questions")
        configured(home, server, owners=[ada.id], respond_to_all=[forum.id])
        async with connected(home, server):
            start = general.say(ada, f"{server.bot.mention} hello")
            await answered(server, general, "You said: hello")
            roses = general.thread("Roses", start)
            roses.say(ada, f"{server.bot.mention} in the thread")
            await answered(server, roses, "You said: in the thread")
            post = forum.post("Wilted roses", "What did I do wrong?", ada)
            # In a group, further lines of a message are indented; the scripted model repeats them as it was shown them.
            await answered(server, post, "You said: Wilted roses\n\n```\nWhat did I do wrong?\n```")
            post.say(ada, "too much water?")
            await answered(server, post, "You said: too much water?")
            roses.archive()
            roses.say(ada, f"{server.bot.mention} still there?")
            await answered(server, roses, "You said: still there?")
        listed = (await told_in_shell(home, "tape", "list")).stdout.decode()
        sessions = [f"discord:{general.id}", f"discord:{general.id}:{roses.id}", f"discord:{forum.id}:{post.id}"]
        assert [one for one in sessions if not re.search(rf"^{one}\s", listed, re.MULTILINE)] == []


async def told_in_shell(home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """`bubbot ARGUMENTS` beside the running bot."""
    return await asyncio.to_thread(run, home, *arguments)


async def quiet(server: Server) -> None:
    """Waits until a running bot has nothing more to do."""
    await OnDiscord(server).quiet()
