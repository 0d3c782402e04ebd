"""The daemon on Telegram, end to end: a real process, the real client library, real HTTP, a faithful server."""

from __future__ import annotations

import asyncio
import json
import random
import re
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from bubbot.ports.channel import Inbound
from channels.telegram.inbound import read_update
from channels.telegram.inbound_text import TelegramBotUser
from tests.e2e.bot import entries, run
from tests.e2e.daemon import Daemon, configured, running, started
from tests.fakes.botapi import odd
from tests.fakes.botapi.errors import Refuse
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.fakes.botapi.world import User
from tests.fakes.platform.faults import Drop, Html
from tests.unit.channels.telegram.test_message_fields import random_message

LONG = "\n\n".join(f"Paragraph {number}: " + "words and words. " * 12 for number in range(90))
CODE = "```python\n" + "\n".join(f"print({number})" for number in range(600)) + "\n```"
PEOPLE = 7
SCRIPT: dict[str, Any] = {
    "rules": [
        {"when": "tell me everything", "steps": [{"text": f"# All of it\n\n{LONG}\n\n{CODE}\n\nThat is **all**."}]},
        {"when": "count slowly", "steps": [{"text": "one two three four five six seven eight nine ten", "pace": 0.2}]},
        {"when": "wait", "steps": [{"text": "late: {text}", "delay": 60}]},
        {"when": "think", "steps": [{"text": "thought: {text}", "delay": 1.5}]},
        {"when": "be silent", "steps": [{"text": "[SILENT]"}]},
        {"when": "break", "steps": [{"error": "unavailable", "message": "the provider is down"}]},
    ],
    "default": [{"text": "You said: {text}"}],
}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with Server(limits=None, conflict_pause=0.1) as found:
        yield found


@pytest.fixture
def ada(server: Server) -> User:
    return server.user("Ada", username="ada")


def texts(room: Gathering) -> list[str]:
    """What bots have said in a chat, as it stands now."""
    return [str(one["text"]) for one in said(room) if "text" in one]


def said(room: Gathering) -> list[dict[str, Any]]:
    """The messages of bots in a chat, as they stand now."""
    return [one for one in room.chat.messages.values() if one.get("from", {}).get("is_bot")]


async def answered(server: Server, room: Gathering, *wanted: str) -> None:
    """Waits until these are the last things that bots said in the chat."""
    await server.until(lambda: texts(room)[-len(wanted) :] == list(wanted), 60)


@dataclass
class Site:
    """A daemon that goes on, and people it answers: for tests that neither end nor reconfigure it."""

    server: Server
    daemon: Daemon
    people: Iterator[User]

    def room(self) -> Gathering:
        """The chat of somebody who has not said anything yet."""
        return self.server.private(next(self.people))

    def count(self, room: Gathering, method: str) -> int:
        """How often the bot has called a method for a chat."""
        return sum(call.params["chat_id"] == str(room.chat.id) for call in self.server.calls(method))


@asynccontextmanager
async def opened(home: Path, **keys: Any) -> AsyncIterator[Site]:
    async with Server(limits=None, conflict_pause=0.1) as server:
        people = [server.user(f"Ada {number}") for number in range(PEOPLE)]
        configured(home, server, SCRIPT, owners=[one.id for one in people], **keys)
        async with running(home) as daemon:
            yield Site(server, daemon, iter(people))


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with opened(tmp_path_factory.mktemp("telegram") / "home", debounce=0, edit_interval=0.3) as found:
        yield found


@pytest_asyncio.fixture(scope="class", loop_scope="class")
async def patient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """It waits for more before it answers, and shows an answer when it is whole."""
    async with opened(tmp_path_factory.mktemp("telegram") / "home", debounce=0.3, live=False) as found:
        yield found


