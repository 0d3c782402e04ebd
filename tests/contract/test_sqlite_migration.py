"""Databases of every version there ever was: backed up, migrated whole or not at all, and as good as new afterwards."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from bubbot.errors import StoreTooNew, StoreUnavailable
from bubbot.stores.sqlite.backups import list_backups
from bubbot.stores.sqlite.restore import verify_backup
from bubbot.stores.sqlite.schema import MIGRATIONS, expected_triggers, migrate
from bubbot.stores.sqlite.store import open_store
from tests.doubles import CountingSalt, SteppingClock
from tests.e2e import bot
from tests.e2e.bot import sentence
from tests.e2e.inside import run
from tests.raw import raw

OLDEST = Path(__file__).parents[1] / "data" / "databases" / "version-1.db"
"""Made by the first versions that had a database and a chat: talk, memory, a handoff, a correction, an archive, an erased
tape, an answer that was not delivered, and a turn that was killed in a tool call."""
RENAMED = OLDEST.with_name("version-3.db")
"""Made by the last version before classes and settings were renamed: talk, a tool call, memory, a correction, a handoff
with its anchor `colours`, a session with erased entries, and the job `standup`. Prompts and tools are in blobs."""
RENAMED_HEAD = "110:65e585ff5ebcb93f384a2122da053608044477d03d689880959c66af818540fc"
"""What that version printed of it."""


@pytest.fixture
def database() -> Path:
    """The database of the home."""
    return OLDEST


@pytest.fixture
def home(tmp_path: Path, database: Path) -> Path:
    """A home with a database of an older version."""
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    shutil.copy(database, made / "bubbot.db")
    return made


def at_version(path: Path, version: int) -> Path:
    """An empty database as the program made it that knew so many versions."""
    with raw(path) as conn:
        migrate(conn, now="2026-11-21T20:21:00.000000+00:00", migrations=MIGRATIONS[:version])
    return path


def schema(path: Path) -> list[tuple[str, str, str]]:
    """Everything that makes up the schema, without comments and white space."""
    with raw(path) as conn:
        found = conn.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master").fetchall()
    return sorted((kind, name, re.sub(r"\s+", " ", re.sub(r"--.*", "", sql)).strip()) for kind, name, sql in found)


def dump(path: Path) -> list[str]:
    with raw(path) as conn:
        return list(conn.iterdump())


async def opened(path: Path) -> None:
    await (await open_store(path, salt=CountingSalt(), now=SteppingClock())).aclose()


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
async def test_a_migrated_schema_is_the_one_of_a_new_database(tmp_path: Path, version: int) -> None:
    old, new = at_version(tmp_path / "old.db", version), tmp_path / "new.db"
    await opened(old)
    await opened(new)
    assert schema(old) == schema(new)


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
def test_the_triggers_read_from_the_migrations_are_those_that_they_make(tmp_path: Path, version: int) -> None:
    with raw(at_version(tmp_path / "made.db", version)) as conn:
        stored = dict(conn.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall())
    assert stored == expected_triggers(version) != {}


async def test_the_schema_of_the_oldest_database_becomes_that_of_a_new_one(home: Path, tmp_path: Path) -> None:
    assert (before := schema(home / "bubbot.db")) != schema(at_version(tmp_path / "first.db", 1))
    await opened(home / "bubbot.db")
    await opened(tmp_path / "new.db")
    assert before != schema(home / "bubbot.db") == schema(tmp_path / "new.db")


def test_the_oldest_database_is_backed_up_migrated_and_answers_with_what_was_said(home: Path) -> None:
    assert b"0 altered, 0 missing, 0 renamed, 12 erased" in run(home, "tape", "verify").stdout
    assert not (home / "backups").exists()  # who only reads changes nothing
    answered = run(home, "ask", ",context")
    assert (answered.returncode, answered.stderr) == (0, b"")
    assert "colour is blue" in answered.stdout.decode()
    assert b"0 altered, 0 missing, 0 renamed, 12 erased" in run(home, "tape", "verify").stdout
    assert b"Likes green tea." in run(home, "memory", "show", "default").stdout
    [kept] = list_backups(home)
    assert (kept.schema, kept.path.name[:20]) == (1, "before-migration-v1-")
    assert verify_backup(kept.path).database.version == 1
    assert dump(kept.path / "bubbot.db") == dump(OLDEST)
    run(home, "ask", "again")
    assert len(list_backups(home)) == 1


def test_what_the_oldest_database_left_open_is_taken_up(home: Path) -> None:
    owed = bot.run(home, "chat", "--session", "owed", lines=",quit\n")
    assert b"Tell me later." in owed.stdout
    cut = bot.run(home, "chat", "--session", "cut", lines=",quit\n")
    assert b"You said: a slow question" in cut.stdout
    told = [
        line for line in run(home, "tape", "show", "cut").stdout.decode().splitlines() if "turn/interrupted" in line
    ]
    assert len(told) == 1


@pytest.mark.parametrize("database", [RENAMED])
def test_a_home_of_the_version_before_the_new_names_opens_unchanged(home: Path) -> None:
    assert f"0 altered, 0 missing, 0 renamed, 13 erased; head {RENAMED_HEAD}" in text_of(home, "tape", "verify")
    assert "Likes green tea." in text_of(home, "memory", "show", "default")
    assert ")  on: every weekday at 09:00" in text_of(home, "schedule", "list")
    assert " colours " in text_of(home, "tape", "anchors", "default")
    assert "my favourite colour is green" in text_of(home, "tape", "show", "default")
    assert "this goes away" not in text_of(home, "tape", "show", "gone")
    assert dump(home / "bubbot.db") == dump(RENAMED)


@pytest.mark.parametrize("database", [RENAMED])
def test_a_home_of_the_version_before_the_new_names_goes_on(home: Path) -> None:
    assert text_of(home, "ask", "still there?") == "You said: still there?\n"
    shown = text_of(home, "ask", ",context")
    assert "Likes green tea." in shown
    assert "You said: what was it?" in shown
    assert "Scheduled Good night!" in text_of(
        home, "schedule", "add", "stdin:default", "@daily", "--text", "Good night!"
    )
    assert "0 altered, 0 missing, 0 renamed, 13 erased" in text_of(home, "tape", "verify", "--head", RENAMED_HEAD)


def test_a_backup_of_an_older_version_is_restored_and_migrated_without_another_one(home: Path, tmp_path: Path) -> None:
    run(home, "ask", "hello")
    [kept] = list_backups(home)
    done = run(tmp_path / "new", "restore", str(kept.path))
    assert (done.returncode, done.stderr) == (0, b"")
    assert not (tmp_path / "new" / "backups").exists()
    assert b"blue" in run(tmp_path / "new", "ask", ",context").stdout


@pytest.mark.parametrize("spoiled", ["a file is in the way", "the disk is full"])
def test_where_no_backup_can_be_made_nothing_is_migrated(
    home: Path, spoiled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if spoiled == "a file is in the way":
        (home / "backups").write_text("mine")
    else:
        monkeypatch.setattr("bubbot.stores.files.os.fsync", full)
    done = run(home, "ask", "hello")
    assert done.returncode == 4
    assert "older version 1 and was left as it is" in sentence(done)
    monkeypatch.undo()
    assert dump(home / "bubbot.db") == dump(OLDEST)
    assert list((home / "backups").glob("*")) == []
    if (home / "backups").is_dir():
        assert run(home, "ask", "hello").returncode == 0


def text_of(home: Path, *arguments: str) -> str:
    """What a command prints; fails if it does not end well."""
    done = run(home, *arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.decode()


def full(_fd: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("broken", ["CREATE TABLE half (x); INSERT INTO nowhere VALUES (1);", "CREATE TABLE half (x;"])
async def test_a_migration_that_fails_leaves_the_database_as_it_was(
    home: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = (*MIGRATIONS, "CREATE TABLE fine (x);", broken)
    monkeypatch.setattr("bubbot.stores.sqlite.store.MIGRATIONS", newer)
    monkeypatch.setattr(
        "bubbot.stores.sqlite.store.migrate", lambda conn, *, now: migrate(conn, now=now, migrations=newer)
    )
    with pytest.raises(StoreUnavailable):
        await opened(home / "bubbot.db")
    assert dump(home / "bubbot.db") == dump(OLDEST)
    with raw(home / "bubbot.db") as conn:
        assert conn.execute("PRAGMA user_version").fetchone() == (1,)
    monkeypatch.undo()
    await opened(home / "bubbot.db")


def test_an_older_program_refuses_a_newer_database_in_a_sentence(home: Path) -> None:
    asyncio.run(opened(home / "bubbot.db"))
    before = dump(home / "bubbot.db")
    conn = sqlite3.connect(home / "bubbot.db", isolation_level=None)
    try:
        with pytest.raises(StoreTooNew, match=f"version {len(MIGRATIONS)}, this bubbot knows versions up to 1"):
            migrate(conn, now="", migrations=MIGRATIONS[:1])
        conn.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    finally:
        conn.close()
    for command in (("ask", "hello"), ("tape", "list"), ("backup",)):
        done = run(home, *command)
        assert done.returncode == 4
        assert "written by a newer bubbot" in sentence(done)
    assert dump(home / "bubbot.db") == before
