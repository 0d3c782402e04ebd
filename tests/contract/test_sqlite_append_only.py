"""The database itself refuses to lose or change history, whoever connects to it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from bubbot.stores.sqlite.store import open_store
from bubbot.tape.entry import event
from bubbot.tape.store import ResetBatch
from tests.doubles import CountingSalt, SteppingClock
from tests.raw import raw, rows
from tests.tapes import batch, note

COLUMNS = "seq, tape, id, kind, key, name, opens, at, date, payload, meta, salt, digest, chain"
NULLED = "payload = NULL, meta = NULL, name = NULL, opens = NULL, salt = NULL"

# Tape 1 holds positions 1 to 3 under the keys k1 to k3; tape 2 is an archive whose entries 4 and 5 are erased, and whose
# last one, at position 6, says what it is called; tape 3 holds the fact of it at position 7, and at position 8 one that
# covers entry 2 of tape 1. The next position is 9, the next id of tape 1 is 4.
FACT = 7
COVERING = 8


@pytest.fixture(scope="module")
def database(new_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a live tape, an erased archive and the fact of the erasure."""
    path = Path(shutil.copy(new_database, tmp_path_factory.mktemp("filled")))

    async def fill() -> None:
        store = await open_store(path, salt=CountingSalt(), now=SteppingClock())
        await store.append([batch(*[note(text, key=f"k{text}") for text in "123"])])
        await store.append([batch(note("a", key="x"), note("b"), tape="doomed")])
        await store.reset("doomed", ResetBatch("doomed@old", erase=True), [event("tape/erased")])
        await store.append([batch(event("tape/erased", {"covers": {"tape": [[2, 2]]}}), tape="doomed")])
        await store.aclose()

    asyncio.run(fill())
    return path


