"""A group and a direct chat in which people and three agents talk with a bot that is killed, and what must hold in the end."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bubbot.app.tapes import open_tapes
from bubbot.gateway.inbox import inbox_tape
from bubbot.gateway.outbox import outbox_tape
from bubbot.home import Home
from bubbot.tape.entry import TapeEntry
from bubbot.tape.service import session_tape
from bubbot.texts import Texts
from tests.e2e.daemon import configured, started
from tests.e2e.kill_daemon import RUNNING
from tests.e2e.kill_harness import damage, entries_of
from tests.e2e.kill_talk import BARE, CHILD, entry_given_up, has_open, has_undelivered, list_intended
from tests.e2e.platforms import MARK, OnTelegram
from tests.e2e.test_telegram import texts
from tests.fakes.botapi.gatherings import Gathering
from tests.fakes.botapi.server import Server
from tests.fakes.botapi.world import User

MAX_TURNS = 4
"""Turns that may follow a message of a person."""
AGENTS = ("rosi", "tom", "mia")
SETTINGS = f"[agents]\nmax_turns = {MAX_TURNS}\n" + "".join(
    f'[agents.{name}]\ntitle = "{name.title()}"\n' for name in AGENTS
)
NEXT = {"rosi": ("tom", "mia"), "tom": ("bot",), "mia": (), "bot": ("rosi", "mia")}
"""Whom each calls, if another agent asks it."""
MENTION = re.compile(r"@(\w+)")
GAVE_UP = Texts(command_prefix="/").say("gave_up")


def script() -> Mapping[str, Any]:
    """A model that calls others if it is asked to discuss, or is called itself."""
    rules = [
        {
            "when": rf"asks you, {name}\]",
            "steps": [{"text": f"{name} goes on. " + " ".join(f"@{each}" for each in called), "pace": 0.02}],
        }
        for name, called in NEXT.items()
    ]
    discuss = {"when": "discuss", "steps": [{"text": "answer to <{text}> @tom @mia", "pace": 0.02}]}
    return {"rules": [*rules, discuss], "default": [{"text": "answer to <{text}>", "pace": 0.02}]}


@dataclass(frozen=True, slots=True)
class Talker:
    """Somebody in one of the chats."""

    room: Gathering
    user: User


@dataclass(frozen=True, slots=True)
class Ended:
    """A turn that ended what it answers.

    Attributes:
        turn: its id.
        inbound: the fact that it answered.
        agent: who answered.
        said: its answer, without the name before it; empty for none.
        status: how it ended.
        at: the place of its end among all turns of the chat.
    """

    turn: str
    inbound: TapeEntry
    agent: str
    said: str
    status: str
    at: int

    @property
    def call(self) -> Mapping[str, Any] | None:
        """What it may use up, if an agent was asked by another one."""
        found: Mapping[str, Any] | None = self.inbound.data.get("call")
        return found

    @property
    def asked(self) -> list[str]:
        """Those that the message asks, in order."""
        return list(self.inbound.data.get("agents", ()))

    def find_shares(self) -> dict[str, int]:
        """Return whom its end calls, and the turns that each may use: what the settings say, worked out once more."""
        too = [name for name in self.asked[1:] if name != self.agent]
        said = [name.replace("bot", "") for name in MENTION.findall(self.said)] if self.status == "answered" else []
        called = [*too, *[name for name in dict.fromkeys(said) if name != self.agent and name not in too]]
        left = MAX_TURNS if self.call is None else self.call["turns"] - 1
        shares = {name: left // len(called) + (place < left % len(called)) for place, name in enumerate(called)}
        return {name: share for name, share in shares.items() if share}


@dataclass
class Family:
    """The chats, and what was said in them."""

    home: Path
    server: Server
    said: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    talkers: list[Talker] = field(default_factory=list)

    def open(self) -> None:
        """Write the configuration."""
        ada, bob = self.server.user("Ada"), self.server.user("Bob")
        group = self.server.supergroup("Family", [ada, bob])
        self.talkers = [Talker(group, ada), Talker(group, bob), Talker(self.server.private(ada), ada)]
        keys = {"owners": [ada.id, bob.id], "debounce": 0, "messages_per_minute": 0, "edit_interval": 0.2}
        configured(self.home, self.server, script(), **keys)
        with (self.home / "config.toml").open("a") as file:
            file.write(SETTINGS)

    def say(self, talker: Talker, text: str) -> None:
        """Let somebody say something."""
        self.said[talker.room.chat.id].append(text)
        talker.room.say(text, talker.user)

    async def live(self, *, until_done: bool = False, seconds: float = 0.0) -> None:
        """Run a bot for so long and kill it; or until it is done with all, and end it."""
        before = self._count_starts()
        daemon = await started(self.home, target=CHILD, arguments=[str(self.home), "", ""])
        if not until_done:
            await asyncio.sleep(seconds)
            await daemon.kill()
            return
        try:
            await self.server.until(lambda: self._count_starts() > before, 120)
            await OnTelegram(self.server).quiet()
            async with asyncio.timeout(400):
                while (  # noqa: ASYNC110 - elsewhere
                    has_open(await entries_of(self.home, inbox_tape("telegram")))
                    or has_undelivered(await entries_of(self.home, outbox_tape("telegram")))
                ):
                    await asyncio.sleep(0.3)
        finally:
            code = await daemon.end()
        assert code == 0, daemon.errors

    def _count_starts(self) -> int:
        errors = self.home / "errors"
        return errors.read_text().count(RUNNING) if errors.exists() else 0

    async def faults(self) -> list[str]:
        """What is lost, doubled, out of order, unbounded or damaged; empty where the promises were kept."""
        inbox = await entries_of(self.home, inbox_tape("telegram"))
        outbox = await entries_of(self.home, outbox_tape("telegram"))
        received = [entry for entry in inbox if entry.name == "inbox/received"]
        done = Counter(one for entry in inbox if entry.name == "inbox/done" for one in entry.data["inbounds"])
        found = [f"inbound {entry.id} is done {done[entry.id]} times" for entry in received if done[entry.id] != 1]
        given_up = entry_given_up(inbox)
        for session in [f"telegram:{chat}" for chat in self.said]:
            ended = await self._list_ended(session, inbox)
            found += [f"{session}: {fault}" for fault in self._in_session(session, received, ended, given_up)]
            found += [f"{session}: {fault}" for fault in _out_of_turn(inbox, session, ended)]
        found += self._seen(outbox)
        return [*found, *await damage(self.home)]

    async def _list_ended(self, session: str, inbox: Sequence[TapeEntry]) -> list[Ended]:
        """List the turns that ended what they answered, in order."""
        async with open_tapes(Home(self.home)) as (_, workspace):
            tape = session_tape(workspace, session)
        entries = await entries_of(self.home, tape)
        by_id = {entry.id: entry for entry in inbox}
        done = {
            entry.data["turn"]: entry.data for entry in inbox if entry.name == "inbox/done" and "turn" in entry.data
        }
        ends = [entry for entry in entries if entry.name == "turn/end" and entry.meta["turn"] in done]
        return [
            Ended(
                end.meta["turn"],
                by_id[done[end.meta["turn"]]["inbounds"][0]],
                str(end.meta.get("origin", "")).removeprefix("agent:"),
                next(
                    (
                        str(one.payload["content"])
                        for one in entries
                        if one.meta.get("turn") == end.meta["turn"] and one.payload.get("role") == "assistant"
                    ),
                    "",
                ),
                end.data["status"],
                place,
            )
            for place, end in enumerate(ends)
        ]

    def _in_session(
        self, session: str, received: Sequence[TapeEntry], ended: Sequence[Ended], given_up: Mapping[int, int]
    ) -> Iterator[str]:
        """Compare what was said in a chat, and whom each answer calls, with the turns."""
        here = [entry for entry in received if entry.data["session"] == session]
        people = [entry for entry in here if "call" not in entry.data]
        said = self.said[int(session.split(":")[1])]
        if Counter(entry.data["text"] for entry in people) != Counter(said):
            yield "what people said was not accepted once"
        by_turn = {one.turn: one for one in ended}
        by_key = {one.inbound.key: one for one in ended}
        wanted = {
            f"agent:{one.turn}:{name or 'bot'}": share for one in ended for name, share in one.find_shares().items()
        }
        calls = {str(entry.key): entry.data["call"]["turns"] for entry in here if "call" in entry.data}
        if calls != wanted:
            yield f"calls {calls}, wanted {wanted}"
        for entry in here:
            one = by_key.get(entry.key)
            if one is None:
                yield f"#{entry.id} has no turn"
                continue
            if one.agent != (one.asked or [""])[0]:
                yield f"#{entry.id} asks {one.asked}, {one.agent} answered"
            if one.status != ("failed" if entry.id in given_up else "answered"):
                yield f"#{entry.id} ended as {one.status}"
        roots = Counter(_find_root(one, by_turn) for one in ended if one.call is not None)
        yield from (f"{count} turns follow {root}" for root, count in roots.items() if count > MAX_TURNS)
        order = [one.inbound.id for one in ended if one.call is None]
        if order != sorted(order):
            yield f"people were answered in the order {order}"

    def _seen(self, outbox: Sequence[TapeEntry]) -> Iterator[str]:
        """Compare what stands in the chats with what the tapes say that there has to be."""
        intended, repeats = list_intended(outbox)
        for room in {talker.room.chat.id: talker.room for talker in self.talkers}.values():
            chat = str(room.chat.id)
            wanted, seen = intended.get(chat, Counter()), Counter(MARK.sub("", text).strip() for text in texts(room))
            yield from (f"{chat}: {text!r} is not there" for text in wanted - seen)
            yield from (
                f"{chat}: {text!r} stands there {count} times more"
                for text, count in (seen - wanted).items()
                if text != BARE and (chat, text) not in repeats
            )
            gave_up = sum(GAVE_UP in text for text in seen.elements())
            lacking = [
                text
                for text in self.said[room.chat.id]
                if not any(
                    each.startswith((f"{_find_first(text)}: answer to <{text}>", f"answer to <{text}>"))
                    or f"\n\n{_find_first(text)}: answer to <{text}>" in each
                    for each in seen
                )
            ]
            if len(lacking) > gave_up:
                yield f"{chat}: {lacking} have no answer of whom they ask ({gave_up} given up)"


def _find_first(text: str) -> str:
    """Return the name that people see of the agent that a message asks first."""
    found = re.match(r"@?(\w+)", text)
    name = found[1].title() if found else ""
    return name if name.lower() in AGENTS else "bubbot"


def _find_root(one: Ended, by_turn: Mapping[str, Ended]) -> int:
    """Return the message of a person that a turn follows."""
    while one.call is not None:
        one = by_turn[str(one.inbound.key).split(":")[1]]
    return one.inbound.id


def _out_of_turn(inbox: Sequence[TapeEntry], session: str, ended: Sequence[Ended]) -> Iterator[str]:
    """Find the calls that were answered though a person's message had waited since before the turn before the last one.

    A message may be stored while the turn that ends is merged, and the next one begins: so one turn in between is allowed.
    """
    done = {entry.data["turn"]: entry.id for entry in inbox if entry.name == "inbox/done" and "turn" in entry.data}
    for place, one in enumerate(ended):
        if one.call is None or place < 2:
            continue
        before = done[ended[place - 2].turn]
        late = [
            other.inbound.id
            for other in ended[place + 1 :]
            if other.call is None and other.inbound.id < before and not _was_cut(inbox, one.inbound.id)
        ]
        if late:
            yield f"#{one.inbound.id} was answered before {late}, which people had said before"


def _was_cut(inbox: Sequence[TapeEntry], inbound: int) -> bool:
    return any(entry.name == "inbox/interrupted" and inbound in entry.data["inbounds"] for entry in inbox)


def say_anything(rng: random.Random, number: str) -> str:
    """Make a message to one of the agents, to two, or to the bot itself."""
    words = f"{number}{' discuss' if rng.random() < 0.6 else ''}"
    first, second = rng.sample(AGENTS, 2)
    ways = [f"{first.title()}, {words}", f"@{first} {words}", f"{first.title()} and {second.title()}, {words}"]
    return rng.choice([*ways, f"@bot {words}"])


async def kills_of_agents(home: Path, server: Server, *, seed: int, lives: int) -> list[str]:
    """Random instants, while people write and agents ask each other. The faults."""
    rng = random.Random(seed)
    family = Family(home, server)
    family.open()
    for life in range(lives):
        for place in range(rng.randint(0, 2) if life else 2):
            family.say(rng.choice(family.talkers), say_anything(rng, f"{life}-{place}"))
        living = asyncio.ensure_future(family.live(seconds=0.4 + 2.0 * rng.random()))
        await asyncio.sleep(0.3 + rng.random())
        family.say(rng.choice(family.talkers), say_anything(rng, f"{life}-late"))
        await living
    await family.live(until_done=True)
    return await family.faults()
