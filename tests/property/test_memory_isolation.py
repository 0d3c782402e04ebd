"""The privacy of memory: a person's own memory appears in direct chats of this person alone, however it got there."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from bubbot.features.access.links import AccountLinks
from bubbot.features.access.service import ACCESS_TAPE, AccessService
from bubbot.features.memory import feature as memory_feature
from bubbot.features.memory.scopes import ChatFacts, ZoneAccess, choose_zones
from bubbot.features.memory.settings import Scope
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import TapeService
from tests.doubles import CountingIds, SteppingClock
from tests.gateways import admitting
from tests.turns import CHANNEL, Bench, Options, Played, running, says

OWNER, SECOND, MEMBER = "1", "2", "5"
"""The owner has two accounts, which are linked."""
GROUPS = ("-8", "-9")
PERSONS = {OWNER: "owner", SECOND: "owner", MEMBER: "member"}
CANARY = re.compile(r"zq[a-z]+[0-9]+zq")
READERS = (",memory.recall", ",memory.recall zq", ",memory scope=user", ",memory.why", ",memory", ",context", ",why",
           ",memory.recall scope=user zq days=30")  # fmt: skip


@dataclass(frozen=True)
class Chat:
    """A chat and who speaks in it."""

    sender: str
    chat: str

    @property
    def is_direct(self) -> bool:
        return not self.chat.startswith("-")


CHATS = (
    *(Chat(account, chat) for account, chat in ((OWNER, OWNER), (SECOND, SECOND), (MEMBER, MEMBER))),
    Chat(OWNER, "77"),
    *(Chat(sender, group) for sender in PERSONS for group in GROUPS),
)


async def linked(store: InMemoryStore) -> AccountLinks:
    """Link the two accounts of the owner, as people do."""
    tape = TapeService(store, ACCESS_TAPE, now=SteppingClock(), new_id=CountingIds("link"))
    access = AccessService(tape, now=SteppingClock(), random=lambda size: b"\x07" * size)

    async def send(_code: object, fact: object) -> None:
        await tape.append([fact])  # type: ignore[list-item]

    code = await access.create_link_code((CHANNEL, OWNER), f"{CHANNEL}:{OWNER}")
    await access.claim_link(code, (CHANNEL, SECOND), send)
    assert await access.confirm_link((CHANNEL, OWNER)) == (CHANNEL, SECOND)
    return AccountLinks(tape, ProjectionRunner())


async def leaks(seed: int, turns: int) -> list[str]:
    """Let people write and read at random; return the canaries that somebody saw who should not, and where."""
    store, chance = InMemoryStore(), Random(seed)
    rules = admitting(store, owners={OWNER, SECOND}, members={MEMBER}, groups=set(GROUPS), respond_to_all=set(GROUPS))
    found: list[str] = []
    planted = 0
    async with running(store, Played(says("ok")), Options(rules=rules, accounts=await linked(store))) as bench:
        for _ in range(turns):
            where = chance.choice(CHATS)
            act = chance.randint(0, 9)
            if act < 4:
                planted += 1
                scope = chance.choice(("user", "user", "workspace", "chat"))
                canary = f"zq{scope}{PERSONS[where.sender]}{planted}zq"
                tool = chance.choice(("memory.save", "memory.daily"))
                text = f",{tool} scope={scope} {canary}"
            elif act < 7:
                text = chance.choice(READERS)
            elif act == 7:
                text = chance.choice((",memory.clear scope=user confirm=true", "/new", ",memory.restore scope=user 1"))
            else:
                text = "hello"
            found += await _check(bench, where, text)
    return found


async def _check(bench: Bench, where: Chat, text: str) -> list[str]:
    asked = len(bench.requests)
    given = {"sender": where.sender, "chat": where.chat, "direct": where.is_direct, "addressed": True}
    answer = await bench.say(text, **given)
    seen = answer.text + "".join(f"{request.system}{request.messages}" for request in bench.requests[asked:])
    written = CANARY.findall(text)
    return [
        f"{canary} in {where}"
        for canary in CANARY.findall(seen)
        if canary.startswith("zquser")
        and canary not in written
        and not (where.is_direct and canary.startswith(f"zquser{PERSONS[where.sender]}"))
        and canary not in await _said_in(bench, where)
    ]


async def _said_in(bench: Bench, where: Chat) -> set[str]:
    """The canaries that people typed in this chat themselves: in a group nothing was kept of them."""
    entries = await bench.entries(f"{CHANNEL}:{where.chat}")
    raw = [str(entry.payload["data"].get("raw")) for entry in entries if entry.name == "command"]
    return set(CANARY.findall(" ".join(raw)))


@pytest.mark.law("P1")
def test_own_memory_is_seen_by_its_person_alone() -> None:
    assert asyncio.run(leaks(20261124, 300)) == []


@pytest.mark.proof
@pytest.mark.law("P1")
@pytest.mark.parametrize("seed", range(10))
def test_own_memory_is_seen_by_its_person_alone_in_many_turns(seed: int) -> None:
    assert asyncio.run(leaks(seed, 1000)) == []


def _choose_anywhere(facts: ChatFacts, enabled: Sequence[Scope]) -> ZoneAccess:
    """The rule without its part about groups."""
    return choose_zones(ChatFacts(**{**_fields(facts), "is_direct": True}), enabled)


def _fields(facts: ChatFacts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in ChatFacts.__slots__}


@pytest.mark.law("P1")
def test_without_the_rule_about_groups_it_is_seen_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_feature, "choose_zones", _choose_anywhere)
    assert asyncio.run(leaks(20261124, 300))
