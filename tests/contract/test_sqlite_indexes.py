"""Indexes that do not hold what their tables hold: found by verify, doctor and backups, and built anew by one command."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bubbot.errors import TapeCorrupt
from bubbot.stores.sqlite.backup import copy_database
from bubbot.stores.sqlite.check import check_database, repair_database
from bubbot.stores.sqlite.schema import MIGRATIONS, expected_indexes
from bubbot.stores.sqlite.store import open_store
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import event
from bubbot.tape.store import ForkRecord, ResetBatch
from tests.doubles import CountingSalt, SteppingClock
from tests.e2e.inside import run, said
from tests.raw import raw, tamper
from tests.tapes import batch, note

DATE = "2026-11-21T20:21:00.000000+00:00"
INDEXES = expected_indexes(len(MIGRATIONS))
UNIQUE_BLOBS = "PRIMARY KEY (tape, digest)"
"""What gives the table of blobs an index without a definition of its own."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with two rows or more in each index."""
    path = tmp_path_factory.mktemp("indexed") / "bubbot.db"

    async def fill() -> None:
        store = await open_store(path, salt=CountingSalt(), now=SteppingClock())
        for name in ("alice", "bob"):
            entries = [
                anchor("session/start"),
                note("a", key="k"),
                event("b", {"x": 1}),
                note("c"),
                event("d", {"x": 2}),
            ]
            await store.append([batch(*entries, tape=name)])
            await store.put_blob(name, name.encode())
            await store.open_fork(ForkRecord(f"fork-{name}", name, 5, ()))
        await store.append([batch(note("x", date=DATE), note("y"), tape="gone")])
        await store.reset("gone", ResetBatch("gone@1", erase=True), [anchor("session/start"), event("tape/erased")])
        await store.aclose()

    asyncio.run(fill())
    return path


@pytest.fixture
def database(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(filled, tmp_path / "bubbot.db"))


@contextmanager
def schema(path: Path) -> Iterator[tuple[str, ...]]:
    """Change the text of the schema behind SQLite's back, and put it back: what was built meanwhile stays."""
    with raw(path) as conn:
        before = conn.execute("SELECT name, sql, rowid FROM sqlite_master WHERE type IN ('table', 'index')").fetchall()
    yield tuple(name for name, _, _ in before)
    with raw(path) as conn:
        conn.execute("PRAGMA writable_schema = ON")
        for name, sql, rowid in before:
            conn.execute("UPDATE sqlite_master SET name = ?, sql = ? WHERE rowid = ?", (name, sql, rowid))


def build_as(path: Path, name: str, sql: str) -> None:
    """Fill an index by another definition, under the one that it has."""
    with schema(path):
        with raw(path) as conn:
            conn.execute("PRAGMA writable_schema = ON")
            conn.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, name))
        with raw(path) as conn:
            conn.execute(f"REINDEX {name}")


def lacks_a_row(path: Path, name: str) -> None:
    """Leave the newest row that the index holds out of it."""
    sql = INDEXES[name]
    table = sql.partition(" ON ")[2].partition(" ")[0]
    key = "seq" if table == "entries" else "fact" if table == "erased" else "rowid"
    where = sql.partition(" WHERE ")[2]
    with raw(path) as conn:
        newest = conn.execute(f"SELECT max({key}) FROM {table}" + (f" WHERE {where}" if where else "")).fetchone()[0]
    assert newest
    build_as(path, name, f"{sql} {'AND' if where else 'WHERE'} {key} <> {newest}")


def has_a_row_too_many(path: Path, name: str) -> None:
    """Let the index hold a row that its table does not have."""
    sql = INDEXES[name]
    if " WHERE " in sql:
        build_as(path, name, sql.partition(" WHERE ")[0].replace("UNIQUE ", ""))
        return
    table = sql.partition(" ON ")[2].partition(" ")[0]
    copies = {
        "entries": "INSERT INTO entries SELECT seq + 1000, tape, id + 1000, kind, NULL, NULL, NULL, at, date, payload, meta, salt, "
        "digest, chain FROM entries WHERE seq = 1",
        "erased": "INSERT INTO erased VALUES (1, 1000, 1)",
    }
    if table == "forks":
        with raw(path) as conn:
            columns = [row[1] for row in conn.execute("PRAGMA table_info(forks)")][1:]
        copies["forks"] = f"INSERT INTO forks SELECT 'another', {', '.join(columns)} FROM forks LIMIT 1"
    gone = {"entries": "seq > 1000", "erased": "id = 1000", "forks": "fork = 'another'"}
    tamper(path, copies[table])
    with raw(path) as conn:
        rows = conn.execute(
            "SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master WHERE name = ?", (name,)
        ).fetchall()
        conn.execute("PRAGMA writable_schema = ON")
        conn.execute("DELETE FROM sqlite_master WHERE name = ?", (name,))
    tamper(path, f"DELETE FROM {table} WHERE {gone[table]}")
    with raw(path) as conn:
        conn.execute("PRAGMA writable_schema = ON")
        conn.executemany("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", rows)