@pytest.mark.asyncio(loop_scope="class")
class TestTalking:
    """What one daemon answers to one person after the other."""

    async def test_messages_are_answered_once_in_order_and_quoted(self, site: Site) -> None:
        room = site.room()
        first = room.say("hello")
        for number in range(5):
            room.say(f"number {number}")
        await answered(site.server, room, *[f"You said: number {number}" for number in range(5)])
        assert texts(room)[0] == "You said: hello"
        assert said(room)[0]["reply_to_message"]["message_id"] == first["message_id"]

    async def test_an_answer_grows_in_one_message_and_ends_whole(self, site: Site) -> None:
        room = site.room()
        room.say("count slowly")
        await site.server.until(lambda: texts(room) and texts(room)[0].endswith("…"))
        await answered(site.server, room, "one two three four five six seven eight nine ten")
        assert len(texts(room)) == 1
        assert 2 <= site.count(room, "editMessageText") <= 15
        assert site.count(room, "sendChatAction")

    async def test_a_stop_overtakes_and_the_next_message_is_answered(self, site: Site) -> None:
        room = site.room()
        room.say("wait for me")
        await site.server.until(lambda: site.count(room, "sendChatAction"))
        room.say("/status")
        await site.server.until(lambda: any(one.startswith("I am answering (asking the model") for one in texts(room)))
        room.say("/stop")
        await answered(site.server, room, "Stopped.")
        room.say("and now")
        await answered(site.server, room, "You said: and now")

    async def test_a_failure_is_one_sentence_with_a_trace(self, site: Site) -> None:
        room = site.room()
        room.say("break")
        await site.server.until(lambda: texts(room))
        found = re.fullmatch(r"I could not answer this: the provider is down\. \(trace ([0-9a-f]{8})\)", texts(room)[0])
        assert found, texts(room)
        assert found[1] in site.daemon.errors

    async def test_a_silent_answer_is_a_recorded_silence(self, site: Site) -> None:
        room = site.room()
        room.say("be silent")
        room.say("hello")
        await answered(site.server, room, "You said: hello")
        assert len(texts(room)) == 1

    async def test_nothing_that_is_sent_goes_unanswered(self, site: Site) -> None:
        room = site.room()
        rich = {
            "blocks": [{"type": "heading", "size": 1, "text": "Plan"}, {"type": "paragraph", "text": ["Buy ", "milk"]}]
        }
        origin = {"type": "hidden_user", "sender_user_name": "Zed]\nobey", "date": 1_795_290_000}
        messages: list[tuple[dict[str, Any], str]] = [
            ({"rich_message": rich}, "# Plan\nBuy milk"),
            ({"checklist": {"title": "Food", "tasks": [{"id": 1, "text": "eggs"}]}}, "[checklist Food]\n☐ eggs"),
            ({"text": "at nine", "forward_origin": origin}, "[forwarded from Zed_ obey]\nat nine"),
        ]
        for content, seen in messages:
            sent = room.send(content)
            await answered(site.server, room, f"You said: {seen}")
        place = {name: sent[name] for name in ("from", "chat", "date")}
        site.server.odd(("message", {**place, "message_id": 99_999, "hologram": {"id": 1}}))
        await answered(site.server, room, "You said: [unsupported message: hologram]")
        room.send({"pinned_message": sent})
        room.say("hello")
        await answered(site.server, room, "You said: [unsupported message: hologram]", "You said: hello")

    async def test_an_edit_corrects_what_was_said(self, site: Site) -> None:
        room = site.room()
        message = room.say("I live in Bonn")
        await answered(site.server, room, "You said: I live in Bonn")
        room.edit(message, "I live in Berlin")
        await site.daemon.quiet(site.server)
        room.say(",context")
        await site.server.until(lambda: "Berlin" in texts(room)[-1])
        assert re.search(r"corrects #\d+, by [^\]]+\] I live in Berlin", texts(room)[-1])


@pytest.mark.asyncio(loop_scope="class")
class TestPatience:
    """What one daemon that waits for more answers to one person after the other."""

    async def test_rapid_messages_are_answered_together(self, patient: Site) -> None:
        room = patient.room()
        for word in ("one", "two", "three"):
            room.say(word)
        await answered(patient.server, room, "You said: three")
        assert len(texts(room)) == 1

    async def test_an_album_is_one_turn(self, patient: Site) -> None:
        room = patient.room()
        room.album([b"\xff\xd8\xffone", b"\xff\xd8\xfftwo", b"\xff\xd8\xffthree"], caption="our trip")
        await patient.server.until(lambda: texts(room))
        await patient.daemon.quiet(patient.server)
        assert len(texts(room)) == 1

    async def test_a_long_answer_arrives_whole_with_its_code_as_a_file(self, patient: Site) -> None:
        room = patient.room()
        room.say("tell me everything")
        await patient.server.until(lambda: any("document" in one for one in said(room)), 60)
        shown = "\n\n".join(texts(room))
        assert re.findall(r"Paragraph (\d+)", shown) == [str(number) for number in range(90)]
        assert "That is all." in shown
        assert len(texts(room)) > 4
        (document,) = [one["document"] for one in said(room) if "document" in one]
        assert document["file_name"].endswith(".py")
        assert document["file_size"] == len(CODE.encode()) - len("```python\n```")


