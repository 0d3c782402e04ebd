"""What people do: drawn at random, so that canaries get everywhere and every way to read somebody else's is tried."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bubbot.tape.query import TapeQuery
from bubbot.tape.service import session_tape
from bubbot.tool import Tool
from tests.isolation.model import INVENT, please
from tests.isolation.oracle import Place
from tests.isolation.world import GUEST, PLACES, SPEAKERS, STRANGER, WAIT, World, account_of

LEFT_OUT = frozenset({"session.quit"})
AT_THE_END = frozenset({"session.reset", "schedule.chat"})
"""Tools that end a talk: what was said before could then no longer leak."""
DIRECT = [place for place in PLACES if place.person is not None]
OWNER_CHATS = [place for place in PLACES if place.is_owner]
READERS = (
    ",memory.recall", ",memory.recall zq", ",memory scope=user", ",memory.why", ",memory", ",context", ",why", ",why request=true",
    ",graph", ",topics", ",topic", ",search zq", ",search kw", ",anchors zones=yes", ",schedules", ",schedules every=true", ",grants",
    ",access", ",usage", ",status", ",tape.info", ",chat.read",
    ",file.list", ",file.read note.txt", ",file.search zq",
)  # fmt: skip
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


@dataclass
class Acts:
    """Draws what happens next.

    Attributes:
        world: where it happens.
        chance: draws.
        used: the tools that were called with drawn arguments.
    """

    world: World
    chance: Random
    used: set[str] = field(default_factory=set)
    _words: int = 0
    _granted: list[tuple[str, str]] = field(default_factory=list)
    _tools: list[tuple[str, Place]] = field(default_factory=list)

    async def run(self, turns: int, *, stop_at_leak: bool = False, often: Sequence[str] = ()) -> None:
        """Let people act until they have written this often; they do the acts of these names more often than others."""
        acts: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (20, self.remember), (10, self.ask), (16, self.model_reads), (16, self.command_reads), (8, self.keep),
            (5, self.grant), (3, self.link), (5, self.change_context), (4, self.open_topic), (3, self.invent),
            (7, self.call_any_tool), (3, self.send_elsewhere), (1, self.stranger_speaks), (6, self.burst),
        ]  # fmt: skip
        for place in OWNER_CHATS:
            await self.world.say(place, ",strategy retrieval")
        weights = [30 if act.__name__ in often else weight for weight, act in acts]
        last = self.world.turns + turns
        while self.world.turns < last and not (stop_at_leak and self.world.leaks):
            await self.chance.choices([act for _, act in acts], weights)[0]()

    def place(self, among: Sequence[Place] = PLACES) -> tuple[Place, str]:
        """Draw a chat, and who speaks there."""
        place = self.chance.choice(among)
        return place, place.person or self.chance.choice(SPEAKERS[place.session])

    def keyword(self) -> str:
        """Draw a word that stood beside some canary, or beside the secret of a sub-task."""
        return self.chance.choice(
            (
                f"kw{self.chance.randint(1, max(self._words, 1))}",
                f"kw{90_000 + self.chance.randint(1, 1 + self.world.seen['secret'])}",
            )
        )

    async def remember(self) -> None:
        """Somebody says something, perhaps not to the bot."""
        place, sender = self.place()
        await self.world.say(place, self._fact(), sender, addressed=self.chance.random() < 0.8)

    def _fact(self) -> str:
        self._words += 1
        return f"About kw{self._words}: {self.world.canary()}"

    async def ask(self) -> None:
        """Somebody asks for what was said somewhere."""
        place, sender = self.place()
        await self.world.say(place, f"What of {self.keyword()}?", sender)

    async def model_reads(self) -> None:
        """The model calls a tool that reads."""
        place, sender = self.place()
        await self.world.say(place, self._call(place), sender)

    def source_for(self, reader: Place) -> str:
        """Draw a session that somebody here may want to read: often one that was granted, or once was."""
        granted = [source for source, other in self._granted if other == reader.session]
        return self.chance.choice(
            granted if granted and self.chance.random() < 0.6 else [place.session for place in PLACES]
        )

    def _call(self, place: Place) -> str:
        other, low = self.source_for(place), self.chance.randint(1, 200)
        return self.chance.choice(
            (
                please("chat_read", session=other, limit=50),
                please("chat_read", session=other, limit=100),
                please("chat_read", session=other, topic="rome"),
                please("chat_read"),
                please("tape_search", query=self.keyword()),
                please("file_write", path="note.txt", content=self.world.canary()),
                please("file_read", path=self.chance.choice(("note.txt", "../note.txt"))),
                please("tape_read", ids=[f"{low}-{low + 40}"]),
                please("memory_recall", scope=self.chance.choice(("", "user", "workspace"))),
                please(
                    "memory_save", content=self.world.canary(), scope=self.chance.choice(("chat", "user", "workspace"))
                ),
                please("agent_run", task=please("chat_read", session=other), mode="delta"),
                please("agent_run", task=please("memory_recall", scope="user")),
            )
        )

    async def command_reads(self) -> None:
        """Somebody types a command that reads."""
        place, sender = self.place()
        other, low = self.source_for(place), self.chance.randint(1, 200)
        text = self.chance.choice(
            (
                *READERS, f",chat.read {other} limit=100", f",chat.read {other} topic=rome", f",read {low}-{low + 60}",
                f",around {low}", f",context at={low}", f",search {self.keyword()}", f",fork What of {self.keyword()}?",
                f",topic rome source={other}", f",chat.read {place.chat_session}",
            )
        )  # fmt: skip
        await self.world.say(place, text, sender)

    async def keep(self) -> None:
        """Somebody keeps something."""
        place, sender = self.place(DIRECT if self.chance.random() < 0.7 else PLACES)
        scope, tool = self.chance.choice(("user", "user", "workspace", "chat")), self.chance.choice(("save", "daily"))
        await self.world.say(place, f",memory.{tool} scope={scope} {self._fact()}", sender)

    async def grant(self) -> None:
        """An owner lets one chat read another one, or no longer."""
        readings = self.world.oracle.readings
        owner = self.chance.choice(OWNER_CHATS)
        if len(readings) > 6 or (readings and self.chance.random() < 0.4):
            source, reader = self.chance.choice(sorted(readings))
            readings.discard((source, reader))  # from here on nothing new, though the answer comes later
            await self.world.say(owner, f",grant.revoke {source} to {reader}")
            self.world.seen["revoked"] += 1
            return
        source, reader = self.chance.sample([place.session for place in PLACES], 2)
        self._granted.append((source, reader))
        await self.world.say(owner, f",grant {source} to {reader}")

    async def link(self) -> None:
        """Two people say that they are one, or one of them that they are not."""
        oracle, (first, second) = (
            self.world.oracle,
            self.chance.sample([place for place in DIRECT if not place.thread], 2),
        )
        if oracle.linked and self.chance.random() < 0.5:
            account = self.chance.choice(oracle.linked[0])
            place = next(place for place in DIRECT if account_of(place) == account)
            await self.world.say(place, ",unlink")
            return
        if (code := re.search(r"\b[2-9A-Z]{8}\b", await self.world.say(first, ",link"))) is None:
            return
        await self.world.say(second, f",link {code[0]}")
        if "Linked with" in await self.world.say(first, ",link yes"):
            oracle.link(account_of(first), account_of(second))
            self.world.seen["linked"] += 1

    async def change_context(self) -> None:
        """Another window, another strategy, a summary."""
        place, sender = self.place()
        sender = place.person or {"tg": "1", "dc": "11"}[place.channel]
        name = self.chance.choice(("retrieval", "retrieval", "summary", "full", "messages", "window", "default"))
        await self.world.say(
            place, self.chance.choice((",new", ",summary", f",strategy {name}", f",strategy {name}")), sender
        )

    async def open_topic(self) -> None:
        """Another topic, perhaps one that goes on in another chat."""
        place, sender = self.place()
        other = self.source_for(place)
        name = self.chance.choice(("rome", "tea", "off"))
        text = self.chance.choice((f",topic {name}", f",topic.bind {name}", f",topic rome source={other}"))
        await self.world.say(place, text, sender)
        if self.chance.random() < 0.5:
            await self.world.say(place, please("chat_read"), sender)

    async def invent(self) -> None:
        """A sub-task makes something up for one of its own; later somebody asks in a new window."""
        place, sender = self.place()
        await self.world.say(
            place, please("agent_run", task=f"go\n{INVENT}", tools=["agent.run"], mode="delta"), sender
        )
        owner, newest = place.person or {"tg": "1", "dc": "11"}[place.channel], self.world.seen["secret"]
        if self.chance.random() < 0.4:
            await self.world.say(place, ",summary", owner)
        elif self.chance.random() < 0.7:
            await self.world.say(place, ",strategy retrieval", owner)
            await self.world.say(place, ",new", owner)
            await self.world.say(place, f"What of kw{90_000 + newest}?", sender)

    async def send_elsewhere(self) -> None:
        """An owner's job answers in another chat; a member tries the same."""
        place, sender = self.place(OWNER_CHATS if self.chance.random() < 0.7 else PLACES)
        other = self.chance.choice(PLACES).session
        answer = await self.world.say(place, f",schedule to={other} in 2h: What of {self.keyword()}?", sender)
        schedule = self.world.daemon.bot.schedule_store
        assert schedule is not None
        for job in [job for job in schedule.state.jobs if f"({job})" in answer]:
            await self.world.say(place, f",schedule.run {job}", sender)
            await self.world.fire(job)
            await self.world.say(place, f",schedule.remove {job}", sender)

    async def stranger_speaks(self) -> None:
        """Somebody who may not speak writes."""
        channel, who = self.chance.choice((STRANGER, GUEST))
        place = Place(channel, who, person=who)
        await self.world.say(place, self.chance.choice(("hello", ",memory.recall", f",chat.read {PLACES[0].session}")))

    async def burst(self) -> None:
        """Several chats at once."""
        places = self.chance.sample(PLACES, 4)
        texts = [
            self.chance.choice((self._fact(), f"What of {self.keyword()}?", self._call(place), ",context"))
            for place in places
        ]
        async with asyncio.timeout(WAIT):
            for place, text in zip(places, texts, strict=True):
                await self.world.post(place, text, place.person or self.chance.choice(SPEAKERS[place.session]))
            await self.world.quiet()

    async def call_any_tool(self) -> None:
        """Somebody calls any tool with whatever could be guessed, or lets the model call it."""
        if not self._tools:  # each tool in each chat, in an order that is drawn anew
            names = [tool.name for tool in self.world.toolbox if tool.name not in LEFT_OUT | AT_THE_END]
            self._tools = [(name, place) for name in names for place in PLACES]
            self.chance.shuffle(self._tools)
        await self._call_tool(*self._tools.pop())

    async def call_every_tool(self, *, everywhere: bool = False) -> None:
        """Every tool is called once, in some chat, or in every chat."""
        for tool in sorted(self.world.toolbox, key=lambda tool: tool.name in AT_THE_END):
            if tool.name not in LEFT_OUT:
                for place in PLACES if everywhere else [self.chance.choice(PLACES)]:
                    await self._call_tool(tool.name, place)

    async def _call_tool(self, name: str, place: Place) -> None:
        tool = next(tool for tool in self.world.toolbox if tool.name == name)
        arguments = await self._arguments(tool, place)
        self.used.add(name)
        if tool.for_model and self.chance.random() < 0.5:
            text = please(tool.provider_name, **arguments)
        else:
            text = f",{name} " + " ".join(f'{key}="{_typed(value)}"' for key, value in arguments.items())
        await self.world.say(place, text, place.person or self.chance.choice(SPEAKERS[place.session]))

    async def _arguments(self, tool: Tool, place: Place) -> dict[str, Any]:
        schedule = self.world.daemon.bot.schedule_store
        assert schedule is not None
        word, sessions = self.world.canary(), [each.session for each in PLACES]
        known: dict[str, Iterable[Any]] = {
            "job": [*schedule.state.jobs, "none"], "handle": await self._digests(), "path": ["note.txt", "../note.txt", "a/note.txt"], "turn": ["", "0" * 8], "when": ["in 1h", "every 9h"],
            "to": sessions, "session": sessions, "source": sessions, "reader": sessions, "name": [word, "rome"], "topic": ["rome", "-"],
            "command": [",memory.recall", ",schedules every=true", f",memory.daily {word}"], "before": [0], "query": ["zq", "kw", ""],
            "scope": ["chat", "user", "workspace"], "anchor": ["session/new", "1"], "zone": ["Europe/Berlin"], "quiet": ["none"],
            "date": ["2026-11-22"], "start": ["2026-11-01"], "end": ["2027-12-01"], "until": ["2028-01-01"], "jitter": ["1m"],
            "budget": ["1m"], "catch_up": ["all", "once"], "how": ["archive", "erase"], "period": ["all", "day"], "kinds": [["message", "event"]],
            "question": [please("tape_read", ids=["1-60"]), please("chat_read", session=self.chance.choice(sessions)), word],
            "chat": sessions,
            "source_ids": [[1, 2]], "next_steps": [[word]], "ids": [["1-60"]], "id": ["20", "5"], "tools": [[]], "mode": ["delta", "result"],
        }  # fmt: skip
        made: dict[str, Any] = {}
        for name, info in tool.fields.items():
            if info.is_required or name == "session" or self.chance.random() < 0.5:
                made[name] = self.chance.choice([*known[name]]) if name in known else _value(info, word)
        if (
            tool.name.startswith("schedule.")
            and len(jobs := [key for key in ("prompt", "command", "text") if key in made]) > 1
        ):
            made = {key: value for key, value in made.items() if key not in jobs[1:]}
        if tool.name == "session.model":
            made["name"] = "scripted"
        if "auditor" in made:
            made["auditor"] = "anna"  # all owners see whom one of them lets look, by this name
        if place.person is None or self.chance.random() < 0.5:
            made.pop("to", None)
        return made

    async def _digests(self) -> list[str]:
        """Return digests of blobs that any chat names."""
        session = self.chance.choice(PLACES).session
        bot = self.world.daemon.bot
        (entries,) = await bot.base_store.fetch(
            [TapeQuery(session_tape(bot.workspace, session), newest=True, limit=60)]
        )
        return sorted(set(_DIGEST.findall(str([entry.payload for entry in entries])))) or ["0" * 64]


def _typed(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text.replace('"', '""')


def _value(info: Any, word: str) -> Any:
    shape = str(info.annotation)
    if "bool" in shape:
        return True
    return 3 if "int" in shape else word
