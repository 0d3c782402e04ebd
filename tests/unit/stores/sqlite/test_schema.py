"""The schema: its migrations, each on record, and the triggers that a database must have."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from bubbot.errors import StoreTooNew, StoreUnavailable
from bubbot.stores.sqlite.schema import MIGRATIONS, check_version, migrate, restore_triggers, statements, wrong_triggers

APPLICATION_ID = 1_651_860_066


NOW = "2026-11-21T20:21:00.000000+00:00"
TRIGGER = "CREATE TRIGGER t AFTER INSERT ON a BEGIN DELETE FROM a; SELECT 1; END"


@pytest.fixture
def conn() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        yield opened


def numbers(conn: sqlite3.Connection) -> tuple[int, ...]:
    """The version and the program of a database."""
    return tuple(conn.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id"))


@pytest.mark.parametrize(
    ("script", "split"),
    [
        ("", []),
        (" ;\n", []),
        ("CREATE TABLE a (x);", ["CREATE TABLE a (x);"]),
        ("CREATE TABLE a (x)", ["CREATE TABLE a (x);"]),
        ("SELECT ';'; SELECT 2;\n", ["SELECT ';';", " SELECT 2;"]),
        (f"{TRIGGER};SELECT 1;", [f"{TRIGGER};", "SELECT 1;"]),
        ("SELECT 'open; SELECT 2;", ["SELECT 'open; SELECT 2;"]),
    ],
)
def test_a_script_is_split_into_whole_statements(script: str, split: list[str]) -> None:
    assert [statement for statement in statements(script) if statement.strip("; \n")] == split


def test_each_migration_is_on_record(conn: sqlite3.Connection) -> None:
    assert (check_version(conn), numbers(conn)) == (0, (0, 0))
    migrate(conn, now="earlier", migrations=MIGRATIONS[:2])
    assert numbers(conn) == (2, APPLICATION_ID)
    for _ in range(2):  # the second time there is nothing to do
        migrate(conn, now=NOW)
        applied = conn.execute("SELECT version, applied FROM migrations ORDER BY version").fetchall()
        assert applied == [(1, "earlier"), (2, "earlier"), *((number, NOW) for number in range(3, len(MIGRATIONS) + 1))]
        assert numbers(conn) == (len(MIGRATIONS), APPLICATION_ID)
        assert not conn.in_transaction


def test_a_migration_that_fails_leaves_nothing_and_ends_its_transaction(conn: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        migrate(conn, now=NOW, migrations=(MIGRATIONS[0], "INSERT INTO nowhere VALUES (1);"))
    assert (conn.in_transaction, numbers(conn)) == (False, (0, 0))
    assert conn.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):  # one that SQLite has rolled back already
        migrate(conn, now=NOW, migrations=("ROLLBACK; INSERT INTO nowhere VALUES (1);",))
    migrate(conn, now=NOW)
    assert check_version(conn) == len(MIGRATIONS)


def test_a_newer_database_and_one_of_another_program_are_refused(conn: sqlite3.Connection) -> None:
    migrate(conn, now=NOW)
    conn.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(StoreTooNew, match=f"has version {len(MIGRATIONS) + 1}, this bubbot knows versions up to"):
        migrate(conn, now=NOW)
    conn.execute(f"PRAGMA application_id = {APPLICATION_ID + 1}")
    with pytest.raises(StoreUnavailable, match="another program"):
        check_version(conn)


@pytest.mark.parametrize("version", range(1, len(MIGRATIONS) + 1))
@pytest.mark.law("T1")
def test_triggers_that_are_missing_changed_or_not_ours_are_named_and_restored(
    conn: sqlite3.Connection, version: int
) -> None:
    migrate(conn, now=NOW, migrations=MIGRATIONS[:version])
    assert wrong_triggers(conn) == ()
    conn.execute("DROP TRIGGER entries_insert")
    conn.execute("DROP TRIGGER tapes_delete")
    conn.execute("CREATE TRIGGER tapes_delete BEFORE DELETE ON tapes BEGIN SELECT 1; END")
    conn.execute('CREATE TRIGGER "an ""other" AFTER INSERT ON entries BEGIN SELECT 1; END')
    wrong = ('an "other', "entries_insert", "tapes_delete")
    assert wrong_triggers(conn) == wrong
    assert restore_triggers(conn) == wrong
    assert wrong_triggers(conn) == ()
    conn.execute("DROP TRIGGER tapes_update")
    assert wrong_triggers(conn) == ("tapes_update",)


def test_the_first_version_may_have_another_form_of_a_trigger_and_a_later_one_not(conn: sqlite3.Connection) -> None:
    for version, wrong in ((1, ()), (2, ("tapes_update",))):
        migrate(conn, now=NOW, migrations=MIGRATIONS[:version])
        conn.execute("DROP TRIGGER tapes_update")
        conn.execute("CREATE TRIGGER tapes_update BEFORE UPDATE ON tapes BEGIN SELECT 1; END")
        assert wrong_triggers(conn) == wrong
