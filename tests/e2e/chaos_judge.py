"""Judges what many workers did, from outside: what people saw, what the service and the provider counted, what the tapes say."""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from bubbot.stores.postgres.store import open_readonly
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import ForkRecord
from tests.approving import CARD
from tests.e2e import bot
from tests.e2e.chaos import LIMIT_TOKENS, Chaos, Seat
from tests.e2e.chaos_provider import CALL_TOKENS
from tests.e2e.kill_talk import BARE, GAVE_UP
from tests.e2e.platforms import MARK

SETTLE_SECONDS = 240.0
ANSWER = re.compile(r"answer to <([^>]*)>")
AFTER_CARD = "[Approval "
"""How the message begins with which a turn goes on after a card was answered."""
OTHERS = re.compile(
    r"Thank you for adding me\.|\d+ % of the budget|A button of this message was pressed already|\w{5} was allowed, and I was interrupted"
)
"""How other messages begin that belong to this stage. A call in which a worker died counts with all that it might have used."""
FOLLOWED = re.compile(r"followed <([^>]*)>")


@dataclass
class Verdict:
    """What became of everything.

    Attributes:
        messages: what people said.
        answers: what they got, each once.
        lost: what was not taken, not done, not answered or not delivered.
        doubled: answers that came more often than once, and no receipt says so.
        repeated: the same for answers of which a receipt says that they may repeat (on Telegram).
        swapped: answers of a chat that came before the one to an earlier message.
        twice: acts that happened more often than once, or without a yes.
        undone: acts that may be repeated, and did not happen though their message was answered.
        overspent: scopes that used more than their budget and one call.
        damaged: what `bubbot tape verify` says, and open forks.
        odd: other messages of the bot.
        gave_up: messages that were interrupted too often, and were told so.
        bare: messages that say `…` and nothing else.
        refused: messages for which a budget was used up.
        followed: cards after which the bot went on.
    """

    messages: int = 0
    answers: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    swapped: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    overspent: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    odd: list[str] = field(default_factory=list)
    repeated: int = 0
    gave_up: int = 0
    bare: int = 0
    refused: int = 0
    followed: int = 0

    def faults(self) -> dict[str, list[str]]:
        """What must not be, by kind; empty if all promises were kept."""
        kinds = ("lost", "doubled", "swapped", "twice", "undone", "overspent", "damaged", "odd")
        return {kind: found for kind in kinds if (found := getattr(self, kind))}

    def __str__(self) -> str:
        """Write down the figures."""
        counts = ("messages", "answers", "followed", "repeated", "gave_up", "bare", "refused")
        faults = ("lost", "doubled", "swapped", "twice", "undone", "overspent", "damaged", "odd")
        return ", ".join(
            [
                *(f"{name} {getattr(self, name)}" for name in counts),
                *(f"{name} {len(getattr(self, name))}" for name in faults),
            ]
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """The tapes of inbox and outbox by name, and the open forks."""

    inbox: dict[str, tuple[TapeEntry, ...]]
    outbox: dict[str, tuple[TapeEntry, ...]]
    forks: list[ForkRecord]

    def received(self) -> Iterator[tuple[str, TapeEntry]]:
        """Yield what was accepted, with its tape: messages, and what goes on after a card was answered."""
        for tape, entries in self.inbox.items():
            for entry in entries:
                if entry.name == "inbox/received":
                    yield tape, entry

    def done(self) -> Counter[tuple[str, int]]:
        """Count how often each inbound was done."""
        return Counter(
            (tape, inbound)
            for tape, entries in self.inbox.items()
            for entry in entries
            if entry.name == "inbox/done"
            for inbound in entry.payload["data"]["inbounds"]
        )

    def undelivered(self) -> list[tuple[str, int]]:
        """Return intents without a receipt or an end."""
        found = []
        for tape, entries in self.outbox.items():
            told = {
                entry.payload["data"]["intent"] for entry in entries if entry.name in ("outbox/receipt", "outbox/ended")
            }
            found += [(tape, entry.id) for entry in entries if entry.name == "outbox/intent" and entry.id not in told]
        return found

    def has_open(self) -> bool:
        """Return true if something that was accepted is not done, or not delivered."""
        done = self.done()
        return bool(self.forks or self.undelivered()) or any(
            (tape, entry.id) not in done for tape, entry in self.received()
        )

    def repeats(self) -> set[tuple[str, str]]:
        """Return chats and texts of which a receipt says that they may have been sent before."""
        found = set()
        for entries in self.outbox.values():
            resumed = {
                (data["intent"], data["part"])
                for entry in entries
                if entry.name == "outbox/receipt" and "resumed" in (data := entry.payload["data"])
            }
            for entry in entries:
                if entry.name == "outbox/intent":
                    data = entry.payload["data"]
                    chat = data["session"].split(":")[1]
                    parts = enumerate(data["parts"])
                    found |= {(chat, part["text"].strip()) for place, part in parts if (entry.id, place) in resumed}
        return found


async def read_facts(url: str) -> Facts:
    """Read the tapes beside everybody else."""
    store = await open_readonly(url, 0)
    try:
        names = [summary.name for summary in await store.tapes()]
        inbox = [name for name in names if name.startswith(("bubbot/inbox/telegram", "bubbot/inbox/discord"))]
        outbox = [name for name in names if name.startswith(("bubbot/outbox/telegram", "bubbot/outbox/discord"))]
        found = dict(zip([*inbox, *outbox], await store.fetch([TapeQuery(n) for n in [*inbox, *outbox]]), strict=True))
        forks = list(await store.forks())
    finally:
        await store.aclose()
    return Facts({name: found[name] for name in inbox}, {name: found[name] for name in outbox}, forks)


def is_answered(stage: Chaos) -> bool:
    """Return true once every message that costs no budget has an answer, or was given up."""
    return all(_missing(seat, _answers(seat), _count_given_up(seat)) == 0 for seat in stage.seats)


async def begin(stage: Chaos) -> None:
    """Start the workers, and let them act."""
    await stage.allow_acts()
    for worker in stage.workers[1:]:
        await worker.run()


async def live(stage: Chaos, *, messages: int, seconds: float, times: int, seed: int) -> Verdict:
    """Let people talk while workers and server are disturbed, wait until everything is done, end the workers, and judge.

    The last disturbance comes before the last message; what is still open four minutes after it is lost.
    """
    rng = random.Random(seed)
    if stage.workers[0].daemon is None:
        await begin(stage)
    pressing = asyncio.create_task(stage.press())
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.talk(messages, seconds, rng))
            group.create_task(stage.disturb(times, seconds, rng))
        left_open: list[str] = []
        try:
            async with asyncio.timeout(SETTLE_SECONDS):
                while not is_answered(stage) or await stage.list_jobs() or (await read_facts(stage.url)).has_open():
                    for worker in stage.workers:
                        await stage.revive(worker)
                    await asyncio.sleep(1)
        except TimeoutError:
            left_open = await stage.list_jobs() or ["something is open, and nobody has a job for it"]
    finally:
        pressing.cancel()
    for worker in stage.workers:
        await worker.end()
    found = await judge(stage)
    found.lost += left_open
    found.damaged += [
        f"{worker.home.name} ended with {worker.codes[-1]}" for worker in stage.workers if worker.codes[-1:] != [0]
    ]
    return found


