"""The open messages of an inbox, from what a store returns."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from bubbot.gateway.facts import InboundReceived
from bubbot.gateway.inbox import Inbox
from bubbot.gateway.inbox_views import SessionTraceView, inbound_data, inbound_from
from bubbot.ports.channel import Attachment, ChatMigration, Inbound, PressedButton, Sender
from bubbot.ports.inbox import done_entry
from bubbot.tape.entry import event
from bubbot.tape.store import Batch, ResetBatch, TapeStore
from tests.doubles import CountingIds
from tests.unit.gateway.test_inbox import home, inbound, service


@pytest.mark.parametrize("life", ["the same", "next"])
async def test_an_erased_message_is_owed_no_more_and_hides_none_after_it(store: TapeStore, life: str) -> None:
    inbox = Inbox(service(store), CountingIds("nonce"))
    for number in (1, 2, 3):
        await inbox.accept(inbound(external_id=str(number)))
    assert len(await inbox.open_inbounds()) == 3
    await store.append([Batch("s", (event("x"),))])
    fact = event("tape/erased", {"archive": "s@1", "entries": 1})
    await store.reset("s", ResetBatch("s@1", erase=True, erase_also=((home(store).name, (2,)),)), [fact])
    if life == "next":
        inbox = Inbox(service(store), CountingIds("nonce"))
    assert [one.id for one in await inbox.open_inbounds()] == [1, 3]


@pytest.mark.parametrize(("asking", "reached"), [((4,), ["before", "asks"]), ((), ["before", "dropped"])])
async def test_an_erasure_reaches_what_was_there_when_it_was_asked_for(
    store: TapeStore, asking: tuple[int, ...], reached: list[str]
) -> None:
    """A message, a press and a firing that wait stay, wherever they stand; so does what came after the request."""
    inbox, texts = Inbox(service(store), CountingIds("nonce")), dict[int, str]()
    made = {
        "before": inbound(external_id="1"),
        "press": structs.replace(inbound(external_id="2"), press=PressedButton("2", "b", "p1", "Yes", "yes")),
        "firing": structs.replace(inbound(external_id="3"), origin="schedule"),
        "asks": inbound(external_id="4"),
        "waits": inbound(external_id="5"),
        "dropped": inbound(external_id="6"),
    }
    for text, one in made.items():
        accepted = await inbox.accept(structs.replace(one, text=text))
        assert accepted is not None
        texts[accepted.id] = text
    await inbox.append(done_entry([1], outcome="answered"), session=made["before"].session)
    await inbox.append(done_entry([6], outcome="dropped"), session=made["before"].session)
    view = SessionTraceView(made["before"].session, asking=asking)
    assert [texts[entry_id] for entry_id in await home(store).read(view)] == reached


async def test_moves_of_chats_are_known_at_once_and_to_the_next_process(store: TapeStore) -> None:
    inbox = Inbox(service(store), CountingIds("nonce"))
    moves = await inbox.read_migrations()
    for number, (old, new) in enumerate((("a", "b"), ("b", "c"), ("x", "y"), ("m", "n"), ("n", "m"))):
        await inbox.record_migration(ChatMigration("test", str(number), old, new, "2026-11-21T20:21:00+00:00"))
    for known in (moves, await Inbox(service(store), CountingIds()).read_migrations()):
        assert [known.current(chat) for chat in "abxz"] == ["c", "c", "y", "z"]
        assert [known.home(chat) for chat in "cyz"] == ["a", "x", "z"]
        assert [known.current(chat) for chat in "mn"] == ["m", "m"], "it came back to its first id"
        assert known.home("m") == "m"


def test_a_list_of_files_and_kinds_of_an_adapters_own_are_stored_as_any_other() -> None:
    class OwnSender(Sender, frozen=True):
        """As a plugin may make one."""

    plain = Inbound("test", "1", "7", Sender("1", "Ann \ud83d"), "hi", "", attachments=(Attachment("f"),))
    files: Any = [Attachment("f")]
    own = structs.replace(plain, sender=OwnSender("1", "Ann \ud83d"), attachments=files)
    assert inbound_data(own) == inbound_data(plain)
    assert inbound_data(plain)["sender"]["name"] == "Ann \N{REPLACEMENT CHARACTER}"
    assert inbound_from(inbound_data(plain)).attachments == plain.attachments


def test_what_is_stored_of_a_message_is_what_the_fact_says() -> None:
    fields = [item.name for item in structs.fields(InboundReceived)]
    assert {*fields} == {item.name for item in structs.fields(Inbound)} - {"chat_title"} | {"session"}
    received = event("inbox/received", inbound_data(inbound("hello")))
    assert [*received.data] == [name for name in fields if name in received.data]
    assert InboundReceived.of(received).sender == Sender("7", "Ann")
