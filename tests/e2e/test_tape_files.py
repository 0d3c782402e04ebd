"""Tapes into files and back with the real command: whole or not at all, and nothing silently left out."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bubbot.app.tapes import open_tapes
from bubbot.cli.tape.change import ImportTape, import_tape
from bubbot.errors import TapeCorrupt
from bubbot.home import Home
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import session_tape
from bubbot.tape.store import ForkRecord
from tests.e2e import bot
from tests.e2e.bot import sentence
from tests.e2e.inside import run, said

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a conversation, its archive, and a tape of which the content was erased."""
    made = tmp_path_factory.mktemp("files") / "home"
    said(made, "Hello, Grüße", ",memory.save Likes green tea.", "the colour is blue")
    run(made, "ask", "--session", "gone", "a secret")
    run(made, "ask", "--session", "gone", ",reset erase")
    return made


def entries(home: Path, tape: str = "default") -> list[dict[str, Any]]:
    """The entries of a tape, as `bubbot tape show --json` prints them."""
    return [json.loads(line) for line in fine(home, "tape", "show", tape, "--json").splitlines()]


def fine(home: Path, *arguments: str) -> str:
    done = run(home, *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_an_exported_tape_imports_as_the_same_tape_under_its_new_session(home: Path, tmp_path: Path) -> None:
    file, again, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "other"
    assert f"to {file}." in fine(home, "tape", "export", "default", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    assert "into stdin:copy." in fine(other, "tape", "import", str(file), "--session", "copy")
    fine(other, "tape", "export", "copy", str(again))
    assert plain(again) == plain(file)
    assert {one["meta"]["provenance"] for one in entries(other, "copy")} == {"world"}, "nobody vouches for a file"
    fine(other, "tape", "import", str(again), "--session", "more")
    fine(other, "tape", "export", "more", str(tmp_path / "c.jsonl"))
    assert (tmp_path / "c.jsonl").read_bytes() == again.read_bytes()
    assert any(line.startswith("stdin:copy ") for line in fine(other, "tape", "list").splitlines())
    assert "0 altered, 0 missing" in fine(other, "tape", "verify")
    assert "the colour is blue" in "\n".join(said(other, ",context", session="copy"))
    for _ in range(2):
        said(other, "and the grass?", session="copy")
    assert "0 altered, 0 missing" in fine(other, "tape", "verify"), "blobs that did not come along are stored again"
    assert [one["kind"] for one in entries(other, "copy")].count("system") == [
        one["kind"] for one in entries(home)
    ].count("system") + 1
    fact = entries(other, "bubbot/imports")[0]["payload"]
    assert fact["data"]["session"] == "stdin:copy"


def test_imported_facts_of_another_form_end_no_chat(tmp_path: Path) -> None:
    other = tmp_path / "other"
    payloads: tuple[dict[str, object], ...] = (
        {},
        {"data": [1]},
        {"data": {"system": {"a": 1}, "tools": [3], "model": None}},
    )
    for place, data in enumerate(payloads):
        facts = [
            {"id": number, "kind": "event", "payload": {"name": name, **data}, "meta": {}, "date": "2026-11-21"}
            for number, name in enumerate(("loop.step", "model/switched"), 1)
        ]
        file = tmp_path / "a.jsonl"
        file.write_text("".join(json.dumps(fact) + "\n" for fact in facts))
        fine(other, "tape", "import", str(file), "--session", f"copy{place}")
        assert said(other, "hello", session=f"copy{place}") == ["You said: hello"]


def test_a_process_writes_the_lines_to_standard_output_and_another_takes_them(home: Path, tmp_path: Path) -> None:
    done = bot.run(home, "tape", "export", "default")
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [one["id"] for one in entries(home)]
    file = tmp_path / "a.jsonl"
    file.write_bytes(done.stdout)
    assert bot.run(tmp_path / "other", "tape", "import", str(file), "--session", "copy").returncode == 0
    assert list(map(unmarked, entries(tmp_path / "other", "copy"))) == list(map(unmarked, entries(home)))


def test_an_archive_is_exported_and_its_erased_entries_stay_erased(home: Path, tmp_path: Path) -> None:
    archive = next(name for name in _archives(home))
    file = tmp_path / "gone.jsonl"
    fine(home, "tape", "export", archive, str(file))
    data = [json.loads(line) for line in file.read_text().splitlines()]
    assert data[-1]["payload"]["name"] == "tape/renamed"  # which says how it was called, and is not erased
    assert all(one["erased"] and "payload" not in one for one in data[:-1])
    assert b"secret" not in file.read_bytes()
    other = tmp_path / "other"
    assert "had been erased" in fine(other, "tape", "import", str(file), "--session", "gone")
    fine(other, "tape", "export", "gone", str(tmp_path / "again.jsonl"))
    assert plain(tmp_path / "again.jsonl") == plain(file)


def unmarked(line: dict[str, Any]) -> dict[str, Any]:
    """A line without what an import adds: whose words the file's are, and the hash over that."""
    meta = {key: value for key, value in line.get("meta", {}).items() if key != "provenance"}
    return {key: value for key, value in line.items() if key != "hash"} | ({"meta": meta} if "meta" in line else {})


def plain(file: Path) -> list[dict[str, Any]]:
    """The lines of an export, `unmarked`."""
    return [unmarked(json.loads(line)) for line in file.read_text().splitlines()]


def _archives(home: Path) -> list[str]:
    words = [word for line in fine(home, "tape", "list").splitlines() for word in line.split()]
    found = [word for word in words if "@" in word]
    assert found
    return found


def test_tapes_of_the_system_are_neither_exported_nor_searched(home: Path) -> None:
    for action in (("export", "bubbot/inbox/stdin"), ("search", "bubbot/inbox/stdin", "Hello")):
        done = run(home, "tape", *action)
        assert done.returncode == 2
        assert "belongs to the system" in sentence(done)


def test_an_export_writes_over_nothing_and_leaves_no_piece_of_a_file(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "there.jsonl"
    file.write_text("mine")
    assert "already exists" in sentence(run(home, "tape", "export", "default", str(file)))
    assert file.read_text() == "mine"
    assert run(home, "tape", "export", "nothing", str(tmp_path / "new")).returncode == 1
    assert not (tmp_path / "new").exists()


def test_an_altered_and_a_torn_file_are_refused_with_the_line_and_nothing_is_imported(
    home: Path, tmp_path: Path
) -> None:
    file, other = tmp_path / "a.jsonl", tmp_path / "other"
    fine(home, "tape", "export", "default", str(file))
    whole = file.read_text()
    file.write_text(whole.replace("Hello", "Hallo", 1)[:-40])
    done = run(other, "tape", "import", str(file), "--session", "x")
    assert done.returncode == 5
    told = sentence(done).splitlines()
    assert told[0].startswith(f"bubbot: {file}, line 3: its hash is not that of its content")
    assert f"line {len(whole.splitlines())}: it is not JSON" in told[1]
    assert "--repair" in told[2]
    assert not (other / "bubbot.db").exists()


def test_repair_imports_the_rest_keeps_the_file_and_writes_the_other_lines_as_they_are(tmp_path: Path) -> None:
    file, home = tmp_path / "torn.jsonl", tmp_path / "home"
    raw = (DATA / "bub" / "torn.jsonl").read_bytes()
    file.write_bytes(raw)
    printed = fine(home, "tape", "import", str(file), "--session", "bub", "--repair")
    lines = raw.splitlines(keepends=True)
    assert file.read_bytes() == raw
    assert Path(f"{file}.unreadable").read_bytes() == b"".join([lines[1], *lines[3:]])
    assert [f"line {number}:" in printed for number in (2, 4, 5, 6, 7)] == [True] * 5
    assert [one["payload"].get("name", "message") for one in entries(home, "bub")] == [
        "session/start", "tape/unreadable", "message", *["tape/unreadable"] * 4,
    ]  # fmt: skip
    done = run(home, "tape", "import", str(file), "--session", "bub2", "--repair")
    assert "already exists" in sentence(done), "what an earlier repair set aside is kept"
    assert not [name for name in fine(home, "tape", "list").splitlines() if "bub2" in name]


@pytest.mark.parametrize("name", ["2026-02", "two-writers", "odd"])
def test_a_tape_of_bub_becomes_a_session_one_can_go_on_with(tmp_path: Path, name: str) -> None:
    home, file = tmp_path / "home", DATA / "bub" / f"{name}.jsonl"
    before = file.read_bytes()
    assert "no hashes" in fine(home, "tape", "import", str(file), "--session", "bub")
    assert file.read_bytes() == before
    assert said(home, "are you there?", session="bub") == ["You said: are you there?"]
    assert "0 altered, 0 missing" in fine(home, "tape", "verify")
    fine(home, "tape", "export", "bub", str(tmp_path / "out.jsonl"))
    fine(tmp_path / "second", "tape", "import", str(tmp_path / "out.jsonl"), "--session", "bub")


def test_bub_memory_is_the_memory_of_the_session(tmp_path: Path) -> None:
    home = tmp_path / "home"
    fine(home, "tape", "import", str(DATA / "bub" / "odd.jsonl"), "--session", "telegram:42")
    assert "Likes tea." in fine(home, "memory", "show", "telegram:42")


def test_only_an_empty_tape_takes_an_import(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    fine(home, "tape", "export", "default", str(file))
    before = entries(home)
    done = run(home, "tape", "import", str(file), "--session", "default")
    assert (done.returncode, "needs an empty tape" in sentence(done)) == (2, True)
    assert entries(home) == before


def test_a_database_is_not_opened_as_a_file(home: Path, tmp_path: Path) -> None:
    link = tmp_path / "tape.jsonl"
    link.symlink_to(home / "bubbot.db")
    for file in (home / "bubbot.db", home / "bubbot.db-wal", link):
        assert "only SQLite may open it" in sentence(run(home, "tape", "import", str(file), "--session", "x"))


def test_what_is_no_file_of_lines_is_refused_in_a_sentence(tmp_path: Path) -> None:
    home, empty = tmp_path / "home", tmp_path / "empty.jsonl"
    empty.write_bytes(b"\n \n")
    for file, words in ((empty, "no entries"), (tmp_path, "regular"), (tmp_path / "none", "cannot be read")):
        done = run(home, "tape", "import", str(file), "--session", "x")
        assert (done.returncode, words in sentence(done)) == (2, True)
    assert "is not a session" in sentence(run(home, "tape", "import", str(empty), "--session", "a::b"))
    os.mkfifo(tmp_path / "pipe")
    assert "regular" in sentence(run(home, "tape", "import", str(tmp_path / "pipe"), "--session", "x"))


TELEGRAM = {
    "name": "Ann",
    "type": "personal_chat",
    "id": 1,
    "messages": [
        {"id": 1, "type": "message", "date": "2026-01-02T10:00:00", "from": "Ann", "from_id": "user1", "text": "hello"}
    ],
}
CHATGPT = [{"title": "Trip", "create_time": 1.5, "mapping": {"a": {"id": "a", "message": None, "children": []}}}]
DISCORD = {
    "guild": {"id": "1"},
    "channel": {"id": "2"},
    "dateRange": {"after": None},
    "messages": [{"id": "3", "content": "hi"}],
}
CLAUDE = [{"uuid": "1", "name": "Trip", "chat_messages": [{"uuid": "2", "text": "hi", "sender": "human"}]}]
WHATSAPP = [
    "31.12.25, 21:41 - Ann: hello\n",
    "[31/12/2025, 21:41:07] Ann: hello\n",
    "12/31/25, 9:41\u202fPM - Ann: hello\nmore\n",
]
EXPORTS = [
    ("Telegram Desktop", json.dumps(TELEGRAM)),
    ("Telegram Desktop", json.dumps(TELEGRAM, indent=1)),
    ("Telegram Desktop", json.dumps({"about": "Your data", "personal_information": {}, "chats": {"list": [TELEGRAM]}}, indent=1)),
    ("Telegram Desktop", "<!DOCTYPE html>\n<html>\n<head>\n<title>Exported Data</title>\n"),
    ("ChatGPT", json.dumps(CHATGPT)),
    ("ChatGPT", json.dumps(CHATGPT, indent=2)),
    ("DiscordChatExporter", json.dumps(DISCORD)),
    ("DiscordChatExporter", "\ufeff" + json.dumps(DISCORD, indent=2)),
    ("Claude", json.dumps(CLAUDE, indent=2)),
    *(("WhatsApp", text) for text in WHATSAPP),
    (None, json.dumps({"messages": [{"role": "user", "content": "hi"}]}) + "\n"),
    (None, '{"kind": 7}\n{"kind": "message"}\n'),
    (None, "[]"),
    (None, "12 o'clock - tea\n"),
    (None, "\0\xff\n"),
]  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("repair", [(), ("--repair",)], ids=["plain", "repair"])
@pytest.mark.parametrize(("program", "text"), EXPORTS)
def test_a_file_without_an_entry_is_named_and_leaves_nothing(
    home: Path, tmp_path: Path, program: str | None, text: str, repair: tuple[str, ...]
) -> None:
    file = tmp_path / "chat.json"
    file.write_text(text)
    done = run(home, "tape", "import", str(file), "--session", "talk", *repair)
    assert done.returncode == 5
    assert done.stdout == b""
    said_of_it = (
        f"is an export of {program}, which is not read." if program else f"No line of {file} is an entry of a tape."
    )
    assert said_of_it in done.stderr.decode()
    assert "Nothing was imported." in done.stderr.decode()
    assert "--repair" not in done.stderr.decode()
    assert [path.name for path in tmp_path.iterdir()] == ["chat.json"]
    assert "stdin:talk" not in fine(home, "tape", "list", "--json"), "the name is free"


def test_a_repair_of_nothing_is_refused_in_a_running_bot_too() -> None:
    with pytest.raises(TapeCorrupt):
        asyncio.run(
            import_tape(
                cast("Any", SimpleNamespace(now=lambda: datetime(2026, 1, 2, tzinfo=UTC))),
                ImportTape(session="stdin:x", data=b"[]", repair=True),
            )
        )


def test_an_import_that_fails_in_the_database_leaves_nothing(home: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "a.jsonl", tmp_path / "other"
    fine(home, "tape", "export", "default", str(file))
    fine(other, "ask", "hi")
    with sqlite3.connect(other / "bubbot.db") as conn:
        conn.execute("CREATE UNIQUE INDEX fail ON entries (tape) WHERE id IN (14, 15)")
    conn.close()
    file.write_bytes(file.read_bytes() + b"{")
    before = fine(other, "tape", "list")
    done = run(other, "tape", "import", str(file), "--session", "copy", "--repair")
    assert done.returncode == 4, done.stderr
    assert fine(other, "tape", "list") == before
    assert not Path(f"{file}.unreadable").exists()


def test_search_finds_what_the_tool_finds(home: Path) -> None:
    printed = fine(home, "tape", "search", "default", "colour", "blue", "--kinds", "message")
    assert ": the colour is blue" in printed
    assert "(approximate)" in fine(home, "tape", "search", "stdin:default", "gren", "tea")
    assert len(fine(home, "tape", "search", "default", "colour", "--limit", "1").splitlines()) == 1
    for options in (["--since", "2100-01-01"], ["--until", "2000-01-01"], ["--kinds", "system"]):
        done = run(home, "tape", "search", "default", "colour", *options)
        assert (done.returncode, done.stdout) == (1, b'Nothing found for "colour".\n')
    for wrong in (["--kinds", "mesage"], ["--since", "soon"], ["--limit", "0"]):
        assert run(home, "tape", "search", "default", "colour", *wrong).returncode == 2


async def _leave_a_turn_open(home: Path, session: str) -> None:
    """What a process leaves that dies in the first turn of a session."""
    async with open_tapes(Home(home), write=True) as (store, workspace):
        await store.open_fork(ForkRecord("f", session_tape(workspace, session), 0, ()))


def test_a_command_that_writes_to_a_session_records_its_unfinished_turn_first(home: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "a.jsonl", tmp_path / "other"
    fine(home, "tape", "export", "default", str(file))
    asyncio.run(_leave_a_turn_open(other, "stdin:work"))
    done = run(other, "tape", "import", str(file), "--session", "work")
    assert (done.returncode, "work has 1 entry already" in sentence(done)) == (2, True)
    asyncio.run(_leave_a_turn_open(other, "stdin:play"))
    assert run(other, "memory", "save", "play", "x").returncode == 0
    shown = fine(other, "tape", "show", "play")
    assert shown.index("turn/interrupted") < shown.index("memory/seal")


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--kinds", "message"),
        ("--last", "3"),
        ("--as-of", "7"),
        ("--turn", "TURN"),
        ("--turn", "TURN", "--last", "2"),
    ],
    ids=" ".join,
)
def test_a_tape_is_shown_the_same_by_pages(
    home: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """A long one does not fit into memory."""
    turn = entries(home)[-1]["meta"]["turn"][:8]
    command = ("tape", "show", "default", *(turn if each == "TURN" else each for each in options))
    whole = fine(home, *command)
    read: list[int] = []
    fetch = SqliteStore.fetch

    async def counted(self: SqliteStore, queries: Sequence[TapeQuery]) -> list[tuple[TapeEntry, ...]]:
        found = await fetch(self, queries)
        read.extend(map(len, found))
        return found

    monkeypatch.setattr("bubbot.cli.tape.command.PAGE_ENTRIES", 2)
    monkeypatch.setattr(SqliteStore, "fetch", counted)
    assert fine(home, *command) == whole != ""
    assert max(read) <= 3
    if options[:1] == ("--kinds",):  # what the store leaves out costs no page
        assert len(read) <= whole.count("\n") // 2 + 3 < len(entries(home)) // 2
