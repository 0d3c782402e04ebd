"""What only the SQLite store can show: files, versions, readers beside a writer, reopening, erased bytes."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path

import pytest

from bubbot.errors import StoreTooNew, StoreUnavailable, TapeCorrupt, TapeError
from bubbot.stores.sqlite.connections import open_reader
from bubbot.stores.sqlite.schema import MIGRATIONS
from bubbot.stores.sqlite.store import SqliteStore, open_readonly, open_store, open_writer
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event
from bubbot.tape.query import TapeQuery, Window
from bubbot.tape.store import ForkRecord, ResetBatch
from tests.doubles import START, CountingSalt, SteppingClock
from tests.raw import raw, tamper
from tests.tapes import batch, note, notes, texts, whole


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = await open_store(path, salt=CountingSalt(), now=SteppingClock())
    try:
        yield store
    finally:
        await store.aclose()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bubbot.db"


async def test_reopening_gives_the_same_entries_tapes_forks_and_blobs(path: Path) -> None:
    async with opened(path) as store:
        await store.append([batch(anchor("one"), note("漢字 👍\x00", key="k", date="2026-11-21"), event("e"))])
        await store.append([notes("x", tape="doomed")])
        await store.reset("doomed", ResetBatch("old", erase=True), [event("tape/erased")])
        await store.open_fork(ForkRecord("f", "tape", 3, (notes("c"),), ResetBatch("older")))
        digest = await store.put_blob("tape", b"blob")
        before = (
            [await whole(store, name) for name in ("tape", "doomed", "old")],
            await store.tapes(),
            await store.forks(),
            await store.deployment_head(),
        )
    async with opened(path) as store:
        after = (
            [await whole(store, name) for name in ("tape", "doomed", "old")],
            await store.tapes(),
            await store.forks(),
            await store.deployment_head(),
        )
        assert after == before
        assert await store.get_blob("tape", digest) == b"blob"


@pytest.mark.law("T2", "T16")
async def test_a_reopened_tape_goes_on_with_the_next_id_and_an_unbroken_chain(path: Path) -> None:
    for text in "abc":
        async with opened(path) as store:
            await store.append([notes(text)])
    async with opened(path) as store:
        assert [entry.id for entry in await whole(store)] == [1, 2, 3]
        assert (await store.audit()).findings == ()


@pytest.mark.law("T2")
async def test_positions_order_the_entries_of_all_tapes_without_a_gap(path: Path) -> None:
    async with opened(path) as store:
        await store.append([notes("a", tape="one"), notes("b", "c", tape="two"), notes("d", tape="one")])
    with raw(path) as conn:
        found = conn.execute("SELECT seq, tape, id FROM entries ORDER BY seq").fetchall()
    assert found == [(1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 1, 2)]


@pytest.mark.law("T18")
async def test_content_is_kept_as_plain_json_text(path: Path) -> None:
    async with opened(path) as store:
        await store.append([batch(TapeEntry("message", {"content": '漢 "x"', "n": [1, None]}, {"by": "me"}))])
    with raw(path) as conn:
        (found,) = conn.execute("SELECT payload, meta, typeof(payload) FROM entries").fetchall()
    assert found == ('{"content":"漢 \\"x\\"","n":[1,null]}', '{"by":"me"}', "text")


async def test_the_database_is_durable_by_its_settings(path: Path) -> None:
    with closing(open_writer(path, START, lambda *_: None)) as conn:
        names = ("journal_mode", "synchronous", "secure_delete", "foreign_keys")
        assert [conn.execute(f"PRAGMA {name}").fetchone()[0] for name in names] == ["wal", 2, 1, 1]


async def test_the_database_and_the_files_beside_it_are_for_their_owner_alone(path: Path) -> None:
    async with opened(path) as store:
        await store.append([notes("a")])
        assert {name: mode & 0o777 for name, mode in modes(path.parent).items()} == {
            "bubbot.db": 0o600,
            "bubbot.db-shm": 0o600,
            "bubbot.db-wal": 0o600,
        }


def modes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_mode for file in folder.iterdir()}


async def test_a_migration_is_recorded_with_its_time(path: Path) -> None:
    async with opened(path):
        pass
    with raw(path) as conn:
        assert conn.execute("SELECT version, applied FROM migrations").fetchall() == [
            (version, "2026-11-21T20:21:00.000000+00:00") for version in range(1, len(MIGRATIONS) + 1)
        ]


async def test_the_workspace_label_is_stored_once(path: Path) -> None:
    async with opened(path) as store:
        assert await store.workspace("first") == "first"
    async with opened(path) as store:
        assert await store.workspace("second") == "first"


async def test_a_database_of_a_newer_version_is_left_alone(path: Path) -> None:
    async with opened(path) as store:
        await store.append([notes("a")])
    with raw(path) as conn:
        conn.execute("PRAGMA user_version = 99")
    for opening in (open_store(path, salt=bytes, now=SteppingClock()), open_readonly(path)):
        with pytest.raises(StoreTooNew, match="version 99"):
            await opening
    with raw(path) as conn:
        assert conn.execute("SELECT count(*) FROM migrations").fetchone() == (len(MIGRATIONS),)


DIARY = b"Dear diary, " * 200


def content(path: Path) -> bytes:
    return path.read_bytes()


@pytest.fixture
def diary(path: Path) -> Path:
    """A file where the database should be."""
    path.write_bytes(DIARY)
    return path


@pytest.mark.parametrize("readonly", [False, True])
async def test_a_file_that_is_no_database_is_a_clear_error_and_stays_as_it_is(diary: Path, readonly: bool) -> None:
    with pytest.raises(TapeCorrupt, match="damaged"):
        await (open_readonly(diary) if readonly else open_store(diary, salt=bytes, now=SteppingClock()))
    assert content(diary) == DIARY


async def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    with raw(path) as conn:
        conn.execute("PRAGMA application_id = 7")
        conn.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreUnavailable, match="another program"):
        await open_store(path, salt=bytes, now=SteppingClock())
    with raw(path) as conn:
        assert conn.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


@pytest.mark.parametrize("where", [".", "no/such/folder/bubbot.db"])
async def test_a_place_where_no_database_can_be_is_a_clear_error(tmp_path: Path, where: str) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        await open_store(tmp_path / where, salt=bytes, now=SteppingClock())


@pytest.mark.parametrize("by_tape", [True, False])
async def test_a_reader_that_met_a_damaged_entry_sees_what_is_written_later(path: Path, *, by_tape: bool) -> None:
    """While its error is kept, as a log may keep it, an open cursor would hold all reading at an old state."""
    async with opened(path) as store:
        await store.append([batch(note("a"), note("b"), note("c"))])
        tamper(path, "UPDATE entries SET payload = '{' WHERE id = 2")
        with pytest.raises(TapeCorrupt) as kept:
            await (store.fetch([TapeQuery("tape")]) if by_tape else store.read_after(0, 10))
        await store.append([batch(note("d"))])
        assert (await store.head("tape"), await store.newest_position()) == (4, 4)
        assert [each.entry.id for each in await store.read_after(2, 10)] == [3, 4]
        assert "entry 2" in str(kept.value)


def move(source: Path, target: Path) -> None:
    """Move a file, beside what uses it."""
    source.replace(target)


async def test_nothing_is_written_to_a_file_that_was_moved_away_or_replaced(path: Path) -> None:
    """It would be lost with the process. Who looks at a file that is gone sees what is gone, too."""
    aside, other = path.with_name("aside.db"), path.with_name("other.db")
    async with opened(other) as store:
        await store.append([batch(note("x"))])
    async with opened(path) as store, AsyncExitStack() as stack:
        await store.append([batch(note("a"))])
        looking = await open_readonly(path)
        stack.push_async_callback(looking.aclose)
        move(path, aside)
        for is_replaced in (False, True):
            if is_replaced:
                move(other, path)
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                await store.append([batch(note("b"))])
            with pytest.raises(StoreUnavailable, match="removed or replaced"):
                await looking.tapes()
        move(aside, path)
        await store.append([batch(note("b"))])
        assert [tape.head for tape in await looking.tapes()] == [2]


async def test_a_reader_beside_the_writer_sees_each_commit(path: Path) -> None:
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened(path))
        reader = await open_readonly(path)
        stack.push_async_callback(reader.aclose)
        for number, text in enumerate("abc", 1):
            await store.append([notes(text)])
            assert await reader.head("tape") == number
            assert await whole(reader) == await whole(store)
        assert await reader.deployment_head() == await store.deployment_head()


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.append([notes("a")]),
        lambda store: store.open_fork(ForkRecord("f", "tape", 0, ())),
        lambda store: store.drop_fork("f"),
        lambda store: store.reset("tape", ResetBatch("old"), []),
        lambda store: store.put_blob("tape", b"x"),
    ],
)
async def test_a_reader_refuses_to_write(path: Path, write: Callable[[SqliteStore], object]) -> None:
    async with opened(path) as store:
        await store.append([notes("a")])
    reader = await open_readonly(path)
    try:
        with pytest.raises(StoreUnavailable, match="reading only"):
            await write(reader)  # type: ignore[misc]  # one of the coroutine functions above
    finally:
        await reader.aclose()


@pytest.mark.law("T1")
async def test_the_connections_of_readers_cannot_write_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []

    def open_and_write(database: Path) -> sqlite3.Connection:
        conn = open_reader(database)
        try:
            conn.execute("INSERT INTO tapes (name) VALUES ('x')")
        except sqlite3.OperationalError as error:
            refused.append(str(error))
        return conn

    monkeypatch.setattr("bubbot.stores.sqlite.store.open_reader", open_and_write)
    async with opened(path) as store:
        await store.append([notes("a")])
        assert [tape.name for tape in await store.tapes()] == ["tape"]
    assert refused == ["attempt to write a readonly database"] * 2


async def test_a_reader_does_not_make_a_missing_database(path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no database"):
        await open_readonly(path)
    assert list(path.parent.iterdir()) == []


async def test_a_reader_of_a_database_that_holds_nothing_says_so(path: Path) -> None:
    with raw(path) as conn:
        conn.execute("VACUUM")
    before = content(path)
    with pytest.raises(StoreUnavailable, match="holds nothing"):
        await open_readonly(path)
    assert content(path) == before


async def test_a_reader_knows_the_workspace_label_without_storing_one(path: Path) -> None:
    async with opened(path):
        reader = await open_readonly(path)
        try:
            assert await reader.workspace("mine") == "mine"
        finally:
            await reader.aclose()
    async with opened(path) as store:
        assert await store.workspace("theirs") == "theirs"


async def test_a_store_that_failed_to_open_leaves_no_file_open(path: Path) -> None:
    async with opened(path):
        pass
    with raw(path) as conn:
        conn.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreTooNew):
        await open_store(path, salt=bytes, now=SteppingClock())
    assert [found.name for found in path.parent.iterdir()] == ["bubbot.db"]


def test_a_store_that_failed_to_open_leaves_no_thread_that_reports_to_a_closed_loop(diary: Path) -> None:
    before = set(threading.enumerate())
    for _ in range(20):
        with pytest.raises(TapeCorrupt):
            asyncio.run(open_store(diary, salt=bytes, now=SteppingClock()))
    left = set(threading.enumerate()) - before
    for thread in left:  # one that was closed last may still be on its way out
        thread.join(10)
    assert [thread.name for thread in left if thread.is_alive()] == []


async def test_a_closed_store_leaves_one_file(path: Path) -> None:
    async with opened(path) as store:
        await store.append([notes("a")])
        assert await texts(store) == ["a"]
    assert [found.name for found in path.parent.iterdir()] == ["bubbot.db"]


SECRETS = (
    "sesame-payload",
    "sesame-meta",
    "sesame-anchor",
    "sesame-event",
    "sesame-blob",
    "sesame-fork",
    "sesame-other",
)


async def fill(store: SqliteStore) -> None:
    """The tape with a secret in every place erasure has to reach, some of them large enough for pages of their own."""
    payload, meta, name, event_name, blob, fork, other = SECRETS
    await store.append([batch(note(payload * 2000, key="k"), note("x", by=meta), anchor(name), event(event_name))])
    await store.append([notes(other, "stays", tape="inbox")])
    await store.put_blob("tape", blob.encode() * 500)
    await store.open_fork(ForkRecord("f", "tape", 4, (notes(fork),)))


def kept_in(folder: Path) -> dict[str, list[str]]:
    """The secrets whose bytes are in a file, by file."""
    found = {}
    for file in folder.iterdir():
        data = file.read_bytes()
        found[file.name] = [secret for secret in SECRETS if secret.encode() in data]
    return {name: secrets for name, secrets in found.items() if secrets}


@pytest.mark.law("T17")
async def test_no_byte_of_what_was_erased_is_left_in_any_file(path: Path) -> None:
    async with opened(path) as store:
        await fill(store)
        await store.drop_fork("f")
        await store.reset("tape", ResetBatch("old", erase=True, erase_also=(("inbox", (1,)),)), [event("tape/erased")])
        wal = path.with_name("bubbot.db-wal")
        assert wal.stat().st_size == 0, "the write-ahead log still holds old bytes while the store is open"
        assert await texts(store, "inbox") == ["", "stays"]
    assert kept_in(path.parent) == {}


@pytest.mark.law("T17")
async def test_an_erasing_merge_leaves_no_byte_either(path: Path) -> None:
    async with opened(path) as store:
        await fill(store)
        how = ResetBatch("old", erase=True, erase_also=(("inbox", (1,)),))
        await store.merge_fork("f", [batch(event("tape/erased"))], ("tape", how))
    assert kept_in(path.parent) == {}


async def test_the_search_for_erased_bytes_finds_them_where_nothing_was_erased(path: Path) -> None:
    async with opened(path) as store:
        await fill(store)
    assert kept_in(path.parent) == {"bubbot.db": list(SECRETS)}


@pytest.mark.law("T17")
async def test_an_erasure_is_readable_as_such_after_reopening(path: Path) -> None:
    async with opened(path) as store:
        await store.append([batch(anchor("one"), note("a"))])
        await store.reset("tape", ResetBatch("old", erase=True), [event("tape/erased")])
    async with opened(path) as store:
        assert [(entry.id, entry.erased) for entry in await whole(store, "old")] == [(1, True), (2, True), (3, False)]
        with pytest.raises(TapeError):
            await store.fetch([TapeQuery("old", Window())])
