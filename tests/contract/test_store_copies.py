"""A copy of all tapes in another store: the same rows, the same answers, through the triggers, all or nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bubbot.app.copying import FileTapes, ServerTapes, StorePlace, copy_between, find_place
from bubbot.errors import ConfigError, HomeLocked, StoreError, TapeCorrupt
from bubbot.home import Home, WriterLock
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.stores.copying import CopyCounts
from bubbot.stores.postgres.backup import read_content
from bubbot.stores.postgres.store import TAPE_SHARDS, PostgresStore
from bubbot.stores.postgres.store import open_readonly as open_server_readonly
from bubbot.stores.postgres.store import open_store as open_server
from bubbot.stores.sqlite.store import SqliteStore, open_readonly, open_store
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.query import TapeQuery
from bubbot.tape.store import Batch, ForkRecord, ResetBatch
from tests.doubles import CountingSalt, SteppingClock
from tests.postgres_server import SUPERUSER, PostgresServer, copied_database
from tests.tapes import batch, note, notes, texts

FACT = Batch("bubbot/home", (event("tape/erased", {"reason": "person"}),))


@contextmanager
def quietly(_: str) -> Iterator[OnProgress]:
    yield ignore_progress


async def fill(store: SqliteStore | PostgresStore) -> None:
    """Write what a home can hold: archives of archives, erasures of all kinds, blobs, keys, hostile texts, forks, leases."""
    await store.workspace("/the/first/home")
    await store.append([notes("a", "b", "c"), notes("in1", "in2", tape="bubbot/inbox"), notes("other", tape="second")])
    await store.append(
        [batch(note("\x00 \x01 ' \\ \U0001f600 \ud7ff", key="k\x01'", date="2026-11-30T10:00:00+00:00"))]
    )
    await store.append([Batch("second", (TapeEntry("anchor", {"name": "session/start", "state": {"n": 1}}),))])
    kept, gone = await store.put_blob("third", b"kept" * 700_000), await store.put_blob("tape", b"gone")
    await store.put_blob("only blobs", b"\x00" * 10)
    await store.append([batch(note("and"), note(f"see {gone}")), notes(f"see {kept}", tape="third")])
    await store.reset("third", ResetBatch("third/1"), [event("tape/archived")])
    await store.erase([FACT], [("tape", (6,)), ("bubbot/inbox", (1,))])  # with the blob
    await store.reset("tape", ResetBatch("tape/1"), [event("tape/archived")])
    await store.append([notes("d", "e"), notes("f", tape="second")])
    await store.erase([FACT], [("tape/1", (1, 2)), ("tape", (2,))])
    await store.reset("tape", ResetBatch("tape/2"), [event("tape/archived")])
    await store.append([notes("g")])
    also = (("second", (1,)),)
    erased = [event("tape/erased", {"reason": "reset"}), event("tape/archived")]
    await store.reset("tape", ResetBatch("tape/3", erase=True, erase_also=also), erased)
    await store.append([notes("h", "i"), notes(*(f"more {number}" for number in range(600)), tape="long")])
    await store.reset("long", ResetBatch("long/1", erase=True), erased)
    assert await store.raise_epoch("tape") == 1
    assert await store.raise_epoch("tape") == 2
    await store.open_fork(ForkRecord("turn", "tape", 4, (notes("staged"),), session="telegram:1", epoch=2))
    await store.open_fork(ForkRecord("turn/sub", "tape", 5, (notes("deeper"),), ResetBatch("tape/4", erase=True)))
    await store.open_fork(ForkRecord("another", "second", 3, ()))


@pytest.fixture
async def file(tmp_path: Path) -> FileTapes:
    """A filled home."""
    home = Home(tmp_path / "home")
    home.ensure()
    store = await open_store(home.database, salt=CountingSalt(), now=SteppingClock(), on_newest=home.mark_database)
    await fill(store)
    await store.aclose()
    return FileTapes(home.database)


@pytest.fixture
async def server(postgres_address: str) -> ServerTapes:
    """A filled database."""
    store = await open_server(postgres_address, salt=CountingSalt(), now=SteppingClock())
    await fill(store)
    await store.aclose()
    return ServerTapes(postgres_address)


@pytest.fixture
def empty_server(postgres_server: PostgresServer) -> Iterator[ServerTapes]:
    with copied_database(postgres_server) as address:
        yield ServerTapes(address)


_ENTRIES = (
    "SELECT tapes.name, archived_from, id, kind, key, entries.name, opens, at, date, payload, meta, salt, digest, entries.chain, "
    "(SELECT fact.id FROM erased JOIN entries AS fact ON fact.seq = erased.fact WHERE erased.tape = entries.tape AND erased.id = entries.id) "
    "FROM entries JOIN tapes ON tapes.tape = entries.tape ORDER BY seq"
)
_OTHERS = (
    "SELECT tape, epoch FROM leases ORDER BY tape",
    "SELECT fork, place, tape, keep_first, entries FROM fork_batches ORDER BY fork, place",
    "SELECT value FROM deployment WHERE key = 'workspace'",
)


def everything(place: StorePlace) -> list[list[tuple[Any, ...]]]:
    """All that a store holds, in its order, as text and bytes."""
    with place.read(quietly) as (tapes, audit):
        assert not audit.damage, audit.damage
        forks = f"SELECT fork, tape, base, reset, session, epoch FROM forks ORDER BY {tapes.fork_order}"
        rows = [[tuple(row) for row in tapes.rows.execute(each)] for each in (_ENTRIES, forks, *_OTHERS)]
        numbers = sorted(tapes.rows.execute("SELECT name, tape FROM tapes").fetchall())
        blobs = [(name, digest, bytes(data)) for name, tape in numbers for digest, data in tapes.read_blobs(tape)]
        return [*rows, blobs]


async def copied(source: StorePlace, target: StorePlace) -> tuple[CopyCounts, str]:
    return await copy_between(source, target, quietly)


def head(place: StorePlace) -> str:
    with place.read(quietly) as (_, audit):
        return audit.head.partition(":")[2]


async def test_a_home_goes_to_a_server_and_back_and_every_row_is_the_same(
    file: FileTapes, empty_server: ServerTapes, tmp_path: Path
) -> None:
    counts, there = await copied(file, empty_server)
    assert there.partition(":")[2] == head(file)
    entries = everything(file)[0]
    assert counts == CopyCounts(12, 5, len(entries), sum(row[9] is None for row in entries), blobs=2, forks=3)
    assert counts.erased > 600
    assert everything(empty_server) == everything(file)
    back = FileTapes(tmp_path / "back" / "bubbot.db")
    await copied(empty_server, back)
    assert everything(back) == everything(file)
    assert head(back) == head(file)
    third = FileTapes(tmp_path / "third" / "bubbot.db")
    assert (await copied(back, third))[1] == (await copied(file, FileTapes(tmp_path / "fourth" / "x.db")))[1]


async def test_a_database_goes_to_a_home_and_to_another_server(
    server: ServerTapes, empty_server: ServerTapes, tmp_path: Path
) -> None:
    home = Home(tmp_path / "new")
    await copied(server, FileTapes(home.database))
    await copied(server, empty_server)
    assert everything(FileTapes(home.database)) == everything(server) == everything(empty_server)
    assert home.read_marked_entry() is not None
    assert not list(home.path.glob(".partial-*"))


async def test_somebody_elses_transaction_on_the_server_does_not_matter(
    file: FileTapes, empty_server: ServerTapes, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Positions count transactions of the whole server: a long one of another database holds back what may be read in order."""
    with copied_database(postgres_server) as other, psycopg.connect(other) as conn:
        conn.execute("SELECT pg_current_xact_id()")
        await copied(file, empty_server)
        back = FileTapes(tmp_path / "back" / "bubbot.db")
        await copied(empty_server, back)
        assert head(back) == head(empty_server) == head(file)
        store = await open_server_readonly(empty_server.url)
        heads = [(await store.audit()).head, await store.deployment_head(), read_content(empty_server.url).head]
        assert {found.partition(":")[2] for found in heads} == {head(file)}, "nobody writes there, so this is all"
        await store.aclose()
        writing = await open_server(empty_server.url, salt=CountingSalt(), now=SteppingClock())
        heads = [(await writing.audit()).head, read_content(empty_server.url).head]
        assert {found.partition(":")[0] for found in heads} == {"0"}, "another process may be about to commit before"
        await writing.aclose()


