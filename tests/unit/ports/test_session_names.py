"""Which tape a word on the command line refers to."""

from __future__ import annotations

import pytest

from bubbot.errors import EntryNotFound
from bubbot.gateway.inbox import Inbox
from bubbot.ports.channel import ChatMigration
from bubbot.ports.session_names import find_tape, first_session
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.service import TapeService, session_tape
from tests.doubles import CountingIds, SteppingClock
from tests.tapes import batch, note


async def test_a_chat_that_moved_is_found_by_each_of_its_ids(memory_store: InMemoryStore) -> None:
    name = session_tape("home", "telegram:-1")
    await memory_store.append([batch(note("hello"), tape=name)])
    tape = TapeService(memory_store, "bubbot/inbox/telegram", now=SteppingClock(), new_id=CountingIds("i"))
    inbox = Inbox(tape, CountingIds("i"))
    for old, new in (("-1", "-1001"), ("-1001", "-1002")):
        await inbox.record_migration(ChatMigration("telegram", f"u{old}", old, new, "2026-11-21T20:21:00+00:00"))
    for chat in ("telegram:-1", "telegram:-1001", "telegram:-1002", name):
        assert await find_tape(memory_store, "home", chat) == name
        assert await first_session(memory_store, chat) == ("telegram:-1" if chat != name else name)
    assert await first_session(memory_store, "telegram:-1002:7") == "telegram:-1:7"
    assert [await first_session(memory_store, text) for text in ("here", "telegram:-3")] == ["here", "telegram:-3"]
    with pytest.raises(EntryNotFound):
        await find_tape(memory_store, "home", "telegram:-3")