async def judge(stage: Chaos) -> Verdict:
    """Judge a stage whose workers have ended."""
    facts, found = await read_facts(stage.url), Verdict()
    found.messages = sum(len(seat.said) for seat in stage.all_seats)
    repeats = facts.repeats()
    for seat in stage.all_seats:
        _judge_seat(seat, repeats, found, is_limited=seat not in stage.seats)
    _judge_facts(stage, facts, found)
    _judge_acts(stage, found)
    found.overspent = [
        f"{scope}: {used} tokens of {LIMIT_TOKENS}"
        for scope, used in stage.provider.used.items()
        if used > LIMIT_TOKENS + CALL_TOKENS
    ]
    found.damaged += [f"fork {fork.id} is open still" for fork in facts.forks]
    verified = bot.run(stage.workers[0].home, "tape", "verify", env=stage.workers[0].env)
    if verified.returncode:
        found.damaged.append((verified.stdout + verified.stderr).decode())
    return found


def _answers(seat: Seat) -> list[str]:
    """The messages whose answers stand in a chat, in the order of the answers."""
    return [match[1] for text in seat.texts() if (match := ANSWER.fullmatch(MARK.sub("", text)))]


def _count_given_up(seat: Seat) -> int:
    return sum(GAVE_UP in text for text in seat.texts())


