"""Auditors on a server: views show them what the boundary would, and the server refuses their every write."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bubbot.app.auditors import add_server_auditor, list_shared_tapes
from bubbot.app.installed import load_features
from bubbot.app.panels import load_panels, open_boundary
from bubbot.errors import ConfigError, StoreUnavailable
from bubbot.features.access.facts import AccessRevoked, Audit
from bubbot.features.access.service import ACCESS_TAPE
from bubbot.home import Home
from bubbot.settings.loader import Settings
from bubbot.settings.sections import StoreSettings
from bubbot.stores.postgres.store import PostgresStore, open_readonly, open_store
from bubbot.stores.postgres.tenants import add_tenant
from bubbot.stores.sqlite.store import open_readonly as open_home
from bubbot.tape.boundary import Viewer
from bubbot.tape.entry import event
from bubbot.tape.fact import Fact
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import Batch, TapeStore
from tests.doubles import CountingSalt, SteppingClock
from tests.isolation.oracle import canaries
from tests.isolation.world import SETTINGS
from tests.postgres_server import SUPERUSER, PostgresServer, copied_database
from tests.trace.home import AUDITED, AUDITOR, OTHER, PROMPT_WORDS, apart, lived, tape_of, words_about
from tests.trace.serving import served

VIEWS = (
    "tapes", "entries", "erased", "blobs", "blob_pieces", "entry_words", "forks", "fork_batches", "deployment", "migrations",
)  # fmt: skip
ROLE = "bubbot_audit"


@dataclass(frozen=True)
class AuditedHome:
    """A home in which much has happened, and the same tapes on a server.

    Attributes:
        path: of the home.
        url: of the database, for its owner.
        audit_url: for auditors.
        words: the canaries that the auditor may see.
    """

    path: Path
    url: str
    audit_url: str
    words: set[str]

    @property
    def settings(self) -> Settings:
        store = StoreSettings.model_validate({"url": self.url, "audit_url": self.audit_url})
        return SETTINGS.model_copy(update={"store": store})


async def copy_home(path: Path, url: str) -> None:
    """Write the tapes of a home to a server, in their order."""
    home = await open_home(Home(path).database)
    server = await open_store(url, salt=CountingSalt(), now=SteppingClock())
    try:
        await server.workspace(str(path.resolve()))  # noqa: ASYNC240 - a folder of the test
        for found in await home.read_after(0, 1_000_000):
            await server.append([Batch(found.tape, (found.entry,))])
        for tape, digest in await asyncio.to_thread(blobs_of, Home(path).database):
            await server.put_blob(tape, await home.get_blob(tape, digest))
        for fork in await home.forks():
            await server.open_fork(fork, expect_head=False)
    finally:
        await home.aclose()
        await server.aclose()


def blobs_of(database: Path) -> list[tuple[str, str]]:
    import sqlite3

    with sqlite3.connect(database) as conn:
        return conn.execute("SELECT name, digest FROM blobs JOIN tapes USING (tape)").fetchall()


@pytest.fixture(scope="module")
def audited(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuditedHome]:
    path = tmp_path_factory.mktemp("audited")
    lived(path)
    with copied_database(postgres_server) as url:
        apart(copy_home(path, url))
        settings = Settings(store=StoreSettings.model_validate({"url": url}))
        audit_url = add_server_auditor(settings, "")
        yield AuditedHome(path, url, audit_url, apart(words_about(path, AUDITED.session)))
        with superuser(url) as conn:
            conn.execute(f"DROP OWNED BY {ROLE}")
            conn.execute(f"DROP ROLE {ROLE}")


def superuser(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url.replace("//owner@", f"//{SUPERUSER}@"), autocommit=True)


@asynccontextmanager
async def reading(url: str, auditor: str = "") -> AsyncIterator[PostgresStore]:
    store = await open_readonly(url, auditor=auditor)
    try:
        yield store
    finally:
        await store.aclose()


async def read_all(store: TapeStore, names: list[str], viewer: Viewer, workspace: str) -> dict[str, Any]:
    """Read every tape that a viewer may see, through the boundary."""
    installed = load_features()
    reader = open_boundary(store, viewer, workspace, load_panels(SETTINGS, installed), installed)
    found: dict[str, Any] = {
        name: (await reader.fetch([TapeQuery(name)]))[0] for name in names if reader.may_read(name)
    }
    return {**found, "tapes": await reader.tapes(), "forks": await reader.forks()}


async def test_the_views_show_an_auditor_what_the_boundary_shows(audited: AuditedHome) -> None:
    viewer, workspace = Viewer(AUDITOR, frozenset((AUDITED.session,)), AUDITOR), str(audited.path.resolve())
    async with reading(audited.url) as everything, reading(audited.audit_url, AUDITOR) as views:
        names = [tape.name for tape in await everything.tapes()]
        expected = await read_all(everything, names, viewer, workspace)
        shown = await read_all(views, names, viewer, workspace)
        assert shown == expected
        shared = [name for name in expected if name.startswith("bubbot/") and expected[name]]
        assert len(shared) >= 4, f"facts of several shared tapes are about the granted session: {shared}"
        assert sum(map(len, expected.values())) > 100
        # Without the boundary: what no grant covers is not there.
        for name in names:
            whole = (await views.fetch([TapeQuery(name)]))[0]
            assert list(whole) == list(expected.get(name, ())), name
        (found,) = await views.fetch([TapeQuery(tape_of(audited.path, AUDITED.session), text=min(audited.words))])
        assert found
        assert (await views.fetch([TapeQuery(tape_of(audited.path, OTHER.session))])) == [()]


def everything_shown(audited: AuditedHome, auditor: str) -> str:
    """Return all rows of all views, as text."""
    with psycopg.connect(audited.audit_url, autocommit=True) as conn:
        conn.execute(f"SET search_path = {ROLE}")
        conn.execute("SELECT set_config('bubbot.auditor', %s, false)", (auditor,))
        rows = [conn.execute(f"SELECT * FROM {view}").fetchall() for view in VIEWS if view != "migrations"]
        pieces = conn.execute("SELECT convert_from(data, 'LATIN1') FROM blob_pieces").fetchall()
        return repr((rows, pieces))


async def grant(audited: AuditedHome, fact: Fact, *, revoked: bool = False) -> None:
    store = await open_store(audited.url, salt=CountingSalt(), now=SteppingClock())
    name = fact.EVENTS[1 if revoked else 0]
    await store.append([Batch(ACCESS_TAPE, (event(name, fact.payload()),))])
    await store.aclose()


def test_every_row_of_every_view_is_about_the_granted_session(audited: AuditedHome) -> None:
    assert audited.words
    shown = everything_shown(audited, AUDITOR)
    assert canaries(shown) == audited.words
    assert not [word for word in PROMPT_WORDS if word in shown]


@pytest.mark.parametrize("auditor", ["", "nobody", "tg:1", "tg:5", "ann%", "anna'"])
def test_another_name_is_shown_nothing(audited: AuditedHome, auditor: str) -> None:
    assert canaries(everything_shown(audited, auditor)) == set()


async def test_a_grant_and_its_end_hold_at_the_next_statement(audited: AuditedHome) -> None:
    account = {"channel": "tg", "id": "77"}
    asked = Audit(**account, session=AUDITED.session, by="terminal")
    async with reading(audited.audit_url, "tg:77") as views:
        tape = tape_of(audited.path, AUDITED.session)
        for fact, revoked, is_shown in (
            (asked, False, True),
            (asked, True, False),
            (asked, False, True),
            (AccessRevoked(**account, by="terminal"), False, False),
            (Audit(**account, session=OTHER.session, by="terminal"), False, False),
            (asked, False, True),
        ):
            await grant(audited, fact, revoked=revoked)
            assert bool((await views.fetch([TapeQuery(tape, limit=1)]))[0]) is is_shown
            assert bool(await views.head(tape)) is is_shown


def stored(url: str) -> Any:
    with superuser(url) as conn:
        tables = conn.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'bubbot'::regnamespace AND relkind = 'r'"
        )
        rights = conn.execute(
            "SELECT oid::regclass, relacl, relowner, relrowsecurity FROM pg_class ORDER BY oid"
        ).fetchall()
        return rights, {
            table: conn.execute(
                f"SELECT md5(string_agg(x::text, '' ORDER BY x::text)) FROM bubbot.{table} AS x"
            ).fetchall()
            for (table,) in tables.fetchall()
            if table != "writers"
        }


def list_doors(url: str) -> list[str]:
    """List every way to write that the server has, for every table, view, sequence and function of both schemas."""
    with superuser(url) as conn:
        relations = conn.execute(
            "SELECT oid::regclass::text, relkind, (SELECT string_agg(quote_ident(attname) || ' = ' || quote_ident(attname), ', ') "
            "FROM pg_attribute WHERE attrelid = pg_class.oid AND attnum > 0) FROM pg_class "
            f"WHERE relnamespace IN ('bubbot'::regnamespace, '{ROLE}'::regnamespace) AND relkind IN ('r', 'v', 'S')"
        ).fetchall()
        functions = conn.execute(
            "SELECT pronamespace::regnamespace || '.' || quote_ident(proname), pronargs, prorettype = 'trigger'::regtype, "
            "(SELECT string_agg('NULL::' || type::regtype, ', ') FROM unnest(proargtypes) AS type) FROM pg_proc "
            f"WHERE pronamespace IN ('bubbot'::regnamespace, '{ROLE}'::regnamespace)"
        ).fetchall()
        readable = {
            "granted_names",
            "granted_tapes",
            "partly_granted_tapes",
            "may_see",
            "is_hidden",
            "unreadable_position",
        }
    doors = []
    for name, kind, same in relations:
        if kind == "S":
            doors += [f"SELECT nextval('{name}')", f"SELECT setval('{name}', 1)", f"DROP SEQUENCE {name}"]
            continue
        doors += [
            f"INSERT INTO {name} DEFAULT VALUES", f"UPDATE {name} SET {same}", f"DELETE FROM {name}", f"TRUNCATE {name}",
            f"MERGE INTO {name} USING (SELECT 1) AS x ON true WHEN MATCHED THEN DELETE", f"COPY {name} FROM STDIN",
            f"SELECT * FROM {name} FOR UPDATE", f"ALTER TABLE {name} RENAME TO other",
            f"DROP {'VIEW' if kind == 'v' else 'TABLE'} {name}", f"GRANT ALL ON {name} TO {ROLE}", f"COMMENT ON COLUMN {name}.tape IS 'x'",
            f"CREATE TRIGGER t BEFORE INSERT ON {name} FOR EACH STATEMENT EXECUTE FUNCTION bubbot.refuse()",
            f"CREATE RULE r AS ON SELECT TO {name} DO INSTEAD NOTHING",
        ]  # fmt: skip
        if name.startswith("bubbot.") or name.endswith((".known_facts", ".shared_tapes")):
            doors.append(f"SELECT * FROM {name}")
    for name, count, is_trigger, values in functions:
        if not is_trigger and name.partition(".")[2] not in readable:
            doors.append(f"SELECT {name}({values if count else ''})")
        doors.append(f"DROP FUNCTION {name}")
    owner = "owner"
    return [
        *doors,
        *[f"SET ROLE {role}" for role in (owner, SUPERUSER, "bubbot_app", "pg_read_all_data", "pg_write_all_data")],
        *[f"SET SESSION AUTHORIZATION {role}" for role in (owner, SUPERUSER, "bubbot_app")],
        *[f"GRANT {role} TO {ROLE}" for role in (owner, "bubbot_app", "pg_write_all_data")],
        *[f"CREATE {what}" for what in (
            "TABLE mine (x int)", f"TABLE {ROLE}.mine (x int)", "TABLE bubbot.mine (x int)", "TABLE public.mine (x int)",
            "TEMP TABLE mine (x int)", "UNLOGGED TABLE public.mine (x int)", f"VIEW {ROLE}.mine AS SELECT 1", "SCHEMA mine",
            "SEQUENCE public.mine", f"SEQUENCE {ROLE}.mine", "TEMP SEQUENCE mine", "FUNCTION public.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            f"FUNCTION {ROLE}.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "TYPE public.mine AS (x int)", "DOMAIN public.mine AS int", "EXTENSION pg_trgm SCHEMA bubbot_audit", "ROLE mine", "DATABASE mine",
            "PUBLICATION mine", "EVENT TRIGGER mine ON ddl_command_start EXECUTE FUNCTION bubbot.refuse()", "LANGUAGE plpython3u",
            "SERVER mine FOREIGN DATA WRAPPER x", "TABLESPACE mine LOCATION '/tmp'",
        )],
        "SELECT 1 AS x INTO mine", "SELECT 1 AS x INTO TEMP mine", f"ALTER ROLE {ROLE} SUPERUSER", f"ALTER ROLE {ROLE} CREATEROLE",
        "ALTER ROLE owner PASSWORD 'x'", f"ALTER SCHEMA {ROLE} OWNER TO {ROLE}", f"DROP SCHEMA {ROLE} CASCADE", "DROP SCHEMA bubbot CASCADE",
        "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()", "SELECT pg_read_file('/etc/passwd')", "SELECT pg_ls_dir('/')",
        "COPY (SELECT 1) TO '/tmp/x'", "COPY (SELECT 1) TO PROGRAM 'true'", "SELECT lo_import('/etc/passwd')", "SELECT lo_create(0)",
        "SELECT lo_from_bytea(0, 'x')", "SELECT lo_creat(0)", "SET session_replication_role = replica", "SELECT pg_switch_wal()",
        "SELECT pg_terminate_backend((SELECT pid FROM pg_stat_activity WHERE usename = 'super' LIMIT 1))", "CHECKPOINT",
        "SELECT pg_create_physical_replication_slot('x')", "REASSIGN OWNED BY owner TO bubbot_audit", "REFRESH MATERIALIZED VIEW bubbot.x",
        "SECURITY LABEL ON TABLE bubbot.entries IS 'x'", "LOCK TABLE bubbot.entries", "VACUUM FULL bubbot.entries, bubbot.tapes",
        "REINDEX TABLE bubbot.entries", "CLUSTER bubbot.entries USING entries_id",
    ]  # fmt: skip


def test_the_server_refuses_an_auditors_every_write(audited: AuditedHome) -> None:
    with superuser(audited.url) as conn:  # what only an administrator of the server may take away
        database = conn.info.dbname
        conn.execute(f"REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC")
    add_server_auditor(
        Settings(store=StoreSettings.model_validate({"url": audited.url.replace("//owner@", f"//{SUPERUSER}@")})), ""
    )
    doors, before = list_doors(audited.url), stored(audited.url)
    done = []
    for readonly in ("on", "off"):  # the setting alone would refuse most, and an auditor could change it
        with psycopg.connect(audited.audit_url, autocommit=True) as conn:
            conn.execute(f"SET default_transaction_read_only = {readonly}")
            conn.execute("SELECT set_config('bubbot.auditor', %s, false)", (AUDITOR,))
            for door in doors:
                try:
                    conn.execute(door.encode())
                except psycopg.Error:
                    continue
                done.append(door)
    # These warn, and do nothing.
    assert [door for door in done if not door.startswith(("VACUUM", "GRANT ALL"))] == []
    assert len(doors) > 400
    assert stored(audited.url) == before


async def test_the_page_of_an_auditor_reads_through_the_views(audited: AuditedHome) -> None:
    """With the views of nobody else the page has nothing, though the boundary of the bot would show it."""
    import aiohttp

    def pages(settings: Settings) -> dict[str, tuple[int, str]]:
        async def get() -> dict[str, tuple[int, str]]:
            name = tape_of(audited.path, AUDITED.session)
            paths = [
                "/",
                f"/session/{name}",
                f"/session/{name}/timeline",
                f"/session/{name}/panel/deliveries",
                "/panel/usage?p.period=all",
            ]
            paths.append(f"/session/{tape_of(audited.path, OTHER.session)}")
            found = {}
            async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client:
                async with client.get(site.link(AUDITOR)):
                    pass
                for path in paths:
                    async with client.get(site.address + path) as answer:
                        found[path] = answer.status, re.sub(r"\d+\.\d+ s", "", await answer.text())
            return found

        with served(audited.path, settings) as site:
            return apart(get())

    own = audited.settings.model_copy(update={"store": StoreSettings.model_validate({"url": audited.url})})
    expected, shown = await asyncio.to_thread(pages, own), await asyncio.to_thread(pages, audited.settings)
    assert [status for status, _ in shown.values()] == [200, 200, 200, 200, 200, 403]
    assert shown == expected
    assert canaries(repr(shown)) <= audited.words
    with superuser(audited.url) as conn:
        conn.execute(f"REVOKE SELECT ON {ROLE}.entries FROM {ROLE}")
        try:
            assert [status for status, _ in (await asyncio.to_thread(pages, audited.settings)).values()][1:5] == [
                500
            ] * 4
        finally:
            conn.execute(f"GRANT SELECT ON {ROLE}.entries TO {ROLE}")


async def test_an_address_that_is_not_of_auditors_is_refused(audited: AuditedHome) -> None:
    with pytest.raises(StoreUnavailable, match="owner is not that of auditors: `bubbot store add-auditor`"):
        await open_readonly(audited.url, auditor=AUDITOR)
    with pytest.raises(ConfigError, match="this is for a PostgreSQL server"):
        add_server_auditor(Settings(), "")


async def test_the_auditors_of_a_tenant_see_that_tenant(audited: AuditedHome) -> None:
    tenant = f"t{os.getpid()}"
    settings = Settings(store=StoreSettings.model_validate({"url": audited.url}))
    with pytest.raises(StoreUnavailable, match=f"bubbot store add-tenant {tenant}"):
        add_server_auditor(settings, tenant)
    bot = add_tenant(audited.url, tenant, now="").url
    try:
        url = add_server_auditor(settings, tenant)
        async with reading(url, AUDITOR) as views:
            assert await views.tapes() == []
            await copy_home(audited.path, bot)
            viewer = Viewer(AUDITOR, frozenset((AUDITED.session,)), AUDITOR)
            workspace = str(audited.path.resolve())
            async with reading(bot) as everything:
                names = [tape.name for tape in await everything.tapes()]
                expected = await read_all(everything, names, viewer, workspace)
            assert await read_all(views, names, viewer, workspace) == expected
            assert len(expected["tapes"]) == 1
        with psycopg.connect(url, autocommit=True) as conn, pytest.raises(psycopg.errors.InsufficientPrivilege):
            conn.execute(f"SELECT * FROM {ROLE}.entries")
    finally:
        with superuser(audited.url) as conn:
            for role in (f"bubbot_{tenant}_audit", f"bubbot_{tenant}"):
                conn.execute(f"DROP OWNED BY {role}")
                conn.execute(f"DROP ROLE {role}")


def test_shared_tapes_are_those_of_the_panels() -> None:
    assert {"bubbot/outbox/", "bubbot/schedule", "bubbot/budget"} <= {each.name for each in list_shared_tapes(SETTINGS)}
