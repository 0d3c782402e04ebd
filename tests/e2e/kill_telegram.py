"""Several chats on a platform that talk at once with a bot that is killed, and what people see in the end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bubbot.inbox import inbox_tape
from bubbot.outbox import outbox_tape
from bubbot.runtime.session import ATTEMPTS
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts
from tests.botapi.gatherings import Gathering
from tests.botapi.server import Server
from tests.e2e.daemon import WAIT, Daemon, configured, started
from tests.e2e.kill_harness import SCRIPT, damage, entries_of

CHILD = "tests.e2e.kill_daemon:run"
CHANNEL = "telegram"
GAVE_UP = Texts().say("gave_up")


@dataclass
class Talk:
    """A home, its chats, and what was said in each."""

    home: Path
    server: Server
    rooms: dict[int, Gathering] = field(default_factory=dict)
    said: dict[int, list[str]] = field(default_factory=dict)

    def open(self, people: int, **keys: object) -> None:
        """Writes the configuration for so many people, each in a chat with the bot."""
        users = [self.server.user(f"Person {number}") for number in range(people)]
        configured(self.home, self.server, SCRIPT, owners=[user.id for user in users], debounce=0, **keys)
        self.rooms = {user.id: self.server.private(user) for user in users}
        self.said = {user.id: [] for user in users}

    def say(self, person: int, text: str) -> None:
        """Somebody says something."""
        self.said[person].append(text)
        self.rooms[person].say(text)

    async def start(self, point: str = "", broken: str = "") -> Daemon:
        """A bot that ends itself at the point."""
        return await started(self.home, target=CHILD, arguments=[str(self.home), point, broken])

    def answers(self, person: int) -> Counter[str]:
        """What the bot has said in somebody's chat, as it stands now."""
        messages = self.rooms[person].chat.messages.values()
        return Counter(str(one["text"]) for one in messages if one.get("from", {}).get("is_bot") and "text" in one)

    def complete(self) -> bool:
        """Whether every message has an answer, or was given up."""
        return all(
            sum(answers[f"answer to <{text}>"] > 0 for text in texts) + given_up(answers) >= len(texts)
            for person, texts in self.said.items()
            for answers in [self.answers(person)]
        )

    async def live(self) -> None:
        """Runs a bot until it has fetched all there is and is done with all it has accepted: no time decides."""
        daemon = await self.start()
        try:
            await daemon.quiet(self.server)
            async with asyncio.timeout(WAIT):
                while _waits(await entries_of(self.home, inbox_tape(CHANNEL))):  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(0.05)
        finally:
            code = await daemon.end()
        assert code == 0, daemon.errors

    async def settle(self, seconds: float = 30.0) -> None:
        """Runs a bot until every message has its answer; then ends it."""
        daemon = await self.start()
        try:
            await self.server.until(self.complete, seconds)
            await daemon.quiet(self.server)
        finally:
            code = await daemon.end()
        assert code == 0, daemon.errors

    async def faults(self) -> list[str]:
        """What is lost, doubled or damaged; empty where the promises were kept."""
        inbox, outbox = (
            await entries_of(self.home, inbox_tape(CHANNEL)),
            await entries_of(self.home, outbox_tape(CHANNEL)),
        )
        return [*self._people(inbox, outbox), *_done(inbox), *_intents(inbox, outbox), *await damage(self.home)]

    def _people(self, inbox: Sequence[TapeEntry], outbox: Sequence[TapeEntry]) -> list[str]:
        """What people saw: each answer once, or more often where a receipt says that it may repeat."""
        resumed = sum("resumed" in entry.payload["data"] for entry in outbox if entry.name == "outbox/receipt")
        gave_up = sum(entry_given_up(inbox).values())
        faults, doubled, missing = [], 0, 0
        for person, texts in self.said.items():
            answers = self.answers(person)
            for text in texts:
                seen = answers.pop(f"answer to <{text}>", 0)
                missing += not seen
                doubled += max(seen - 1, 0)
            told = given_up(answers)
            missing -= told
            odd = [text for text in answers if GAVE_UP not in text]
            faults += [f"{person}: {text!r} stands in the chat" for text in odd]
        if missing > 0:
            faults.append(f"{missing} messages have no answer ({gave_up} were given up)")
        if doubled > resumed:
            faults.append(f"{doubled} answers came again, {resumed} receipts say so")
        return faults


def given_up(answers: Counter[str]) -> int:
    """How many of these answers say that the bot gave up."""
    return sum(count for text, count in answers.items() if GAVE_UP in text)


def entry_given_up(inbox: Sequence[TapeEntry]) -> Counter[int]:
    """The inbounds that were interrupted as often as they may be."""
    cut = Counter(
        one for entry in inbox if entry.name == "inbox/interrupted" for one in entry.payload["data"]["inbounds"]
    )
    return Counter({one: 1 for one, count in cut.items() if count >= ATTEMPTS})


def _waits(inbox: Sequence[TapeEntry]) -> bool:
    """Whether something that was accepted is not done yet."""
    ended = {one for entry in inbox if entry.name == "inbox/done" for one in entry.payload["data"]["inbounds"]}
    return any(entry.id not in ended for entry in inbox if entry.name == "inbox/received")


def _done(inbox: Sequence[TapeEntry]) -> list[str]:
    ended = Counter(one for entry in inbox if entry.name == "inbox/done" for one in entry.payload["data"]["inbounds"])
    received = [entry for entry in inbox if entry.name == "inbox/received"]
    return [f"inbound {entry.id} is done {ended[entry.id]} times" for entry in received if ended[entry.id] != 1]


def _intents(inbox: Sequence[TapeEntry], outbox: Sequence[TapeEntry]) -> list[str]:
    received = sum(entry.name == "inbox/received" for entry in inbox)
    intents = sum(entry.name == "outbox/intent" for entry in outbox)
    receipts = sum(entry.name == "outbox/receipt" for entry in outbox)
    return [] if received == intents == receipts else [f"{received} received, {intents} intents, {receipts} receipts"]


async def killed_at(home: Path, point: str, broken: str = "") -> tuple[int | None, list[str]]:
    """One message whose answer uses a tool, one that does not, a kill at the point, a second life: the exit code of
    the first life (None: the point was never reached), and the faults."""
    async with Server(limits=None, conflict_pause=0.1, longest_poll=0.3) as server:
        talk = Talk(home, server)
        talk.open(1, live=False)
        (person,) = talk.rooms
        daemon = await talk.start(point, broken)
        talk.say(person, "first use the tool")
        talk.say(person, "second")
        try:
            async with asyncio.timeout(15):
                code: int | None = await daemon.process.ended()
        except TimeoutError:
            await daemon.kill()
            code = None
        await (talk.live() if broken else talk.settle())
        return code, await talk.faults()
