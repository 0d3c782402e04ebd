"""Groups: the greeting for an owner, and the notice that strangers call the bot there; each once, whatever happens."""

from __future__ import annotations

import asyncio
from typing import Any

from bubbot.gateway.groups import GroupNotices
from bubbot.gateway.inbox import Inbox, inbox_tape
from bubbot.gateway.owner import OwnerChat
from bubbot.models.scripted import ScriptedModel
from bubbot.ports.channel import BotAdded, ChatMigration, Inbound, Sender
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.events import TapeErased
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch, TapeStore
from bubbot.texts import Texts
from tests.doubles import CountingIds, SteppingClock
from tests.gateways import TIME, Stage, admitting
from tests.turns import CHANNEL, Bench, Options, running
from tests.virtual import virtual

DAY_SECONDS = 86400.0
MAX_NOTICES_PER_DAY = 10
RETRY_SECONDS = 60.0


def bot(store: TapeStore, life: str = "first", **listed: Any) -> Any:
    rules = admitting(store, **(listed or {"owners": {"1"}}))
    return running(store, ScriptedModel(), Options(rules=rules), channel=Stage(), life=life)


def with_owner_chat(bench: Bench) -> None:
    """Opens the gate as the daemon does."""
    owner = OwnerChat({CHANNEL: bench.line}, bench.inbox.name, Texts())
    bench.line.open_gate(bench.app, Texts(), notify_owner=owner.notify)


async def call(bench: Bench, chat: str, key: str, **how: Any) -> None:
    given = {"sender": "9", "direct": False, "addressed": True, "chat_title": "Family", **how}
    await bench.line.receive(bench.inbound("bot?", chat=chat, external_id=key, **given))


def added(sender: str, key: str = "a1", chat: str = "-5") -> BotAdded:
    return BotAdded(CHANNEL, key, chat, Sender(sender), TIME)


@virtual
async def test_an_owner_who_adds_the_bot_reads_how_to_open_the_group_once() -> None:
    async with bot(InMemoryStore()) as bench:
        for _ in range(2):
            await bench.gate.receive(added("1"))
        await bench.quiet()
        (greeting,) = bench.channel.texts
        assert ",access.group test:-5 everybody" in greeting
        assert [one["by"] for one in await bench.events("inbox/added", bench.inbox.name)] == ["1"]


@virtual
async def test_others_who_add_the_bot_read_nothing_and_leave_no_fact() -> None:
    async with bot(InMemoryStore(), owners={"1"}, admins={"2"}, groups={"-5"}) as bench:
        for sender in ("9", "2"):
            await bench.gate.receive(added(sender, f"a{sender}"))
        await bench.quiet()
        assert (bench.channel.texts, await bench.entries(bench.inbox.name)) == ([], ())


@virtual
async def test_a_call_that_was_answered_comes_again_after_its_sender_was_forgotten_and_asks_nobody() -> None:
    store = InMemoryStore()
    async with bot(store, owners={"1"}, members={"9"}) as bench:
        await call(bench, "-5", "c1")
        await bench.line.receive(bench.inbound("hello"))
        await bench.quiet()
    await store.erase([Batch("bubbot/people", (TapeErased(reason="person").to_entry(),))], [(bench.inbox.name, (1,))])
    async with bot(store, "second") as bench:
        with_owner_chat(bench)
        await call(bench, "-5", "c1")
        await bench.quiet()
        assert bench.channel.texts == []
        await call(bench, "-5", "c2")
        await bench.quiet()
        assert len(bench.channel.texts) == 1, "another call asks"


@virtual
async def test_of_an_open_group_the_greeting_says_that() -> None:
    async with bot(InMemoryStore(), owners={"1"}, groups={"-5"}) as bench:
        await bench.gate.receive(added("1"))
        await bench.quiet()
        assert "Everybody in this group -5 may talk to me" in bench.channel.texts[0]


@virtual
async def test_about_an_open_group_no_owner_is_asked() -> None:
    async with bot(InMemoryStore(), owners={"1"}, groups={"-5"}) as bench:
        with_owner_chat(bench)
        await bench.line.receive(bench.inbound("hello"))
        await bench.line.receive(added("9"))
        await bench.line.receive(added("1", "a2"))
        await bench.quiet()
        answer, greeting = bench.channel.texts
        assert answer == "You said: hello"
        assert "Everybody in this group -5 may talk to me" in greeting


@virtual
async def test_in_a_group_that_moved_nothing_is_said_again() -> None:
    async with bot(InMemoryStore()) as bench:
        await bench.gate.receive(added("1"))
        await bench.gate.receive(ChatMigration(CHANNEL, "mv", "-5", "-7", TIME))
        await bench.gate.receive(added("1", "a2", "-7"))
        await bench.quiet()
        assert len(bench.channel.texts) == 1


@virtual
async def test_a_greeting_that_a_dying_process_stored_is_sent_by_the_next_and_only_once() -> None:
    store = InMemoryStore()
    async with bot(store) as bench:
        bench.line.is_cancelled = True
        await bench.gate.receive(added("1"))
        assert bench.channel.texts == []
    async with bot(store, life="second") as bench:
        await bench.deliverer.resume()
        await bench.gate.receive(added("1"))
        await bench.quiet()
        assert len(bench.channel.texts) == 1


