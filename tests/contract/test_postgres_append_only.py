"""The database on a server itself refuses to lose or change history, whoever connects; what a superuser did shows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from bubbot.errors import TapeCorrupt
from bubbot.stores.postgres.schema import APP_ROLE, MIGRATIONS, expected_triggers, restore_guards, wrong_guards
from bubbot.stores.postgres.store import open_store
from bubbot.tape.entry import event
from bubbot.tape.store import ResetBatch
from tests.doubles import CountingSalt, SteppingClock
from tests.postgres_server import SUPERUSER, PostgresServer, copied_database
from tests.tapes import batch, note, notes, texts

TABLES = ("entries", "erased", "tapes", "blobs", "blob_pieces", "leases")
_LIVE = "(SELECT tape FROM tapes WHERE name = 'tape')"
_ARCHIVE = "(SELECT tape FROM tapes WHERE name = 'doomed@old')"
_BASE = "((pg_current_xact_id()::text::bigint) << 22)"
_COLUMNS = "seq, tape, id, kind, key, name, opens, at, date, payload, meta, salt, digest, chain"


def row(
    seq: str = f"{_BASE} + 1", entry_id: str = "4", key: str = "'new'", tape: str = _LIVE, payload: str = "'{}'"
) -> str:
    return f"({seq}, {tape}, {entry_id}, 'message', {key}, NULL, NULL, NULL, '', {payload}, '{{}}', '\\x00', '\\x00', '\\x00')"


def insert(*rows: str) -> str:
    return f"INSERT INTO entries ({_COLUMNS}) VALUES {', '.join(rows)}"


ATTACKS = {
    "entries_insert": [
        insert(row(entry_id="5")),
        insert(row(entry_id="0")),
        insert(row(entry_id="-1")),
        insert(row(payload="NULL")),
        insert(row(seq="1")),
        insert(row(seq=f"{_BASE} - 1")),
        insert(row(seq=f"{_BASE} + (1 << 22)")),
        insert(row(), row(seq=f"{_BASE} + 2", entry_id="6", key="NULL")),
        insert(row(seq=f"{_BASE} + 2"), row(seq=f"{_BASE} + 1", entry_id="5", key="NULL")),
        insert(row(tape="999")),
        insert(row(tape=_ARCHIVE)),
        f"{insert(row(entry_id='7', key='NULL'))} ON CONFLICT (tape, id) DO UPDATE SET payload = 'forged'",
    ],
    "entries_update": [
        f"UPDATE entries SET payload = '{{\"forged\": 1}}' WHERE tape = {_LIVE} AND id = 2",
        f"UPDATE entries SET payload = NULL, meta = NULL, name = NULL, opens = NULL, salt = NULL WHERE tape = {_LIVE} AND id = 3",
        f"UPDATE entries SET chain = '\\x01' WHERE tape = {_LIVE} AND id = 2",
        f"UPDATE entries SET date = 'later' WHERE tape = {_ARCHIVE} AND id = 1",
        f"{insert(row(entry_id='2', key='NULL'))} ON CONFLICT (tape, id) DO UPDATE SET payload = 'forged'",
        f"{insert(row(key=chr(39) + 'k2' + chr(39)))} ON CONFLICT (tape, key) WHERE key IS NOT NULL DO UPDATE SET payload = 'forged'",
    ],
    "entries_delete": [f"DELETE FROM entries WHERE tape = {_LIVE} AND id = 3", "DELETE FROM entries WHERE false"],
    "entries_truncate": ["TRUNCATE entries, erased"],
    "erased_insert": [
        f"INSERT INTO erased SELECT {_LIVE}, 3, max(seq) FROM entries WHERE name = 'tape/erased'",
        f"INSERT INTO erased SELECT {_LIVE}, 2, min(seq) FROM entries",
        f"INSERT INTO erased SELECT {_ARCHIVE}, 3, max(seq) FROM entries WHERE name = 'tape/erased'",
    ],
    "erased_update": ["UPDATE erased SET fact = fact"],
    "erased_delete": ["DELETE FROM erased"],
    "erased_truncate": ["TRUNCATE erased"],
    "tapes_insert": [
        "INSERT INTO tapes (name, head) VALUES ('x', 5)",
        "INSERT INTO tapes (name, archived_from) VALUES ('x', 'y')",
    ],
    "tapes_update": [
        "UPDATE tapes SET name = 'other' WHERE name = 'tape'",
        "UPDATE tapes SET name = 'tape@x', archived_from = 'tape' WHERE name = 'tape'",
        "UPDATE tapes SET archived_from = NULL WHERE name = 'doomed@old'",
        "UPDATE tapes SET head = 1 WHERE name = 'tape'",
        "UPDATE tapes SET head = 9 WHERE name = 'tape'",
        "UPDATE tapes SET chain = '' WHERE name = 'tape'",
    ],
    "tapes_delete": ["DELETE FROM tapes WHERE name = 'doomed@old'"],
    "tapes_truncate": ["TRUNCATE tapes, blobs, blob_pieces"],
    "blobs_insert": [f"INSERT INTO blobs VALUES ({_ARCHIVE}, 'x', 0)"],
    "blobs_update": ["UPDATE blobs SET size = 1"],
    "blobs_delete": ["WITH gone AS (DELETE FROM blob_pieces) DELETE FROM blobs"],
    "blobs_truncate": ["TRUNCATE blobs, blob_pieces"],
    "blob_pieces_insert": ["INSERT INTO blob_pieces SELECT tape, digest, 7, 'more' FROM blobs"],
    "blob_pieces_update": ["UPDATE blob_pieces SET data = 'forged'"],
    "blob_pieces_delete": ["DELETE FROM blob_pieces"],
    "blob_pieces_truncate": ["TRUNCATE blob_pieces"],
    "leases_update": [
        "UPDATE leases SET epoch = 1",
        "UPDATE leases SET tape = 'other'",
        "UPDATE leases SET epoch = epoch",
    ],
    "leases_delete": ["DELETE FROM leases"],
    "leases_truncate": ["TRUNCATE leases"],
}
"""What each trigger refuses."""
OTHERS = {
    "entries_truncate": ["erased_truncate"],
    "tapes_truncate": ["blobs_truncate", "blob_pieces_truncate"],
    "blobs_truncate": ["blob_pieces_truncate"],
    "blobs_delete": ["blob_pieces_delete"],
}
"""Further triggers that refuse the same, since a table is never emptied alone."""


@pytest.fixture(scope="module")
def filled(postgres_server: PostgresServer) -> Iterator[str]:
    """A database with a live tape of three entries and a blob, an erased archive and the fact of the erasure."""

    async def fill(address: str) -> None:
        store = await open_store(address, salt=CountingSalt(), now=SteppingClock())
        await store.append([batch(*[note(text, key=f"k{text}") for text in "123"])])
        await store.put_blob("tape", b"a blob")
        await store.append([batch(note("a", key="x"), note("b"), tape="doomed")])
        await store.reset("doomed", ResetBatch("doomed@old", erase=True), [event("tape/erased")])
        await store.raise_epoch("tape")
        await store.raise_epoch("tape")
        await store.aclose()

    with copied_database(postgres_server) as address:
        asyncio.run(fill(address))
        yield address.partition("?")[0].rpartition("/")[2]


@pytest.fixture
def address(postgres_server: PostgresServer, filled: str) -> Iterator[str]:
    with copied_database(postgres_server, filled) as copied:
        yield copied


@pytest.fixture
def conn(address: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection of the owner with another program."""
    with psycopg.connect(address, autocommit=True) as opened:
        opened.execute("SET search_path = bubbot")
        yield opened


