"""Several chats on several platforms that talk at once with a bot that is killed, and what people see in the end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

from bubbot.inbox import inbox_tape
from bubbot.outbox import outbox_tape
from bubbot.runtime.session import ATTEMPTS
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts
from tests.e2e.daemon import WAIT, Daemon, configure, started
from tests.e2e.kill_harness import KILLED, SCRIPT, damage, entries_of
from tests.e2e.platforms import Platform, counted

CHILD = "tests.e2e.kill_daemon:run"
GAVE_UP = Texts().say("gave_up")
AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody on a platform."""

    platform: Platform
    id: str


@dataclass
class Talk:
    """A home, its platforms, and what each person said."""

    home: Path
    platforms: Sequence[Platform]
    said: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    people: list[Person] = field(default_factory=list)

    def open(self, people: int, **keys: object) -> None:
        """Writes the configuration for so many people on each platform, each in a chat with the bot."""
        tables = {}
        for platform in self.platforms:
            ids = [platform.person(f"Person {number}") for number in range(people)]
            self.people += [Person(platform, one) for one in ids]
            self.said |= {(platform.name, one): [] for one in ids}
            tables[platform.name] = {**platform.table(), "owners": ids, "debounce": 0, **keys}
        configure(self.home, tables, SCRIPT)

    def say(self, person: Person, text: str) -> None:
        """Somebody says something."""
        self.said[person.platform.name, person.id].append(text)
        person.platform.say(person.id, text)

    async def start(self, point: str = "", broken: str = "") -> Daemon:
        """A bot that ends itself at the point."""
        return await started(self.home, target=CHILD, arguments=[str(self.home), point, broken])

    def complete(self) -> bool:
        """Whether every message has an answer, or was given up."""
        return all(
            sum(answers[f"answer to <{text}>"] > 0 for text in texts) + given_up(answers) >= len(texts)
            for person in self.people
            for texts in [self.said[person.platform.name, person.id]]
            for answers in [counted(person.platform, person.id)]
        )

    async def live(self, broken: str) -> None:
        """Runs a broken bot until it has taken all there is and is done with all it has accepted: no time decides."""
        daemon = await self.start("", broken)
        try:
            for platform in self.platforms:
                await platform.quiet()
                async with asyncio.timeout(WAIT):
                    while _waits(await entries_of(self.home, inbox_tape(platform.name))):  # noqa: ASYNC110 - elsewhere
                        await asyncio.sleep(0.05)
        finally:
            code = await daemon.end()
        assert code == 0, daemon.errors

    async def settle(self, seconds: float = 30.0) -> None:
        """Runs a bot until every message has its answer; then ends it."""
        daemon = await self.start()
        try:
            await self.platforms[0].until(self.complete, seconds)
            for platform in self.platforms:
                await platform.quiet()
        finally:
            code = await daemon.end()
        assert code == 0, daemon.errors

    async def faults(self) -> list[str]:
        """What is lost, doubled or damaged; empty where the promises were kept."""
        found = [fault for platform in self.platforms for fault in await self._on(platform)]
        return [*found, *await damage(self.home)]

    async def _on(self, platform: Platform) -> list[str]:
        inbox = await entries_of(self.home, inbox_tape(platform.name))
        outbox = await entries_of(self.home, outbox_tape(platform.name))
        return [*self._people(platform, inbox, outbox), *_done(inbox), *_intents(inbox, outbox)]

    def _people(self, platform: Platform, inbox: Sequence[TapeEntry], outbox: Sequence[TapeEntry]) -> list[str]:
        """What people saw: each answer once, or more often where a receipt says that it may repeat."""
        resumed = sum("resumed" in entry.payload["data"] for entry in outbox if entry.name == "outbox/receipt")
        gave_up = sum(entry_given_up(inbox).values())
        faults, doubled, missing = [], 0, 0
        for person in (one.id for one in self.people if one.platform is platform):
            answers = counted(platform, person)
            for text in self.said[platform.name, person]:
                seen = answers.pop(f"answer to <{text}>", 0)
                missing += not seen
                doubled += max(seen - 1, 0)
            missing -= given_up(answers)
            odd = [text for text in answers if GAVE_UP not in text]
            faults += [f"{platform.name} {person}: {text!r} stands in the chat" for text in odd]
        if missing > 0:
            faults.append(f"{missing} messages on {platform.name} have no answer ({gave_up} were given up)")
        if doubled > resumed:
            faults.append(f"{doubled} answers on {platform.name} came again, {resumed} receipts say so")
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


async def killed_at(
    home: Path, platforms: Sequence[Platform], point: str, broken: str = ""
) -> tuple[int | None, list[str]]:
    """On each platform one message whose answer uses a tool and one that does not, a kill at the point, a second life:
    the exit code of the first life (None: the point was never reached), and the faults."""
    talk = Talk(home, platforms)
    talk.open(1, live=False)
    daemon = await talk.start(point, broken)
    for person in talk.people:
        talk.say(person, "first use the tool")
        talk.say(person, "second")
    try:
        async with asyncio.timeout(60):
            code: int | None = await daemon.process.ended()
    except TimeoutError:
        await daemon.kill()
        code = None
    await (talk.live(broken) if broken else talk.settle())
    return code, await talk.faults()


async def killed_at_all(
    home: Path, points: Sequence[str], platforms: Callable[[], AbstractAsyncContextManager[Sequence[Platform]]]
) -> tuple[list[str], dict[str, list[str]]]:
    """The same at each of the points, some at once: those that were never reached, and the faults by point."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(number: int, point: str) -> tuple[str, int | None, list[str]]:
        async with limit, platforms() as made:
            return (point, *await killed_at(home / f"home{number}", made, point))

    found = await asyncio.gather(*(one(number, point) for number, point in enumerate(points)))
    missed = [point for point, code, _ in found if code != KILLED]
    return missed, {point: faults for point, _, faults in found if faults}


async def kills(home: Path, platforms: Sequence[Platform], *, seed: int, lives: int, chats: int) -> list[str]:
    """Random instants; several chats on each platform talk all the time, with live answers. The faults."""
    rng = random.Random(seed)
    talk = Talk(home, platforms)
    talk.open(chats, edit_interval=0.2)
    for life in range(lives):
        daemon = await talk.start()
        for number in range(chats * len(platforms)):
            person = rng.choice(talk.people)
            talk.say(person, f"{'use the tool ' if rng.random() < 0.5 else ''}{life}-{number}")
            await asyncio.sleep(rng.random() * 0.1)
        await asyncio.sleep(rng.random() * 1.2)
        await daemon.kill()
    await talk.settle(120)
    return await talk.faults()
