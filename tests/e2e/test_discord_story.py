"""Discord walkthrough, seen from the platform's side: `docs/concepts/discord-walkthrough.md` is what this prints.

`TELLING=1` in the environment writes the page's transcript anew.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.bot import run
from tests.e2e.hurried import BOT
from tests.e2e.on_discord import CODE, COUNTED, configured, connected, said, texts
from tests.e2e.platforms import OnDiscord
from tests.fakes.discordapi.rooms import Forum, Room
from tests.fakes.discordapi.server import Server
from tests.fakes.discordapi.world import User

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "concepts" / "discord-walkthrough.md"
SHOWN = 110
"""Characters of a line that are shown."""
SCRIPT = {
    "rules": [
        {"when": "program", "steps": [{"text": f"Here it is:\n\n{CODE}\n\nRun it with **Python**."}]},
        {"when": "count slowly", "steps": [{"text": COUNTED, "pace": 0.4}]},
        {"when": "call everybody", "steps": [{"text": "@everyone, come!"}]},
    ],
    "default": [{"text": "You said: {text}"}],
}
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@dataclass(frozen=True)
class Day:
    """Where and who."""

    server: Server
    home: Path
    ada: User
    bob: User
    eve: User
    alone: Room
    hers: Room
    general: Room
    forum: Forum

    async def says(self, room: Room, wanted: int) -> None:
        """Waits until the bot has said so much in a chat, and is done with it."""
        await self.server.until(
            lambda: len(found := texts(self.server, room)) == wanted and not found[-1].endswith("…"), 20
        )

    def mark(self, room: Room, words: str) -> None:
        """A line in the transcript for what people do not see."""
        self.server.world.happened(room.channel, "service", words, "")

    async def directly(self) -> None:
        """One who is known, and one who is let in."""
        self.alone.say(self.ada, "hello")
        await self.says(self.alone, 1)
        self.hers.say(self.eve, "hello?")
        await self.says(self.hers, 1)
        code = re.search(r"code is (\w{8})", texts(self.server, self.hers)[0])
        assert code
        assert (await asyncio.to_thread(run, self.home, "access", "approve", "--yes", code[1])).returncode == 0
        await self.says(self.hers, 3)  # she is told, and answered
        self.hers.say(self.eve, "and now?")
        await self.says(self.hers, 4)

    async def together(self) -> None:
        """Mentions, strangers, a reply, a thread, a post of a forum."""
        me = self.server.bot.mention
        self.general.say(self.ada, "lovely weather today")
        self.general.say(self.bob, f"{me} who are you?")
        asked = self.general.say(self.ada, f"{me} good morning")
        await self.says(self.general, 1)
        self.general.say(self.ada, "thank you", reply_to=said(self.server, self.general)[0])
        await self.says(self.general, 2)
        self.general.say(self.ada, f"{me} call everybody")
        await self.says(self.general, 3)
        roses = self.general.thread("Roses", asked)
        roses.say(self.ada, f"{me} when do I cut them?")
        await self.says(roses, 1)
        post = self.forum.post("Wilted leaves", f"{me} what did I do wrong?", self.ada)
        await self.says(post, 1)
        await self.says(self.alone, 3)  # that a stranger wrote, and called

    async def with_files(self) -> None:
        """Attachments in both directions."""
        files = [("garden.png", PNG, "image/png"), ("list.txt", b"roses\nsoil", "text/plain")]
        self.alone.say(self.ada, "what is this?", files=files)
        await self.says(self.alone, 4)
        self.alone.say(self.ada, "write me a program")
        await self.server.until(lambda: any(one.files for one in said(self.server, self.alone)), 60)
        await self.says(self.alone, 6)

    async def commands(self) -> None:
        """One that is answered at once, one that waits for the turn under way, and a stop."""
        now = self.server.slash(self.alone, self.ada, "status")
        await self.server.until(lambda: now.text)
        self.alone.say(self.ada, "count slowly")
        await self.server.until(lambda: texts(self.server, self.alone)[-1].endswith("…"), 60)
        later = self.server.slash(self.alone, self.ada, "new")
        await self.server.until(lambda: later.deferred)
        await self.server.until(lambda: later.text, 60)
        self.alone.say(self.ada, "count slowly, please")
        await self.server.until(lambda: texts(self.server, self.alone)[-1].endswith("…"), 60)
        stop = self.server.slash(self.alone, self.ada, "stop")
        await self.server.until(lambda: any("Stopped." in one for one in texts(self.server, self.alone)), 60)
        await self.server.until(lambda: stop.state == "answered")
        await OnDiscord(self.server).quiet()

    async def cut_off(self) -> None:
        """The connection breaks while an answer is written."""
        before = len(texts(self.server, self.alone))
        self.alone.say(self.ada, "count slowly once more")
        await self.server.until(lambda: texts(self.server, self.alone)[-1].endswith("…"), 60)
        self.mark(self.alone, "(the connection to the gateway breaks)")
        self.server.gateway.drop()
        self.alone.say(self.ada, "do you hear me?")
        await self.says(self.alone, before + 2)

    async def while_down(self) -> None:
        """What is said to a bot that is not there."""
        for room in (self.alone, self.general):
            self.mark(room, "(the bot is ended)")
        self.alone.say(self.ada, "are you there?")
        self.general.say(self.ada, f"{self.server.bot.mention} are you there?")
        self.general.say(self.bob, "it is asleep")
        for room in (self.alone, self.general):
            self.mark(room, "(the bot is started)")


async def story(home: Path) -> str:
    """Plays the day and gives the transcript."""
    async with Server(limits=None) as server:
        ada, bob, eve = server.user("Ada"), server.user("Bob"), server.user("Eve")
        club = server.guild("Club", ada, [bob, eve])
        rooms = (server.dm(ada), server.dm(eve), club.text("general"), club.forum("questions"))
        day = Day(server, home, ada, bob, eve, *rooms)
        configured(home, server, SCRIPT, owners=[ada.id], debounce=0.3, edit_interval=0.5)
        async with connected(home, server, target=BOT):
            await server.until(lambda: server.bot.commands)
            await day.directly()
            await day.together()
            await day.with_files()
            await day.commands()
            await day.cut_off()
        alone, together = len(texts(server, day.alone)), len(texts(server, day.general))
        await day.while_down()
        async with connected(home, server, target=BOT):
            await day.says(day.alone, alone + 1)
            await day.says(day.general, together + 1)
        return told(server.transcript(times=False))


def told(transcript: str) -> str:
    """The transcript as a page shows it: long lines cut, and what differs from run to run made equal or left out."""
    lines: list[str] = []
    for line in transcript.splitlines():
        if re.fullmatch(r"\w+ is typing|\w+ edited .* one two[\w ]*…", line):
            continue
        same = re.sub(r"(?<=approve )\w{8}|(?<=code is )\w{8}", "7KQ2M9XB", line)
        same = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-11-22 10:00", same)
        same = re.sub(r"\(\d{17,20}\)", "(222222222222222222)", same)
        same = re.sub(r"one two[\w ]*…$", "one two …", same)
        same = re.sub(r" edited #(\d+)( \d+ times)?: \(to", r" edited #\1 a few times: (to", same)
        same = re.sub(r"(\(/\w+ by \w+\))$", r"\1 …", same)
        if same.startswith("    ") and lines and "(/status by " in lines[-1]:
            continue  # numbers of this process
        lines.append(same if len(same) <= SHOWN else f"{same[:SHOWN]}…")
    (stopped,), (confirmed,) = (
        [place for place, line in enumerate(lines) if re.search(words, line)]
        for words in (r"\(to #\d+\) Stopped\.", r"\(/stop by Ada\)")
    )
    if stopped < confirmed:  # which of the two is first is chance
        lines.insert(stopped, lines.pop(confirmed))
    return "\n".join(line.rstrip() for line in lines).strip()


@pytest.mark.proof
async def test_the_page_tells_what_happens(tmp_path: Path) -> None:
    found = await story(tmp_path / "home")
    begin, _, rest = PAGE.read_text().partition("```text\n")
    shown, close, after = rest.partition("\n```\n")  # a fence within the transcript is indented
    if os.environ.get("TELLING"):
        shown = found
        PAGE.write_text(f"{begin}```text\n{found}{close}{after}")
    assert (shown, after) == (found, "")


def test_the_page_is_there_and_can_be_reached() -> None:
    assert "Bubbot" in PAGE.read_text().partition("```text\n")[2]
    for page, link in (("README.md", "docs/concepts/"), ("docs/howto/run-on-discord.md", "../concepts/")):
        assert f"]({link}{PAGE.name})" in (ROOT / page).read_text(), page