async def test_the_number_of_shards_comes_with_the_tapes_and_never_changes(
    file: FileTapes, server: ServerTapes, empty_server: ServerTapes, tmp_path: Path
) -> None:
    async def shards(place: StorePlace) -> int:
        """That of a bot which writes there, and of one that reads."""
        written: SqliteStore | PostgresStore
        read: SqliteStore | PostgresStore
        if isinstance(place, FileTapes):
            written = await open_store(place.path, salt=CountingSalt(), now=SteppingClock())
            read = await open_readonly(place.path)
        else:
            assert isinstance(place, ServerTapes)
            written = await open_server(place.url, salt=CountingSalt(), now=SteppingClock())
            read = await open_server_readonly(place.url, 0)
        await written.aclose()
        await read.aclose()
        assert written.tape_shards == read.tape_shards
        return written.tape_shards

    assert (await shards(file), await shards(server)) == (1, TAPE_SHARDS)
    back = FileTapes(tmp_path / "back" / "bubbot.db")
    await copied(server, back)
    assert await shards(back) == TAPE_SHARDS
    assert await shards(empty_server) == TAPE_SHARDS, "a bot was started there"
    await copied(file, empty_server)
    assert await shards(empty_server) == 1


@pytest.mark.parametrize("value", ["", "0", "-1", "x", "9" * 5_000, "1.5", "²"])
async def test_a_number_of_shards_that_is_none_is_refused_by_name(file: FileTapes, value: str) -> None:
    with closing(sqlite3.connect(file.path)) as conn, conn:
        conn.execute("INSERT OR REPLACE INTO deployment VALUES ('tape_shards', ?)", (value,))
    for opening in (open_store(file.path, salt=CountingSalt(), now=SteppingClock()), open_readonly(file.path)):
        with pytest.raises(TapeCorrupt, match=r"tape_shards = .*a number from 1 to 1024"):
            await opening


