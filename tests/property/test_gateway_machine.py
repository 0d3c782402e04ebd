"""Random days of a bot: several people in several chats, who edit, delete and stop, a slow model, a channel that fails
and processes that end. However the day went, once it is quiet everything that was accepted is done, once, in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from bubbot.arguments.fields import NoArguments
from bubbot.errors import DeliveryFailed
from bubbot.gateway.admission import AdmissionPolicy, AdmissionSettings
from bubbot.gateway.channel_runtime import ChannelPolicy
from bubbot.ports.channel import MessagePart, Receipt, Role, Sender
from bubbot.ports.model import ModelReply, ModelRequest, TextDelta, ToolCall, Usage
from bubbot.ports.turn import Turn
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.shards import shard_tapes
from bubbot.tool import Tool, tool
from tests.gateways import Stage, deletion_of, edit_of, reaction_to, rules
from tests.turns import CHANNEL, Bench, Options, Replying, running
from tests.virtual import virtual

INBOX, OUTBOX = f"bubbot/inbox/{CHANNEL}", f"bubbot/outbox/{CHANNEL}"
ROLES = {"1": Role.OWNER, "2": Role.MEMBER, "3": Role.MEMBER}
CHATS = ("home", "work")

people, chats, waits = st.sampled_from(sorted(ROLES)), st.sampled_from(CHATS), st.sampled_from([0.0, 0.2, 1.5, 7.0])
texts = st.sampled_from(
    ["hello", "hello", "use a tool", ",status", ",tape.info", ",stop", "be silent", "heard", "heard"]
)
acts = st.one_of(
    st.tuples(st.just("say"), people, chats, texts),
    st.tuples(st.just("say"), people, chats, texts),
    st.tuples(st.just("again"), st.integers(0, 5)),
    st.tuples(st.sampled_from(["edit", "delete", "react"]), st.integers(0, 5)),
    st.tuples(st.just("wait"), waits),
    st.tuples(st.just("fail"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("end")),
)
busy_ways = st.sampled_from(["queue", "steer", "drop"])


class Breaking(Stage):
    """Fails as often as it was told to, before or after the message has gone out."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = 0
        self.late = False

    async def send(self, part: MessagePart) -> Receipt:
        """See `Channel.send`."""
        await asyncio.sleep(0.1)
        if self.broken:
            self.broken -= 1
            raise DeliveryFailed("offline") if self.late else RuntimeError("a defect")
        return await super().send(part)

    async def edit(self, message: str, part: MessagePart) -> None:
        """See `SupportsEditing`."""
        await asyncio.sleep(0.1)
        if self.broken:
            self.broken -= 1
            raise DeliveryFailed("offline")
        await super().edit(message, part)


def model() -> Replying:
    """Slow; uses a tool, is silent, or repeats what it was asked last."""

    async def stream(request: ModelRequest) -> Any:
        last = str(request.messages[-1]["content"])
        await asyncio.sleep(2)
        if last.endswith("use a tool"):
            yield TextDelta("let me look")
            await asyncio.sleep(2)
            call = {"id": "c1", "name": "look_up", "arguments": "{}"}
            yield _reply("let me look", call)
            return
        silent = last.endswith("be silent") or (last == "found" and len(request.messages) % 2)
        text = "[SILENT]" if silent else f"to {last}"
        yield TextDelta(text)
        await asyncio.sleep(3)
        yield _reply(text)

    return Replying(stream)


def _reply(text: str, *calls: dict[str, str]) -> ModelReply:
    return ModelReply(text, tuple(ToolCall(**call) for call in calls), "stop", Usage(), "slow")


@dataclass
class Day:
    """One random day. `told` are the external ids the platform has handed in, in order."""

    busy: Any
    debounce: float
    store: InMemoryStore
    stage: Breaking = field(default_factory=Breaking)
    lives: int = 0
    said: list[Any] = field(default_factory=list)
    roles: list[tuple[str, Role]] = field(default_factory=list)

    def rules(self) -> ChannelPolicy:
        listed = AdmissionSettings(owners=frozenset({"1"}), members=frozenset({"2", "3"}), record_only=frozenset(CHATS))
        admission = AdmissionPolicy(listed, lambda _channel, _id: Role.STRANGER, lambda: 0.0)
        return rules(self.debounce, busy=self.busy, admission=admission)

    def tool(self) -> Tool:
        @tool("look.up")
        async def look_up(turn: Turn, args: NoArguments) -> str:
            """Takes a while."""
            self.roles += [(one.inbound.sender.id, turn.role) for one in turn.inbounds]
            await asyncio.sleep(2)
            return "found"

        return look_up

    async def begin(self, stack: AsyncExitStack) -> Bench:
        """A process."""
        self.lives += 1
        options = Options(rules=self.rules(), tools=[self.tool()])
        life = running(self.store, model(), options, channel=self.stage, life=f"life{self.lives}")
        bench = await stack.enter_async_context(life)
        recovered = await bench.find_open_work()
        await bench.deliverer.resume(queued=True)
        bench.line.resume(recovered)
        for session in recovered.sessions:
            bench.app.take_up(session)
        return bench

    async def live(self, plan: list[tuple[Any, ...]]) -> None:
        """The day, and the quiet after it."""
        stack = AsyncExitStack()
        bench = await self.begin(stack)
        try:
            for act in plan:
                if act[0] == "end":
                    await stack.aclose()
                    bench = await self.begin(stack)
                else:
                    await self._do(bench, *act)
            self.stage.broken = 0
            await bench.quiet(10_000)
            await asyncio.sleep(100)
            await bench.quiet(10_000)
            assert await bench.inbox.open_inbounds() == ()
            assert await bench.inbox.open_changes() == ()
            assert await bench.outbox.pending() == ()
            assert await self.store.forks() == []
        finally:
            await stack.aclose()

    async def _do(self, bench: Bench, what: str, *given: Any) -> None:
        if what == "wait":
            await asyncio.sleep(given[0])
        elif what == "fail":
            self.stage.broken, self.stage.late = given
        elif what == "say":
            sender, chat, text = given
            key = str(len(self.said) + 1)
            inbound = bench.inbound(text, sender=sender, chat=chat, external_id=key, direct=False)
            inbound = structs.replace(inbound, sender=Sender(sender, f"P{sender}"), addressed=text != "heard")
            self.said.append(inbound)
            await bench.gate.receive(inbound)
        elif self.said:
            of = self.said[-1 - given[0] % len(self.said)]
            who, chat, key = of.sender.id, of.chat, of.message
            event = {
                "again": of,
                "edit": edit_of(key, f"edited {key}", chat=chat, sender=who),
                "delete": deletion_of(key, chat=chat),
                "react": reaction_to(key, "👍", chat=chat, sender=who),
            }[what]
            await bench.gate.receive(event)