def has_its_columns_swapped(path: Path, name: str) -> None:
    sql = INDEXES[name]
    start, _, rest = sql.partition("(")
    columns, _, end = rest.partition(")")
    swapped = ", ".join(reversed((columns if "," in columns else f"{columns}, tape").split(", ")))
    build_as(path, name, f"{start}({swapped}){end}")


def is_missing(path: Path, name: str) -> None:
    with raw(path) as conn:
        conn.execute(f"DROP INDEX {name}")


def is_another_one(path: Path, name: str) -> None:
    with raw(path) as conn:
        conn.execute(f"DROP INDEX {name}")
        conn.execute(f"CREATE INDEX {name} ON entries (date)")


WAYS = (lacks_a_row, has_a_row_too_many, has_its_columns_swapped, is_missing, is_another_one)


@pytest.mark.sampled(3)
@pytest.mark.law("T8")
@pytest.mark.parametrize("name", INDEXES)
@pytest.mark.parametrize("way", WAYS)
def test_an_index_that_differs_is_found_by_every_check_and_built_anew(database: Path, name: str, way: object) -> None:
    assert callable(way)
    before = facts(database)
    way(database, name)
    audit = check_database(database, deep=True).audit
    assert audit is not None
    assert (audit.indexes, audit.damage) == ((name,), ())
    with pytest.raises(TapeCorrupt, match=f"{name} of .*tape repair"):
        copy_database(database, database.with_name("copy.db"))
    repair = repair_database(database, DATE, CountingSalt())
    assert (repair.triggers, repair.indexes) == ((), (name,))
    repaired = check_database(database, deep=True).audit
    assert repaired is not None
    assert (repaired.indexes, repaired.triggers) == ((), ())
    assert facts(database)[: len(before)] == before
    copy_database(database, database.with_name("copy-2.db"))


def facts(path: Path) -> list[tuple[object, ...]]:
    with raw(path) as conn:
        return conn.execute("SELECT * FROM entries NOT INDEXED ORDER BY seq").fetchall()


def test_an_index_of_a_constraint_is_found_and_built_anew(database: Path) -> None:
    name = "sqlite_autoindex_blobs_1"
    with schema(database):
        with raw(database) as conn:
            conn.execute("PRAGMA writable_schema = ON")
            conn.execute(
                f"UPDATE sqlite_master SET sql = replace(sql, ',\n    {UNIQUE_BLOBS}', '') WHERE name = 'blobs'"
            )
            sql = "CREATE UNIQUE INDEX blobs_plain ON blobs (tape, digest) WHERE rowid <> 1"
            conn.execute("UPDATE sqlite_master SET name = 'blobs_plain', sql = ? WHERE name = ?", (sql, name))
        with raw(database) as conn:
            conn.execute("REINDEX blobs_plain")
    audit = check_database(database, deep=True).audit
    assert audit is not None
    assert audit.indexes == (name,)
    assert repair_database(database, DATE, CountingSalt()).indexes == (name,)


def test_a_row_that_is_there_twice_is_no_matter_of_an_index(database: Path) -> None:
    with raw(database) as conn:
        conn.execute("DROP INDEX entries_id")
    tamper(database, "UPDATE entries SET id = 1 WHERE seq = 2")
    with pytest.raises(TapeCorrupt, match="cannot be built anew: restore a backup"):
        repair_database(database, DATE, CountingSalt())


@pytest.mark.law("T8")
def test_a_memory_that_an_index_hides_is_shown_again_after_the_command_that_verify_names(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for text in ("Likes tea.", "Likes tea. Allergic to nuts."):
        said(home, f",memory.save confirm=true {text}")
    lacks_a_row(home / "bubbot.db", "entries_name")
    verified = run(home, "tape", "verify")
    assert (verified.returncode, verified.stdout.splitlines()[0]) == (
        5, b"the index entries_name does not hold what its table holds; bubbot tape repair builds it anew"
    )  # fmt: skip
    assert json.loads(run(home, "tape", "verify", "--json").stdout)["indexes"] == ["entries_name"]
    told = run(home, "doctor", "--deep", "--offline").stdout.decode()
    assert "database.indexes: entries_name of" in told
    assert b"tape repair` builds them anew" in run(home, "backup", str(tmp_path / "copy")).stderr
    assert run(home, "tape", "repair").stdout == b"Built anew from their tables: entries_name.\n"
    assert run(home, "tape", "verify").returncode == 0
    assert "Allergic to nuts." in run(home, "memory", "show", "default").stdout.decode()