def as_superuser(address: str) -> psycopg.Connection[Any]:
    conn = psycopg.connect(address.replace("//owner@", f"//{SUPERUSER}@"), autocommit=True)
    conn.execute("SET search_path = bubbot")
    return conn


def rows(conn: psycopg.Connection[Any]) -> dict[str, Any]:
    return {table: conn.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in TABLES}


def attempt(conn: psycopg.Connection[Any], sql: str) -> str:
    try:
        conn.execute(sql)
    except psycopg.Error as error:
        return str(error)
    return "done"


def test_every_trigger_has_its_attacks() -> None:
    assert ATTACKS.keys() == expected_triggers().keys()


@pytest.mark.law("T1", "T2", "T17")
def test_the_owner_is_refused_every_change(conn: psycopg.Connection[Any]) -> None:
    before = rows(conn)
    for trigger, attacks in ATTACKS.items():
        for attack in attacks:
            answer = attempt(conn, attack)
            assert answer.startswith(("append-only:", "leases:")), f"{trigger}: {attack}: {answer}"
    assert rows(conn) == before


@pytest.mark.law("T1")
@pytest.mark.parametrize("trigger", ATTACKS)
def test_without_one_trigger_what_it_refuses_is_done_and_everybody_is_told(
    address: str, conn: psycopg.Connection[Any], trigger: str
) -> None:
    """So each trigger is needed, each is tested, and a broken one lets nobody write."""
    assert wrong_guards(conn) == ()
    for name in [trigger, *OTHERS.get(trigger, [])]:
        conn.execute(f"ALTER TABLE {expected_triggers()[name][0]} DISABLE TRIGGER {name}")
    assert trigger in wrong_guards(conn)
    for attack in ATTACKS[trigger]:
        conn.execute("BEGIN")
        answer = attempt(conn, attack)
        conn.execute("ROLLBACK")
        if answer == "done":
            break
    assert answer == "done", f"{trigger} refuses nothing that something else would not: {answer}"
    with pytest.raises(TapeCorrupt, match=f"{trigger}.* missing or changed"):
        asyncio.run(open_store(address, salt=CountingSalt(), now=SteppingClock()))
    assert trigger in restore_guards(conn)
    assert wrong_guards(conn) == ()


