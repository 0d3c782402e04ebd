"""Which tape a word on the command line refers to."""

from __future__ import annotations

import pytest

from bubbot.errors import ConfigError, EntryNotFound
from bubbot.gateway.inbox import Inbox
from bubbot.ports.channel import ChatMigration
from bubbot.ports.session_names import (
    find_tape,
    first_session,
    parse_session,
    read_current_sessions,
    read_session,
    require_user_tape,
)
from bubbot.stores.inmemory import InMemoryStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import event
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


async def test_a_chat_that_moved_and_came_back_is_named_by_its_current_id(memory_store: InMemoryStore) -> None:
    tape = TapeService(memory_store, "bubbot/inbox/telegram", now=SteppingClock(), new_id=CountingIds("i"))
    for old, new in (("-1", "-2"), ("-2", "-3"), ("-8", "-9"), ("-9", "-8")):
        await tape.append([event("inbox/moved", {"chat": old, "to": new})])
    current = await read_current_sessions(memory_store)
    named = {chat: current(f"telegram:{chat}:7") for chat in ("-1", "-2", "-3", "-8", "-9", "5")}
    assert named == {
        "-1": "telegram:-3:7",
        "-2": "telegram:-3:7",
        "-3": "telegram:-3:7",
        "-8": "telegram:-8:7",
        "-9": "telegram:-8:7",
        "5": "telegram:5:7",
    }
    assert [current(text) for text in ("discord:-1", "work")] == ["discord:-1", "work"]


async def test_the_session_of_a_tape_is_that_of_its_import_else_of_its_beginning(memory_store: InMemoryStore) -> None:
    for tape, entries in {
        "home/a": [anchor("session/start").with_meta({"session": "stdin:a"}, "2026-11-21T20:21:00+00:00"), note("x")],
        "home/b": [note("x")],
        "bubbot/imports": [
            event("tape/imported", {"tape": tape, "session": session})
            for tape, session in (("home/c", "stdin:old"), ("home/c", "stdin:c"))
        ],
    }.items():
        await memory_store.append([batch(*entries, tape=tape)])
    tapes = ("home/a", "home/b", "home/c", "none")
    assert [await read_session(memory_store, tape) for tape in tapes] == ["stdin:a", "", "stdin:c", ""]


@pytest.mark.parametrize(
    ("text", "session"),
    [("work", "stdin:work"), (" work ", "stdin:work"), ("telegram:42", "telegram:42"), ("a:b:c", "a:b:c"), ("x" * 200, "stdin:" + "x" * 200)],
)  # fmt: skip
def test_a_name_is_a_session_of_the_terminal_unless_it_has_a_channel(text: str, session: str) -> None:
    assert parse_session(text) == session


@pytest.mark.parametrize("text", ["", "  ", ":a", "a:", "a::b", "a\x1bb", "x" * 201])
def test_what_names_no_session_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_session(text)


def test_a_tape_of_the_system_is_refused() -> None:
    require_user_tape("home/bubbot", "reset")
    with pytest.raises(ConfigError, match="never reset"):
        require_user_tape("bubbot/imports", "reset")
