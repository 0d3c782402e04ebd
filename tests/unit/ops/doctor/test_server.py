"""Doctor findings of a database on a PostgreSQL server. Each fault is planted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bubbot.errors import StoreUnavailable
from bubbot.home import Home
from bubbot.ops.doctor.server import check_server, check_settings, read_server
from bubbot.ports.checks import Finding
from bubbot.settings.sections import StoreSettings
from bubbot.stores.postgres.store import open_store
from tests.planting import found, mend, mends, plants
from tests.pooler import pooler
from tests.postgres_server import (
    SUPERUSER,
    PostgresServer,
    copied_database,
    make_template,
    own_server,
    replica_of,
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


def superuser(address: str) -> psycopg.Connection[Any]:
    return psycopg.connect(address.replace("//owner@", f"//{SUPERUSER}@"), autocommit=True)


def look(address: str, home: Home, now: datetime | None = None) -> dict[str, Finding]:
    return found(check_server(address, home, now or datetime.now(UTC)))


@plants("server.empty")
def test_a_good_database_has_no_fault_and_an_empty_one_is_told(postgres_address: str, home: Home) -> None:
    assert look(postgres_address, home) == {}
    settings = StoreSettings.model_validate({"url": postgres_address})
    assert [finding.id for finding in read_server(settings, home, datetime.now(UTC))[1]] == ["store.ok"]
    with superuser(postgres_address) as conn:
        conn.execute("DROP SCHEMA bubbot CASCADE")
    assert look(postgres_address, home)["server.empty"].level == "ok"


@plants("server.lost")
def test_a_server_that_is_away_is_named_without_the_password(home: Home) -> None:
    told = look("postgresql://me:Wa1ru5@127.0.0.1:9/tapes", home)["server.lost"]
    assert told.level == "problem"
    assert told.cause.startswith("The PostgreSQL server at 127.0.0.1:9/tapes cannot be reached: ")
    assert told.fix == "pg_isready --host 127.0.0.1 --port 9"
    assert "Wa1ru5" not in told.cause


@plants("server.unusable")
def test_a_schema_of_another_program_is_a_problem(postgres_address: str, home: Home) -> None:
    with superuser(postgres_address) as conn:
        conn.execute("COMMENT ON SCHEMA bubbot IS NULL")
    assert "belongs to another program" in look(postgres_address, home)["server.unusable"].cause


@plants("server.replica")
def test_a_replica_is_a_problem_and_no_bot_starts_on_it(home: Home) -> None:
    with own_server() as primary:
        asyncio.run(begin(primary.address()))
        with replica_of(primary) as replica:
            told = look(replica.address(), home)
            assert told.keys() - {"server.role"} == {"server.replica"}
            assert "is a replica, which takes no entries" in told["server.replica"].cause
            with pytest.raises(StoreUnavailable, match="name the primary"):
                asyncio.run(begin(replica.address()))


async def begin(address: str) -> None:
    """Start on a database, and end."""
    store = await open_store(address, salt=bytes, now=lambda: datetime.now(UTC))
    await store.aclose()


class OlderServer:
    """A connection to a server of which there is none here."""

    class info:
        server_version = 140_011

    def execute(self, statement: str) -> OlderServer:
        self.row = ("on", datetime.now(UTC)) if "clock" in statement else ("UTF8", False, "on", "on")
        return self

    def fetchone(self) -> tuple[object, ...]:
        return self.row


@plants("server.old")
def test_an_old_server_is_a_problem() -> None:
    told = found(check_settings(OlderServer(), datetime.now(UTC)))  # type: ignore[arg-type]
    assert told.keys() == {"server.old"}
    assert "PostgreSQL 14, and bubbot needs 15 or newer" in told["server.old"].cause


@plants("server.encoding")
def test_another_encoding_is_a_problem(postgres_server: PostgresServer, home: Home) -> None:
    with psycopg.connect(postgres_server.address(), autocommit=True) as conn:
        conn.execute("CREATE DATABASE narrow_one OWNER owner TEMPLATE template0 ENCODING 'LATIN1'")
        try:
            told = look(postgres_server.address("narrow_one", "owner"), home)
        finally:
            conn.execute("DROP DATABASE narrow_one")
    assert "LATIN1" in told["server.encoding"].cause


@pytest.fixture
def careless_address() -> Iterator[str]:
    with own_server("fsync=off") as server:
        make_template(server)
        with copied_database(server) as address:
            yield address


@plants("server.fsync")
def test_a_server_that_does_not_write_through_is_a_problem(careless_address: str, home: Home) -> None:
    assert "fsync off" in look(careless_address, home)["server.fsync"].cause


@plants("server.commit", "server.clock")
def test_commits_that_do_not_wait_and_clocks_that_differ(postgres_address: str, home: Home) -> None:
    name = postgres_address.partition("?")[0].rpartition("/")[2]
    with superuser(postgres_address) as conn:
        conn.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    told = look(postgres_address, home, datetime.now(UTC) + timedelta(seconds=20))
    assert {each.id: each.level for each in told.values()} == {"server.commit": "warning", "server.clock": "problem"}


@plants("server.role")
def test_an_owner_who_may_not_be_the_bots_role_is_a_warning(postgres_address: str, home: Home) -> None:
    with superuser(postgres_address) as conn:
        conn.execute("CREATE ROLE lonely LOGIN")
        try:
            conn.execute("GRANT ALL ON SCHEMA bubbot TO lonely")
            conn.execute("GRANT ALL ON ALL TABLES IN SCHEMA bubbot TO lonely")
            told = look(postgres_address.replace("//owner@", "//lonely@"), home)
        finally:
            conn.execute("DROP OWNED BY lonely")
            conn.execute("DROP ROLE lonely")
    assert told["server.role"].level == "warning"


@plants("server.triggers", "server.indexes")
@mends("server.triggers", "server.indexes")
def test_what_protects_history_is_restored_by_the_command(postgres_address: str, home: Home) -> None:
    home.config.write_text(f'[store]\nurl = "{postgres_address}"\n')
    with psycopg.connect(postgres_address, autocommit=True) as conn:
        conn.execute("ALTER TABLE bubbot.entries DISABLE TRIGGER entries_delete")
        conn.execute("DROP INDEX bubbot.entries_key")
    told = look(postgres_address, home)
    assert "entries_delete" in told["server.triggers"].cause
    assert "entries_key" in told["server.indexes"].cause
    environment = {"BUBBOT_HOME": str(home.path)}
    mend(lambda: check_server(postgres_address, home, datetime.now(UTC)), "server.triggers", home.path, env=environment)
    assert look(postgres_address, home) == {}
    with psycopg.connect(postgres_address, autocommit=True) as conn:
        conn.execute("DROP INDEX bubbot.entries_key")
    mend(lambda: check_server(postgres_address, home, datetime.now(UTC)), "server.indexes", home.path, env=environment)


@contextmanager
def guest(address: str, *grants: str) -> Iterator[str]:
    """The address for a role that has these rights alone."""
    with superuser(address) as conn:
        conn.execute("CREATE ROLE guest_of_doctor LOGIN")
        try:
            for grant in grants:
                conn.execute(f"GRANT {grant} TO guest_of_doctor")
            yield address.replace("//owner@", "//guest_of_doctor@")
        finally:
            conn.execute("DROP OWNED BY guest_of_doctor")
            conn.execute("DROP ROLE guest_of_doctor")


@plants("server.rights")
def test_a_role_without_rights_is_a_problem_with_the_grant_that_helps(postgres_address: str, home: Home) -> None:
    grant = "psql -c 'GRANT bubbot_app TO guest_of_doctor'"
    with guest(postgres_address) as address, superuser(postgres_address) as conn:
        told = look(address, home)["server.rights"]
        assert ("may not read the schema bubbot" in told.cause, told.fix) == (True, grant)
        conn.execute(told.fix.removeprefix("psql -c '").removesuffix("'"))
        assert look(address, home) == {}
    reads = ("USAGE ON SCHEMA bubbot", "SELECT ON ALL TABLES IN SCHEMA bubbot")
    with guest(postgres_address, *reads) as address:
        told = look(address, home)["server.rights"]
        assert ("may not write the tapes" in told.cause, told.fix) == (True, grant)
    with superuser(postgres_address) as conn:
        conn.execute("DROP SCHEMA bubbot CASCADE")
    with guest(postgres_address) as address, superuser(postgres_address) as conn:
        told = look(address, home)["server.rights"]
        assert "may not make bubbot's tables" in told.cause
        conn.execute(told.fix.removeprefix("psql -c '").removesuffix("'"))
        assert look(address, home).keys() == {"server.empty"}


@plants("server.pooler")
def test_a_pooler_in_transaction_mode_is_a_problem_and_one_that_keeps_sessions_is_none(
    postgres_server: PostgresServer, postgres_address: str, home: Home, tmp_path: Path
) -> None:
    for mode in ("transaction", "session"):
        folder = tmp_path / mode
        folder.mkdir()
        with pooler(postgres_server.folder, folder, mode) as place:
            address = postgres_address.replace(postgres_server.folder, place)
            told = look(address, home)
            if mode == "session":
                assert told == {}
                continue
            assert "is a pooler in transaction mode" in told["server.pooler"].cause
            with pytest.raises(StoreUnavailable, match="is a pooler in transaction mode"):
                asyncio.run(begin(address))