@pytest.fixture(params=[False, True], ids=["plain", "recursive_triggers"])
def conn(request: pytest.FixtureRequest, database: Path, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of another program to a copy of it."""
    with raw(Path(shutil.copy(database, tmp_path)), recursive_triggers=request.param) as opened:
        yield opened


def refused(conn: sqlite3.Connection, sql: str) -> None:
    """The statement raises, and every row is as it was."""
    before = rows(conn)
    assert "append-only" in attempt(conn, sql), f"not refused: {sql}"
    assert rows(conn) == before, sql


def attempt(conn: sqlite3.Connection, sql: str) -> str:
    try:
        conn.execute(sql)
    except sqlite3.IntegrityError as error:
        return str(error)
    return "done"


def row(seq: str, entry_id: str, key: str, tape: int = 1) -> str:
    return (
        f"({seq}, {tape}, {entry_id}, 'message', {key}, NULL, NULL, NULL, '', "
        "'{\"forged\":1}', '{}', x'00', x'00', x'00')"
    )


# What the new row has in common with a stored one.
TAKEN = {
    "position": row("2", "4", "'new'"),
    "id": row("9", "2", "'new'"),
    "key": row("9", "4", "'k2'"),
    "position and id": row("2", "2", "'new'"),
    "position and key": row("2", "4", "'k2'"),
    "id and key": row("9", "2", "'k2'"),
    "position, id and key": row("2", "2", "'k2'"),
    "three different rows": row("1", "2", "'k3'"),
    "newest row": row("3", "3", "'k3'"),
    "erased row": row("4", "1", "'x'", tape=2),
    "erased key": row("9", "3", "'x'", tape=2),
}
INSERTS = ["INSERT", "REPLACE", *[f"INSERT OR {how}" for how in ("REPLACE", "IGNORE", "FAIL", "ABORT", "ROLLBACK")]]
UPSERTS = [
    f"ON CONFLICT {target} DO {action}"
    for target, action in product(
        ["(seq)", "(tape, id)", "(tape, key) WHERE key IS NOT NULL", ""],
        ["UPDATE SET payload = excluded.payload, kind = 'forged'", "NOTHING"],
    )
]


@pytest.mark.law("T1")
@pytest.mark.parametrize("insert", INSERTS)
def test_no_insert_replaces_a_stored_row(conn: sqlite3.Connection, insert: str) -> None:
    for taken in TAKEN.values():
        refused(conn, f"{insert} INTO entries ({COLUMNS}) VALUES {taken}")


@pytest.mark.law("T1")
@pytest.mark.parametrize("upsert", UPSERTS)
def test_no_upsert_changes_a_stored_row(conn: sqlite3.Connection, upsert: str) -> None:
    for taken in TAKEN.values():
        refused(conn, f"INSERT INTO entries ({COLUMNS}) VALUES {taken} {upsert}")


@pytest.mark.law("T1", "T2")
@pytest.mark.parametrize("seq", ["11", "0", "-1", "NULL", "10"])
def test_no_insert_leaves_a_gap_between_positions(conn: sqlite3.Connection, seq: str) -> None:
    refused(conn, f"INSERT INTO entries ({COLUMNS}) VALUES {row(seq, '4', 'NULL')}")


@pytest.mark.law("T1", "T2")
@pytest.mark.parametrize(("entry_id", "tape"), [("5", 1), ("0", 1), ("-1", 1), ("NULL", 1), ("2", 99)])
def test_no_insert_leaves_a_gap_between_ids(conn: sqlite3.Connection, entry_id: str, tape: int) -> None:
    refused(conn, f"INSERT INTO entries ({COLUMNS}) VALUES {row('9', entry_id, 'NULL', tape)}")


@pytest.mark.law("T1")
def test_a_row_that_follows_is_let_in(conn: sqlite3.Connection) -> None:
    conn.execute(f"INSERT INTO entries ({COLUMNS}) VALUES {row('9', '4', 'NULL')}")
    assert len(rows(conn)[0]) == 9


@pytest.mark.law("T1")
def test_of_several_rows_none_comes_in_when_one_is_refused(conn: sqlite3.Connection) -> None:
    values = f"{row('9', '4', 'NULL')}, {row('10', '5', 'NULL')}, {row('10', '6', 'NULL')}"
    refused(conn, f"INSERT OR FAIL INTO entries ({COLUMNS}) VALUES {row('2', '4', 'NULL')}, {row('9', '4', 'NULL')}")
    refused(conn, f"INSERT INTO entries ({COLUMNS}) VALUES {values}")


def changes() -> Iterator[str]:
    for column in COLUMNS.split(", "):
        value = {"seq": "70", "tape": "3", "id": "40", "opens": "1", "at": "0"}.get(column, "'forged'")
        yield f"{column} = {value}"
    yield from ("payload = payload", "seq = 1", "id = 1", "key = 'k1'", "tape = 3, id = 1", NULLED, "payload = NULL")


@pytest.mark.law("T1")
@pytest.mark.parametrize("seq", [2, 4, FACT], ids=["live", "erased", "fact"])
@pytest.mark.parametrize("verb", ["UPDATE", "UPDATE OR REPLACE", "UPDATE OR IGNORE", "UPDATE OR FAIL"])
def test_no_update_changes_a_row(conn: sqlite3.Connection, verb: str, seq: int) -> None:
    for change in changes():
        refused(conn, f"{verb} entries SET {change} WHERE seq = {seq}")


@pytest.mark.law("T1")
@pytest.mark.parametrize("where", ["", "WHERE seq = 2", "WHERE seq = 3", "WHERE tape = 2", "WHERE seq = 6"])
def test_no_delete_takes_a_row_away(conn: sqlite3.Connection, where: str) -> None:
    refused(conn, f"DELETE FROM entries {where}")


@pytest.mark.law("T1")
@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM tapes",
        "DELETE FROM tapes WHERE tape = 1",
        "REPLACE INTO tapes (tape, name) VALUES (1, 'forged')",
        "REPLACE INTO tapes (tape, name) VALUES (9, 'tape')",
        "INSERT OR IGNORE INTO tapes (name) VALUES ('tape')",
        "INSERT INTO tapes (name) VALUES ('tape') ON CONFLICT (name) DO UPDATE SET name = 'forged'",
        "INSERT INTO tapes (tape, name) VALUES (1, 'x') ON CONFLICT (tape) DO UPDATE SET name = 'forged'",
        "UPDATE tapes SET tape = 9 WHERE tape = 1",
        "UPDATE tapes SET name = 'forged' WHERE tape = 1",
        "UPDATE tapes SET name = 'forged', archived_from = 'other' WHERE tape = 1",
        "UPDATE tapes SET archived_from = 'tape' WHERE tape = 1",
        "UPDATE OR REPLACE tapes SET name = 'doomed', archived_from = 'tape' WHERE tape = 1",
        "UPDATE tapes SET name = 'doomed@old' WHERE tape = 3",
        "UPDATE tapes SET name = 'forged', archived_from = 'doomed@old' WHERE tape = 2",
        "UPDATE tapes SET archived_from = NULL WHERE tape = 2",
        "UPDATE tapes SET archived_from = name, name = name || '@evil' WHERE tape = 1",
        "INSERT INTO tapes (name, archived_from) VALUES ('tape@evil', 'tape')",
    ],
)
def test_a_tape_is_neither_deleted_nor_renamed_but_into_an_archive(conn: sqlite3.Connection, sql: str) -> None:
    refused(conn, sql)


@pytest.mark.law("T1", "T17")
@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM erased",
        "UPDATE erased SET fact = 1",
        "UPDATE OR REPLACE erased SET id = 2 WHERE id = 1",
        "REPLACE INTO erased (tape, id, fact) VALUES (2, 1, 7)",
        "INSERT OR IGNORE INTO erased (tape, id, fact) VALUES (2, 1, 7)",
        "INSERT INTO erased VALUES (2, 1, 7) ON CONFLICT (tape, id) DO UPDATE SET fact = 1",
        "INSERT INTO erased (tape, id, fact) VALUES (1, 2, 99)",
        "INSERT INTO erased (tape, id, fact) VALUES (1, 2, 1)",
        "INSERT INTO erased (tape, id, fact) VALUES (1, 2, 4)",
        "INSERT INTO erased (tape, id, fact) VALUES (1, 2, 7)",
        "INSERT INTO erased (tape, id, fact) VALUES (1, 1, 8)",
        "INSERT INTO erased (tape, id, fact) VALUES (3, 2, 8)",
        "INSERT INTO erased (tape, id, fact) VALUES (2, 3, 7)",
        "INSERT INTO erased (tape, id, fact) VALUES (3, 1, 7)",
        "INSERT INTO erased (tape, id, fact) VALUES (9, 2, 8)",
    ],
)
def test_an_erasure_names_a_stored_fact_once_and_for_all(conn: sqlite3.Connection, sql: str) -> None:
    refused(conn, sql)


@pytest.mark.law("T17")
def test_an_entry_is_blanked_when_a_fact_names_it_and_only_once(conn: sqlite3.Connection) -> None:
    conn.execute("INSERT INTO erased (tape, id, fact) VALUES (1, 2, ?)", (COVERING,))
    kept = "SELECT seq, tape, id, kind, key, at, date, digest, chain FROM entries WHERE seq = 2"
    before = conn.execute(kept).fetchone()
    conn.execute(f"UPDATE entries SET {NULLED} WHERE seq = 2")
    blank = conn.execute("SELECT payload, meta, name, opens, salt FROM entries WHERE seq = 2").fetchone()
    assert (conn.execute(kept).fetchone(), blank) == (before, (None,) * 5)
    refused(conn, f"UPDATE entries SET {NULLED} WHERE seq = 2")


@pytest.mark.law("T17")
@pytest.mark.parametrize(
    "change", ["payload = NULL", f"{NULLED}, key = NULL", f"{NULLED}, digest = x'00'", "payload = '{}', meta = '{}'"]
)
def test_a_named_entry_is_blanked_whole_and_nothing_else_of_it_changes(conn: sqlite3.Connection, change: str) -> None:
    conn.execute("INSERT INTO erased (tape, id, fact) VALUES (1, 2, ?)", (COVERING,))
    refused(conn, f"UPDATE entries SET {change} WHERE seq = 2")


@pytest.mark.law("T17")
def test_a_fact_for_one_entry_is_none_for_another(conn: sqlite3.Connection) -> None:
    conn.execute("INSERT INTO erased (tape, id, fact) VALUES (1, 2, ?)", (COVERING,))
    refused(conn, f"UPDATE entries SET {NULLED} WHERE seq = 3")
    refused(conn, f"UPDATE entries SET {NULLED} WHERE tape = 1")
