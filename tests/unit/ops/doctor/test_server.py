"""Doctor findings of a database on a PostgreSQL server. Each fault is planted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bubbot.home import Home
from bubbot.ops.doctor.server import check_server, check_settings, read_server
from bubbot.ports.checks import Finding
from bubbot.settings.sections import StoreSettings
from tests.planting import found, mend, mends, plants
from tests.postgres_server import (
    SUPERUSER,
    PostgresServer,
    copied_database,
    find_programs,
    make_template,
    shared_server,
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
    assert "Wa1ru5" not in told.cause


@plants("server.unusable")
def test_a_schema_of_another_program_is_a_problem(postgres_address: str, home: Home) -> None:
    with superuser(postgres_address) as conn:
        conn.execute("COMMENT ON SCHEMA bubbot IS NULL")
    assert "belongs to another program" in look(postgres_address, home)["server.unusable"].cause


class OlderServer:
    """A connection to a server of which there is none here."""

    class info:
        server_version = 140_011

    def execute(self, statement: str) -> OlderServer:
        self.row = ("on", datetime.now(UTC)) if "clock" in statement else ("UTF8", True, "on", "on")
        return self

    def fetchone(self) -> tuple[object, ...]:
        return self.row


@plants("server.old", "server.replica")
def test_an_old_server_and_a_replica_are_problems() -> None:
    told = found(check_settings(OlderServer(), datetime.now(UTC)))  # type: ignore[arg-type]
    assert told.keys() == {"server.old", "server.replica"}
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
def careless_address(tmp_path: Path) -> Iterator[str]:
    programs = find_programs()
    assert programs is not None
    with shared_server(tmp_path, programs, "fsync=off") as server:
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