def _missing(seat: Seat, answers: Sequence[str], given_up: int) -> int:
    return max(0, len(set(seat.said) - set(answers)) - given_up)


def _judge_seat(seat: Seat, repeats: set[tuple[str, str]], found: Verdict, *, is_limited: bool) -> None:
    answers, place = _answers(seat), f"{seat.platform.name} {seat.chat}"
    given_up = _count_given_up(seat)
    found.gave_up += given_up
    counts = Counter(answers)
    found.answers += len(counts)
    if not is_limited and _missing(seat, answers, given_up):
        missing = [text for text in seat.said if text not in counts]
        found.lost.append(f"{place}: no answer to {missing}, {given_up} given up")
    for text, count in counts.items():
        if count == 1:
            continue
        if (seat.chat, f"answer to <{text}>") in repeats:
            found.repeated += count - 1
        else:
            found.doubled.append(f"{place}: the answer to {text!r} came {count} times, no receipt says so")
    order = [seat.said.index(text) for text in dict.fromkeys(answers) if text in seat.said]
    found.swapped += [
        f"{place}: the answer to {seat.said[after]!r} came before that to {seat.said[before]!r}"
        for after, before in pairwise(order)
        if before < after
    ]
    found.odd += [f"{place}: an answer to {text!r}, which nobody said" for text in counts if text not in seat.said]
    for text in map(_plain, seat.texts()):
        if FOLLOWED.fullmatch(text):
            found.followed += 1
        elif text == BARE and seat.platform.leaves_bare_starts:
            found.bare += 1
        elif is_limited and "used up" in text:
            found.refused += 1
        elif not (
            ANSWER.fullmatch(text) or CARD.search(text.replace("*", "")) or GAVE_UP in text or OTHERS.match(text)
        ):
            found.odd.append(f"{place}: {text!r} stands in the chat")


def _plain(text: str) -> str:
    return MARK.sub("", text)


def _judge_facts(stage: Chaos, facts: Facts, found: Verdict) -> None:
    """What the tapes say: each message accepted once and done once, each intent delivered."""
    said = Counter(text for seat in stage.all_seats for text in seat.said)
    accepted = Counter[str]()
    done = facts.done()
    for tape, entry in facts.received():
        times = done[tape, entry.id]
        if times != 1:
            (found.lost if not times else found.doubled).append(f"{tape} #{entry.id} is done {times} times")
        text = _words(entry.payload["data"]["text"])
        if not text.startswith(AFTER_CARD):
            accepted[text] += 1
    found.lost += [f"{text!r} was not accepted" for text in (said - accepted)]
    found.doubled += [f"{text!r} was accepted {accepted[text]} times" for text in accepted - said]

    found.lost += [f"{tape} #{intent} was not delivered" for tape, intent in facts.undelivered()]


def _words(text: str) -> str:
    """A message as it was said: in groups it begins with the bot's name."""
    return re.sub(r"^@\w+ ", "", text)


def _judge_acts(stage: Chaos, found: Verdict) -> None:
    """What happened: each act once at most, and those that may be repeated once; nothing that needed a yes without one."""
    for (kind, text), count in stage.service.done.items():
        if count > 1:
            found.twice.append(f"{kind} of {text!r} happened {count} times")
    answered = {text for seat in stage.seats for text in _answers(seat)}
    for text in sorted(answered):
        if text.startswith("act "):
            found.undone += [
                f"{kind} of {text!r} did not happen" for kind in ("key", "probe") if not stage.service.done[kind, text]
            ]
    may = {text for seat in stage.seats if seat.pressed for text in seat.said}
    for kind, text in stage.service.done:
        if kind == "post" and text not in may:
            found.twice.append(f"{kind} of {text!r} happened without a yes")
