"""Stored parts of messages: their form never changes, since earlier tapes hold it."""

from __future__ import annotations

from typing import Any

from bubbot.ports.channel import MessagePart, OutboundFile
from bubbot.ports.outbox import intent_entry, intent_from, read_intents
from bubbot.tape.entry import encode

FILE = OutboundFile("a.png", "image/png", digest="f00d")


def test_a_part_is_stored_without_empty_fields_in_the_order_of_its_fields() -> None:
    parts = (
        MessagePart("7", "", markup={}),
        MessagePart("7", "Hi", "3", "5", {"entities": [{"offset": 0}]}, FILE, "k"),
    )
    stored = encode(intent_entry("telegram:7", "t1", parts, inbound=4).payload)
    assert stored == (
        '{"name":"outbox/intent","data":{"session":"telegram:7","turn":"t1","parts":[{"chat":"7","text":""},'
        '{"chat":"7","text":"Hi","thread":"3","reply_to":"5","markup":{"entities":[{"offset":0}]},'
        '"file":{"name":"a.png","media_type":"image/png","text":"","digest":"f00d"},"key":"k"}],"inbound":4}}'
    )


def test_a_stored_part_is_read_as_it_was() -> None:
    part = MessagePart("7", "Hi", "3", "5", {"bold": True}, FILE)
    entry = intent_entry("telegram:7", "t1", (part,)).with_id(3)
    assert intent_from(entry).parts == (part,)


def test_a_message_that_cannot_be_read_leaves_the_others_alone() -> None:
    odd: Any = 7
    bad = intent_entry("telegram:7", "t1", (MessagePart("7", "Hi", file=odd),))
    good = intent_entry("telegram:7", "t2", (MessagePart("7", "Hi"),))
    assert [message.turn for message in read_intents([bad.with_id(1), good.with_id(2)])] == ["t2"]


def test_a_part_with_a_value_of_another_type_is_read_as_it_is() -> None:
    odd: Any = 7
    entry = intent_entry("telegram:7", "t1", (MessagePart("7", "Hi", thread=odd),)).with_id(1)
    assert [message.parts for message in read_intents([entry])] == [(MessagePart("7", "Hi", thread=odd),)]
