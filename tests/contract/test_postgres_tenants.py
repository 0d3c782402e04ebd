"""Tenants of one server: a bot that forgets every condition sees nothing of another one, and the server lets it write nothing there."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from bubbot.errors import ConfigError, StoreUnavailable, TapeCorrupt
from bubbot.stores.postgres import connections
from bubbot.stores.postgres.policies import ENTER_SCHEMA
from bubbot.stores.postgres.schema import restore_guards, wrong_guards
from bubbot.stores.postgres.store import PostgresStore, open_store
from bubbot.stores.postgres.tenants import add_tenant, enter_tenant
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import event
from bubbot.tape.query import IdRanges, OpeningAnchor, Ranked, TapeQuery
from bubbot.tape.store import ForkRecord, ResetBatch
from tests.doubles import CountingSalt, SteppingClock
from tests.postgres_server import SUPERUSER, PostgresServer, copied_database
from tests.tapes import batch, note, notes, texts

TABLES = (
    "migrations", "deployment", "tapes", "entries", "erased", "blobs", "blob_pieces", "forks", "fork_batches", "entry_words",
    "leases", "writers", "workers", "requests",
)  # fmt: skip
CANARY = "parsnip"
"""A word that tenant B alone has."""
_WORD = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\$\$.*?\$\$|[A-Za-z_]\w*|\S|\s+", re.DOTALL)
_ENDS = {"GROUP", "ORDER", "LIMIT", "FOR", "RETURNING", "UNION", "ON", "HAVING", "WINDOW", "WHERE"}
"""Words that end a condition at its own depth. `ON` is that of `ON CONFLICT`."""


def drop_conditions(statement: str) -> str:
    """Let each WHERE hold for every row. The condition stays in the text, for the values that it takes."""
    words = _WORD.findall(statement)
    parts: list[str] = []
    open_conditions: list[int] = []
    depth = 0
    for word in words:
        while open_conditions and open_conditions[-1] == depth and (word == ")" or word.upper() in _ENDS):
            open_conditions.pop()
            parts.append(") OR true ")
        depth += {"(": 1, ")": -1}.get(word, 0)
        parts.append(word)
        if word.upper() == "WHERE":
            open_conditions.append(depth)
            parts.append(" (")
    return "".join(parts) + ") OR true" * len(open_conditions)


def test_conditions_are_dropped() -> None:
    assert (
        drop_conditions("SELECT a FROM b WHERE c = %s ORDER BY d")
        == "SELECT a FROM b WHERE ( c = %s ) OR true ORDER BY d"
    )
    inner = "SELECT (SELECT x FROM y WHERE z = 1) FROM b WHERE c IN (SELECT d FROM e WHERE f) LIMIT 1"
    assert drop_conditions(inner) == (
        "SELECT (SELECT x FROM y WHERE ( z = 1) OR true ) FROM b WHERE ( c IN (SELECT d FROM e WHERE ( f) OR true ) ) OR true LIMIT 1"
    )


class Statements:
    """What went over the connections of a test since it began to forget.

    Attributes:
        is_forgetful: statements lose their conditions.
        forgets_schema: the one that finds the schema of a connection does, too.
        count: of the statements that lost one.
        seen: every text that came back.
    """

    def __init__(self) -> None:
        self.is_forgetful = self.forgets_schema = False
        self.count = 0
        self.seen: list[str] = []

    def rewrite(self, statement: Any, context: Any) -> Any:
        if not self.is_forgetful or (ENTER_SCHEMA in str(statement) and not self.forgets_schema):
            return statement
        text = statement if isinstance(statement, str) else statement.as_string(context)
        forgetful = drop_conditions(text)
        self.count += forgetful != text
        return forgetful


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """All statements of all connections pass here, and all texts that the server answers."""
    passed = Statements()
    for kind in (psycopg.Cursor, psycopg.ServerCursor, psycopg.AsyncCursor, psycopg.AsyncServerCursor):

        def run(self: Any, query: Any, *args: Any, _execute: Any = kind.execute, **more: Any) -> Any:
            return _execute(self, passed.rewrite(query, self), *args, **more)

        monkeypatch.setattr(kind, "execute", run)
    load = connections._TextLoader.load

    def load_and_see(self: Any, data: Any) -> str:
        text = load(self, data)
        if passed.is_forgetful:
            passed.seen.append(text)
        return text

    monkeypatch.setattr(connections._TextLoader, "load", load_and_see)
    return passed


def tenant_names() -> tuple[str, str]:
    """Return names that no other test of the server has: its roles are shared."""
    return f"a{os.getpid()}", f"b{os.getpid()}"


A, B = tenant_names()


@pytest.fixture
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """The address, for the owner, of a database with the tenants A and B."""
    with copied_database(postgres_server) as address:
        add_tenant(address, A, now="")
        add_tenant(address, B, now="")
        yield address
        with superuser(address) as conn:
            for tenant in (A, B):
                conn.execute(f"DROP OWNED BY bubbot_{tenant}")
                conn.execute(f"DROP ROLE bubbot_{tenant}")


def superuser(address: str) -> psycopg.Connection[Any]:
    return psycopg.connect(address.replace("//owner@", f"//{SUPERUSER}@"), autocommit=True)


def address_of(tenant: str, database: str) -> str:
    return database.replace("//owner@", f"//bubbot_{tenant}@")


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[PostgresStore]:
    store = await open_store(address, salt=CountingSalt(), now=SteppingClock())
    try:
        yield store
    finally:
        await store.aclose()


async def fill(address: str, word: str) -> None:
    """Write something into every table."""
    async with opened(address) as store:
        await store.workspace(f"/home/{word}")
        await store.append([batch(*[note(f"{word} {number}", key=f"k{number}") for number in range(3)])])
        await store.put_blob("tape", word.encode())
        await store.append([batch(note(f"{word} x"), tape="doomed")])
        await store.reset("doomed", ResetBatch("doomed@old", erase=True), [event("tape/erased")])
        await store.raise_epoch("tape")
        await store.open_fork(ForkRecord("f" * 32, "tape", 3, (batch(note(f"{word} staged")),), None, "s:1", 1))


def rows_of(tenant: str, database: str) -> dict[str, list[Any]]:
    """Return every row of a tenant, but those of writers that come and go."""
    with superuser(database) as conn:
        return {
            table: conn.execute(f"SELECT * FROM bubbot_{tenant}.{table} ORDER BY 1, 2").fetchall()
            for table in TABLES
            if table != "writers"
        }


async def attempt(work: Any) -> str:
    try:
        async with asyncio.timeout(60):
            return repr(await work)
    except Exception as error:  # noqa: BLE001 - answers that make no sense break assertions, too
        return f"{type(error).__name__}: {error}"


@pytest.mark.law("T1", "T9")
async def test_a_tenant_is_a_store_like_any_other(database: str) -> None:
    await fill(address_of(A, database), "turnip")
    async with opened(address_of(A, database)) as store:
        assert await texts(store) == ["turnip 0", "turnip 1", "turnip 2"]
        found = await store.fetch([TapeQuery("tape", text="turnip 2"), TapeQuery("tape", part=Ranked("turnip"))])
        assert [len(each) for each in found] == [1, 3]
        audit = await store.audit()
        assert {finding.problem for finding in audit.findings} == {"erased"}
        assert (audit.triggers, audit.indexes) == ((), ())
    with superuser(database) as conn:
        enter_tenant(conn, A)
        assert {
            table
            for (table,) in conn.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
            )
        } == set(TABLES)
        plan = conn.execute(
            f"SET enable_seqscan = off; SET ROLE bubbot_{A}; EXPLAIN SELECT id FROM entry_words WHERE words @@ 'x'::tsquery"
        )
        while plan.nextset():
            pass
        assert "entry_words_words" in str(plan.fetchall())


def forgetful_calls(store: PostgresStore) -> list[Any]:
    """Everything that a store can be asked, about names that both tenants have."""
    erased = [("tape", (2,))]
    return [
        store.tapes(),
        store.head("tape"),
        store.fetch([TapeQuery("tape")]),
        store.fetch([TapeQuery("other")]),
        store.fetch([TapeQuery("tape", IdRanges(((1, 2),)), newest=True, limit=5)]),
        store.fetch([TapeQuery("tape", OpeningAnchor())]),
        store.fetch([TapeQuery("tape", text="turnip")]),
        store.fetch([TapeQuery("tape", text=CANARY)]),
        store.fetch([TapeQuery("tape", part=Ranked(CANARY))]),
        store.fetch([TapeQuery("tape", kinds=("event",), names=("x",))]),
        store.get_blob("tape", blob_digest(CANARY.encode())),
        store.get_blob("tape", blob_digest(b"turnip")),
        store.forks(),
        store.forks("tape"),
        store.forked_sessions(),
        store.count_entries(),
        store.newest_position(),
        store.read_after(0, 1000),
        store.workspace("/else"),
        store.audit(),
        store.audit("tape"),
        store.deployment_head(),
        store.measure_size(),
        store.find_unreferenced_blobs(),
        store.count_erasable("doomed@old"),
        store.append([notes("more")]),
        store.append([batch(note("again", key="k1"))]),
        store.open_fork(ForkRecord("e" * 32, "tape", 3, (), None, "s:1", 1)),
        store.extend_fork("f" * 32, [notes("more")]),
        store.merge_fork("f" * 32, [notes("more")]),
        store.drop_fork("f" * 32),
        store.raise_epoch("tape"),
        store.reset("tape", ResetBatch("tape@old", erase=False), [event("tape/x")]),
        store.erase([batch(event("tape/erased"))], erased),
        store.erase_archive("doomed@old", batch(event("tape/erased")), []),
        store.put_blob("tape", b"more"),
    ]


async def test_without_any_condition_a_tenant_sees_nothing_of_another_and_changes_nothing_there(
    database: str, statements: Statements
) -> None:
    await fill(address_of(A, database), "turnip")
    await fill(address_of(B, database), CANARY)
    before = rows_of(B, database)
    async with opened(address_of(A, database)) as store:
        await store.append([notes("celery", tape="other")])
        statements.is_forgetful = True
        said = [await attempt(call) for call in forgetful_calls(store)]
        statements.forgets_schema = True
        said.append(await attempt(open_store(address_of(A, database), salt=CountingSalt(), now=SteppingClock())))
        assert said[-1].startswith("StoreUnavailable"), f"a connection that finds no schema is none: {said[-1]}"
        statements.is_forgetful = False
    assert statements.count > 100
    assert "celery" in said[2], "a forgotten condition shows the other tapes of the same tenant"
    assert not [text for text in [*said, *statements.seen] if CANARY in text and "has no blob" not in text]
    assert rows_of(B, database) == before


async def test_a_tenant_that_names_another_ones_tables_and_functions_is_refused(database: str) -> None:
    await fill(address_of(B, database), CANARY)
    before = rows_of(B, database)
    with superuser(database) as conn:
        functions = conn.execute(
            "SELECT proname::text FROM pg_proc WHERE pronamespace = %s::regnamespace", (f"bubbot_{B}",)
        ).fetchall()
    doors = [
        *[f"{verb}bubbot_{B}.{table}{rest}" for table in TABLES for verb, rest in (
            ("SELECT * FROM ", ""), ("INSERT INTO ", " DEFAULT VALUES"), ("DELETE FROM ", ""), ("TRUNCATE ", ""),
            ("COPY ", " TO STDOUT"), ("DROP TABLE ", ""), ("COMMENT ON TABLE ", " IS 'x'"),
            ("ALTER TABLE ", " DISABLE ROW LEVEL SECURITY"), ("ALTER TABLE ", " NO FORCE ROW LEVEL SECURITY"),
            ("CREATE POLICY mine ON ", " USING (true)"), ("DROP POLICY tenant ON ", ""),
        )],
        *[f"SELECT bubbot_{B}.{name}()" for (name,) in functions],
        f"UPDATE bubbot_{B}.entries SET payload = NULL",
        f"SELECT * FROM bubbot_{B}.hold(ARRAY['tape'], true)",
        f"SELECT bubbot_{B}.erase(1, ARRAY[1]::bigint[], ARRAY[1]::bigint[])",
        f"SELECT bubbot_{B}.keep_label('mine')",
        f"SET ROLE bubbot_{B}",
        "SET ROLE owner",
        "SET ROLE bubbot_app",
        f"SET SESSION AUTHORIZATION bubbot_{B}",
        f"GRANT bubbot_{B} TO bubbot_{A}",
        f"ALTER ROLE bubbot_{A} BYPASSRLS",
        f"CREATE TABLE bubbot_{B}.mine ()",
        f"CREATE FUNCTION bubbot_{B}.refuse2() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        f"CREATE TRIGGER t BEFORE INSERT ON bubbot_{B}.entries EXECUTE FUNCTION bubbot_{B}.refuse()",
        f"ALTER SCHEMA bubbot_{B} OWNER TO bubbot_{A}",
        f"DROP SCHEMA bubbot_{B} CASCADE",
    ]  # fmt: skip
    with psycopg.connect(address_of(A, database), autocommit=True) as conn:
        for setting in ("", A, B):
            conn.execute("SELECT set_config('bubbot.tenant', %s, false)", (setting,))
            for door in doors:
                with pytest.raises(psycopg.Error) as refused:
                    conn.execute(door.encode())
                words = str(refused.value)
                assert re.search("permission denied|must (be|have)|no privileges|does not exist", words), (
                    f"{door}: {words}"
                )
    assert len(doors) > 140
    assert rows_of(B, database) == before


async def test_the_owner_of_all_tenants_sees_the_rows_of_the_one_that_is_set(database: str) -> None:
    await fill(address_of(B, database), CANARY)
    with psycopg.connect(database, autocommit=True) as conn:
        for setting, is_shown in (("", False), (A, False), (B, True)):
            conn.execute("SELECT set_config('bubbot.tenant', %s, false)", (setting,))
            shown = {table: bool(conn.execute(f"SELECT * FROM bubbot_{B}.{table}").fetchall()) for table in TABLES}
            of_running = ("writers", "workers", "requests")
            assert shown == {table: is_shown and table not in of_running for table in TABLES}
        conn.execute("SELECT set_config('bubbot.tenant', %s, false)", (A,))
        for table in ("writers", "leases", "deployment", "forks"):
            rows = (
                f"INSERT INTO bubbot_{B}.{table} SELECT * FROM (VALUES ('x', {'NULL' if table == 'forks' else 1})) AS x"
            )
            if table == "deployment":
                rows = f"INSERT INTO bubbot_{B}.deployment VALUES ('x', 'y')"
            if table == "forks":
                rows = f"INSERT INTO bubbot_{B}.forks VALUES ('x', DEFAULT, 'tape', 0, NULL, '', 1)"
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                conn.execute(rows)


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE entries NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE entries DISABLE ROW LEVEL SECURITY",
        "DROP POLICY tenant ON entries",
        "CREATE POLICY other ON entries USING (true)",
        "ALTER POLICY tenant ON entries USING (true)",
        "ALTER POLICY tenant ON entries WITH CHECK (true)",
        "ALTER POLICY words ON entry_words TO PUBLIC",
        "CREATE TABLE more ()",
    ],
)
async def test_a_table_whose_rows_are_not_guarded_is_written_by_nobody_until_it_is(database: str, change: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        enter_tenant(conn, A)
        assert wrong_guards(conn) == ()
        conn.execute(change.encode())
        table = {"ALTER POLICY words ON entry_words TO PUBLIC": "entry_words", "CREATE TABLE more ()": "more"}.get(
            change, "entries"
        )
        assert wrong_guards(conn) == (f"row security of {table}",)
        with pytest.raises(TapeCorrupt, match=f"row security of {table} missing or changed"):
            await open_store(address_of(A, database), salt=CountingSalt(), now=SteppingClock())
        assert restore_guards(conn) == (f"row security of {table}",)
        assert wrong_guards(conn) == ()


async def test_adding_a_tenant_again_changes_nothing_and_restores_what_is_missing(database: str) -> None:
    await fill(address_of(A, database), "turnip")
    before = rows_of(A, database)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute(f"DROP POLICY tenant ON bubbot_{A}.entries")
    address = add_tenant(database, A, now="later")
    assert (str(address.parameters["user"]), rows_of(A, database)) == (f"bubbot_{A}", before)
    async with opened(address.url) as store:
        assert await texts(store) == ["turnip 0", "turnip 1", "turnip 2"]


@pytest.mark.parametrize("name", ["", "A", "a_b", "a-b", "1a", "app", "audit", "a" * 32, "a; DROP", "ä"])
def test_a_name_that_is_none_is_refused(postgres_address: str, name: str) -> None:
    with pytest.raises(ConfigError, match="not a name for a tenant"):
        add_tenant(postgres_address, name, now="")


def test_a_role_that_may_not_make_one_or_may_pass_row_security_is_refused(database: str) -> None:
    with pytest.raises(StoreUnavailable, match="may not make roles"):
        add_tenant(address_of(A, database), f"c{os.getpid()}", now="")
    with superuser(database) as conn:
        conn.execute(f"ALTER ROLE bubbot_{B} BYPASSRLS")
    with pytest.raises(StoreUnavailable, match=f"ALTER ROLE bubbot_{B} NOSUPERUSER NOBYPASSRLS"):
        add_tenant(database, B, now="")


def test_a_tenants_role_without_its_schema_is_told_so(database: str) -> None:
    with superuser(database) as conn:
        conn.execute(f"DROP SCHEMA bubbot_{A} CASCADE")

    async def attempt_to_open() -> None:
        await open_store(address_of(A, database), salt=CountingSalt(), now=SteppingClock())

    with pytest.raises(StoreUnavailable, match="may not read the schema bubbot"):
        asyncio.run(attempt_to_open())
