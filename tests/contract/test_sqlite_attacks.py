"""Raw SQL against a database, as anybody with the file can try it: refused, or found by verify and by the doctor.

Every attack is made three times: with the triggers in place, with the triggers taken away, and with the triggers taken
away and put back, which nothing but the content can show.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bubbot.errors import TapeCorrupt
from bubbot.home import Home
from bubbot.ops.doctor.database import read_database
from bubbot.stores.sqlite.check import repair_database
from bubbot.stores.sqlite.schema import expected_triggers
from bubbot.stores.sqlite.store import open_readonly, open_store
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.service import session_tape
from bubbot.tape.store import Batch, ResetBatch
from tests.contract.test_sqlite_migration import at_version
from tests.doubles import CountingSalt, SteppingClock
from tests.e2e.inside import run
from tests.raw import raw
from tests.tapes import batch, note, whole

DATABASES = Path(__file__).parents[1] / "data" / "databases"
DATE = "2026-11-21T20:21:00.000000+00:00"
BLANK = "UPDATE entries SET payload = NULL, meta = NULL, name = NULL, opens = NULL, salt = NULL WHERE"

# Tape 1 `alice`: 1 start (position 1), 2 and 3 messages, 4 a system prompt with its blob; tape 2 `bob`: the same;
# tape 3: an archive, the content of which was erased; tape 4: `gone`, with the fact of that; tape 5: the tape of the
# home; tape 6: an archive; tape 7: `aside` anew.
ERASURE = "(SELECT max(seq) FROM entries WHERE name = 'tape/erased')"


def said(tape: str, digest: str) -> Batch:
    """A short talk: start, two messages, and a system prompt."""
    prompt = TapeEntry("system", {"digest": digest, "characters": 1})
    return batch(
        anchor("session/start"), note("a", key="k", date=DATE), event("b").with_meta({}, DATE), prompt, tape=tape
    )


async def fill(path: Path) -> None:
    """A database with everything that can be attacked."""
    store = await open_store(path, salt=CountingSalt(), now=SteppingClock())
    for name in ("alice", "bob"):
        digest = await store.put_blob(name, f"prompt of {name}".encode())
        await store.append([said(name, digest)])
    for name, erase in (("gone", True), ("aside", False)):
        await store.append([batch(note("x", date=DATE), note("y"), tape=name)])
        await store.put_blob(name, b"kept")
        fact = event("tape/erased" if erase else "tape/archived").with_meta({}, DATE)
        await store.reset(name, ResetBatch(f"{name}@1", erase=erase), [anchor("session/start"), fact])
    await store.append([batch(note("last"), tape="bob")])
    await store.aclose()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("attacked") / "bubbot.db"
    asyncio.run(fill(path))
    return path


@pytest.fixture
def home(filled: Path, tmp_path: Path) -> Path:
    """A home with a copy of it."""
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    shutil.copy(filled, made / "bubbot.db")
    return made


def audited(home: Path) -> Any:
    async def audit() -> Any:
        store = await open_readonly(home / "bubbot.db")
        try:
            return await store.audit()
        finally:
            await store.aclose()

    return asyncio.run(audit())


def doctor(home: Path) -> set[str]:
    """What the doctor calls a problem."""
    _, findings = read_database(Home(home), now=datetime(2100, 1, 1, tzinfo=UTC), deep=True)
    return {one.id for one in findings if one.level == "problem"}


ATTACKS = {
    # tapes
    "two names exchanged": "UPDATE tapes SET name = CASE name WHEN 'alice' THEN 'x' ELSE name END; "
    "UPDATE tapes SET name = 'alice' WHERE name = 'bob'; UPDATE tapes SET name = 'bob' WHERE name = 'x'",
    "a live tape renamed": "UPDATE tapes SET name = 'alicia' WHERE tape = 1",
    "a conversation that vanishes into an archive": "UPDATE tapes SET archived_from = name, name = name || '@evil' "
    "WHERE tape = 1",
    "an archive brought back": "UPDATE tapes SET name = 'asidE', archived_from = NULL WHERE tape = 6",
    "an archive renamed": "UPDATE tapes SET name = 'aside@2' WHERE tape = 6",
    "an archive said to be another's": "UPDATE tapes SET archived_from = 'alice' WHERE tape = 6",
    "two archives exchanged": "UPDATE tapes SET name = 'x' WHERE tape = 6; "
    "UPDATE tapes SET name = 'aside@1' WHERE tape = 3; UPDATE tapes SET name = 'gone@1' WHERE tape = 6",
    "a tape unlisted": "DELETE FROM tapes WHERE tape = 1",
    "a tape of another number": "UPDATE tapes SET tape = 99 WHERE tape = 1",
    "an archive that never was": "INSERT INTO tapes (name, archived_from) VALUES ('alice@0', 'alice')",
    # erased
    "another tape's entry blanked under a fact": f"INSERT INTO erased VALUES (1, 2, {ERASURE}); "
    f"{BLANK} tape = 1 AND id = 2",
    "an entry listed as erased": f"INSERT INTO erased VALUES (1, 2, {ERASURE})",
    "an archive's last entry blanked": f"INSERT INTO erased VALUES (3, 3, {ERASURE}); {BLANK} tape = 3 AND id = 3",
    "an entry blanked under no erasure": f"INSERT INTO erased VALUES (1, 2, 3); {BLANK} tape = 1 AND id = 2",
    "an erasure of another fact": "UPDATE erased SET fact = 1",
    "an erasure forgotten": "DELETE FROM erased WHERE id = 1",
    "an erasure forgotten and filled again": "DELETE FROM erased WHERE id = 1; "
    "UPDATE entries SET payload = '{}', meta = '{}', salt = x'00' WHERE tape = 3 AND id = 1",
    "an erasure of what never was": f"INSERT INTO erased VALUES (1, 99, {ERASURE})",
    "an erasure of no tape": f"INSERT INTO erased VALUES (99, 1, {ERASURE})",
    "an erased entry filled again": "UPDATE entries SET payload = '{}', meta = '{}', salt = x'00' WHERE tape = 3 AND id = 1",
    "the fact of an erasure blanked": f"INSERT INTO erased VALUES (4, 2, {ERASURE}); {BLANK} tape = 4 AND id = 2",
    # blobs
    "a blob changed": "UPDATE blobs SET data = x'00' WHERE tape = 1",
    "a blob replaced": "INSERT OR REPLACE INTO blobs SELECT tape, digest, x'00' FROM blobs WHERE tape = 1",
    "a blob upserted": "INSERT INTO blobs SELECT tape, digest, x'00' FROM blobs WHERE tape = 1 "
    "ON CONFLICT DO UPDATE SET data = x'00'",
    "a blob as text": "UPDATE blobs SET data = 'prompt of alice' WHERE tape = 1",
    "a blob under another name": "UPDATE blobs SET digest = hex(zeroblob(32)) WHERE tape = 1",
    "a blob moved to another tape": "UPDATE blobs SET tape = 2 WHERE tape = 1",
    "a cited blob deleted": "DELETE FROM blobs WHERE tape = 1",
    "all blobs deleted": "DELETE FROM blobs",
    "a forged blob": "INSERT INTO blobs VALUES (1, hex(zeroblob(32)), x'00')",
    "a blob of no tape": "INSERT INTO blobs VALUES (99, hex(zeroblob(32)), x'00')",
    # types, which SQLite has by value
    "type: a name as bytes": "UPDATE tapes SET name = CAST(name AS BLOB) WHERE tape = 1",
    "type: half a character in a name": "UPDATE tapes SET name = CAST(x'616cff' AS TEXT) WHERE tape = 1",
    "type: id as text": "UPDATE entries SET id = 'x' WHERE tape = 1 AND id = 4",
    "type: id of a fact as text": f"UPDATE entries SET id = 'x' WHERE seq = {ERASURE}",
    "type: kind as bytes": "UPDATE entries SET kind = CAST(kind AS BLOB) WHERE seq = 2",
    "type: payload as bytes": "UPDATE entries SET payload = CAST(payload AS BLOB) WHERE seq = 2",
    "type: digest as text": "UPDATE entries SET digest = 'x' WHERE seq = 2",
    # the database itself
    "a migration forgotten": "DELETE FROM migrations WHERE version = 2",
    "all migrations forgotten": "DELETE FROM migrations",
    "a migration that never was": "INSERT INTO migrations VALUES (99, '2026-01-01')",
    # entries: every column
    "seq: a gap": "UPDATE entries SET seq = 900 WHERE seq = (SELECT max(seq) FROM entries)",
    "seq: out of order": "UPDATE entries SET seq = -2 WHERE seq = 2; UPDATE entries SET seq = 2 WHERE seq = 3; "
    "UPDATE entries SET seq = 3 WHERE seq = -2",
    "tape": "UPDATE entries SET tape = 7 WHERE tape = 1 AND id = 4",
    "tape: all of two exchanged": "UPDATE entries SET tape = -1 WHERE tape = 1; "
    "UPDATE entries SET tape = 1 WHERE tape = 2; UPDATE entries SET tape = 2 WHERE tape = -1",
    "tape: none": "UPDATE entries SET tape = 99 WHERE tape = 1 AND id = 4",
    "id": "UPDATE entries SET id = 9 WHERE tape = 1 AND id = 4",
    "id: two exchanged": "UPDATE entries SET id = -2 WHERE tape = 1 AND id = 2; "
    "UPDATE entries SET id = 2 WHERE tape = 1 AND id = 3; UPDATE entries SET id = 3 WHERE tape = 1 AND id = -2",
    "kind": "UPDATE entries SET kind = 'message' WHERE seq = 3",
    "key": "UPDATE entries SET key = 'j' WHERE seq = 2",
    "key: none": "UPDATE entries SET key = NULL WHERE seq = 2",
    "name of an event": "UPDATE entries SET name = 'c' WHERE seq = 3",
    "name of a message": "UPDATE entries SET name = 'c' WHERE seq = 2",
    "name: none": "UPDATE entries SET name = NULL WHERE seq = 3",
    "name of an erased entry": "UPDATE entries SET name = 'c' WHERE tape = 3 AND id = 1",
    "opens": "UPDATE entries SET opens = 1 WHERE seq = 2",
    "opens: none": "UPDATE entries SET opens = NULL WHERE seq = 1",
    "opens: two": "UPDATE entries SET opens = 2 WHERE seq = 1",
    "at": "UPDATE entries SET at = 0 WHERE seq = 2",
    "at: none": "UPDATE entries SET at = NULL WHERE seq = 2",
    "at: where there is no date": "UPDATE entries SET at = 0 WHERE seq = 1",
    "at of an erased entry": "UPDATE entries SET at = 0 WHERE tape = 3 AND id = 1",
    "date": "UPDATE entries SET date = '2026-01-01', at = 1767225600000000 WHERE seq = 2",
    "payload": "UPDATE entries SET payload = '{}' WHERE seq = 2",
    "payload: none": "UPDATE entries SET payload = NULL WHERE seq = 2",
    "meta": "UPDATE entries SET meta = '{\"by\":1}' WHERE seq = 2",
    "salt": "UPDATE entries SET salt = zeroblob(16) WHERE seq = 2",
    "digest": "UPDATE entries SET digest = zeroblob(32) WHERE seq = 2",
    "chain": "UPDATE entries SET chain = zeroblob(32) WHERE seq = 2",
    "chain of the last": "UPDATE entries SET chain = zeroblob(32) WHERE tape = 1 AND id = 4",
    "an entry deleted": "DELETE FROM entries WHERE seq = 2",
    "the first entry of a tape deleted": "DELETE FROM entries WHERE seq = 1",
    "the last entry of an archive deleted": "DELETE FROM entries WHERE tape = 6 AND id = 3",
    "an entry replaced": "INSERT OR REPLACE INTO entries SELECT seq, tape, id, kind, key, name, opens, at, date, "
    "'{}', meta, salt, digest, chain FROM entries WHERE seq = 2",
    "a forged entry": "INSERT INTO entries SELECT (SELECT max(seq) + 1 FROM entries), 1, 5, kind, NULL, name, opens, at, "
    "date, payload, meta, salt, digest, chain FROM entries WHERE seq = 2",
    "an entry on an archive": "INSERT INTO entries SELECT (SELECT max(seq) + 1 FROM entries), 6, 4, kind, NULL, name, "
    "opens, at, date, payload, meta, salt, digest, chain FROM entries WHERE seq = 2",
}

TRIGGERS = sorted(expected_triggers(3))


def attempt(home: Path, sql: str) -> bool:
    """Run the statements, all or none of them; return true if they were accepted."""
    with raw(home / "bubbot.db") as conn:
        conn.execute("BEGIN")
        try:
            for statement in sql.split("; "):
                conn.execute(statement)
        except sqlite3.Error:
            conn.execute("ROLLBACK")
            return False
        conn.execute("COMMIT")
        return True


def without_triggers(home: Path) -> list[str]:
    """Drop every trigger; return what makes them."""
    with raw(home / "bubbot.db") as conn:
        found = conn.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in found:
            conn.execute(f"DROP TRIGGER {name}")
    return [sql for _, sql in found]


def again(home: Path, triggers: list[str]) -> None:
    with raw(home / "bubbot.db") as conn:
        for sql in triggers:
            conn.execute(sql)


def test_the_database_is_whole_before_any_attack(home: Path) -> None:
    audit = audited(home)
    assert (audit.damage, audit.triggers, doctor(home)) == ((), (), set())
    assert {(one.tape, one.id) for one in audit.findings} == {("gone@1", 1), ("gone@1", 2)}


@pytest.mark.law("T1", "T16", "T17")
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_by_the_triggers_or_found(home: Path, attack: str) -> None:
    if attempt(home, ATTACKS[attack]):
        assert audited(home).damage
        assert doctor(home) == {"database.altered"}
    else:
        assert (audited(home).damage, doctor(home)) == ((), set())


REFUSED = {attack for attack in ATTACKS if "forged" not in attack and "migration" not in attack}
"""What SQL alone can refuse: it cannot compute a digest, and no trigger protects the list of migrations."""


@pytest.mark.law("T1", "T16", "T17")
@pytest.mark.parametrize("attack", sorted(REFUSED))
def test_what_sql_can_refuse_is_refused(home: Path, attack: str) -> None:
    assert not attempt(home, ATTACKS[attack])


@pytest.mark.sampled(5)
@pytest.mark.law("T1", "T16", "T17")
@pytest.mark.parametrize("restored", [True, False], ids=["triggers put back", "triggers gone"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_without_the_triggers_is_found_by_verify_and_doctor(home: Path, attack: str, restored: bool) -> None:
    triggers = without_triggers(home)
    if not attempt(home, ATTACKS[attack]):
        pytest.skip("a constraint of the table refuses it")
    if restored:
        again(home, triggers)
    audit = audited(home)
    assert audit.damage
    assert bool(audit.triggers) is not restored
    assert doctor(home) == {"database.altered"} | (set() if restored else {"database.triggers"})


@pytest.mark.law("T16")
def test_exchanged_names_are_told_as_such(home: Path) -> None:
    without_triggers(home)
    assert attempt(home, ATTACKS["two names exchanged"])
    assert [(one.tape, one.problem, one.detail) for one in audited(home).damage if one.id == 0] == [
        ("bob", "renamed", "it began under the name alice"),
        ("alice", "renamed", "it began under the name bob"),
    ]


@pytest.mark.law("T16")
def test_the_label_in_the_names_of_sessions_cannot_be_lost_or_changed_unseen(home: Path) -> None:
    """Without it the next start would call every conversation by another name, and find none."""
    database = home / "bubbot.db"

    async def talk() -> None:
        store = await open_store(database, salt=CountingSalt(), now=SteppingClock())
        await store.append([batch(note("hello"), tape=session_tape(await store.workspace("/here"), "s"))])
        await store.aclose()

    asyncio.run(talk())
    assert audited(home).damage == ()
    with raw(database) as conn:
        conn.execute("UPDATE deployment SET value = '/there'")
    assert [one.problem for one in audited(home).damage] == ["altered"]
    assert "'/there'" in audited(home).damage[0].detail
    with raw(database) as conn:
        conn.execute("DELETE FROM deployment")
    assert [one.problem for one in audited(home).damage] == ["missing"]
    assert doctor(home) == {"database.altered"}
    verified = run(home, "tape", "verify")
    assert (verified.returncode, b"the label in the names of its sessions' tapes is gone" in verified.stdout) == (
        5,
        True,
    )


def weakened(name: str) -> list[str]:
    return [
        f"DROP TRIGGER {name}",
        f"DROP TRIGGER {name}; CREATE TRIGGER {name} BEFORE DELETE ON tapes BEGIN SELECT 1; END",
    ]


@pytest.mark.law("T1")
@pytest.mark.parametrize("way", [0, 1], ids=["dropped", "weakened"])
@pytest.mark.parametrize("name", TRIGGERS)
def test_a_trigger_that_is_not_as_it_should_be_is_found_stops_writing_and_is_restored_by_a_command(
    home: Path, name: str, way: int
) -> None:
    with raw(home / "bubbot.db") as conn:
        conn.executescript(weakened(name)[way])
    assert (audited(home).triggers, doctor(home)) == ((name,), {"database.triggers"})
    with pytest.raises(TapeCorrupt, match=f"{name} missing or changed.*bubbot tape repair"):
        asyncio.run(open_store(home / "bubbot.db", salt=CountingSalt(), now=SteppingClock()))
    repaired(home)


def repaired(home: Path) -> None:
    assert repair_database(home / "bubbot.db", DATE, CountingSalt()).triggers
    assert (audited(home).triggers, audited(home).damage, doctor(home)) == ((), (), set())

    async def facts() -> list[str | None]:
        store = await open_store(home / "bubbot.db", salt=CountingSalt(), now=SteppingClock())
        try:
            return [entry.name for entry in await whole(store, "bubbot/home")]
        finally:
            await store.aclose()

    assert asyncio.run(facts())[-1] == "database/protected"


@pytest.mark.law("T1")
def test_a_trigger_of_somebody_else_is_found_and_removed(home: Path) -> None:
    with raw(home / "bubbot.db") as conn:
        conn.execute('CREATE TRIGGER "their ""own" AFTER INSERT ON entries BEGIN DELETE FROM forks; END')
    assert audited(home).triggers == ('their "own',)
    repaired(home)


@pytest.mark.law("T1")
def test_a_database_without_its_triggers_is_not_written_to_and_the_command_in_the_sentence_helps(home: Path) -> None:
    with raw(home / "bubbot.db") as conn:
        conn.execute("DROP TRIGGER entries_delete")
    refused = run(home, "ask", "hello")
    assert refused.returncode == 5
    assert b"entries_delete missing or changed" in refused.stderr
    verified = run(home, "tape", "verify")
    assert verified.returncode == 5
    assert b"the trigger entries_delete is missing or changed; bubbot tape repair restores it" in verified.stdout
    assert run(home, "tape", "repair").stdout.startswith(b"Restored: entries_delete.")
    assert b"nothing was changed" in run(home, "tape", "repair").stdout
    assert run(home, "tape", "verify").returncode == 0
    assert run(home, "ask", "hello").returncode == 0


@pytest.mark.law("T16", "T17")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "sql",
    [
        (
            "UPDATE tapes SET name = 'x' WHERE name = {0}; UPDATE tapes SET name = {0} WHERE name = {1}; "
            "UPDATE tapes SET name = {1} WHERE name = 'x'"
        ),
        "UPDATE tapes SET archived_from = name, name = name || '@evil' WHERE name = {0}",
        "UPDATE tapes SET archived_from = 'x' WHERE archived_from IS NOT NULL",
        (
            "INSERT INTO erased SELECT tape, 2, (SELECT min(fact) FROM erased) FROM tapes WHERE name = {0}; "
            f"{BLANK} id = 2 AND tape = (SELECT tape FROM tapes WHERE name = {{0}})"
        ),
        "DELETE FROM blobs",
        "PRAGMA user_version = 2; UPDATE tapes SET name = name || 'x' WHERE name = {0}",
    ],
)
def test_a_database_of_before_is_protected_from_its_upgrade_on(tmp_path: Path, version: int, sql: str) -> None:
    shutil.copy(DATABASES / f"version-{version}.db", tmp_path / "bubbot.db")
    assert audited(tmp_path).damage == ()
    asyncio.run(_open(tmp_path))
    assert (audited(tmp_path).damage, doctor(tmp_path)) == ((), set())
    with raw(tmp_path / "bubbot.db") as conn:
        names = [f"'{name}'" for (name,) in conn.execute("SELECT name FROM tapes WHERE archived_from IS NULL LIMIT 2")]
    triggers = without_triggers(tmp_path)
    assert attempt(tmp_path, sql.format(*names))
    again(tmp_path, triggers)
    assert audited(tmp_path).damage


async def _open(home: Path) -> None:
    await (await open_store(home / "bubbot.db", salt=CountingSalt(), now=SteppingClock())).aclose()


@pytest.mark.law("T16")
@pytest.mark.parametrize("version", [1, 2])
def test_a_head_kept_before_the_upgrade_is_recognised_as_of_the_older_form(tmp_path: Path, version: int) -> None:
    shutil.copy(DATABASES / f"version-{version}.db", tmp_path / "bubbot.db")
    kept = audited(tmp_path).head
    asyncio.run(_open(tmp_path))
    done = run(tmp_path, "tape", "verify", "--head", kept)
    assert done.returncode == 0
    assert b"It is of the older form" in done.stdout
    now = run(tmp_path, "tape", "verify", "--head", audited(tmp_path).head)
    assert now.returncode == 0
    assert b"older form" not in now.stdout
    assert run(tmp_path, "tape", "verify", "--head", f"{kept[:-1]}{'0' if kept[-1] != '0' else '1'}").returncode == 5


def test_an_empty_database_of_before_needs_no_facts(tmp_path: Path) -> None:
    at_version(tmp_path / "bubbot.db", 2)
    asyncio.run(_open(tmp_path))
    assert (audited(tmp_path).entries, audited(tmp_path).damage) == (0, ())
