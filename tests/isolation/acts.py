"""What people do: drawn at random, so that canaries get everywhere and every way to read somebody else's is tried."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any, TypeVar

from bubbot.app.trace import trace_tokens
from bubbot.home import Home
from bubbot.ports.channel import Attachment, Quote, Sender
from bubbot.tape.entry import Kind
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import session_tape
from bubbot.tool import Tool
from tests.approving import card_ids
from tests.e2e.test_images import PNG
from tests.isolation.agents import AGENTS
from tests.isolation.model import ALL_SHOWN, ASK, IMAGINE, INVENT, PRIVATE_WORD, please
from tests.isolation.oracle import Place
from tests.isolation.world import GUEST, PLACES, PROGRAMS, STRANGER, WAIT, World, account_of
from tests.pdfs import pdf

STEM = "kwall"
"""A word that stands beside every canary of people, so that a search finds all that it may."""
AUDITORS = ("anna", "tg:7", "dc:99")
"""Who looks at the trace page: somebody without an account, a member, and a stranger."""
LEFT_OUT = frozenset({"session.quit"})
AT_THE_END = frozenset({"session.reset", "schedule.chat"})
"""Tools that end a talk: what was said before could then no longer leak."""
DIRECT = [place for place in PLACES if place.person is not None]
GROUPS = [place for place in PLACES if place.person is None]
GROUP = next(place for place in PLACES if place.session == "tg:-8")
PEOPLE = [place for place in PLACES if place not in PROGRAMS]
OWNER_CHATS = [place for place in PLACES if place.is_owner]
OWNERS = {"tg": "1", "dc": "11"}
READERS = (
    ",memory.recall", f",memory.recall {STEM}", ",memory scope=user", ",memory.why", ",memory", ",context", ",why", ",why request=true",
    ",graph", ",topics", ",topic", f",search {STEM}", f",search {STEM}", ",anchors zones=yes", ",schedules", ",status", ",tape.info",
    ",agents", ",branches", ",branches 1", ",chat.read", ",file.list", ",file.read note.txt", f",file.search {STEM}", ",memory.recall scope=user", f",explain What of {STEM}?", ",explain What did you do?",
)  # fmt: skip
FOR_OWNERS = (
    ",schedules every=true", ",schedules every=true", ",schedules every=true", ",grants", ",audits", ",access", ",usage", ",usage all", ",approvals", ",approvals",
    ",access.group", ",explain chat=tg:1 What was said?", ",replay chat=tg:1", ",context.compare chat=tg:1",
)  # fmt: skip
"""What shows owners more than others, if nobody reads along."""
TURNS_OF_A_SUBJECT = 25
Do = TypeVar("Do", bound="Callable[[Acts], Awaitable[None]]")
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b")


@dataclass(frozen=True)
class Act:
    """What somebody may do next.

    Attributes:
        do: does it.
        weight: how often it is drawn, compared with the others.
        subjects: those to which it belongs: what leaks needs several acts that belong together.
    """

    do: Callable[[Acts], Awaitable[None]]
    weight: int
    subjects: Sequence[str]


ACTS: list[Act] = []
"""All of them; `act` adds one."""


def act(weight: int, *subjects: str) -> Callable[[Do], Do]:
    """Let a method be drawn. See `Act`."""

    def add(do: Do) -> Do:
        ACTS.append(Act(do, weight, subjects))
        return do

    return add


@dataclass
class Acts:
    """Draws what happens next.

    Attributes:
        world: where it happens.
        chance: draws.
        used: the tools that were called with drawn arguments.
        done: the names of the acts that were drawn.
    """

    world: World
    chance: Random
    used: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    _words: int = 0
    _granted: list[tuple[str, str]] = field(default_factory=list)
    _tools: list[tuple[str, Place]] = field(default_factory=list)
    _subjects: list[str] = field(default_factory=list)
    _foreground: Sequence[Place] = PLACES

    async def run(self, turns: int, *, stop_at_leak: bool = False) -> None:
        """Let people act until they have written this often.

        They stay with one subject for a while, in a few chats: what leaks needs several acts that belong together.
        """
        for place in OWNER_CHATS:
            await self.world.say(place, ",strategy retrieval")
        last, until, weights = self.world.turns + turns, 0, list[int]()
        while self.world.turns < last and not (stop_at_leak and self.world.leaks):
            if self.world.turns >= until:
                until = self.world.turns + TURNS_OF_A_SUBJECT
                self._subjects = self._subjects or self.chance.sample(SUBJECTS, len(SUBJECTS))
                subject = self._subjects.pop()
                self._foreground = self.chance.sample(PLACES, 4)
                weights = [act.weight * (6 if subject in act.subjects else 1) for act in ACTS]
            drawn = self.chance.choices(ACTS, weights)[0]
            self.done.add(drawn.do.__name__)
            await drawn.do(self)

    async def do_the_rest(self) -> None:
        """Do what chance never drew, once, and run a task where it needs nobody's yes."""
        for each in ACTS:
            if each.do.__name__ not in self.done:
                self.done.add(each.do.__name__)
                await each.do(self)
        await self.world.say(OWNER_CHATS[0], ",task.run look", self.speaker(OWNER_CHATS[0]))

    def place(self, among: Sequence[Place] = PLACES) -> tuple[Place, str]:
        """Draw a chat, and who speaks there."""
        foreground = [place for place in among if place in self._foreground]
        place = self.chance.choice(foreground if foreground and self.chance.random() < 0.6 else among)
        return place, self.speaker(place)

    def speaker(self, place: Place) -> str:
        """Draw who speaks in a chat."""
        return place.person or self.chance.choice(place.speakers)

    def keyword(self) -> str:
        """Draw a word that stood beside some canary, or beside the secret of a sub-task."""
        return self.chance.choice(
            (
                f"kw{self.chance.randint(1, max(self._words, 1))}",
                f"kw{90_000 + self.chance.randint(1, 1 + self.world.seen['secret'])}",
            )
        )

    @act(14, "grants")
    async def remember(self) -> None:
        """Somebody says something, perhaps not to the bot."""
        place, sender = self.place()
        await self.world.say(place, self._message(place), sender, addressed=self.chance.random() < 0.8)

    def _message(self, place: Place) -> str:
        """Draw something to say, with a word that no model repeats."""
        return f"{self._fact()} {self.world.agents.write('said', place.session)}"

    def _fact(self) -> str:
        self._words += 1
        return f"About {STEM} kw{self._words}: {self.world.canary()}"

    @act(10, "sub-tasks")
    async def ask(self) -> None:
        """Somebody asks for what was said somewhere."""
        place, sender = self.place()
        await self.world.say(place, f"What of {self.keyword()}?", sender)

    @act(14, "grants", "topics", "files")
    async def model_reads(self) -> None:
        """The model calls a tool that reads."""
        place, sender = self.place()
        await self.world.say(place, await self._call(place), sender)

    def source_for(self, reader: Place) -> str:
        """Draw a session that somebody here may want to read: often one that was granted, or once was."""
        granted = [source for source, other in self._granted if other == reader.session]
        return self.name(
            self.chance.choice(
                granted if granted and self.chance.random() < 0.6 else [place.session for place in PLACES]
            )
        )

    async def _call(self, place: Place) -> str:
        other, low = self.source_for(place), self.chance.randint(1, 200)
        job, handle = self.chance.choice(self._jobs()), self.chance.choice(await self._digests())
        kinds = (
            (
                please("chat_read", session=other, limit=self.chance.choice((20, 50, 100))),
                please("chat_read", session=other),
                please("chat_read", session=other, topic="rome"),
                please("chat_read"),
            ),
            (
                please("tape_read", ids=[f"{low}-{low + 40}"]),
                please("result_read", handle=handle),
                please("file_send", name="a.txt", handle=handle),
            ),
            (
                please("schedule_list", every=True),
                please("schedule_show", job=job),
                please("schedule_history", job=job),
            ),
            (
                please("file_write", path="note.txt", content=self.world.canary()),
                please("file_read", path=self.chance.choice(("note.txt", "../note.txt"))),
                please("file_search", text=self.chance.choice(("zq", STEM))),
            ),
            (
                please("memory_recall", scope=self.chance.choice(("", "user", "workspace"))),
                please(
                    "memory_save", content=self.world.canary(), scope=self.chance.choice(("chat", "user", "workspace"))
                ),
            ),
            (
                please("agent_run", task=please("chat_read", session=other), mode="delta"),
                please("agent_run", task=please("memory_recall", scope="user")),
            ),
        )
        return self.chance.choice(self.chance.choice(kinds))

    @act(12, "words")
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

    @act(8, "cards", "jobs")
    async def probe(self) -> None:
        """Somebody uses a command that shows an owner more, or names what is of another chat; in groups owners do so, too."""
        place, sender = self.place(GROUPS if self.chance.random() < 0.4 else PLACES)
        if place.person is None and self.chance.random() < 0.7:
            sender = OWNERS[place.channel]
        job, handle = self.chance.choice(self._jobs()), self.chance.choice(await self._digests())
        text = self.chance.choice(
            (*FOR_OWNERS, f",schedule.show {job}", f",schedule.history {job}", f",result.read {handle}", f",approve {self._card()}")
        )  # fmt: skip
        await self.world.say(place, text, sender)

    @act(5, "jobs")
    async def plan(self) -> None:
        """Somebody plans a job, which stays; every now and then one ends."""
        place, sender = self.place()
        jobs = self._jobs()
        if len(jobs) > 12:
            await self.world.say(OWNER_CHATS[0], f",schedule.remove {self.chance.choice(jobs)}")
        else:
            when, name = (
                self.chance.choice(("in 9h", "every 9h")),
                self.chance.choice(("", f" name={self.world.canary()}")),
            )
            await self.world.say(place, f',schedule when="{when}"{name} prompt="{self._fact()}"', sender)

    def _jobs(self) -> list[str]:
        """Return the ids of all jobs: they are no secret."""
        schedule = self.world.daemon.bot.schedule_store
        assert schedule is not None
        return [*schedule.state.jobs] or ["none"]

    @act(8, "memory", "audits", "views")
    async def keep(self) -> None:
        """Somebody keeps something."""
        place, sender = self.place(DIRECT if self.chance.random() < 0.8 else PLACES)
        scopes = ("user", "workspace") if place.is_owner else ("user", "user", "user", "workspace", "chat")
        scope, tool = self.chance.choice(scopes), self.chance.choice(("save", "daily"))
        word = self.world.agents.write("memory", place.session, scope)
        await self.world.say(place, f",memory.{tool} scope={scope} {self._fact()} {word}", sender)

    @act(6, "grants", "views")
    async def grant(self) -> None:
        """An owner lets one chat read another one, or no longer."""
        readings = self.world.oracle.readings
        owner = self.chance.choice(OWNER_CHATS)
        if len(readings) > 6 or (readings and self.chance.random() < 0.4):
            source, reader = self.chance.choice(sorted(readings))
            readings.discard((source, reader))  # from here on nothing new, though the answer comes later
            await self.world.say(owner, f",grant.revoke {self.name(source)} to {self.name(reader)}")
            self.world.seen["revoked"] += 1
            await self._read_after(source, reader)
            return
        source, reader = self.chance.sample([place.session for place in PLACES], 2)
        self._granted.append((source, reader))
        await self.world.say(owner, f",grant {self.name(source)} to {self.name(reader)}")
        await self._read_after(source, reader)

    async def _read_after(self, source: str, reader: str) -> None:
        """Something is said in a chat, perhaps, and somebody reads it in another one."""
        if self.chance.random() < 0.4:
            return
        for session, text in ((source, self._fact()), (reader, please("chat_read", session=self.name(source)))):
            place = next(each for each in PLACES if each.session == session)
            await self.world.say(place, text, self.speaker(place))

    @act(4, "memory")
    async def link(self) -> None:
        """Two people say that they are one, or one of them that they are not."""
        oracle, (first, second) = (
            self.world.oracle,
            self.chance.sample([place for place in DIRECT if not place.thread], 2),
        )
        if oracle.linked and self.chance.random() < 0.5:
            accounts = oracle.linked[0]
            places = [place for place in DIRECT if account_of(place) in accounts and not place.thread]
            await self.world.say(self.chance.choice(places), ",unlink")
            for place in places:
                await self.world.say(place, f",memory.daily scope=user {self._fact()}")
            await self.world.say(self.chance.choice(places), "What do you know?")
            return
        if (code := re.search(r"\b[2-9A-Z]{8}\b", await self.world.say(first, ",link"))) is None:
            return
        await self.world.say(second, f",link {code[0]}")
        if "Linked with" in await self.world.say(first, ",link yes"):
            oracle.link(account_of(first), account_of(second))
            self.world.seen["linked"] += 1

    @act(4, "sub-tasks")
    async def change_context(self) -> None:
        """Another window, another strategy, a summary."""
        place, sender = self.place()
        sender = place.person or OWNERS[place.channel]
        name = self.chance.choice(("retrieval", "retrieval", "retrieval", "summary", "full", "messages", "window"))
        await self.world.say(
            place, self.chance.choice((",new", ",summary", f",strategy {name}", f",strategy {name}")), sender
        )

    @act(5, "topics")
    async def open_topic(self) -> None:
        """Another topic, perhaps one that goes on in another chat."""
        place, sender = self.place()
        other, name = (
            self.source_for(place),
            self.chance.choice(("rome", "rome", "rome", "tea", "off", self.world.canary())),
        )
        if self.chance.random() < 0.5:
            await self.world.say(place, self.chance.choice((f",topic {name}", f",topic.bind {name}")), sender)
            await self.world.say(place, self.chance.choice((self._fact(), please("chat_read"))), sender)
            return
        source = next(each for each in PLACES if each.session == self.world.first_name(other))
        if self.chance.random() < 0.7:
            speaker = self.speaker(source)
            await self.world.say(source, f",topic {name}", speaker)
            await self.world.say(source, self._fact(), speaker)
        await self.world.say(place, f",topic {name} source={other}", sender)
        await self.world.say(place, self.chance.choice((",chat.read", please("chat_read"))), sender)

    @act(7, "views")
    async def view(self) -> None:
        """A chat is shown a view of another one, perhaps after an owner let it read there, or no longer."""
        place, sender = self.place()
        named = self.world.first_name(self.source_for(place))
        source = next((each for each in PLACES if each.session == named), self.chance.choice(PLACES))
        owner = self.chance.choice(OWNER_CHATS)
        if self.chance.random() < 0.8 and source.session != place.session:
            self._granted.append((source.session, place.session))
            await self.world.say(owner, f",grant {self.name(source.session)} to {self.name(place.session)}")
        what = self.chance.choice(("newest", "anchors", "anchors", "search"))
        change = "add" if self.chance.random() < 0.8 else "remove"
        agent = f" agent={self.chance.choice([*AGENTS])}" if self.chance.random() < 0.4 else ""
        await self.world.say(
            owner, f",view.{change} {self.name(source.session)} {what} chat={self.name(place.session)}{agent}"
        )
        speaker = self.speaker(source)
        if self.chance.random() < 0.5:
            await self.world.say(source, f",memory.daily scope=user {self._fact()}", speaker)
            handoff = f',handoff name=phase/trip summary="{self._fact()}"'
            model = please("tape_handoff", name=self.chance.choice(("phase/trip", ALL_SHOWN)), summary=ALL_SHOWN)
            await self.world.say(source, self.chance.choice((handoff, model, model)), speaker)
        else:
            await self.world.say(source, self._message(source), speaker)
        asked = self.chance.choice((f"What of {self.keyword()}?", await self._call(place)))
        await self.world.say(place, self._to_agent(asked) if self.chance.random() < 0.4 else asked, sender)

    @act(3, "agents", "views")
    async def view_of_agent(self) -> None:
        """An agent is shown a view of another chat, and then the others are asked."""
        place, sender = self.place()
        source = self.chance.choice([each for each in PLACES if each.session != place.session])
        owner, agent = self.chance.choice(OWNER_CHATS), self.chance.choice([*AGENTS, "bot"])
        await self.world.say(owner, f",grant {self.name(source.session)} to {self.name(place.session)}")
        self._granted.append((source.session, place.session))
        view = f"{self.name(source.session)} newest chat={self.name(place.session)} agent={agent}"
        await self.world.say(owner, f",view.add {view}")
        await self.world.say(source, self._message(source), self.speaker(source))
        for _ in range(2):
            await self.world.say(place, self._to_agent(f"What of {self.keyword()}?"), sender)
        if self.chance.random() < 0.3:
            await self.world.say(owner, f",view.remove {view.replace(' newest', '')}")
            await self.world.say(place, f"@{agent} What of {self.keyword()}?", sender)

    def _to_agent(self, text: str) -> str:
        """Call one agent or two with a message, in one of the ways that there are."""
        first, second = self.chance.sample([*AGENTS, "bot"], 2)
        title = AGENTS[first]["title"] if first in AGENTS else "@bot"
        return self.chance.choice(
            (f"@{first} {text}", f",{first} {text}", f"{title}, {text}", f"@{first} @{second} {text}")
        )

    @act(10, "agents", "branches")
    async def call_agent(self) -> None:
        """Somebody calls agents; they look something up, and then others are asked."""
        place, sender = self.place()
        private = (
            please("tape_search", query=PRIVATE_WORD), please("file_search", text=PRIVATE_WORD), please("memory_recall", query=PRIVATE_WORD),
            please("memory_recall"), please("tape_search", query=STEM), please("tape_read", ids=["1-200"]),
        )  # fmt: skip
        for text in (self.chance.choice(private), self._message(place), f"What of {self.keyword()}?"):
            asked = self._to_agent(text) if self.chance.random() < 0.8 else text
            await self.world.say(place, asked, sender)

    @act(5, "agents")
    async def let_agents_talk(self) -> None:
        """An agent asks another one in its answer, which makes a call for the person."""
        place, sender = self.place()
        other = self.chance.choice([*AGENTS, "bot"])
        scope = self.chance.choice(("chat", "user", "workspace"))
        call = self.chance.choice(
            (
                please("memory_save", content=self._fact(), scope=scope), please("memory_recall", query=PRIVATE_WORD),
                please("schedule_list", every=True), please("file_search", text=PRIVATE_WORD), await self._call(place),
            )
        ).rpartition("\n")[2]  # fmt: skip
        await self.world.say(place, f"{self._to_agent('Ask them.')}\n{ASK}@{other} {call}", sender)

    @act(4, "agents", "sub-tasks")
    async def order(self) -> None:
        """The model, or somebody, gives a task to an agent."""
        place, sender = self.place()
        agent, tool = self.chance.choice([*AGENTS]), self.chance.choice(("tape_search", "memory_recall"))
        task = please(tool, query=PRIVATE_WORD)
        mode = self.chance.choice(("delta", "result"))
        call = please("agent_order", agent=agent, task=task, mode=mode)
        text = self.chance.choice((call, self._to_agent(call), f",agent.order agent={agent} What of {self.keyword()}?"))
        await self.world.say(place, text, sender)
        await self.world.say(place, self.chance.choice((f"What of {self.keyword()}?", ",new")), sender)

    @act(5, "branches")
    async def branch(self) -> None:
        """Somebody asks in branches, perhaps chooses one, and then looks for what is in them."""
        place, sender = self.place()
        agents = ",".join(self.chance.sample([*AGENTS], 2))
        how = self.chance.choice(('prompts="in short | at length"', f"agents={agents}"))
        await self.world.say(place, f",branch.ask {how} What of {self.keyword()}? {IMAGINE}", sender)
        if self.chance.random() < 0.5:
            await self.world.say(place, f",branch.choose {self.chance.choice((1, 2))}", sender)
        search = please("tape_search", query="imagined")
        for text in self.chance.sample((search, f"What of {self.keyword()}?", ",branches", ",search imagined"), 2):
            await self.world.say(place, self._to_agent(text) if self.chance.random() < 0.4 else text, sender)

    @act(3, "sub-tasks", "views")
    async def invent(self) -> None:
        """A sub-task makes something up for one of its own; later somebody asks in a new window."""
        place, sender = self.place()
        await self.world.say(
            place, please("agent_run", task=f"go\n{INVENT}", tools=["agent.run"], mode="delta"), sender
        )
        owner, newest = place.person or OWNERS[place.channel], self.world.seen["secret"]
        if self.chance.random() < 0.2:
            await self.world.say(place, ",summary", owner)
        else:
            await self.world.say(place, ",strategy retrieval", owner)
            await self.world.say(place, ",new", owner)
            await self.world.say(place, f"What of kw{90_000 + newest}?", sender)

    @act(3, "jobs")
    async def send_elsewhere(self) -> None:
        """An owner's job answers in another chat; a member tries the same."""
        place, sender = self.place(OWNER_CHATS if self.chance.random() < 0.7 else PLACES)
        if place.is_owner:  # what is kept in a thread is shown in the chat, too, and stands on another tape
            sibling = self.chance.choice([each for each in OWNER_CHATS if each.person == place.person])
            await self.world.say(sibling, f",memory.daily scope=user {self._fact()}")
        other = self.chance.choice(PLACES).session
        answer = await self.world.say(place, f",schedule to={other} in 2h: What of {self.keyword()}?", sender)
        schedule = self.world.daemon.bot.schedule_store
        assert schedule is not None
        for job in [job for job in schedule.state.jobs if f"({job})" in answer]:
            await self.world.say(place, f",schedule.run {job}", sender)
            await self.world.fire(job)
            await self.world.say(place, f",schedule.remove {job}", sender)

    @act(4)
    async def stranger_speaks(self) -> None:
        """Somebody who may not speak writes."""
        channel, who = self.chance.choice((STRANGER, GUEST))
        place = Place(channel, who, person=who)
        await self.world.say(place, self.chance.choice(("hello", ",memory.recall", f",chat.read {PLACES[0].session}")))

    @act(5)
    async def burst(self) -> None:
        """Several chats at once."""
        places = self.chance.sample(PLACES, 4)
        texts = [
            self.chance.choice((self._fact(), f"What of {self.keyword()}?", await self._call(place), ",context"))
            for place in places
        ]
        async with asyncio.timeout(WAIT):
            for place, text in zip(places, texts, strict=True):
                await self.world.post(place, text, self.speaker(place))
            await self.world.quiet()

    @act(4, "words")
    async def quote(self) -> None:
        """Somebody replies to a message that the bot has not seen, or forwards one."""
        place, sender = self.place()
        if self.chance.random() < 0.3:
            await self.world.say(place, self._fact(), sender, is_forwarded=True)
            return
        files = (self._file(),) if self.chance.random() < 0.3 else ()
        words = Quote("q1", Sender("77", "Somebody"), self._fact(), files, own=self.chance.random() < 0.2)
        await self.world.say(place, "And what of this?", sender, quote=words)

    @act(4, "files")
    async def upload(self) -> None:
        """Somebody sends a file; another chat tries to open it, and this one lets the bot send it back."""
        place, sender = self.place()
        file = self._file()
        await self.world.say(place, f"Look at this: {self._fact()}", sender, attachments=(file,))
        handle, (reader, speaker) = sha256(self.world.files[file.reference]).hexdigest(), self.place()
        read = (f",result.read {handle}", please("result_read", handle=handle))
        send = (f",file.send name=a.bin handle={handle}", please("file_send", name="a.bin", handle=handle))
        await self.world.say(reader, self.chance.choice((*read, *send)), speaker)
        if self.chance.random() < 0.5:
            await self.world.say(place, self.chance.choice(send), sender)

    def _file(self) -> Attachment:
        """Draw a file: its name, its note and what is in it are words, too."""
        reference, fact = f"f{len(self.world.files)}", self._fact()
        data, name, kind = self.chance.choice(
            (
                (f"{fact}\n".encode() * self.chance.choice((1, 1, 2_000)), "text/plain", "txt"),
                (PNG + fact.encode(), "image/png", "png"),
                (PNG + fact.encode(), "image/png", "png"),
                (pdf(fact), "application/pdf", "pdf"),
            )
        )
        self.world.files[reference] = data
        is_image = kind == "png"
        return Attachment(
            reference,
            f"{self.world.canary()}.{kind}",
            name,
            kind="image" if is_image else "file",
            note=self.world.canary(),
        )

    @act(4, "files")
    async def search(self) -> None:
        """Somebody searches, or lets the model do it."""
        place, sender = self.place()
        words = self.chance.choice((STEM, STEM, self.keyword()))
        await self.world.say(
            place, self.chance.choice((f",search {words}", please("tape_search", query=words))), sender
        )

    @act(4, "words")
    async def edit(self) -> None:
        """Somebody changes a message, or corrects an entry; in a group a stranger tries to, perhaps."""
        place, sender = self.place()
        if self.chance.random() < 0.3:
            await self.world.say(place, f",correct {self.chance.randint(1, 60)} {self._fact()}", sender)
        elif written := self.world.written.get(place.session):
            sender = self._intruder(place, sender)
            await self.world.edit(place, self.chance.choice(written[-5:]), self._fact(), sender)

    @act(4, "words")
    async def react(self) -> None:
        """Somebody reacts to a message of a person or of the bot, perhaps of another chat, or a stranger does."""
        place, sender = self.place()
        other = self.place()[0] if self.chance.random() < 0.2 else place
        messages = [*self.world.written.get(other.session, ())[-5:], *self.world.posted.get(other.session, ())[-5:]]
        if messages:
            emojis = (f":{self.world.canary()}:",) if self.chance.random() < 0.7 else ()
            await self.world.react(place, self.chance.choice(messages), emojis, self._intruder(place, sender))

    def _intruder(self, place: Place, sender: str) -> str:
        """Draw a stranger in place of the sender, in a group where not everybody may speak."""
        is_closed = place.person is None and place.channel == STRANGER[0]
        return STRANGER[1] if is_closed and self.chance.random() < 0.4 else sender

    @act(4, "doors")
    async def knock(self) -> None:
        """Somebody without the owner's token knocks at the doors for programs."""
        person = self.chance.choice(AUDITORS)
        token = self.chance.choice(("", "wrong", trace_tokens(Home(self.world.home)).issue(person, 60)))
        place = self.chance.choice(PROGRAMS)
        await self.world.knock(token, place, self.chance.choice((f"What of {self.keyword()}?", self._fact())))

    @act(5, "doors")
    async def reach(self) -> None:
        """A program of the owner names a chat of another channel, or a file of another chat."""
        place, (other, sender) = self.chance.choice(PROGRAMS), self.place(PEOPLE)
        if self.chance.random() < 0.5:
            handle = self.chance.choice(await self._digests())
            name = self.chance.choice(("a.txt", "a.png"))
            file = Attachment("x", name, "text/plain" if name == "a.txt" else "image/png", digest=handle)
            await self.world.hand_over_file(place, f"What is that? {self._fact()}", file)
            return
        await self.world.trespass(place, other, sender, self._fact())

    @act(5, "doors")
    async def repeat(self) -> None:
        """A program leaves before its answer comes, and one in another session chooses the same id for its message."""
        first, second = self.chance.sample(PROGRAMS, 2)
        await self.world.repeat(first, second, (self._fact(), f"What of {self.keyword()}?", "hello"))

    @act(3, "grants")
    async def delete(self) -> None:
        """Somebody deletes a message that the bot did not answer, perhaps one with a file; then another chat reads there."""
        place, sender = self.place(GROUPS)
        files = (self._file(),) if self.chance.random() < 0.3 else ()
        await self.world.say(place, self._fact(), sender, addressed=False, attachments=files)
        await self.world.delete(place, self.world.written[place.session][-1])
        readers = [reader for source, reader in sorted(self.world.oracle.readings) if source == place.session]
        if not readers:
            readers = [self.chance.choice(OWNER_CHATS).session]
            await self.world.say(self.chance.choice(OWNER_CHATS), f",grant {place.session} to {readers[0]}")
        session = self.chance.choice(readers)
        reader = next(each for each in PLACES if each.session == session)
        speaker = self.speaker(reader)
        await self.world.say(reader, f",chat.read {place.session} limit=5", speaker)

    @act(3, "cards")
    async def press(self) -> None:
        """Somebody presses a button, perhaps one of another chat, or types what it stands for."""
        place, sender = self.place()
        if not self.world.buttons or self.chance.random() < 0.3:
            await self.world.say(place, self.chance.choice((",approvals", f",approve {self._card()}")), sender)
            return
        here = [each for each in self.world.buttons if each[0] == place.session]
        _, message, buttons = self.chance.choice(here if here and self.chance.random() < 0.6 else self.world.buttons)
        await self.world.press(place, message, self.chance.choice(buttons), sender)

    def _card(self) -> str:
        """Draw the number of a card, which somebody has seen in some chat."""
        cards = [card for texts in self.world.answers.values() for card in card_ids(texts)]
        return self.chance.choice(cards) if cards else "ABCDE"

    @act(3, "words")
    async def hand_over(self) -> None:
        """The model begins another window with a summary."""
        place, sender = self.place()
        call = please("tape_handoff", name=self._fact(), summary=self._fact(), next_steps=[self._fact()])
        await self.world.say(place, call, sender)

    @act(4, "cards")
    async def act_outside(self) -> None:
        """The model wants to act outside: a card shows what it would do."""
        place, sender = self.place()
        await self.world.say(place, please("post_send", to=self.world.canary(), text=self._fact()), sender)
        if self.world.buttons and self.world.buttons[-1][0] == place.session and self.chance.random() < 0.6:
            _, message, buttons = self.world.buttons[-1]
            await self.world.press(place, message, self.chance.choice(buttons), place.person or OWNERS[place.channel])
            other, speaker = self.place()
            await self.world.say(other, ",approvals", speaker)

    @act(5, "audits")
    async def audit(self) -> None:
        """An owner lets somebody look at the tape of a chat, or no longer."""
        oracle, owner = self.world.oracle, self.chance.choice(OWNER_CHATS)
        if len(oracle.audits) > 3 or (oracle.audits and self.chance.random() < 0.4):
            auditor, session = self.chance.choice(sorted(oracle.audits))
            oracle.audits.discard((auditor, session))
            await self.world.say(owner, f",audit.revoke {auditor} of {self.name(session)}")
            return
        places = DIRECT if self.chance.random() < 0.7 else PLACES
        auditor, session = self.chance.choice(AUDITORS), self.chance.choice(places).session
        await self.world.say(owner, f",audit {auditor} of {self.name(session)}")

    @act(1)
    async def move(self) -> None:
        """A group becomes another kind of group, with another id, once."""
        if not self.world.moved:
            await self.world.move(GROUP, "-1008")

    def name(self, session: str) -> str:
        """Draw a name of a session: people know a group that was moved by both ids."""
        return self.chance.choice((session, self.world.newest_name(session)))

    @act(8, "audits")
    async def visit(self) -> None:
        """Somebody looks at the trace page."""
        if not self.world.oracle.audits and self.chance.random() < 0.7:
            await self.audit()
        auditors = [auditor for auditor, _ in sorted(self.world.oracle.audits)]
        await self.world.visit(self.chance.choice(auditors if auditors and self.chance.random() < 0.7 else AUDITORS))

    @act(5)
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
        await self.world.say(place, text, self.speaker(place))

    async def _arguments(self, tool: Tool, place: Place) -> dict[str, Any]:
        word, sessions = self.world.canary(), [each.session for each in PLACES]
        known: dict[str, Iterable[Any]] = {
            "job": self._jobs(), "handle": await self._digests(), "path": ["note.txt", "../note.txt", "a/note.txt"], "turn": ["", "0" * 8], "when": ["in 1h", "every 9h"],
            "to": sessions, "session": sessions, "source": sessions, "reader": sessions, "name": [word, "rome"], "topic": ["rome", "-"],
            "command": [",memory.recall", ",schedules every=true", f",memory.daily {word}"], "before": [0], "query": [STEM, ""],
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
        if tool.name.startswith("task."):  # a task, with its name, is for every chat of the bot; a run is for its own
            made.pop("with", None)
            made |= {"task": "look"} if "task" in made else {}
            made |= {"run": self.chance.choice(await self._runs())} if "run" in made else {}
            made |= {"from": "again"} if "from" in made else {}
        if "auditor" in made:
            made["auditor"] = "anna"  # all owners see whom one of them lets look, by this name
        if place.person is None or self.chance.random() < 0.5:
            made.pop("to", None)
        return made

    async def _runs(self) -> list[str]:
        """Return the names of all runs of tasks: they are no secret."""
        query = TapeQuery("bubbot/tasks", names=("task/queued",), kinds=(Kind.EVENT,), newest=True, limit=10)
        (entries,) = await self.world.daemon.bot.base_store.fetch([query])
        return [str(entry.data["run"]) for entry in entries] or ["AAAAA"]

    async def _digests(self) -> list[str]:
        """Return digests of blobs that some chat names."""
        session = self.chance.choice(PLACES).session
        bot = self.world.daemon.bot
        (entries,) = await bot.base_store.fetch(
            [TapeQuery(session_tape(bot.workspace, session), newest=True, limit=60)]
        )
        return sorted(set(_DIGEST.findall(str([entry.payload for entry in entries])))) or ["0" * 64]


SUBJECTS = sorted({subject for each in ACTS for subject in each.subjects})


def _typed(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return text.replace('"', '""')


def _value(info: Any, word: str) -> Any:
    shape = str(info.annotation)
    if "bool" in shape:
        return True
    return 3 if "int" in shape else word
