"""Servers and databases that cannot be the store: a sentence with cause and fix, never a password, and findings of the doctor."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from bubbot.app import stores
from bubbot.errors import BubbotError, ConfigError, StoreTooNew
from bubbot.home import Home
from bubbot.settings.sections import StoreSettings
from bubbot.stores.postgres.connections import ServerAddress
from bubbot.stores.postgres.store import open_store
from tests.doubles import CountingSalt, SteppingClock
from tests.postgres_server import (
    SUPERUSER,
    OwnServer,
    PostgresServer,
    make_template,
    own_server,
)
from tests.tapes import notes, texts

PASSWORD = "Wa1ru5/secret"
QUOTED = "Wa1ru5%2Fsecret"


def opening(url: str) -> str:
    """Open a store for writing, and return what it says."""

    async def attempt() -> str:
        try:
            store = await open_store(url, salt=CountingSalt(), now=SteppingClock())
        except BubbotError as error:
            return str(error)
        await store.aclose()
        return "opened"

    return asyncio.run(attempt())


def superuser(address: str) -> psycopg.Connection[Any]:
    return psycopg.connect(address.replace("//owner@", f"//{SUPERUSER}@"), autocommit=True)


def unused_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_server_that_refuses_is_named_with_the_reason_and_without_the_password() -> None:
    port = unused_port()
    url = f"postgresql://me:{QUOTED}@127.0.0.1:{port}/tapes"
    said = opening(url)
    assert said.startswith(f"the PostgreSQL server at 127.0.0.1:{port}/tapes cannot be reached: ")
    assert "refused" in said
    assert "Wa1ru5" not in said + repr(ServerAddress(url))


def test_a_server_that_never_answers_is_given_up() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        said = opening(f"postgresql://me@127.0.0.1:{port}/tapes?connect_timeout=2")
        assert time.monotonic() - began < 10
    assert f"at 127.0.0.1:{port}/tapes cannot be reached" in said
    assert "timeout" in said
    assert ServerAddress("postgresql://me@127.0.0.1/tapes").parameters["connect_timeout"] == 10


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("postgresql://me:secret@db.example/tapes", "postgresql://acme@db.example/tapes"),
        ("postgresql://me@[::1]:5433/tapes", "postgresql://acme@/tapes?host=%3A%3A1&port=5433"),
        ("postgresql://me@/my%20tapes?host=/run/pg&port=5433", "postgresql://acme@/my%20tapes?host=/run/pg&port=5433"),
        ("postgresql://me@a:1,b:2/tapes?target_session_attrs=primary",
         "postgresql://acme@/tapes?host=a%2Cb&port=1%2C2&target_session_attrs=primary"),
        ("postgresql://me@db/tapes?sslmode=verify-full&sslrootcert=/etc/ca.pem&sslcert=/me.crt&sslkey=/me.key&sslpassword=x",
         "postgresql://acme@db/tapes?sslmode=verify-full&sslrootcert=/etc/ca.pem"),
        ("postgresql://me@db/tapes?connect_timeout=3&application_name=ours",
         "postgresql://acme@db/tapes?connect_timeout=3&application_name=ours"),
    ],
)  # fmt: skip
def test_the_address_of_another_role_keeps_all_but_what_only_one_role_has(url: str, printed: str) -> None:
    theirs = ServerAddress(url).for_role("acme")
    assert theirs.url == printed
    assert ServerAddress(printed).parameters == theirs.parameters


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://me:{PASSWORD}@localhost/x",
        f"postgresql://me:{PASSWORD}@localhost/x",
        "postgresql://me:Wa1ru5@secret@localhost/x",
        "postgresql://me:Wa1ru5#secret@local host/x",
        "Wa1ru5 secret",
    ],
)
def test_an_address_that_is_none_says_how_one_looks_and_quotes_no_password(url: str) -> None:
    said = opening(url)
    assert "Wa1ru5" not in said
    assert "[store] url" in said or "cannot be reached" in said


def test_a_schema_of_another_program_is_left_alone(postgres_address: str) -> None:
    with superuser(postgres_address) as conn:
        conn.execute("DROP SCHEMA bubbot CASCADE")
        conn.execute("CREATE SCHEMA bubbot AUTHORIZATION owner")
    assert "belongs to another program: name another database" in opening(postgres_address)


def test_a_newer_schema_is_not_touched(postgres_address: str) -> None:
    with superuser(postgres_address) as conn:
        conn.execute("INSERT INTO bubbot.migrations VALUES (99, '')")
    with pytest.raises(StoreTooNew, match="written by a newer bubbot"):
        asyncio.run(open_store(postgres_address, salt=CountingSalt(), now=SteppingClock()))


def test_a_role_that_may_create_nothing_says_who_can(postgres_address: str) -> None:
    with superuser(postgres_address) as conn:
        conn.execute("DROP SCHEMA bubbot CASCADE")
        conn.execute("DROP ROLE IF EXISTS guest")
        conn.execute("CREATE ROLE guest LOGIN")
    try:
        said = opening(postgres_address.replace("//owner@", "//guest@"))
        assert "the role guest may not make bubbot's tables" in said
        assert "GRANT CREATE ON DATABASE" in said
    finally:
        with superuser(postgres_address) as conn:
            conn.execute("DROP ROLE guest")


def test_a_database_in_another_encoding_is_refused(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.address(), autocommit=True) as conn:
        conn.execute("CREATE DATABASE narrow OWNER owner TEMPLATE template0 ENCODING 'LATIN1'")
    try:
        assert "has the encoding LATIN1, and bubbot needs UTF8" in opening(postgres_server.address("narrow", "owner"))
    finally:
        with psycopg.connect(postgres_server.address(), autocommit=True) as conn:
            conn.execute("DROP DATABASE narrow")


@pytest.fixture(scope="module")
def careless_server() -> Iterator[OwnServer]:
    """A server with fsync off."""
    with own_server("fsync=off") as server:
        make_template(server)
        yield server


def test_a_server_that_does_not_write_through_is_refused(careless_server: OwnServer) -> None:
    address = careless_server.address("bubbot_template", "owner")
    said = opening(address)
    assert (
        "has fsync off, so that a power cut would lose what was acknowledged: psql -c 'ALTER SYSTEM SET fsync = on'"
        in said
    )


async def test_synchronous_commit_is_on_whatever_the_database_says(postgres_address: str) -> None:
    name = postgres_address.partition("?")[0].rpartition("/")[2]
    with superuser(postgres_address) as conn:
        conn.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    store = await open_store(postgres_address, salt=CountingSalt(), now=SteppingClock())
    try:
        async with await store._connect_writer() as writing:
            cursor = await writing.execute("SHOW synchronous_commit")
            assert await cursor.fetchone() == ("on",)
    finally:
        await store.aclose()


async def test_the_settings_open_it(postgres_address: str, tmp_path: Path) -> None:
    settings = StoreSettings.model_validate({"url": postgres_address})
    assert settings.kind == "postgres"
    assert "owner" not in repr(settings)
    store = await stores.open_home_store(settings, Home(tmp_path), now=SteppingClock())
    await store.append([notes("a")])
    await store.aclose()
    reader = await stores.open_home_store(settings, Home(tmp_path), now=SteppingClock(), readonly=True)
    assert await texts(reader) == ["a"]
    await reader.aclose()
    assert not (tmp_path / "bubbot.db").exists()


async def test_without_the_extra_a_sentence_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "find_spec", lambda name: None if name == "psycopg_pool" else find_spec(name))
    settings = StoreSettings.model_validate({"url": "postgresql://localhost/x"})
    with pytest.raises(ConfigError, match=r"not installed: `.*stores/postgres/requirements\.txt`"):
        await stores.open_home_store(settings, Home(tmp_path), now=SteppingClock())
    with pytest.raises(ConfigError, match=r"\[store\] url: the store 'postgres' needs it"):
        await stores.open_home_store(StoreSettings(kind="postgres"), Home(tmp_path), now=SteppingClock())


def test_a_bot_without_a_server_loads_nothing_of_it(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; from bubbot.app.stores import open_home_store; "
        "from bubbot.home import Home; from bubbot.settings.sections import StoreSettings; from bubbot.app.tapes import now\n"
        "async def main():\n    await (await open_home_store(StoreSettings(), Home(Path(sys.argv[1])), now=now)).aclose()\n"
        "asyncio.run(main()); print([name for name in sys.modules if 'psycopg' in name or 'postgres' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_server_ends_with_a_killed_run(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from tests.postgres_server import find_programs, shared_server\n"
        "with shared_server(Path(sys.argv[1]), find_programs()) as server:\n"
        "    print(server.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        server = int(run.stdout.readline())
        os.kill(server, 0)
        run.send_signal(signal.SIGKILL)
        latest = time.monotonic() + 30
        while Path(f"/proc/{server}").exists():
            assert time.monotonic() < latest
            time.sleep(0.05)


def test_an_address_and_another_store_exclude_each_other() -> None:
    assert StoreSettings.model_validate({"url": "postgresql://x/y", "kind": "sqlite"}).kind == "postgres"
    with pytest.raises(ValidationError, match="url"):
        StoreSettings.model_validate({"url": "postgresql://x/y", "kind": "copied"})