async def check(day: Day) -> None:
    """What has to be true of every day."""
    inbox = await _shards(day, INBOX)
    owed = {(tape, entry.id): entry for tape, entry in inbox if entry.name in ("inbox/received", "inbox/changed")}
    assert len({entry.key for entry in owed.values()}) == len(owed), "accepted twice"
    done = Counter(
        (tape, one) for tape, entry in inbox if entry.name == "inbox/done" for one in entry.payload["data"]["inbounds"]
    )
    assert dict(done) == dict.fromkeys(owed, 1), "not done exactly once"
    await _in_order(day, owed)
    await _delivered(day)
    assert all(role is ROLES[sender] for sender, role in day.roles), "somebody's message ran in a role not theirs"


async def _in_order(day: Day, owed: dict[tuple[str, int], TapeEntry]) -> None:
    for chat in CHATS:
        tape = (await day.store.fetch([_whole(f"{CHANNEL}:{chat}")]))[0]
        said = [entry for entry in tape if entry.kind == Kind.MESSAGE and "inbound" in entry.meta]
        assert len({entry.meta["inbound"][0] for entry in said}) < 2, "one chat in two shards"
        ids = [entry.meta["inbound"][1] for entry in said]
        assert len(ids) == len(set(ids)), "written twice"
        assert ids == sorted(ids), "out of order"
        for entry in said:
            sender = owed[tuple(entry.meta["inbound"])].payload["data"]["sender"]["id"]
            assert entry.meta["sender"]["id"] == sender
        for start in (entry.payload["data"] for entry in tape if entry.name == "turn/start"):
            senders = {owed[tape, one].payload["data"]["sender"]["id"] for tape, one in start["inbounds"]}
            assert len(senders) == 1, "two people in one turn"


async def _delivered(day: Day) -> None:
    outbox = await _shards(day, OUTBOX)
    intents = {(tape, entry.id): entry.payload["data"] for tape, entry in outbox if entry.name == "outbox/intent"}
    receipts = [(tape, entry.payload["data"]["intent"]) for tape, entry in outbox if entry.name == "outbox/receipt"]
    assert Counter(receipts) == dict.fromkeys(intents, 1), "an answer without one receipt"
    for chat in CHATS:
        mine = [one for one in receipts if intents[one]["session"].endswith(chat)]
        assert mine == sorted(mine), "answers out of order"
    assert all(not text.endswith(" …") for text in day.stage.seen.values()), "half of an answer was left standing"


async def _shards(day: Day, name: str) -> list[tuple[str, TapeEntry]]:
    """All entries of a system tape, with the names of its shards."""
    tapes = shard_tapes(name, day.store.tape_shards)
    found = await day.store.fetch([_whole(tape) for tape in tapes])
    return [(tape, entry) for tape, entries in zip(tapes, found, strict=True) for entry in entries]


def _whole(tape: str) -> Any:
    return TapeQuery(tape)


def _run(plan: list[tuple[Any, ...]], busy: Any, debounce: float, shards: int) -> None:
    @virtual
    async def day() -> None:
        made = Day(busy, debounce, InMemoryStore(tape_shards=shards))
        await made.live(plan)
        await check(made)

    day()


plans = st.lists(acts, min_size=3, max_size=25)


@given(plans, busy_ways, st.sampled_from([0.0, 1.0]), st.sampled_from([1, 8]))
@settings(max_examples=40)
def test_whatever_the_day_was_like_everything_is_done_once_and_in_order(
    plan: list[tuple[Any, ...]], busy: Any, debounce: float, shards: int
) -> None:
    _run(plan, busy, debounce, shards)


@pytest.mark.proof
@given(st.lists(acts, min_size=10, max_size=80), busy_ways, st.sampled_from([0.0, 1.0]), st.sampled_from([1, 8]))
def test_long_days(plan: list[tuple[Any, ...]], busy: Any, debounce: float, shards: int) -> None:
    _run(plan, busy, debounce, shards)
