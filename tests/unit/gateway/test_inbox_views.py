"""The open messages of an inbox, from what a store returns."""

from __future__ import annotations

from dataclasses import replace

from bubbot.gateway.checkpoint import Checkpoint
from bubbot.gateway.inbox_views import RECEIVED, InboxView, inbound_data
from bubbot.ports.channel import Inbound, Sender
from bubbot.tape.entry import EMPTY_OBJECT, event


def test_an_erased_message_is_owed_no_more_and_hides_none_after_it() -> None:
    inbound = Inbound("test", "1", "home", Sender("7", "Ann"), "hello", "2026-11-21T20:21:00+00:00")
    entries = [replace(event(RECEIVED, inbound_data(inbound)), id=number) for number in (1, 2, 3)]
    entries[1] = replace(entries[1], payload=EMPTY_OBJECT, erased=True)
    assert [one.id for one in InboxView(Checkpoint()).fold((tuple(entries),))] == [1, 3]
