"""A person who leaves canaries on every road into a home, to be forgotten: looked for in the bytes of all its files."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.bot import run
from tests.e2e.daemon import WAIT, Daemon, configured
from tests.e2e.test_telegram import texts
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.fakes.botapi.world import User

OWN_FILES = ("config.toml", "script.json", "errors")
"""The files that the owner or the test writes, not the bot."""
ROADS = (
    "direct", "group", "memory", "groupmemory", "toolmemory", "note", "reminder", "groupreminder", "topic", "edited", "correction",
    "search", "caption", "photo", "filename", "filetext", "quoted", "thread", "explain", "approval", "answer", "voice",
    "command", "handoff", "title", "pending", "deleted", "export",
)  # fmt: skip
"""The roads of the canaries."""


def canary(road: str) -> str:
    """The word that goes this road."""
    return f"zqcan{road}zq"


SCRIPT: dict[str, Any] = {
    "rules": [
        {
            "when": "keep this",
            "steps": [
                {"calls": [{"name": "memory_save", "arguments": {"content": f"likes {canary('toolmemory')} a lot"}}]},
                {"text": "kept, {text}"},
            ],
        },
        {
            "when": "ask for it",
            "steps": [
                {
                    "calls": [
                        {
                            "name": "schedule_add",
                            "arguments": {"when": "in 3 hours", "text": f"tell of {canary('approval')}"},
                        }
                    ]
                },
                {"text": "asked, {text}"},
            ],
        },
        {
            "when": "what did she say",
            "steps": [
                {"calls": [{"name": "tape_search", "arguments": {"query": "family dinner"}}]},
                {"text": "I looked it up."},
            ],
        },
        {"when": "wait for", "steps": [{"text": "late: {text}", "delay": 60}]},
    ],
    "default": [{"text": "You said: {text}"}],
}


@dataclass
class Story:
    """A home in which somebody has left canaries.

    Attributes:
        ann: the person to forget.
        ben: the owner.
        hers: their direct chat.
        his: that of the owner.
        family: a group of both.
    """

    home: Path
    server: Server
    ann: User
    ben: User
    hers: Gathering
    his: Gathering
    family: Gathering

    @property
    def canaries(self) -> list[bytes]:
        """Everything that has to go: words, names and the number."""
        words = [canary(road) for road in ROADS]
        return [word.encode() for word in (*words, str(self.ann.id), self.ann.first_name, self.ann.username)]

    async def tell(self) -> None:
        """Let the person say all of it to a running bot."""
        say, ann, family = self._say, self.ann, self.family
        await say(self.hers, f"my first words are {canary('direct')}, {canary('answer')}")
        await say(self.hers, f",remember my cat is {canary('memory')}")
        await say(self.hers, "keep this for me")
        await say(self.hers, f",memory.daily today I saw {canary('note')}")
        await say(self.hers, f",remind in 3 hours buy {canary('reminder')}")
        await say(self.hers, "ask for it")
        await say(self.hers, f",topic The {canary('topic')} plan")
        await say(self.hers, f"this thread is about {canary('thread')}")
        await say(self.hers, ",topic off")
        first = self.hers.say("I said it wrong")
        await self._heard(self.hers)
        self.hers.edit(first, f"I said it right: {canary('edited')}")
        await say(self.hers, f",correct 3 no, it is {canary('correction')}")
        await say(self.hers, f",search {canary('search')}")
        await say(self.hers, f",explain what of {canary('explain')}?")
        await say(self.hers, f",no.such.command {canary('command')}")
        await say(self.hers, f",handoff {canary('handoff')}")
        gone = self.hers.say(f"I take {canary('deleted')} back")
        await self._heard(self.hers)
        self.hers.delete(gone)
        self.hers.photo(b"\xff\xd8\xff" + canary("photo").encode(), caption=f"a picture of {canary('caption')}")
        await self._heard(self.hers)
        self.hers.document(f"the text says {canary('filetext')}".encode(), f"{canary('filename')}.txt")
        await self._heard(self.hers)
        self.hers.voice(b"OggS" + canary("voice").encode())
        await self._heard(self.hers)
        said = family.say(f"@bubbot_bot the family dinner is at {canary('group')}, {canary('quoted')}", ann)
        await self._heard(family)
        await say(family, f"/remember@bubbot_bot we all like {canary('groupmemory')}", ann)
        await say(family, f"/remind@bubbot_bot in 3 hours call {canary('groupreminder')}", ann)
        family.say("@bubbot_bot so be it then", self.ben, reply_to=said)
        await self._heard(family)
        await say(family, "@bubbot_bot what did she say about dinner?", self.ben)
        await say(family, "/remember@bubbot_bot Ben brings the bread", self.ben)
        await say(family, f"@bubbot_bot and the title is {canary('title')}", ann)
        await say(self.his, "my own words stay here")
        exports = self.home / "exports"
        exports.mkdir(exist_ok=True)
        number, place = self.ann.id, exports / f"memory-telegram_{self.ann.id}-20261129.md"
        place.write_text(f"the memory of {number}: {canary('export')}")
        await self.command("tape", "export", f"telegram:{self.family.chat.id}", str(exports / "family.jsonl"))
        (exports / "other.md").write_text("nothing of hers")

    async def say_hello(self) -> None:
        """Let both say something, in their chats and in the group."""
        await self._say(self.hers, f"my first words are {canary('direct')}")
        await self._say(self.hers, f",remember my cat is {canary('memory')}")
        await self._say(self.family, f"@bubbot_bot we are at {canary('group')}", self.ann)
        await self._say(self.his, "the weather is fine")

    async def be_named(self) -> None:
        """Let the owner say something about the person."""
        await self._say(self.his, f"{self.ann.first_name} is away today")

    async def leave_open(self, daemon: Daemon) -> None:
        """Kill the bot in the middle of an answer to the person."""
        self.hers.say(f"wait for {canary('pending')}")
        await daemon.quiet(self.server)
        await daemon.kill()

    def files_with(self, word: bytes, home: Path | None = None) -> list[str]:
        """The files of the home that hold these bytes, except those that the owner writes."""
        root = home or self.home
        files = [path for path in root.rglob("*") if path.is_file() and path.name not in OWN_FILES]
        return sorted(
            str(path.relative_to(root)) for path in files if word in path.read_bytes() or word in str(path).encode()
        )

    def traces(self, home: Path | None = None) -> dict[str, list[str]]:
        """The canaries that are found, with their files."""
        found = {word.decode(): self.files_with(word, home) for word in self.canaries}
        return {word: files for word, files in found.items() if files}

    async def command(self, *words: str) -> str:
        """Run a command of the shell; return what it prints."""
        done = await asyncio.to_thread(run, self.home, *words)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    async def _say(self, room: Gathering, text: str, by: User | None = None) -> None:
        room.say(text, by)
        await self._heard(room)

    async def _heard(self, room: Gathering) -> None:
        """Wait until the bot has answered once more than before."""
        before = getattr(self, "_answers", {}).get(room.chat.id, 0)
        await self.server.until(lambda: len(texts(room)) > before, WAIT)
        await asyncio.sleep(0.15)
        self.__dict__.setdefault("_answers", {})[room.chat.id] = len(texts(room))


def begin(home: Path, server: Server, *, members: Sequence[int] = ()) -> Story:
    """Make a home, and the people."""
    ben, ann = server.user("Ben"), server.user("Zqannzq", username="zqannuserzq")
    configured(home, server, SCRIPT, owners=[ben.id], members=list(members), debounce=0, live=False)
    return Story(
        home, server, ann, ben, server.private(ann), server.private(ben), server.supergroup("Family", [ann, ben])
    )
