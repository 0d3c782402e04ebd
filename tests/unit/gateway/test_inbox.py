"""The inbox: accepted once, owed until done, and cheap to read however long it has become."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from bubbot.gateway.inbox import Inbox, inbox_tape
from bubbot.ports.channel import Attachment, ButtonPress, Edit, Inbound, Sender, UnparsedUpdate
from bubbot.ports.inbox import done_entry, interrupted_entry
from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, SteppingClock
from tests.tapes import whole

INBOX_CHECKPOINT_INTERVAL = 50


TAPE = inbox_tape("test")


class CountingStore(InMemoryStore):
    """Counts the entries that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    async def fetch(self, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        """See `TapeStore.fetch`."""
        found = await super().fetch(queries)
        self.read += sum(map(len, found))
        return found


ODD: Any = None


def service(store: TapeStore, name: str = TAPE) -> TapeService:
    return TapeService(store, name, now=SteppingClock(), new_id=CountingIds())


def home(store: TapeStore, name: str = TAPE) -> TapeService:
    """The tape, or its shard, with what belongs to the chat of these tests."""
    return service(store, name).shard("test:home")


@pytest.fixture
def inbox(store: TapeStore) -> Inbox:
    return Inbox(service(store), CountingIds("nonce"))


def inbound(text: str = "hello", *, external_id: str = "1") -> Inbound:
    return Inbound("test", external_id, "home", Sender("7", "Ann"), text, "2026-11-21T20:21:00+00:00")


async def accepted(inbox: Inbox, text: str = "hello", *, external_id: str = "1") -> AcceptedInbound:
    found = await inbox.accept(inbound(text, external_id=external_id))
    assert found is not None
    return found


async def test_what_was_accepted_comes_back_as_it_was(inbox: Inbox, store: TapeStore) -> None:
    full = Inbound(
        "test", "e-1", "home", Sender("7", "Änn"), "hé\nllo", "2026-11-21T20:21:00+00:00", "thread", "e-0",
        (Attachment("ref", "cat.png", "image/png", 12), Attachment("other")),
    )  # fmt: skip
    first = await inbox.accept(full)
    assert first == AcceptedInbound(1, full)
    assert await Inbox(service(store), CountingIds("later")).open_inbounds() == (AcceptedInbound(1, full),)


async def test_it_is_durable_when_it_is_accepted(inbox: Inbox, store: TapeStore) -> None:
    await accepted(inbox)
    assert [entry.name for entry in await whole(store, home(store).name)] == ["inbox/received"]


@pytest.mark.parametrize("again", ["hello", "edited"])
async def test_the_same_external_id_is_accepted_once_and_the_first_stays(
    inbox: Inbox, store: TapeStore, again: str
) -> None:
    await accepted(inbox)
    assert await inbox.accept(inbound(again)) is None
    assert [one.inbound.text for one in await inbox.open_inbounds()] == ["hello"]


async def test_a_text_that_no_tape_takes_is_accepted_with_replacement_characters(inbox: Inbox) -> None:
    found = await inbox.accept(Inbound("test", "1", "home", Sender("7", "\ud800"), "a\ud83d", ""))
    assert found is not None
    assert (found.inbound.text, found.inbound.sender.name) == ("a\ufffd", "\ufffd")


async def test_it_is_owed_until_a_turn_is_done_with_it(inbox: Inbox, store: TapeStore) -> None:
    for number in range(3):
        await accepted(inbox, external_id=str(number))
    await home(store).append([done_entry([1, 3], turn="t", outcome="answered")])
    assert [one.id for one in await inbox.open_inbounds()] == [2]


async def test_turns_that_were_cut_off_are_counted(inbox: Inbox, store: TapeStore) -> None:
    await accepted(inbox)
    await accepted(inbox, external_id="2")
    await home(store).append([interrupted_entry([1], turn="t1"), interrupted_entry([1, 2], turn="t2")])
    assert [one.attempts for one in await inbox.open_inbounds()] == [2, 1]


async def test_what_could_not_be_read_is_kept_as_it_came_and_owes_nothing(inbox: Inbox, store: TapeStore) -> None:
    for _ in range(2):
        await inbox.store_unparsed(UnparsedUpdate("test", "u1", "home", b"\xff\x00", "not UTF-8"))
    (entry,) = await whole(store, home(store).name)
    data = entry.payload["data"]
    assert (b64decode(data["raw"]), data["reason"], data["session"]) == (b"\xff\x00", "not UTF-8", "test:home")
    assert await inbox.open_inbounds() == ()


@pytest.mark.parametrize(
    "odd",
    [{"attachments": None}, {"sender": None}, {"sender": "seven"}, {"sender": Sender("7", roles=ODD)}, {"quote": "hi"}],
    ids=str,
)
async def test_what_an_adapter_made_unreadable_is_set_aside_and_holds_up_no_other(
    inbox: Inbox, store: TapeStore, odd: dict[str, Any]
) -> None:
    await inbox.accept(inbound("good"))
    bad = structs.replace(inbound("bad", external_id="2"), **odd)
    assert await inbox.accept(bad) is None
    assert await inbox.accept(bad) is None
    owed = await Inbox(service(store), CountingIds("later")).open_inbounds()
    assert [accepted.inbound.text for accepted in owed] == ["good"]
    names = {entry.name for tape in inbox.tapes for entry in await whole(store, tape)}
    assert names == {"inbox/received", "inbox/unparsed"}


async def test_an_unreadable_fact_of_a_foreign_writer_holds_up_no_other(inbox: Inbox, store: TapeStore) -> None:
    await service(store).append([event("inbox/received", {"channel": "test", "sender": 7})])
    await inbox.accept(inbound("good"))
    assert [accepted.inbound.text for accepted in await inbox.open_inbounds()] == ["good"]


async def test_an_id_that_was_set_aside_is_not_accepted_later(inbox: Inbox) -> None:
    await inbox.store_unparsed(UnparsedUpdate("test", "1", "home", b"\xff", "not UTF-8"))
    assert await inbox.accept(inbound()) is None


async def test_the_first_fact_of_an_external_id_stays_whatever_is_said_of_it_later(
    inbox: Inbox, store: TapeStore
) -> None:
    await accepted(inbox)
    await inbox.record_refused("1", "test:home")
    press = ButtonPress("test", "c1", "home", "m1", Sender("7"), "k/0", "2026-11-21T20:21:00+00:00")
    for reason in ("foreign", "expired"):
        await inbox.record_press_refused(press, reason)
    names = [(entry.name, entry.payload["data"].get("reason")) for entry in await whole(store, home(store).name)]
    assert names == [("inbox/received", None), ("inbox/press-refused", "foreign")]


class TestMarks:
    async def busy(self, store: InMemoryStore, messages: int, *, stuck: Sequence[int] = ()) -> Inbox:
        """An inbox after many messages, of which those in `stuck` were never finished."""
        inbox = Inbox(service(store), CountingIds("nonce"))
        for number in range(messages):
            one = await accepted(inbox, external_id=str(number))
            if number not in stuck:
                await home(store).append([done_entry([one.id], turn="t", outcome="answered")])
            await inbox.write_checkpoint()
        return inbox

    async def test_after_hundreds_of_messages_little_is_read(self) -> None:
        store = CountingStore()
        await self.busy(store, 500)
        store.read = 0
        assert await Inbox(service(store), CountingIds()).open_inbounds() == ()
        assert store.read <= 2 * INBOX_CHECKPOINT_INTERVAL + 2

    async def test_one_old_message_that_is_stuck_is_seen_still_and_holds_nothing_up(self) -> None:
        store = CountingStore()
        await self.busy(store, 500, stuck=[3])
        store.read = 0
        (owed,) = await Inbox(service(store), CountingIds()).open_inbounds()
        assert owed.inbound.external_id == "3"
        assert store.read <= 2 * INBOX_CHECKPOINT_INTERVAL + 3

    async def test_the_attempts_of_a_stuck_message_are_carried_over(self) -> None:
        store = CountingStore()
        inbox = await self.busy(store, 10, stuck=[3])
        (owed,) = await inbox.open_inbounds()
        await home(store).append([interrupted_entry([owed.id], turn="t1")])
        for number in range(100, 200):
            await accepted(inbox, external_id=str(number))
            await inbox.write_checkpoint()
        (again, *_) = await Inbox(service(store), CountingIds()).open_inbounds()
        assert again == structs.replace(owed, attempts=1, interrupted_turn="t1")
        await home(store).append([interrupted_entry([owed.id], turn="t2")])
        (again, *_) = await inbox.open_inbounds()
        assert again == structs.replace(owed, attempts=2, interrupted_turn="t2")

    async def test_a_stuck_message_that_is_done_at_last_is_owed_no_more(self) -> None:
        store = CountingStore()
        inbox = await self.busy(store, 120, stuck=[3])
        (owed,) = await inbox.open_inbounds()
        await home(store).append([done_entry([owed.id], turn="t", outcome="answered")])
        assert await Inbox(service(store), CountingIds()).open_inbounds() == ()

    async def test_processes_that_live_for_one_message_leave_marks_too(self) -> None:
        store = CountingStore()
        for number in range(200):
            inbox = Inbox(service(store), CountingIds(f"life{number}"))
            await inbox.open_inbounds()  # what a start does first
            one = await accepted(inbox, external_id=str(number))
            await inbox.write_checkpoint()
            await home(store).append([done_entry([one.id], turn="t", outcome="answered")])
        store.read = 0
        assert await Inbox(service(store), CountingIds()).open_inbounds() == ()
        assert store.read <= 2 * INBOX_CHECKPOINT_INTERVAL + 4

    async def test_a_mark_opens_no_window(self) -> None:
        store = CountingStore()
        await self.busy(store, 60)
        assert not any(entry.opens_window for entry in await whole(store, home(store).name))


class TestShards:
    """Several chats, which may be on several shards."""

    async def test_what_comes_again_meets_its_key(self, store: TapeStore) -> None:
        inbox = Inbox(service(store), CountingIds("nonce"))
        for chat in ("home", "work"):
            assert await inbox.accept(structs.replace(inbound(external_id=chat), chat=chat))
            assert await inbox.accept(structs.replace(inbound(external_id=chat), chat=chat, thread="7")) is None
        await inbox.record_refused("r", "test:work")
        assert await inbox.accept(structs.replace(inbound(external_id="r"), chat="work")) is None
        await inbox.store_unparsed(UnparsedUpdate("test", "u", "work", b"?", "no idea"))
        assert await inbox.accept(structs.replace(inbound(external_id="u"), chat="work", thread="7")) is None

    async def test_the_messages_of_all_chats_are_owed_and_counted(self, store: TapeStore) -> None:
        inbox = Inbox(service(store), CountingIds("nonce"))
        for number, chat in enumerate(("home", "work", "home", "away")):
            sent = f"2026-11-21T20:21:0{number}+00:00"
            await inbox.accept(
                structs.replace(inbound(external_id=str(number)), chat=chat, message=f"m{number}", time=sent)
            )
        assert sorted(one.inbound.external_id for one in await inbox.open_inbounds()) == ["0", "1", "2", "3"]
        recent = await inbox.recent_messages(datetime(2026, 11, 21, tzinfo=UTC))
        assert [one.external_id for one in recent] == ["0", "1", "2", "3"]
        newest = await inbox.find_direct_message(frozenset({"7"}))
        assert newest is not None
        assert newest.chat == "away"
        await inbox.record_begin("2026-11-20T00:00:00+00:00")
        cursor = await inbox.read_cursor()
        assert cursor.newest_ids == {("home", ""): "m2", ("work", ""): "m1", ("away", ""): "m3"}
        assert cursor.last_message_at == "2026-11-21T20:21:03+00:00"

    async def test_the_inbound_of_one_chat_that_is_done_leaves_that_of_another(self, store: TapeStore) -> None:
        inbox = Inbox(service(store), CountingIds("nonce"))
        owed = [await inbox.accept(structs.replace(inbound(external_id=chat), chat=chat)) for chat in ("home", "work")]
        await inbox.append(done_entry([one.id for one in owed[:1] if one], outcome="answered"), session="test:home")
        assert [one.inbound.chat for one in await inbox.open_inbounds()] == ["work"]


async def test_the_open_work_of_a_chat_is_that_of_all_its_threads_and_of_no_other_chat(inbox: Inbox) -> None:
    def said(external_id: str, chat: str, thread: str = "") -> Inbound:
        return structs.replace(inbound(external_id=external_id), chat=chat, thread=thread)

    for one in (said("1", "home"), said("2", "home", "7"), said("3", "homely"), said("4", "home")):
        assert await inbox.accept(one)
    change = Edit("test", "5", "home", "1", Sender("7", "Ann"), "other words", "2026-11-21T20:22:00+00:00")
    assert await inbox.record_change(change)
    assert [_external_id(each) for each in await inbox.open_of("test:home")] == ["1", "2", "4", "5"]
    await inbox.append(done_entry([1], turn="t", outcome="answered"), session="test:home")
    assert [_external_id(each) for each in await inbox.open_of("test:home")] == ["2", "4", "5"]
    assert [_external_id(each) for each in await inbox.open_of("test:homely")] == ["3"]
    assert await inbox.open_of("test:nobody") == ()
    outcome = await inbox.find_outcome("test:home", 1)
    assert outcome is not None
    assert (outcome.turn, outcome.outcome, await inbox.find_outcome("test:home", 2)) == ("t", "answered", None)


def _external_id(item: AcceptedInbound | TapeChange) -> str:
    return (item.inbound if isinstance(item, AcceptedInbound) else item.event).external_id