async def test_the_copy_goes_on_where_the_source_ended(file: FileTapes, empty_server: ServerTapes) -> None:
    await copied(file, empty_server)
    store = await open_server(empty_server.url, salt=CountingSalt(), now=SteppingClock())
    try:
        await store.append([notes("next")])
        assert await texts(store) == ["", "", "h", "i", "next"]
        assert await store.raise_epoch("tape") == 3
        await store.merge_fork("turn/sub", [notes("deeper")])
        await store.reset("tape", ResetBatch("tape/5"), [event("tape/archived")])
        found = await store.fetch([TapeQuery("long/1", text="more 7"), TapeQuery("second", words_text="f")])
        assert [len(entries) for entries in found] == [0, 1], "what was erased is in no index, what was not is"
        assert not (await store.audit()).damage
    finally:
        await store.aclose()


async def test_the_search_index_comes_with_a_file(server: ServerTapes, tmp_path: Path) -> None:
    path = tmp_path / "new" / "bubbot.db"
    path.parent.mkdir()
    path.with_name("search.db").write_bytes(b"of another database")
    await copied(server, FileTapes(path))
    store = await open_store(path, salt=CountingSalt(), now=SteppingClock())
    try:
        state = await store.index_state()
        assert state is not None
        assert (state.fresh, state.behind) == (True, 0)
    finally:
        await store.aclose()


@pytest.mark.parametrize("path", ["/dev/null", "/nowhere/bubbot.db"])
async def test_a_source_that_is_no_file_is_refused_by_its_name(tmp_path: Path, path: str) -> None:
    with pytest.raises(StoreError, match=f"{path} is no file of a database: name a home"):
        await copy_between(find_place(path), FileTapes(tmp_path / "new.db"), quietly)
    assert not (tmp_path / "new.db").exists()


async def test_a_target_that_holds_tapes_is_refused_and_named(file: FileTapes, server: ServerTapes) -> None:
    before = everything(server), everything(file)
    with pytest.raises(ConfigError, match=r"holds tapes already: bubbot/home \(\d+ entries\), .* and others"):
        await copied(file, server)
    with pytest.raises(ConfigError, match=r"bubbot\.db is there already: name a new folder or file"):
        await copied(server, file)
    assert (everything(server), everything(file)) == before