@pytest.mark.law("T1")
def test_a_changed_function_is_no_guard(address: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    assert wrong_guards(conn) == ("refuse()",)
    with pytest.raises(TapeCorrupt, match=r"refuse\(\) missing or changed"):
        asyncio.run(open_store(address, salt=CountingSalt(), now=SteppingClock()))
    assert restore_guards(conn) == ("refuse()",)
    assert attempt(conn, "DELETE FROM entries").startswith("append-only")


@pytest.mark.law("T1")
@pytest.mark.parametrize("table", TABLES)
def test_the_role_of_the_bot_has_no_right_to_change_history(conn: psycopg.Connection[Any], table: str) -> None:
    conn.execute(f"SET ROLE {APP_ROLE}")
    refused = [
        f"UPDATE {table} SET {'epoch = 9' if table == 'leases' else 'tape = tape'}",
        f"DELETE FROM {table}",
        f"TRUNCATE {table}",
    ]
    for sql in refused[table == "leases" :]:
        assert "permission denied" in attempt(conn, sql), sql
    for sql in (
        "INSERT INTO deployment VALUES ('a', 'b')",
        "UPDATE migrations SET version = 9",
        "DROP TABLE forks",
        "CREATE TABLE bubbot.x ()",
    ):
        assert "permission denied" in attempt(conn, sql) or "must be owner" in attempt(conn, sql), sql


@pytest.mark.law("T1")
def test_the_functions_of_the_owner_do_nothing_that_the_triggers_refuse(conn: psycopg.Connection[Any]) -> None:
    conn.execute(f"SET ROLE {APP_ROLE}")
    before = rows(conn)
    (live,), (fact,) = (
        conn.execute(f"SELECT {_LIVE}").fetchall()[0],
        conn.execute("SELECT max(seq) FROM entries").fetchall()[0],
    )
    for sql in (
        f"SELECT erase({fact}, ARRAY[{live}], ARRAY[2]::bigint[])",
        f"SELECT erase((SELECT min(seq) FROM entries), ARRAY[{live}], ARRAY[3]::bigint[])",
        f"SELECT rename({live}, 'x', 'tape')",
        "SELECT delete_blobs('tape', (SELECT array_agg(digest) FROM blobs))",
    ):
        assert attempt(conn, sql).startswith("append-only"), sql
    assert rows(conn) == before


@pytest.mark.law("T1")
def test_session_replication_role_opens_no_way_around(address: str) -> None:
    with as_superuser(address) as conn:
        conn.execute("SET session_replication_role = replica")
        assert attempt(conn, "DELETE FROM entries").startswith("append-only")
        assert attempt(conn, "UPDATE entries SET payload = '{}'").startswith("append-only")


CHANGES = {
    "altered": [
        f'UPDATE entries SET payload = \'{{"content": "forged", "role": "user"}}\' WHERE tape = {_LIVE} AND id = 2',
        f"UPDATE entries SET date = '2020-01-01' WHERE tape = {_LIVE} AND id = 2",
        f"UPDATE entries SET payload = NULL, meta = NULL, salt = NULL WHERE tape = {_LIVE} AND id = 2",
        f"UPDATE entries SET kind = 'event' WHERE tape = {_LIVE} AND id = 3",
        "UPDATE blob_pieces SET data = 'forged'",
        "UPDATE tapes SET name = 'other' WHERE name = 'tape'",
        "UPDATE tapes SET chain = '\\x00' WHERE name = 'tape'",
    ],
    "missing": [
        f"DELETE FROM entries WHERE tape = {_LIVE} AND id = 2",
        f"DELETE FROM entries WHERE tape = {_LIVE} AND id = 3",
        f"DELETE FROM entries WHERE tape = {_LIVE}",
        "DELETE FROM migrations",
    ],
}


@pytest.mark.law("T16")
@pytest.mark.parametrize(("problem", "sql"), [(problem, sql) for problem, each in CHANGES.items() for sql in each])
async def test_what_a_superuser_changed_is_found(address: str, problem: str, sql: str) -> None:
    store = await open_store(address, salt=CountingSalt(), now=SteppingClock())
    try:
        audit = await store.audit()
        assert {finding.problem for finding in audit.findings} == {"erased"}
        with as_superuser(address) as conn:
            for table in (*TABLES, "migrations"):
                conn.execute(f"ALTER TABLE {table} DISABLE TRIGGER ALL")
            conn.execute(sql)
            for table in (*TABLES, "migrations"):
                conn.execute(f"ALTER TABLE {table} ENABLE TRIGGER ALL")
        audit = await store.audit()
        assert problem in {finding.problem for finding in audit.findings}
        assert audit.triggers, "the triggers do not fire for replicas any more"
    finally:
        await store.aclose()


async def test_a_store_of_the_bots_role_alone_writes_and_one_without_rights_says_what_to_do(address: str) -> None:
    with as_superuser(address) as conn:
        conn.execute("DROP ROLE IF EXISTS plain")
        conn.execute("CREATE ROLE plain LOGIN")
    plain = address.replace("//owner@", "//plain@")
    try:
        with pytest.raises(Exception, match=rf"GRANT {APP_ROLE} TO"):
            await open_store(plain, salt=CountingSalt(), now=SteppingClock())
        with as_superuser(address) as conn:
            conn.execute(f"GRANT {APP_ROLE} TO plain")
        store = await open_store(plain, salt=CountingSalt(), now=SteppingClock())
        await store.append([notes("4")])
        assert await texts(store) == ["1", "2", "3", "4"]
        await store.aclose()
    finally:
        with as_superuser(address) as conn:
            conn.execute("DROP ROLE plain")


def test_the_schema_says_its_version(conn: psycopg.Connection[Any]) -> None:
    assert conn.execute("SELECT version FROM migrations").fetchall() == [
        (number,) for number in range(1, len(MIGRATIONS) + 1)
    ]
