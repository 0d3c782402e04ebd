"""Several chats on several platforms that talk at once with a bot that is killed, and what people see in the end."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbot.gateway.inbox import inbox_tape
from bubbot.gateway.outbox import outbox_tape
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts
from tests.e2e.daemon import WAIT, Daemon, configure, started
from tests.e2e.kill_daemon import RUNNING
from tests.e2e.kill_harness import KILLED, SCRIPT, damage, entries_of
from tests.e2e.platforms import Platform, counted

CHILD = "tests.e2e.kill_daemon:run"
GAVE_UP = Texts(command_prefix="/").say("gave_up")
AT_ONCE = 4
BARE = "…"
"""What a live answer begins with on Telegram: it holds nothing of the answer, and one may stay."""
SLOW = {
    "rules": [
        {
            "when": "tool",
            "steps": [
                {"text": "let me see what it is", "pace": 0.05, "calls": [{"name": "probe_touch"}]},
                {"text": "answer to <{text}>, said in a few more words", "pace": 0.05},
            ],
        }
    ],
    "default": [{"text": "answer to <{text}>, said in a few more words", "pace": 0.05}],
}
"""A model that takes its time, so that its answers are shown while they are written."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody on a platform."""

    platform: Platform
    id: str


@dataclass(slots=True)
class Figures:
    """What became of everything that was said on one platform.

    Attributes:
        answers: what the bot intended to say, each once.
        lost: messages that were not taken, or not done, and answers that are not in their chat.
        doubled: answers that stand in their chat more often than intended, and no receipt says so.
        repeated: the same for answers of which a receipt says that they may repeat.
        split: batches that were interrupted and then answered in more than one answer.
        pieces: other messages of the bot, by what they say.
        bare: those that say `…` and nothing else.
    """

    answers: int = 0
    lost: int = 0
    doubled: int = 0
    repeated: int = 0
    split: int = 0
    bare: int = 0
    pieces: list[str] = field(default_factory=list)

    def faults(self) -> tuple[int, int, list[str]]:
        """What must not be: lost, doubled, pieces."""
        return self.lost, self.doubled, self.pieces


NO_PACE = {"messages_per_minute": 0}
"""Thirty lives in a few seconds say more than one person may."""


