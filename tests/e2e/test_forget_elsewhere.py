"""A person is forgotten on Discord, and one with accounts on two platforms on both: looked for in the bytes of all files."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.e2e.bot import run
from tests.e2e.daemon import WAIT, configure, running
from tests.e2e.forgotten_person import SCRIPT, canary
from tests.e2e.on_discord import said, texts
from tests.e2e.platforms import OnDiscord, OnTelegram
from tests.e2e.test_telegram import texts as telegram_texts
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server as TelegramServer
from tests.fakes.botapi.world import User as TelegramUser
from tests.fakes.discordapi.desk import Interaction
from tests.fakes.discordapi.rooms import Room
from tests.fakes.discordapi.server import Server as DiscordServer
from tests.fakes.discordapi.world import Message, User

OWN_FILES = ("config.toml", "script.json", "errors")
pytestmark = pytest.mark.law("T17")


def traces(home: Path, words: list[str]) -> dict[str, list[str]]:
    """The words that stand in files of the home, except those of the owner and the test, with these files."""
    files = [path for path in home.rglob("*") if path.is_file() and path.name not in OWN_FILES]
    held = {path: path.read_bytes() for path in files}
    found = {
        word: [str(path.relative_to(home)) for path in files if word.encode() in held[path] or word in str(path)]
        for word in words
    }
    return {word: paths for word, paths in found.items() if paths}


async def command(home: Path, *words: str) -> str:
    """Run a command of the shell; return what it prints."""
    done = await asyncio.to_thread(run, home, *words)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


async def tell(server: TelegramServer, room: Gathering, text: str, who: TelegramUser | None = None) -> None:
    """Say something on Telegram, and wait for the answer."""
    before = len(telegram_texts(room))
    room.say(text, who)
    await server.until(lambda: len(telegram_texts(room)) > before, WAIT)


class Talk:
    """What people say on Discord, each answered before the next."""

    def __init__(self, server: DiscordServer) -> None:
        self.server = server
        self._heard: dict[int, int] = {}

    async def say(self, room: Room, who: User, text: str, **how: object) -> None:
        before = len(said(self.server, room))
        room.say(who, text, **how)  # type: ignore[arg-type]
        await self.server.until(lambda: len(said(self.server, room)) > before, WAIT)
        await self.server.until(lambda: not texts(self.server, room)[-1].endswith("…"), WAIT)

    async def press(self, room: Room, who: User, label: str) -> Interaction:
        """Press the newest button of this label, once it is there; return the interaction."""

        def buttons() -> list[tuple[Message, str]]:
            return [
                (message, part["custom_id"])
                for message in said(self.server, room)
                for row in message.components
                for part in row["components"]
                if part["label"] == label
            ]

        await self.server.until(lambda: bool(buttons()), WAIT)
        message, button = buttons()[-1]
        return self.server.press(room, who, message, button)


async def test_a_person_of_discord_is_forgotten_in_the_direct_chat_a_channel_and_a_thread(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with DiscordServer(limits=None) as server:
        ben, ann, eve = server.user("Ben"), server.user("Zqannzq"), server.user("Eve")
        table = {**OnDiscord(server).table(), "owners": [ben.id], "members": [eve.id], "debounce": 0, "live": False}
        configure(home, {"discord": table}, SCRIPT)
        await command(home, "access", "grant", "discord", str(ann.id), "member")
        hers, his, me = server.dm(ann), server.dm(ben), server.bot.mention
        general = server.guild("Family", ben, [ann, eve]).text("general")
        talk = Talk(server)
        async with running(home) as daemon:
            await server.until(lambda: server.gateway.connected, WAIT)
            await talk.say(hers, ann, f"my first words are {canary('direct')}, {canary('answer')}")
            await talk.say(hers, ann, f",remember my cat is {canary('memory')}")
            await talk.say(hers, ann, f",remind in 3 hours buy {canary('reminder')}")
            await talk.say(hers, ann, f",topic The {canary('topic')} plan")
            name, text = f"{canary('filename')}.txt", f"the text says {canary('filetext')}"
            await talk.say(hers, ann, "a file", files=[(name, text.encode(), "text/plain")])
            wrong = hers.say(ann, "I said it wrong")
            await server.until(lambda: texts(server, hers)[-1].endswith("wrong"), WAIT)
            hers.edit(wrong, f"I said it right: {canary('edited')}")
            await talk.say(general, ann, f"{me} the family dinner is at {canary('group')}, {canary('quoted')}")
            asked = general.messages[-2]
            await talk.say(general, ann, f"{me} ,remember we all like {canary('groupmemory')}")
            await talk.say(general, ben, f"{me} so be it then", reply_to=asked)
            await talk.say(general, ben, f"{me} what did she say about dinner?")
            thread = general.thread("Dinner", asked)
            await talk.say(thread, ann, f"{me} and {canary('thread')}")
            await talk.say(his, ben, "my own words stay here")
            roads = (
                "direct",
                "answer",
                "memory",
                "reminder",
                "topic",
                "filename",
                "filetext",
                "edited",
                "group",
                "quoted",
            )
            planted = [*map(canary, (*roads, "groupmemory", "thread")), str(ann.id), "Zqannzq"]
            assert sorted(traces(home, planted)) == sorted(planted), "planted nowhere"
            await talk.say(general, ann, f"{me} ,forget.me")
            refused = await talk.press(general, eve, "Yes, forget me")
            await server.until(lambda: "not for you" in (refused.text or ""), WAIT)
            await talk.press(general, ann, "Yes, forget me")
            await server.until(lambda: "action=run.again" in daemon.errors, WAIT)
            await server.until(lambda: "asked to be forgotten" in texts(server, his)[-1], WAIT)
            assert traces(home, planted) == {}, "while the bot runs"
            await talk.say(general, ben, f"{me} are you there?")
            assert texts(server, general)[-1] == "You said: are you there?"
        assert traces(home, planted) == {}
        await command(home, "tape", "verify")
        shown = await command(home, "tape", "show", f"discord:{general.id}")
        assert "so be it then" in shown, "what others said stays, without the quote"
        assert json.loads(await command(home, "schedule", "list", "--json"))["jobs"] == []


async def test_a_person_with_accounts_on_two_platforms_is_forgotten_on_both_with_the_link(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with DiscordServer(limits=None) as discord, TelegramServer(limits=None, conflict_pause=0.1) as telegram:
        ben, ann = telegram.user("Ben"), telegram.user("Zqannzq")
        other = discord.user("Zqothernamezq")
        settings = {"debounce": 0, "live": False}
        tables = {
            "telegram": {**OnTelegram(telegram).table(), "owners": [ben.id], **settings},
            "discord": {**OnDiscord(discord).table(), **settings},
        }
        configure(home, tables, SCRIPT)
        for channel, number in (("telegram", ann.id), ("discord", other.id)):
            await command(home, "access", "grant", channel, str(number), "member")
        hers, his, elsewhere = telegram.private(ann), telegram.private(ben), discord.dm(other)
        family = telegram.supergroup("Family", [ann, ben])
        talk = Talk(discord)
        async with running(home) as daemon:
            await discord.until(lambda: discord.gateway.connected, WAIT)
            await tell(telegram, his, "my own words stay here")
            await tell(telegram, hers, f"on the phone I say {canary('direct')}")
            await tell(telegram, family, f"@bubbot_bot and here {canary('group')}", ann)
            await tell(telegram, hers, ",link")
            code = re.search(r"\b[2-9A-Z]{8}\b", telegram_texts(hers)[-1])
            assert code
            await talk.say(elsewhere, other, f",link {code[0]}")
            await telegram.until(lambda: str(other.id) in telegram_texts(hers)[-1], WAIT)
            hers.say(",link yes")
            await telegram.until(lambda: "Linked with" in telegram_texts(hers)[-1], WAIT)
            await talk.say(elsewhere, other, f"at the desk I say {canary('answer')}")
            await talk.say(elsewhere, other, f",remember scope=user that I like {canary('memory')}")
            planted = [*map(canary, ("direct", "group", "answer", "memory")), str(ann.id), str(other.id)]
            planted += ["Zqannzq", "Zqothernamezq"]
            assert sorted(traces(home, planted)) == sorted(planted), "planted nowhere"
            await talk.say(elsewhere, other, ",forget.me")
            assert "I know 8 messages of yours, in 3 chat(s)" in texts(discord, elsewhere)[-1], "of both accounts"
            elsewhere.say(other, ",forget.me confirm=true")
            await discord.until(lambda: "action=run.again" in daemon.errors, WAIT)
            assert "an owner of the bot decides" in texts(discord, elsewhere)[-1], "there is none on Discord"
            await telegram.until(lambda: "asked to be forgotten" in telegram_texts(his)[-1], WAIT)
            assert traces(home, planted) == {}, "while the bot runs"
        assert traces(home, planted) == {}
        await command(home, "tape", "verify")
        listed = json.loads(await command(home, "access", "list", "--json"))
        assert [person["id"] for person in listed["people"]] == [str(ben.id)], "their roles and the link are gone"
        assert "linked" not in await command(home, "access", "history")