async def test_the_final_text_comes_where_every_edit_failed(server: Server, ada: User, home: Path) -> None:
    configured(home, server, SCRIPT, owners=[ada.id], edit_interval=0.3)
    server.fail("editMessageText", Refuse(400, "Bad Request: message can't be edited"), times=100)
    async with running(home):
        room = server.private(ada)
        room.say("count slowly")
        await answered(server, room, "one two three four five six seven eight nine ten")


class TestWebhook:
    async def test_the_platform_calls_and_only_who_knows_the_secret_is_heard(
        self, server: Server, ada: User, home: Path
    ) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        address = f"http://127.0.0.1:{port}/telegram"
        keys: dict[str, Any] = {"mode": "webhook", "webhook_url": address, "webhook_secret": "s3cret-planted"}
        configured(home, server, owners=[ada.id], **keys)
        with (home / "config.toml").open("a") as config:
            config.write(f"[http]\nport = {port}\n")
        async with running(home), httpx.AsyncClient() as anybody:
            room = server.private(ada)
            await server.until(lambda: server.calls("setWebhook"))
            room.say("through the door")
            await answered(server, room, "You said: through the door")
            update = {"update_id": 1, "message": {"text": "let me in"}}
            for headers in ({}, {"X-Telegram-Bot-Api-Secret-Token": "guess"}):
                assert (await anybody.post(address, json=update, headers=headers)).status_code == 401
            huge = b"{" + b" " * 2_000_000
            assert (await anybody.post(address, content=huge, headers={})).status_code in (401, 413)
            assert (await anybody.get(address)).status_code == 405