@dataclass
class Talk:
    """A home, its platforms, and what each person said."""

    home: Path
    platforms: Sequence[Platform]
    said: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    people: list[Person] = field(default_factory=list)

    def open(self, people: int, script: Mapping[str, Any] = SCRIPT, **keys: object) -> None:
        """Writes the configuration for so many people on each platform, each in a chat with the bot."""
        tables = {}
        for platform in self.platforms:
            ids = [platform.person(f"Person {number}") for number in range(people)]
            self.people += [Person(platform, one) for one in ids]
            self.said |= {(platform.name, one): [] for one in ids}
            tables[platform.name] = {**platform.table(), "owners": ids, "debounce": 0, **NO_PACE, **keys}
        configure(self.home, tables, script)

    def say(self, person: Person, text: str) -> None:
        """Somebody says something."""
        self.said[person.platform.name, person.id].append(text)
        person.platform.say(person.id, text)

    async def start(self, point: str = "", broken: str = "") -> Daemon:
        """A bot that ends itself at the point."""
        return await started(self.home, target=CHILD, arguments=[str(self.home), point, broken])

    async def run(self, broken: str = "") -> Daemon:
        """A bot that runs: one that is asked to end while it starts may not know yet what to do then."""
        before = self._starts()
        daemon = await self.start("", broken)
        await self.platforms[0].until(lambda: self._starts() > before, WAIT)
        return daemon

    def _starts(self) -> int:
        errors = self.home / "errors"
        return errors.read_text().count(RUNNING) if errors.exists() else 0

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
        daemon = await self.run(broken)
        try:
            for platform in self.platforms:
                await platform.quiet()
                async with asyncio.timeout(WAIT):
                    while has_open(await entries_of(self.home, inbox_tape(platform.name))):  # noqa: ASYNC110 - elsewhere
                        await asyncio.sleep(0.05)
        finally:
            code = await daemon.end()
        assert code == 0, daemon.errors

    async def settle(self, seconds: float = 120.0) -> None:
        """Runs a bot until every message has its answer; then ends it. Bots of other points run beside it."""
        daemon = await self.run()
        try:
            await self.platforms[0].until(self.complete, seconds)
            for platform in self.platforms:
                await platform.quiet()
        finally:
            code = await daemon.end()
        assert code == 0, daemon.errors

    async def rest(self, broken: str = "", seconds: float = 240.0) -> None:
        """Runs a bot until it is done with all it accepted, and has delivered all it intended; then ends it."""
        daemon = await self.run(broken)
        try:
            for platform in self.platforms:
                await platform.quiet()
                inbox, outbox = inbox_tape(platform.name), outbox_tape(platform.name)
                async with asyncio.timeout(seconds):
                    while (  # noqa: ASYNC110 - elsewhere
                        await self._untaken(platform)
                        or has_open(await entries_of(self.home, inbox))
                        or has_undelivered(await entries_of(self.home, outbox))
                    ):
                        await asyncio.sleep(0.5)
                await platform.quiet()
        finally:
            code = await daemon.end()
        assert code == 0, daemon.errors

    async def _untaken(self, platform: Platform) -> int:
        """How many messages the bot has not accepted."""
        inbox = await entries_of(self.home, inbox_tape(platform.name))
        said = sum(len(texts) for (name, _), texts in self.said.items() if name == platform.name)
        return said - sum(entry.name == "inbox/received" for entry in inbox)

    async def figures(self, platform: Platform) -> Figures:
        """What stands in the chats of a platform, compared with what the tapes say that there has to be."""
        inbox = await entries_of(self.home, inbox_tape(platform.name))
        outbox = await entries_of(self.home, outbox_tape(platform.name))
        found = Figures(lost=await self._untaken(platform) + len(_done(inbox)), split=_split(inbox))
        intended, repeats = list_intended(outbox)
        for person in (one.id for one in self.people if one.platform is platform):
            wanted, seen = intended.get(platform.chat(person), Counter()), counted(platform, person)
            found.answers += wanted.total()
            found.lost += (wanted - seen).total()
            for text, times in (seen - wanted).items():
                if (platform.chat(person), text) in repeats:
                    found.repeated += times
                elif text in wanted:
                    found.doubled += times
                elif text == BARE:
                    found.bare += times
                else:
                    found.pieces += [text] * times
        return found

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
        _, repeats = list_intended(outbox)
        gave_up = sum(entry_given_up(inbox).values())
        faults, missing = list[str](), 0
        for person in (one.id for one in self.people if one.platform is platform):
            answers = counted(platform, person)
            for text in self.said[platform.name, person]:
                seen = answers.pop(f"answer to <{text}>", 0)
                missing += not seen
                if platform.answers(person).count(f"answer to <{text}>") > 1:
                    faults.append(f"{platform.name} {person}: the answer to {text!r} came again without a mark")
                if seen > 1 and (platform.chat(person), f"answer to <{text}>") not in repeats:
                    faults.append(
                        f"{platform.name} {person}: the answer to {text!r} came {seen} times, no receipt says so"
                    )
            missing -= given_up(answers)
            known = BARE if platform.leaves_bare_starts else None
            odd = [text for text in answers if GAVE_UP not in text and text != known]
            faults += [f"{platform.name} {person}: {text!r} stands in the chat" for text in odd]
        if missing > 0:
            faults.append(f"{missing} messages on {platform.name} have no answer ({gave_up} were given up)")
        return faults


def list_intended(outbox: Sequence[TapeEntry]) -> tuple[dict[str, Counter[str]], set[tuple[str, str]]]:
    """What each chat was to get, and what of it may stand there more than once: a receipt says that it was sent again.

    How often does not follow: a second kill may come between a repeated sending and its receipt.
    """
    receipts = [entry.payload["data"] for entry in outbox if entry.name == "outbox/receipt"]
    resumed = {(one["intent"], one["part"]) for one in receipts if "resumed" in one}
    intended: dict[str, Counter[str]] = {}
    repeats: set[tuple[str, str]] = set()
    for entry in (one for one in outbox if one.name == "outbox/intent"):
        for place, part in enumerate(entry.payload["data"]["parts"]):
            chat, text = entry.payload["data"]["session"].split(":")[1], part["text"].strip()
            intended.setdefault(chat, Counter())[text] += 1
            repeats |= {(chat, text)} if (entry.id, place) in resumed else set()
    return intended, repeats