@pytest.mark.parametrize("changed", ["payload", "missing", "trigger"])
async def test_a_source_that_does_not_verify_is_refused_before_anything_is_written(
    changed: str, file: FileTapes, empty_server: ServerTapes
) -> None:
    with closing(sqlite3.connect(file.path, isolation_level=None)) as conn:
        conn.execute("DROP TRIGGER entries_update")
        conn.execute("DROP TRIGGER entries_delete")
        if changed == "payload":
            conn.execute("UPDATE entries SET payload = '{}' WHERE key IS NOT NULL")
        elif changed == "missing":
            conn.execute("DELETE FROM entries WHERE seq = 2")
        if changed != "trigger":
            restored = await open_store(file.path.parent / "x.db", salt=CountingSalt(), now=SteppingClock())
            await restored.aclose()
            with closing(sqlite3.connect(file.path.parent / "x.db")) as other:
                for (sql,) in other.execute(
                    "SELECT sql FROM sqlite_master WHERE name IN ('entries_update', 'entries_delete')"
                ).fetchall():
                    conn.execute(sql)
    words = {"payload": "tape/1 #4 altered", "missing": "tape/1 #2 missing", "trigger": "entries_delete"}[changed]
    with pytest.raises(TapeCorrupt, match=words):
        await copied(file, empty_server)
    store = await open_server(empty_server.url, salt=CountingSalt(), now=SteppingClock())
    assert await store.tapes() == []
    await store.aclose()


async def test_a_running_bot_on_either_side_is_refused(
    file: FileTapes, server: ServerTapes, empty_server: ServerTapes, tmp_path: Path
) -> None:
    with WriterLock(Home(file.path.parent)), pytest.raises(HomeLocked):
        await copied(file, empty_server)
    running = await open_server(server.url, salt=CountingSalt(), now=SteppingClock())
    try:
        with pytest.raises(HomeLocked, match="a bot runs on the database"):
            await copied(server, empty_server)
        with pytest.raises(HomeLocked, match="a bot runs on the database"):
            await copied(file, server)
    finally:
        await running.aclose()
    home = Home(tmp_path / "busy")
    home.ensure()
    with WriterLock(home), pytest.raises(HomeLocked):
        await copied(server, FileTapes(home.database))


async def test_a_bot_that_starts_while_its_database_is_copied_is_refused(server: ServerTapes) -> None:
    with server.read(quietly), pytest.raises(StoreError, match="are being copied to another store"):
        await open_server(server.url, salt=CountingSalt(), now=SteppingClock())
    store = await open_server(server.url, salt=CountingSalt(), now=SteppingClock())
    await store.aclose()


async def test_two_homes_never_mix(file: FileTapes, empty_server: ServerTapes) -> None:
    store = await open_server(empty_server.url, salt=CountingSalt(), now=SteppingClock())
    await store.workspace("/another")
    await store.aclose()
    with pytest.raises(StoreError, match="its tapes are named after '/another'"):
        await copied(file, empty_server)
    store = await open_server(empty_server.url, salt=CountingSalt(), now=SteppingClock())
    assert await store.tapes() == []
    await store.aclose()


async def test_a_statement_that_fails_in_the_middle_leaves_nothing(file: FileTapes, empty_server: ServerTapes) -> None:
    with psycopg.connect(empty_server.url.replace("//owner@", f"//{SUPERUSER}@"), autocommit=True) as conn:
        conn.execute("ALTER TABLE bubbot.forks ADD CONSTRAINT planted CHECK (fork <> 'another')")
    with pytest.raises(StoreError):
        await copied(file, empty_server)
    with psycopg.connect(empty_server.url.replace("//owner@", f"//{SUPERUSER}@"), autocommit=True) as conn:
        assert conn.execute("SELECT count(*) FROM bubbot.entries").fetchone() == (0,)
        conn.execute("ALTER TABLE bubbot.forks DROP CONSTRAINT planted")
    await copied(file, empty_server)
    assert everything(empty_server) == everything(file)


def test_places_are_addresses_files_and_homes(tmp_path: Path) -> None:
    url = "postgresql://me:Wa1ru5@127.0.0.1:9/tapes"
    assert str(find_place(url)) == "127.0.0.1:9/tapes"
    assert "Wa1ru5" not in repr(find_place(url))
    assert find_place(str(tmp_path / "x.db")) == FileTapes(tmp_path / "x.db")
    assert find_place(str(tmp_path / "new")) == FileTapes(tmp_path / "new" / "bubbot.db")
    (tmp_path / "config.toml").write_text(f'[store]\nurl = "{url}"\n')
    assert find_place(str(tmp_path)) == ServerTapes(url)
    (tmp_path / "config.toml").write_text('[store]\nkind = "other"\n')
    with pytest.raises(ConfigError, match="store 'other', which bubbot cannot copy"):
        find_place(str(tmp_path))
    same = FileTapes(tmp_path / "x.db")
    with pytest.raises(ConfigError, match="cannot be copied to the same place"):
        asyncio.run(copied(same, FileTapes(tmp_path / "y.db")))
    assert [path.name for path in tmp_path.iterdir()] == ["config.toml"]
