"""Backups of a database that is written to: whole, checked, and taken for nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from bubbot.errors import BubbotError, ConfigError, StoreFull, StoreTooNew, StoreUnavailable, TapeCorrupt
from bubbot.stores.files import digest_of_file
from bubbot.stores.sqlite.backup import copy_database
from bubbot.stores.sqlite.backups import (
    ExtraFiles,
    backups_folder,
    list_backups,
    prune_backups,
    read_manifest,
    write_backup,
)
from bubbot.stores.sqlite.restore import verify_backup
from bubbot.stores.sqlite.schema import MIGRATIONS
from bubbot.stores.sqlite.store import SqliteStore, open_readonly
from bubbot.tape.entry import event
from bubbot.tape.store import Batch
from tests.doubles import START
from tests.raw import raw, tamper
from tests.tapes import notes, whole


async def under_load(store: SqliteStore, folder: Path, *, times: int, pause: float) -> tuple[list[Path], int]:
    """Backups one after another while a writer goes on without a pause; says how many entries it wrote meanwhile."""
    made: list[Path] = []
    ending = asyncio.Event()

    async def write() -> int:
        count = 0
        while not ending.is_set():
            facts = tuple(event("load", {"text": "x" * 300, "count": count}) for _ in range(5))
            await store.append([Batch(f"tape-{count % 7}", facts), notes("beside", tape="other")])
            count += 6
        return count

    writing = asyncio.create_task(write())
    for number in range(times):
        await asyncio.sleep(pause)
        target = folder / f"backup-{number}"
        await asyncio.to_thread(write_backup, store.path, target, ExtraFiles(), START)
        made.append(target)
    ending.set()
    return made, await writing


async def check(made: list[Path], store: SqliteStore) -> None:
    """Each verifies, is what these tapes were at its position, and holds more than the one before."""
    before = 0
    for path in made:
        head = (await asyncio.to_thread(verify_backup, path)).database.head
        position = int(head.partition(":")[0])
        assert await store.deployment_head(position) == head
        copy = await open_readonly(path / "bubbot.db")
        try:
            assert await copy.deployment_head() == head
        finally:
            await copy.aclose()
        assert position > before
        before = position


async def test_every_backup_beside_a_busy_writer_is_one_moment_of_it(sqlite_store: SqliteStore, tmp_path: Path) -> None:
    made, written = await under_load(sqlite_store, tmp_path, times=5, pause=0.1)
    assert written > 50
    await check(made, sqlite_store)


@pytest.mark.proof
async def test_a_backup_every_second_for_half_a_minute_under_load(sqlite_store: SqliteStore, tmp_path: Path) -> None:
    made, written = await under_load(sqlite_store, tmp_path, times=30, pause=1.0)
    assert written > 2000
    await check(made, sqlite_store)


async def test_what_is_written_while_pages_are_copied_is_not_in_the_copy_and_restarts_nothing(
    sqlite_store: SqliteStore, tmp_path: Path
) -> None:
    await sqlite_store.append([notes(*["x" * 10_000] * 1000)])
    head, loop = await sqlite_store.deployment_head(), asyncio.get_running_loop()
    copied_pages: list[int] = []

    def write_meanwhile(done: int, _total: int) -> None:
        assert done > max(copied_pages, default=0), "the copy began again"
        copied_pages.append(done)
        asyncio.run_coroutine_threadsafe(sqlite_store.append([notes("meanwhile")]), loop).result()

    content = await asyncio.to_thread(copy_database, sqlite_store.path, tmp_path / "copy.db", write_meanwhile)
    assert content.head == head
    assert len(copied_pages) > 2
    assert len(await whole(sqlite_store)) == 1000 + len(copied_pages)


async def test_the_manifest_says_what_is_in_the_backup(sqlite_store: SqliteStore, tmp_path: Path) -> None:
    await sqlite_store.append([notes("a", "b"), notes("c", tape="other")])
    await sqlite_store.workspace("label")
    config = tmp_path / "config.toml"
    config.write_text("[bot]\n")
    made = write_backup(sqlite_store.path, tmp_path / "backup", ExtraFiles({"config.toml": config}), START)
    data = json.loads((tmp_path / "backup" / "manifest.json").read_text())
    assert {one["name"]: one["id"] for one in data["tapes"]} == {"tape": 2, "other": 1}
    assert {one["name"]: one["hash"] for one in data["tapes"]} == {
        one.name: one.hash for one in await sqlite_store.tapes()
    }
    assert data["deployment_head"] == await sqlite_store.deployment_head()
    assert (data["format"], data["schema"], data["workspace"]) == (1, len(MIGRATIONS), "label")
    assert data["created"] == "2026-11-21T20:21:00.000000+00:00"
    assert set(data["files"]) == {"bubbot.db", "config.toml"}
    assert data["files"]["config.toml"]["size"] == 6
    assert read_manifest(tmp_path / "backup") == made == verify_backup(tmp_path / "backup")
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "backup").iterdir()}
    assert modes == dict.fromkeys(("bubbot.db", "config.toml", "manifest.json"), 0o600)
    assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o700


@pytest.fixture
async def backup(sqlite_store: SqliteStore, tmp_path: Path) -> Path:
    await sqlite_store.append([notes("a", "b"), notes("c", tape="other")])
    write_backup(sqlite_store.path, tmp_path / "backup", ExtraFiles(), START)
    return tmp_path / "backup"


def manifest(backup: Path, **changes: object) -> None:
    path = backup / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def one_byte(backup: Path) -> None:
    data = bytearray((backup / "bubbot.db").read_bytes())
    data[-1] ^= 1
    (backup / "bubbot.db").write_bytes(bytes(data))


def altered_with_its_digest(backup: Path) -> None:
    """Somebody changed an entry and knew of the digests."""
    tamper(backup / "bubbot.db", 'UPDATE entries SET payload = \'{"content":"z"}\' WHERE seq = 1')
    redo_digest(backup)


def redo_digest(backup: Path) -> None:
    path = backup / "bubbot.db"
    manifest(backup, files={"bubbot.db": {"size": path.stat().st_size, "sha256": digest_of_file(path)}})


def shortened_with_its_digest(backup: Path) -> None:
    """Somebody took the newest entry away."""
    tamper(backup / "bubbot.db", "DELETE FROM entries WHERE seq = 3")
    redo_digest(backup)


def foreign_with_its_digest(backup: Path) -> None:
    with raw(backup / "bubbot.db") as conn:
        conn.execute("PRAGMA application_id = 1")
    redo_digest(backup)


SPOILED: list[tuple[Callable[[Path], object], type[BubbotError], str]] = [
    (one_byte, TapeCorrupt, "altered: bubbot.db is not what its manifest says"),
    (altered_with_its_digest, TapeCorrupt, "a damaged tape: tape #1 altered"),
    (shortened_with_its_digest, TapeCorrupt, "do not end as its manifest says"),
    (foreign_with_its_digest, StoreUnavailable, "another program"),
    (lambda path: (path / "bubbot.db").unlink(), TapeCorrupt, "bubbot.db is missing"),
    (lambda path: (path / "manifest.json").unlink(), ConfigError, "not a backup of bubbot"),
    (lambda path: (path / "manifest.json").write_text("{"), TapeCorrupt, "cannot be read"),
    (lambda path: (path / "manifest.json").write_text("[]"), ConfigError, "another program"),
    (lambda path: manifest(path, format=3), ConfigError, "format 3"),
    (lambda path: manifest(path, schema=99), StoreTooNew, "version 99"),
    (lambda path: manifest(path, files={"../x": {"size": 1, "sha256": ""}}), TapeCorrupt, "list of files"),
    (lambda path: manifest(path, deployment_head="1:00"), TapeCorrupt, "do not end as"),
    (lambda path: manifest(path, created="some day"), TapeCorrupt, "its time"),
    (shutil.rmtree, ConfigError, "not a backup of bubbot"),
]


@pytest.mark.parametrize(("spoil", "error", "told"), SPOILED, ids=[told for *_, told in SPOILED])
async def test_a_backup_that_is_not_what_it_was_is_refused(
    backup: Path, spoil: Callable[[Path], object], error: type[BubbotError], told: str
) -> None:
    spoil(backup)
    with pytest.raises(error, match=told):
        verify_backup(backup)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_a_damaged_database_is_not_backed_up(sqlite_store: SqliteStore, tmp_path: Path) -> None:
    for _ in range(200):
        await sqlite_store.append([notes("x" * 3000)])
    await sqlite_store.aclose()
    copy = tmp_path / "damaged.db"
    data = bytearray((tmp_path / "bubbot.db").read_bytes())
    data[8 * 4096 : 60 * 4096] = b"\x07" * (52 * 4096)
    copy.write_bytes(bytes(data))
    with pytest.raises(TapeCorrupt, match="damaged"):
        write_backup(copy, tmp_path / "backup", ExtraFiles(), START)
    assert names(tmp_path) == {"bubbot.db", "damaged.db", "damaged.db-shm", "damaged.db-wal"}


async def test_only_the_oldest_own_backups_make_room(sqlite_store: SqliteStore, tmp_path: Path) -> None:
    await sqlite_store.append([notes("a")])
    folder = backups_folder(tmp_path)
    folder.mkdir()
    for number in range(4):
        at = START + timedelta(seconds=number)
        write_backup(sqlite_store.path, folder / f"bubbot-{number}", ExtraFiles(), at)
    write_backup(sqlite_store.path, folder / "before-migration-v1-x", ExtraFiles(), START)
    for name in (
        f".partial-{os.getpid()}-bubbot-own",
        "mine",
        "bubbot-mine",
        ".partial-1-bubbot-alive",
        ".partial-99999999-bubbot-dead",
    ):
        (folder / name).mkdir()
    (folder / "bubbot-file").write_text("mine")
    assert [path.name for path in prune_backups(tmp_path, 2)] == ["bubbot-0", "bubbot-1"]
    assert sorted(path.name for path in folder.iterdir()) == [
        ".partial-1-bubbot-alive", "before-migration-v1-x", "bubbot-2", "bubbot-3", "bubbot-file", "bubbot-mine", "mine",
    ]  # fmt: skip
    assert [one.path.name for one in list_backups(tmp_path)] == ["before-migration-v1-x", "bubbot-2", "bubbot-3"]
    assert prune_backups(tmp_path, 2) == []


async def test_a_backup_takes_the_place_of_nothing(sqlite_store: SqliteStore, tmp_path: Path) -> None:
    await sqlite_store.append([notes("a")])
    (tmp_path / "mine").mkdir()
    with pytest.raises(ConfigError, match="already exists"):
        write_backup(sqlite_store.path, tmp_path / "mine", ExtraFiles(), START)
    with pytest.raises(ConfigError, match="No such file"):
        write_backup(sqlite_store.path, tmp_path / "no" / "folder", ExtraFiles(), START)
    assert {name for name in names(tmp_path) if "bubbot.db" not in name} == {"mine"}


@pytest.mark.parametrize(
    ("name", "error", "told"),
    [
        ("SQLITE_FULL", StoreFull, "no room for the backup"),
        ("SQLITE_IOERR_WRITE", StoreFull, "no room for the backup"),
        ("SQLITE_CANTOPEN", StoreUnavailable, "cannot be opened"),
    ],
)
async def test_a_copy_that_a_disk_does_not_take_says_which_one(
    sqlite_store: SqliteStore, tmp_path: Path, name: str, error: type[BubbotError], told: str
) -> None:
    await sqlite_store.append([notes("a")])

    def fail(_copied: int, _all: int) -> None:
        failure = sqlite3.OperationalError("no")
        failure.sqlite_errorname = name
        raise failure

    with pytest.raises(error, match=told):
        copy_database(sqlite_store.path, tmp_path / "copy.db", fail)


def test_where_there_is_no_database_there_is_nothing_to_copy(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="no database"):
        write_backup(tmp_path / "bubbot.db", tmp_path / "backup", ExtraFiles(), START)
    assert list(tmp_path.iterdir()) == []
