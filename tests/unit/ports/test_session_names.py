"""Which tape a word on the command line refers to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bubbot.gateway.inbox import Inbox
from bubbot.home import Home
from bubbot.ports.channel import ChatMigration
from bubbot.ports.session_names import read_current_sessions, read_session
from bubbot.stores.inmemory import InMemoryStore
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import event
from bubbot.tape.service import TapeService, session_tape
from tests.doubles import CountingIds, SteppingClock
from tests.e2e.inside import run
from tests.planting import write
from tests.tapes import batch, note


def tape_of(home: Path, name: str) -> str | None:
    """The tape that a command opens for this word; None if there is none."""
    done = run(home, "tape", "anchors", name, "--json")
    assert done.returncode in (0, 1), done.stderr.decode()
    return None if done.returncode else str(json.loads(done.stdout)["tape"])


def test_a_chat_that_moved_is_found_by_each_of_its_ids(home: Home) -> None:
    async def move(store: SqliteStore) -> None:
        name = session_tape(await store.workspace("unused"), "telegram:-1")
        await store.append([batch(note("hello"), tape=name)])
        tape = TapeService(store, "bubbot/inbox/telegram", now=SteppingClock(), new_id=CountingIds("i"))
        inbox = Inbox(tape, CountingIds("i"))
        for old, new in (("-1", "-1001"), ("-1001", "-1002")):
            await inbox.record_migration(ChatMigration("telegram", f"u{old}", old, new, "2026-11-21T20:21:00+00:00"))

    write(home, move)
    name = tape_of(home.path, "telegram:-1")
    assert name is not None
    for chat in ("telegram:-1001", "telegram:-1002", name):
        assert tape_of(home.path, chat) == name
    for chat in ("telegram:-3", "here"):
        assert tape_of(home.path, chat) is None


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


def test_a_name_is_a_session_of_the_terminal_unless_it_has_a_channel(home: Home) -> None:
    for text, same in ((" work ", "stdin:work"), ("a:b:c", "a:b:c"), ("x" * 200, "stdin:" + "x" * 200)):
        assert run(home.path, "memory", "save", text, "tea").returncode == 0
        assert tape_of(home.path, text.strip()) == tape_of(home.path, same) is not None


@pytest.mark.parametrize("text", ["", "  ", ":a", "a:", "a::b", "a\x1bb", "x" * 201])
def test_what_names_no_session_is_refused(home: Home, text: str) -> None:
    done = run(home.path, "memory", "save", text, "tea")
    assert done.returncode == 2
    assert done.stderr


def test_a_tape_of_the_system_is_refused(home: Home) -> None:
    done = run(home.path, "access", "grant-reading", "bubbot/imports", "telegram:7")
    assert b"bubbot/imports belongs to the system and is never read by grant" in done.stderr
    assert done.returncode == 2