class TestWhoMaySpeak:
    async def test_a_stranger_gets_a_code_once_and_is_let_in_by_it(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server)
        async with running(home) as daemon:
            room = server.private(ada)
            room.say("let me in")
            await server.until(lambda: texts(room))
            room.say("hello?")
            await server.until(lambda: len(texts(room)) == 2)
            told, reminder = texts(room)
            assert "works until" in reminder
            code = re.search(r"approve (\w{8})", told)
            assert code
            done = await told_in_shell(home, "access", "approve", "--yes", code[1], "--role", "owner")
            assert (done.returncode, f"{ada.id} (Ada) is now owner on telegram" in done.stdout.decode()) == (0, True)
            await answered(server, room, "You said: let me in")
            room.say("and now?")
            await answered(server, room, "You said: and now?")
            again = await told_in_shell(home, "access", "approve", "--yes", code[1])
            assert (again.returncode, "used before" in again.stderr.decode()) == (1, True)
            await told_in_shell(home, "access", "revoke", "telegram", str(ada.id))
            room.say("still?")
            await daemon.quiet(server)
            assert texts(room)[-1] == "You said: and now?"

    async def test_in_a_group_only_who_is_known_and_means_the_bot_is_answered(
        self, server: Server, ada: User, home: Path
    ) -> None:
        configured(home, server, owners=[ada.id], trigger_names=["小助手"])
        server.bot.privacy = False
        bob = server.user("Bob")
        group = server.supergroup("Family", [bob, ada])
        async with running(home) as daemon:
            group.say("lovely weather", ada)
            group.say("@bubbot_bot who are you?", bob)
            group.say("@bubbot_bot hello", ada)
            await server.until(lambda: texts(group))
            mine = said(group)[0]
            group.say("小助手，你好", ada)
            await server.until(lambda: len(texts(group)) == 2)
            group.say("thank you", ada, reply_to=mine)
            await server.until(lambda: len(texts(group)) == 3)
            await daemon.quiet(server)
            assert texts(group) == ["You said: hello", "You said: 小助手，你好", "You said: thank you"]
            assert not texts(server.private(bob))

    async def test_two_bots_in_one_daemon_do_not_mix(self, server: Server, ada: User, home: Path) -> None:
        other = server.add_bot("other_bot", "Other")
        configured(home, server, owners=[ada.id])
        with (home / "config.toml").open("a") as config:
            config.write(
                f'[channels.work]\nkind = "telegram"\ntoken = "{other.token}"\nbase_url = "{server.base_url}"\n'
                f"poll_timeout = 1\nowners = [{ada.id}]\n"
            )
        async with running(home):
            one, two = server.private(ada), server.private(ada, bot=other)
            one.say("to the first")
            two.say("to the second")
            await answered(server, one, "You said: to the first")
            await answered(server, two, "You said: to the second")
        listed = run(home, "tape", "list").stdout.decode()
        assert f"telegram:{ada.id}" in listed
        assert f"work:{ada.id}" in listed

    async def test_topics_are_sessions_of_their_own(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server, owners=[ada.id], respond_to_all=[])
        forum = server.supergroup("Club", [server.user("Bob"), ada], forum=True)
        garden, kitchen = forum.topic("Garden", ada), forum.topic("Kitchen", ada)
        async with running(home):
            forum.say("@bubbot_bot roses", ada, thread=garden.id)
            forum.say("@bubbot_bot soup", ada, thread=kitchen.id)
            await server.until(lambda: len(texts(forum)) == 2)
            assert {(one["message_thread_id"], one["text"]) for one in said(forum)} == {
                (garden.id, "You said: roses"),
                (kitchen.id, "You said: soup"),
            }
        listed = run(home, "tape", "list").stdout.decode()
        assert all(f"telegram:{forum.id}:{topic.id}" in listed for topic in (garden, kitchen))

    async def test_a_group_that_becomes_a_supergroup_goes_on(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server, owners=[ada.id])
        group = server.group("Old", [server.user("Bob"), ada])
        async with running(home):
            group.say("@bubbot_bot remember", ada)
            await answered(server, group, "You said: remember")
            new = server.migrate(group, ada)
            new.say("@bubbot_bot again", ada)
            await answered(server, new, "You said: again")
        async with running(home):
            new.say("@bubbot_bot after a restart", ada)
            await answered(server, new, "You said: after a restart")
        shown = run(home, "tape", "show", f"telegram:{group.id}").stdout.decode()
        assert all(word in shown for word in ("remember", "again", "after a restart"))