@virtual
async def test_an_owner_is_told_once_of_each_group_even_after_a_restart() -> None:
    store = InMemoryStore()
    async with bot(store) as bench:
        with_owner_chat(bench)
        await bench.line.receive(bench.inbound("hello"))
        await bench.quiet()
        for number in range(3):
            await call(bench, "-5", f"s{number}")
        bench.line.is_cancelled = True
        await call(bench, "-6", "t1")
        assert [text.split(",")[0] for text in bench.channel.texts[1:]] == ["Ann (9) called me in Family on test"]
    async with bot(store, life="second") as bench:
        with_owner_chat(bench)
        await bench.deliverer.resume()
        for chat in ("-5", "-6"):
            await call(bench, chat, f"u{chat}")
        await bench.quiet()
        (text,) = bench.channel.texts
        assert "in Family on test" in text


@virtual
async def test_talk_that_is_not_for_the_bot_is_no_call() -> None:
    async with bot(InMemoryStore()) as bench:
        with_owner_chat(bench)
        await bench.line.receive(bench.inbound("hello"))
        await call(bench, "-5", "s1", addressed=False)
        await bench.quiet()
        assert len(bench.channel.texts) == 1


@virtual
async def test_until_an_owner_has_a_chat_the_notice_waits() -> None:
    async with bot(InMemoryStore()) as bench:
        with_owner_chat(bench)
        await call(bench, "-5", "s1")
        assert await bench.entries(bench.inbox.name) == ()
        await bench.line.receive(bench.inbound("hello"))
        await asyncio.sleep(RETRY_SECONDS + 1)
        await call(bench, "-5", "s2")
        await bench.quiet()
        assert "-5" in bench.channel.texts[-1]


@virtual
async def test_a_bot_put_into_many_groups_does_not_flood_its_owner() -> None:
    async with bot(InMemoryStore()) as bench:
        with_owner_chat(bench)
        await bench.line.receive(bench.inbound("hello"))
        for number in range(50):
            await call(bench, f"-{number + 100}", f"s{number}")
        await bench.quiet()
        assert len(bench.channel.texts) == 1 + MAX_NOTICES_PER_DAY


async def test_many_groups_of_one_batch_do_not_either(store: TapeStore) -> None:
    async with bot(store) as bench:
        with_owner_chat(bench)
        await bench.line.receive(bench.inbound("hello"))
        await asyncio.gather(*(call(bench, f"-{number + 100}", f"s{number}") for number in range(50)))
        await bench.quiet()
        assert len(bench.channel.texts) == 1 + MAX_NOTICES_PER_DAY


class Owner:
    """Takes notices, if a chat of an owner is known; counts how often one was looked for."""

    def __init__(self) -> None:
        self.store = InMemoryStore()
        self.has_chat = True
        self.tries = 0
        self.told: list[str] = []
        self.calls = self.restart()

    def restart(self) -> GroupNotices:
        tape = TapeService(self.store, inbox_tape("test"), now=SteppingClock(), new_id=CountingIds())
        self.calls = GroupNotices(Inbox(tape, CountingIds("nonce")), self.notify)
        return self.calls

    async def notify(self, tape: str, key: str, write: Any, fact: TapeEntry) -> bool:
        self.tries += 1
        if self.has_chat:
            await self.store.append([Batch(tape, (fact,))])
            self.told.append(key.rpartition(":")[2])
        return self.has_chat

    async def call(self, *groups: int) -> None:
        for group in groups:
            inbound = Inbound("test", f"m{group}", f"-{group}", Sender("9"), "bot?", TIME, direct=False)
            await self.calls.on_call(inbound)


@virtual
async def test_of_so_many_groups_an_owner_is_told_in_any_day_and_of_the_others_later() -> None:
    owner = Owner()
    await asyncio.sleep(1000)
    await owner.call(*range(MAX_NOTICES_PER_DAY - 1))
    await asyncio.sleep(3600)
    await owner.call(100, 101)
    assert owner.told == [*(f"-{number}" for number in range(MAX_NOTICES_PER_DAY - 1)), "-100"]
    await asyncio.sleep(DAY_SECONDS - 3600 - 1)
    await owner.call(101)
    assert len(owner.told) == MAX_NOTICES_PER_DAY
    await asyncio.sleep(1)
    await owner.call(*range(101, 115))
    assert owner.told[MAX_NOTICES_PER_DAY:] == [f"-{number}" for number in range(101, 101 + MAX_NOTICES_PER_DAY - 1)]


@virtual
async def test_a_chat_of_an_owner_is_looked_for_once_a_minute() -> None:
    owner = Owner()
    owner.has_chat = False
    await asyncio.sleep(1000)
    await owner.call(1, 2)
    await asyncio.sleep(RETRY_SECONDS - 1)
    await owner.call(1)
    assert owner.tries == 1
    await asyncio.sleep(1)
    owner.has_chat = True
    await owner.call(1, 2, 1)
    assert (owner.tries, owner.told) == (3, ["-1", "-2"])


async def test_a_group_of_which_an_earlier_process_told_holds_up_no_other() -> None:
    owner = Owner()
    await owner.call(1)
    owner.restart()
    await owner.call(1, 2)
    assert owner.told == ["-1", "-2"]