def given_up(answers: Counter[str]) -> int:
    """How many of these answers say that the bot gave up."""
    return sum(count for text, count in answers.items() if GAVE_UP in text)


def entry_given_up(inbox: Sequence[TapeEntry]) -> Counter[int]:
    """The inbounds that were interrupted as often as they may be."""
    cut = Counter(
        one for entry in inbox if entry.name == "inbox/interrupted" for one in entry.payload["data"]["inbounds"]
    )
    return Counter({one: 1 for one, count in cut.items() if count >= 2})


def has_open(inbox: Sequence[TapeEntry]) -> bool:
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


def has_undelivered(outbox: Sequence[TapeEntry]) -> bool:
    """Whether an answer has neither a receipt nor an end."""
    told = {entry.payload["data"]["intent"] for entry in outbox if entry.name in ("outbox/receipt", "outbox/ended")}
    return any(entry.id not in told for entry in outbox if entry.name == "outbox/intent")


def _split(inbox: Sequence[TapeEntry]) -> int:
    """How many batches were interrupted, and then answered in more than one answer."""
    done = {
        inbound: entry.id
        for entry in inbox
        if entry.name == "inbox/done"
        for inbound in entry.payload["data"]["inbounds"]
    }
    batches = {tuple(entry.payload["data"]["inbounds"]) for entry in inbox if entry.name == "inbox/interrupted"}
    return sum(len({done.get(inbound, 0) for inbound in batch}) > 1 for batch in batches)


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


async def killed_while_showing(
    home: Path, platforms: Sequence[Platform], point: str, *, debounce: float = 0.0, broken: str = ""
) -> tuple[int | None, dict[str, Figures]]:
    """One question on each platform, a kill at the point while the answer is shown, and a second life that answers at
    once: the exit code of the first life (None: the point was never reached), and the figures by platform."""
    talk = Talk(home, platforms)
    talk.open(1, SLOW, edit_interval=0.1, debounce=debounce)
    daemon = await talk.start(point, broken)
    for person in talk.people:
        for text in ("first", "use the tool") if debounce else ("use the tool",):
            talk.say(person, text)
    try:
        async with asyncio.timeout(30):
            code: int | None = await daemon.process.ended()
    except TimeoutError:
        await daemon.kill()
        code = None
    (home / "script.json").write_text(json.dumps(SCRIPT))
    await talk.rest(broken)
    assert await damage(home) == []
    return code, {platform.name: await talk.figures(platform) for platform in platforms}


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


async def kills_of_live_answers(
    home: Path, platforms: Sequence[Platform], *, seed: int, lives: int, chats: int, debounce: float
) -> dict[str, Figures]:
    """The same with answers that are shown while they are written, requests that are answered after 200 ms, and now
    and then one whose answer never comes. With debounce, people write up to three messages in a row. The figures by platform."""
    rng = random.Random(seed)
    talk = Talk(home, platforms)
    talk.open(chats, SLOW, edit_interval=0.2, debounce=debounce)
    for life in range(lives):
        for platform in platforms:
            platform.slow(0.2, lost=rng.randrange(3))
        daemon = await talk.start()
        for number, person in enumerate(talk.people):
            for place in range(rng.randint(1, 3 if debounce else 1)):
                talk.say(person, f"{'use the tool ' if rng.random() < 0.3 else ''}{life}-{number}-{place}")
        if rng.random() < 0.6:
            await asyncio.gather(*(platform.heard() for platform in platforms))
        await asyncio.sleep((0.2 + debounce + 1.5 * rng.random()) * rng.random() ** 0.3)
        await daemon.kill()
    for platform in platforms:
        platform.slow(0.2)
    await talk.rest()
    assert await damage(home) == []
    return {platform.name: await talk.figures(platform) for platform in platforms}