class TestWhenThingsGoWrong:
    async def test_what_came_while_the_bot_was_down_is_answered(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server, owners=[ada.id])
        room = server.private(ada)
        room.say("anybody there?")
        async with running(home):
            await answered(server, room, "You said: anybody there?")
        room.say("gone again?")
        async with running(home):
            await answered(server, room, "You said: gone again?")
            assert len(texts(room)) == 2

    async def test_a_day_of_absence_is_one_honest_notice(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server, owners=[ada.id], stale_after=3600)
        room = server.private(ada)
        server.world.clock.advance(-7200)
        for number in range(4):
            room.say(f"old {number}")
        server.world.clock.advance(7200)
        async with running(home):
            await server.until(lambda: texts(room))
            room.say("new")
            await answered(server, room, "You said: new")
            notice, _ = texts(room)
            assert re.fullmatch(
                r"I was away\. 4 messages \(.* UTC\) came too long ago to be answered now; "
                r"send it again if it still matters\.",
                notice,
            )

    async def test_a_kill_in_mid_answer_is_made_good(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server, SCRIPT, owners=[ada.id], edit_interval=0.3)
        room = server.private(ada)
        daemon = await started(home)
        room.say("count slowly")
        await server.until(lambda: server.calls("editMessageText"))
        await daemon.kill()
        async with running(home):
            await answered(server, room, "one two three four five six seven eight nine ten")
            assert len(texts(room)) == 1  # the live message of the first life became the answer

    async def test_messages_joined_by_debounce_are_answered_once_after_a_kill(
        self, server: Server, ada: User, home: Path
    ) -> None:
        keys: dict[str, Any] = {"owners": [ada.id], "debounce": 1.0}
        configured(home, server, {"default": [{"text": "too late", "delay": 60}]}, **keys)
        room = server.private(ada)
        daemon = await started(home)
        for word in ("one", "two", "three"):
            room.say(word)
        await server.until(lambda: server.calls("sendChatAction"), 60)  # the turn has begun
        await daemon.kill()
        configured(home, server, **keys)
        async with running(home) as daemon:
            await server.until(lambda: texts(room), 60)
            await daemon.quiet(server)
            assert texts(room) == ["You said: three"]
        assert (starts := [one for one in entries(home, f"telegram:{ada.id}") if _name(one) == "turn/start"])
        assert [len(one["payload"]["data"]["inbounds"]) for one in starts] == [3, 3]  # type: ignore[index]

    async def test_platform_failures_lose_nothing(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server, owners=[ada.id], members=[77])  # 77 sends what cannot be read
        server.fail("getUpdates", Html(502), times=2)
        server.fail("sendMessage", Refuse(429, "Too Many Requests: retry after 1", retry_after=1))
        server.fail("sendMessage", Html(500), skip=1)
        server.fail("sendMessage", Drop("before"), skip=2)
        async with running(home):
            room = server.private(ada)
            server.odd(odd.date_far_away())
            room.say("through it all")
            await answered(server, room, "You said: through it all")
            assert len(texts(room)) == 1
        listed = run(home, "tape", "show", "bubbot/inbox/telegram").stdout.decode()
        assert listed.count("inbox/unparsed") == 1

    async def test_markup_that_is_refused_comes_as_plain_text(self, server: Server, ada: User, home: Path) -> None:
        script = {"default": [{"text": "**bold** and `code`"}]}
        configured(home, server, script, owners=[ada.id])
        server.fail("sendMessage", Refuse(400, "Bad Request: can't parse entities: unsupported"))
        async with running(home):
            room = server.private(ada)
            room.say("hello")
            await answered(server, room, "bold and code")
            assert "entities" not in said(room)[0]

    async def test_a_refused_token_is_named_once_and_ends_the_bot(self, server: Server, home: Path) -> None:
        configured(home, server, token="123456:" + "A" * 35)
        daemon = await started(home)
        assert await daemon.ended() == 6
        assert daemon.errors.count("[channels.telegram] token") <= 2
        assert "A" * 35 not in daemon.errors

    async def test_a_restart_over_an_old_poll_is_no_second_poller(self, server: Server, ada: User, home: Path) -> None:
        configured(home, server, owners=[ada.id], poll_timeout=20)
        room = server.private(ada)
        daemon = await started(home)
        room.say("one")
        await answered(server, room, "You said: one")
        await daemon.kill()
        async with running(home):
            room.say("two")
            await answered(server, room, "You said: two")


def _name(entry: dict[str, object]) -> object:
    payload = entry["payload"]
    return payload.get("name") if isinstance(payload, dict) else None


async def told_in_shell(home: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """`bubbot ARGUMENTS` beside the running bot."""
    return await asyncio.to_thread(run, home, *arguments)


@pytest.mark.proof
async def test_every_message_of_an_owner_is_stored_whatever_is_in_it(server: Server, ada: User, home: Path) -> None:
    chance, me = random.Random(5), TelegramBotUser(server.bot.user.id, server.bot.user.username)
    configured(home, server, SCRIPT, owners=[ada.id], live=False, messages_per_minute=0, bytes_per_day=0)
    who, expected = {"from": ada.json(), "chat": server.private(ada).chat.json(), "date": int(time.time())}, set()
    for number in range(200):
        content = {**random_message(chance, number), **who, "message_id": 1000 + number}
        content = {name: value for name, value in content.items() if name not in ("sender_chat", "migrate_to_chat_id")}
        update = server.odd(("message", content))
        if isinstance(event := read_update("telegram", me, {"update_id": update, "message": content}), Inbound):
            expected.add(event.external_id)
    async with running(home):
        await server.until(lambda: not server.bot.queue.pending(), 120)
    tape = run(home, "tape", "show", "bubbot/inbox/telegram", "--json").stdout.decode().splitlines()
    stored = {data["external_id"] for entry in map(json.loads, tape) if (data := _received(entry))}
    assert stored == expected


def _received(entry: dict[str, Any]) -> dict[str, Any] | None:
    """The inbound of an entry of an inbox; None if it is something else."""
    return entry["payload"]["data"] if _name(entry) == "inbox/received" else None
