"""The outbox: what people are to be told, until every part has a receipt."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from bubbot.errors import LeaseLost
from bubbot.gateway.inbox_views import SessionTraceView
from bubbot.gateway.outbox import Outbox, outbox_tape
from bubbot.gateway.outbox_views import LiveMessage
from bubbot.ports.channel import MessagePart, Receipt
from bubbot.ports.outbox import OutboxMessage, intent_entry, intent_from
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.lease import InProcessLease
from bubbot.tape.entry import event
from bubbot.tape.store import TapeStore
from tests.tapes import whole
from tests.unit.gateway.test_inbox import CountingStore, home, service

OUTBOX_CHECKPOINT_INTERVAL = 50


TAPE = outbox_tape("test")


@pytest.fixture
def outbox(store: TapeStore) -> Outbox:
    return Outbox(service(store, TAPE))


async def intended(store: TapeStore, turn: str = "t1", *texts: str) -> OutboxMessage:
    """An intent on the tape, as the merge of a turn writes it."""
    parts = tuple(MessagePart("home", text, "thread", "m1") for text in texts or ("hello",))
    (entry,) = await home(store, TAPE).append([intent_entry("test:home", turn, parts)])
    return intent_from(entry)


async def test_an_intent_comes_back_as_it_was(outbox: Outbox, store: TapeStore) -> None:
    made = await intended(store, "t1", "one", "two")
    assert made.parts == (MessagePart("home", "one", "thread", "m1"), MessagePart("home", "two", "thread", "m1"))
    assert await outbox.pending() == (made,)


async def test_it_is_open_until_every_part_has_a_receipt(outbox: Outbox, store: TapeStore) -> None:
    made = await intended(store, "t1", "one", "two")
    await outbox.record_receipt(made, 1, Receipt("p1"))
    (left,) = await outbox.pending()
    assert left.sent == {1}
    await outbox.record_receipt(made, 0, Receipt("p2"))
    assert await outbox.pending() == ()


async def test_a_second_receipt_for_a_part_changes_nothing(outbox: Outbox, store: TapeStore) -> None:
    made = await intended(store)
    for external_id in ("p1", "p2"):
        await outbox.record_receipt(made, 0, Receipt(external_id))
    receipts = [
        entry.payload["data"]["external_id"]
        for entry in await whole(store, home(store, TAPE).name)
        if entry.name == "outbox/receipt"
    ]
    assert receipts == ["p1"]


async def test_a_receipt_of_a_later_process_says_that_the_part_may_have_come_twice(
    outbox: Outbox, store: TapeStore
) -> None:
    await outbox.record_receipt(await intended(store), 0, Receipt(), outcome="resumed")
    assert (await whole(store, home(store, TAPE).name))[-1].payload["data"]["resumed"] is True


async def test_an_intent_that_is_given_up_is_open_no_more(outbox: Outbox, store: TapeStore) -> None:
    made = await intended(store)
    await outbox.abandon(made, "the chat is gone")
    assert await outbox.pending() == ()
    assert (await whole(store, home(store, TAPE).name))[-1].payload["data"] == {
        "intent": made.id,
        "reason": "the chat is gone",
    }


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"session": 7, "turn": "t", "parts": [{"chat": "home", "text": "hi"}]},
        {"session": "test:home", "turn": "t", "parts": 7},
        {"session": "test:home", "turn": "t", "parts": [7]},
        {"session": "test:home", "turn": "t", "parts": [{"chat": "home", "text": "hi", "file": 7}]},
    ],
    ids=str,
)
async def test_an_intent_that_cannot_be_read_ends_once_and_holds_up_no_other(
    outbox: Outbox, store: TapeStore, caplog: pytest.LogCaptureFixture, odd: dict[str, Any]
) -> None:
    (bad,) = await home(store, TAPE).append([event("outbox/intent", odd, key="bad:0")])
    good = await intended(store, "t2")
    assert await outbox.pending() == (good,)
    assert await outbox.find_intent("bad:0") is None
    assert caplog.records == []
    await outbox.write_checkpoint()
    for process in (outbox, Outbox(service(store, TAPE))):
        assert await process.settle_pending() == (good,)
        await process.write_checkpoint()
        assert await process.pending() == (good,)
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"entry #{bad.id} of {home(store, TAPE).name} is a message that cannot be read"
    )
    ends = [entry.data for entry in await whole(store, home(store, TAPE).name) if entry.name == "outbox/ended"]
    assert ends == [{"intent": bad.id, "reason": "unreadable"}]
    await outbox.record_receipt(good, 0, Receipt("p1"))
    assert await Outbox(service(store, TAPE)).pending() == ()


async def test_an_intent_without_parts_owes_nothing(outbox: Outbox, store: TapeStore) -> None:
    await home(store, TAPE).append(
        [event("outbox/intent", {"session": "test:home", "turn": "t", "parts": []}, key="bad:0")]
    )
    assert await outbox.settle_pending() == ()


async def test_giving_it_up_twice_keeps_the_first_reason(outbox: Outbox, store: TapeStore) -> None:
    made = await intended(store)
    await outbox.abandon(made, "the chat is gone")
    await outbox.abandon(made, "forbidden")
    assert len(await whole(store, home(store, TAPE).name)) == 2


async def test_the_same_turn_intends_once(outbox: Outbox, store: TapeStore) -> None:
    await intended(store)
    await intended(store)
    assert len(await outbox.pending()) == 1


async def test_what_is_to_be_sent_under_one_key_is_what_came_first(outbox: Outbox) -> None:
    first = await outbox.enqueue("test:home", "key", (MessagePart("home", "ding"),), {})
    assert await outbox.enqueue("test:home", "key", (MessagePart("home", "dong"),), {}) == first
    assert await outbox.pending() == (first,)


class TestMarks:
    async def busy(self, store: InMemoryStore, turns: int, *, stuck: int = -1) -> Outbox:
        """An outbox after many deliveries, of which one never got through."""
        outbox = Outbox(service(store, TAPE))
        for number in range(turns):
            made = await intended(store, f"t{number}", "one", "two")
            await outbox.record_receipt(made, 0, Receipt())
            if number != stuck:
                await outbox.record_receipt(made, 1, Receipt())
        return outbox

    async def test_after_hundreds_of_deliveries_little_is_read(self) -> None:
        store = CountingStore()
        await self.busy(store, 300)
        store.read = 0
        assert await Outbox(service(store, TAPE)).pending() == ()
        assert store.read <= 2 * OUTBOX_CHECKPOINT_INTERVAL + 3

    async def test_one_old_intent_that_is_stuck_is_seen_still_with_the_parts_it_had(self) -> None:
        store = CountingStore()
        await self.busy(store, 300, stuck=3)
        store.read = 0
        (left,) = await Outbox(service(store, TAPE)).pending()
        assert (left.turn, set(left.sent)) == ("t3", {0})
        assert store.read <= 2 * OUTBOX_CHECKPOINT_INTERVAL + 4

    async def test_a_stuck_intent_that_is_given_up_at_last_is_open_no_more(self) -> None:
        store = CountingStore()
        outbox = await self.busy(store, 100, stuck=3)
        (left,) = await outbox.pending()
        await outbox.abandon(left, "too old")
        assert await Outbox(service(store, TAPE)).pending() == ()

    async def test_processes_that_live_for_one_message_leave_marks_too(self) -> None:
        store = CountingStore()
        for number in range(200):
            outbox = Outbox(service(store, TAPE))
            await outbox.pending()  # what a start does first
            await outbox.record_receipt(await intended(store, f"t{number}"), 0, Receipt())
        store.read = 0
        assert await Outbox(service(store, TAPE)).pending() == ()
        assert store.read <= 2 * OUTBOX_CHECKPOINT_INTERVAL + 4


class TestMessagesOfTheBot:
    """A platform shows a message before the bot knows its id: somebody may react to it in between."""

    async def test_one_that_is_being_sent_may_be_the_one(self, outbox: Outbox, store: TapeStore) -> None:
        assert not await outbox.may_have_sent("test:home", "p1")
        made = await intended(store)
        assert await outbox.may_have_sent("test:home", "p1")
        assert not await outbox.may_have_sent("test:other", "p1")
        await outbox.record_receipt(made, 0, Receipt("p1"))
        assert [await outbox.may_have_sent("test:home", each) for each in ("p1", "p2")] == [True, False]

    async def test_one_that_is_shown_while_it_is_written_may_be_the_one(self, outbox: Outbox) -> None:
        await outbox.begin_live(7, "test:home", MessagePart("home", "half …"))
        assert await outbox.may_have_sent("test:home", "p1")
        assert not await outbox.may_have_sent("test:other", "p1")

    async def test_a_receipt_that_is_stored_while_it_looks_hides_nothing(
        self, outbox: Outbox, store: TapeStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made, pending = await intended(store), outbox.pending

        async def read_late() -> tuple[OutboxMessage, ...]:
            await outbox.record_receipt(made, 0, Receipt("p1"))
            return await pending()

        monkeypatch.setattr(outbox, "pending", read_late)
        assert await outbox.may_have_sent("test:home", "p1")


class TestLive:
    """The message that shows an answer while it is written."""

    async def test_it_is_known_from_before_it_was_sent_and_begun_once(self, outbox: Outbox, store: TapeStore) -> None:
        first, second = MessagePart("home", "half …", reply_to="m1"), MessagePart("home", "other …")
        begun = await outbox.begin_live(7, "test:home", first)
        assert (begun.inbound, begun.session, begun.message, begun.part) == (7, "test:home", "", first)
        assert await outbox.begin_live(7, "test:home", second) == begun == await outbox.live_message(7, "test:home")
        await outbox.record_live(7, "test:home", "p9", "home")
        assert await outbox.live_message(7, "test:home") == structs.replace(begun, message="p9", chat="home")
        assert await outbox.live_message(8, "test:home") is None

    async def test_one_of_an_earlier_version_is_known_by_its_id_alone(self, outbox: Outbox) -> None:
        await outbox.record_live(7, "test:home", "p9")
        assert await outbox.live_message(7, "test:home") == LiveMessage(7, "test:home", "p9")
        assert await outbox.unanswered_live() == ()

    async def test_it_is_unanswered_until_there_is_an_intent_or_its_end(self, outbox: Outbox, store: TapeStore) -> None:
        part = MessagePart("home", "half …")
        for inbound in (7, 8, 9):
            await outbox.begin_live(inbound, "test:home", part)
        await home(store, TAPE).append([intent_entry("test:home", "t1", (part,), inbound=8)])
        await outbox.end_live(LiveMessage(9, "test:home"))
        await outbox.end_live(LiveMessage(9, "test:home"))
        assert [one.inbound for one in await outbox.unanswered_live()] == [7]

    async def test_what_answers_no_inbound_leaves_it_unanswered(self, outbox: Outbox) -> None:
        await outbox.begin_live(1, "test:home", MessagePart("home", "half …"))
        await outbox.enqueue("test:home", "notice", (MessagePart("home", "ding"),), {})
        assert [one.inbound for one in await outbox.unanswered_live()] == [1]

    async def test_of_very_many_the_newest_are_looked_at(self, outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("bubbot.gateway.outbox_views.MAX_PREVIEW_FACTS_READ", 2)
        for inbound in (7, 8, 9):
            await outbox.begin_live(inbound, "test:home", MessagePart("home", "half …"))
        assert [one.inbound for one in await outbox.unanswered_live()] == [8, 9]

    async def test_an_erasure_reaches_its_words(self, outbox: Outbox, store: TapeStore) -> None:
        await outbox.begin_live(7, "test:home", MessagePart("home", "half …"))
        await outbox.begin_live(8, "test:other", MessagePart("other", "half …"))
        assert await home(store, TAPE).read(SessionTraceView("test:home")) == (1,)


class TestShards:
    """Sessions of several chats, which may be on several shards, with the same ids."""

    async def test_messages_and_receipts_of_two_chats_are_kept_apart(self, outbox: Outbox) -> None:
        made = [
            await outbox.enqueue(session, f"k-{session}", (MessagePart("home", session),), {})
            for session in ("test:home", "test:work")
        ]
        assert [one.session for one in await outbox.pending()] == ["test:home", "test:work"]
        await outbox.record_receipt(made[1], 0, Receipt("p1"))
        assert await outbox.pending() == (made[0],)
        assert await outbox.has_receipt("p1")
        await outbox.abandon(made[0], "gone")
        assert await outbox.pending() == ()

    async def test_the_first_of_the_inbounds_of_each_chat_shows_its_answer_in_another_message(
        self, outbox: Outbox
    ) -> None:
        for session in ("test:home", "test:work"):
            await outbox.begin_live(1, session, MessagePart("home", "half …"))
        home, work = await outbox.live_message(1, "test:home"), await outbox.live_message(1, "test:work")
        assert home is not None
        assert work is not None
        await outbox.record_live(1, "test:work", "p1")
        is_sharded = outbox.tape_of("test:home") != outbox.tape_of("test:work")
        assert await outbox.belongs_elsewhere("p1", home) is is_sharded
        assert not await outbox.belongs_elsewhere("p1", work)

    async def test_a_preview_with_a_value_of_another_type_is_found_again(self, outbox: Outbox) -> None:
        odd: Any = 7
        await outbox.begin_live(7, "test:home", MessagePart("home", "…", thread=odd))
        live = await outbox.live_message(7, "test:home")
        assert live is not None
        assert live.part == MessagePart("home", "…", thread=odd)

    async def test_live_messages_of_two_chats_are_kept_apart(self, outbox: Outbox) -> None:
        for session in ("test:home", "test:work"):
            await outbox.begin_live(7 if session == "test:home" else 8, session, MessagePart("home", "half …"))
            await outbox.record_live(7 if session == "test:home" else 8, session, f"p-{session}")
        home, work = await outbox.live_message(7, "test:home"), await outbox.live_message(8, "test:work")
        assert home is not None
        assert work is not None
        assert (home.message, work.message) == ("p-test:home", "p-test:work")
        assert sorted(one.session for one in await outbox.unanswered_live()) == ["test:home", "test:work"]
        assert await outbox.belongs_elsewhere("p-test:work", home)
        assert not await outbox.belongs_elsewhere("p-test:home", home)
        await outbox.end_live(home)
        assert [one.session for one in await outbox.unanswered_live()] == ["test:work"]


async def test_the_pending_messages_of_a_chat_are_those_of_its_threads(outbox: Outbox, store: TapeStore) -> None:
    made = await intended(store, "t1", "one")
    for session, turn in (("test:home:7", "t2"), ("test:homely", "t3")):
        await home(store, TAPE).append([intent_entry(session, turn, (MessagePart("home", "more"),))])
    assert [message.turn for message in await outbox.pending_of("test:home")] == ["t1", "t2"]
    await outbox.record_receipt(made, 0, Receipt("p1"))
    assert [message.turn for message in await outbox.pending_of("test:home")] == ["t2"]


async def test_who_lost_the_session_gives_no_message_up(store: TapeStore) -> None:
    leases = InProcessLease(store, lambda session: session)
    outbox, made = Outbox(service(store, TAPE), leases=leases), await intended(store)
    await leases.hold("test:home")
    await store.raise_epoch("test:home")
    with pytest.raises(LeaseLost):
        await outbox.abandon(made, "gone")
    assert await outbox.pending() == (made,)
