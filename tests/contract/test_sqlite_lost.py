"""A database that lost its newest entries, with its write-ahead log or by an older copy: refused, never begun anew in silence."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bubbot.app.stores import find_loss, open_home_store, refuse_unusable_database
from bubbot.errors import ConfigError, DatabaseLost
from bubbot.home import Home
from bubbot.ops.doctor.database import read_database
from bubbot.settings.sections import StoreSettings
from bubbot.stores.sqlite.sizes import WalLimits
from bubbot.stores.sqlite.store import SqliteStore, open_store
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import event
from bubbot.tape.store import ResetBatch
from tests.contract.test_sqlite_attacks import DATABASES
from tests.doubles import SteppingClock
from tests.raw import raw
from tests.tapes import batch, note, notes, texts

OLD, NEW = 10, 20
"""Entries in the database file, and those after them in its write-ahead log."""
AT_ONCE = WalLimits(note_seconds=0.0)
WAL_HEADER, FRAME_HEADER, PAGE = 32, 24, 4096


@asynccontextmanager
async def writing(home: Home, limits: WalLimits = AT_ONCE) -> AsyncIterator[SqliteStore]:
    """The store of a home as a bot has it, but each commit is noted at once."""
    refuse_unusable_database(home)
    home.ensure()
    store = await open_store(
        home.database, salt=os.urandom, now=SteppingClock(), on_newest=home.mark_database, limits=limits
    )
    home.mark_database()
    try:
        yield store
    finally:
        await store.aclose()


async def say(home: Home, first: int, count: int) -> None:
    async with writing(home) as store:
        for number in range(first, first + count):
            await store.append([notes(f"{number}")])


async def run_bot(folder: Path) -> None:
    """Make a home as a bot leaves it that has been running for a while, and what it was when that bot started."""
    home = Home(folder / "bot")
    await say(home, 0, OLD)
    shutil.copytree(home.path, folder / "older")
    async with writing(home) as store:
        for number in range(OLD, OLD + NEW):
            await store.append([notes(f"{number}")])
        shutil.copytree(home.path, folder / "running", ignore=shutil.ignore_patterns("*-shm", "*.new"))
    shutil.copytree(home.path, folder / "stopped")


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lost")
    asyncio.run(run_bot(folder))
    return folder


@pytest.fixture
def home(homes: Path, tmp_path: Path) -> Home:
    """A copy of the home of a running bot; nothing has it open."""
    return Home(Path(shutil.copytree(homes / "running", tmp_path / "home")))


def wal(home: Home) -> Path:
    return home.database.with_name("bubbot.db-wal")


def overwrite(file: Path, offset: int, data: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(offset)
        opened.write(data)


def frames(home: Home) -> int:
    return (wal(home).stat().st_size - WAL_HEADER) // (FRAME_HEADER + PAGE)


def damage_middle(home: Home) -> None:
    """Zero a page in the middle of the log: SQLite reads it up to there."""
    overwrite(wal(home), WAL_HEADER + frames(home) // 2 * (FRAME_HEADER + PAGE) + FRAME_HEADER, bytes(PAGE))


LOSSES: dict[str, tuple[Callable[[Home], object], int]] = {
    "the log removed": (lambda home: wal(home).unlink(), OLD),
    "the log emptied": (lambda home: wal(home).write_bytes(b""), OLD),
    "the header of the log damaged": (lambda home: overwrite(wal(home), 0, bytes(WAL_HEADER)), OLD),
    "bytes lost in the middle of the log": (damage_middle, 0),
    "the log cut": (lambda home: os.truncate(wal(home), WAL_HEADER + 6 * (FRAME_HEADER + PAGE)), 0),
}
"""What is done, and where the database ends then; 0: somewhere in the log."""


def refused(home: Home) -> str:
    """The sentence that everything which opens the home ends with, and that changes nothing."""
    before = home.database.read_bytes()
    with pytest.raises(DatabaseLost) as caught:
        asyncio.run(open_home_store(StoreSettings(), home, now=SteppingClock()))
    with pytest.raises(DatabaseLost, match="^" + re.escape(str(caught.value)) + "$"):
        asyncio.run(open_home_store(StoreSettings(), home, now=SteppingClock(), readonly=True))
    [finding] = read_database(home, now=datetime.now(UTC), deep=True)[1]
    assert (finding.id, finding.level, finding.fix) == ("database.lost", "problem", caught.value.fix)
    assert home.database.read_bytes() == before
    return str(caught.value)


def test_the_home_of_a_killed_bot_is_whole(home: Home) -> None:
    assert frames(home) > NEW
    assert find_loss(home) is None
    moved = Home(home.path.rename(home.path.with_name("moved")))
    asyncio.run(say(moved, OLD + NEW, 1))
    assert find_loss(moved) is None


@pytest.mark.parametrize("name", LOSSES)
def test_a_database_that_lost_its_log_is_refused(home: Home, name: str) -> None:
    damage, newest = LOSSES[name]
    damage(home)
    loss = find_loss(home)
    assert loss is not None
    assert loss.newest == newest or (newest == 0 and OLD < loss.newest < OLD + NEW - 1)
    assert f"ends with entry {loss.newest}, and this home had " in refused(home)


def test_a_copy_of_the_database_alone_has_what_was_written_back(homes: Path, home: Home) -> None:
    """With the mark it is refused; alone, in a new folder, people can look at it."""
    for path in home.path.iterdir():
        if path.name not in ("bubbot.db", "had-database"):
            path.unlink()
    refused(home)
    home.database_mark.unlink()
    assert find_loss(home) is None


def test_a_new_home_whose_log_is_lost_is_no_new_home_again(tmp_path: Path) -> None:
    """Up to its first checkpoint the database file is a single page, which says nothing."""
    home, copy = Home(tmp_path / "home"), Home(tmp_path / "copy")

    async def begin() -> None:
        async with writing(home) as store:
            await store.append([notes("a")])
            shutil.copytree(home.path, copy.path, ignore=shutil.ignore_patterns("*-shm", "*-wal", "*.new"))

    asyncio.run(begin())
    os.truncate(copy.database, 0)
    with raw(copy.database) as conn:
        conn.execute("PRAGMA journal_mode = WAL")
    assert copy.database.stat().st_size == PAGE
    lost = find_loss(copy)
    assert lost is not None
    assert (lost.state, lost.newest) == ("holds nothing, and this home had one", 0)
    assert "begin with an empty one" in refused(copy)
    copy.database_mark.write_text("")  # of a version that marked no entry
    assert "begin with an empty one" in refused(copy)


def test_an_older_copy_put_back_is_refused_also_when_it_went_on(homes: Path, home: Home) -> None:
    shutil.copytree(homes / "stopped", home.path, dirs_exist_ok=True)
    wal(home).unlink(missing_ok=True)
    assert find_loss(home) is None
    shutil.copy(homes / "older" / "bubbot.db", home.database)
    assert f"ends with entry {OLD}, and this home had {OLD + NEW}" in refused(home)
    mark = home.database_mark.read_bytes()
    home.database_mark.unlink()
    asyncio.run(say(home, 0, NEW + 5))  # as a version does that looks at no mark
    home.database_mark.write_bytes(mark)
    assert f"its entry {OLD + NEW} is another one" in refused(home)


def test_a_mark_without_an_entry_asks_for_a_database_and_no_more(homes: Path, home: Home) -> None:
    """As homes of older versions have it, or one whose mark is no file at all."""
    wal(home).unlink()
    for content in ("", "This home has a database.\n", "7:abc\n", "no\x00text" * 2000):
        home.database_mark.write_text(content)
        assert find_loss(home) is None
    home.database_mark.unlink()
    home.database_mark.mkdir()
    assert find_loss(home) is None
    asyncio.run(say(home, 0, 1))  # cannot be marked, and goes on
    assert find_loss(home) is None


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_database_that_is_migrated_keeps_its_marked_entry(tmp_path: Path, version: int) -> None:
    home = Home(tmp_path)
    shutil.copy(DATABASES / f"version-{version}.db", home.database)
    with raw(home.database) as conn:
        position, chain = conn.execute("SELECT seq, lower(hex(chain)) FROM entries ORDER BY seq DESC").fetchone()
    home.mark_database(f"{position}:{chain}")

    async def opened() -> None:
        await (await open_home_store(StoreSettings(), home, now=SteppingClock())).aclose()

    for _ in range(2):
        asyncio.run(opened())
    assert find_loss(home) is None
    assert (home.read_marked_entry() or (0,))[0] >= position


async def test_an_erased_entry_is_still_the_marked_one(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    async with writing(home) as store:
        await store.append([batch(anchor("session/start"), note("secret"))])
    marked = home.read_marked_entry()
    assert marked is not None
    assert marked[0] == 2
    async with writing(home, WalLimits(note_seconds=1e9)) as store:
        erasure = event("tape/erased").with_meta({}, "2026-11-21T20:21:00.000000+00:00")
        await store.reset("tape", ResetBatch("tape@1", erase=True), [anchor("session/start"), erasure])
        assert b"secret" not in home.database.read_bytes()
        assert home.read_marked_entry() == marked
        assert find_loss(home) is None
    assert (home.read_marked_entry() or (0,))[0] > 2
    assert find_loss(home) is None


async def test_a_reader_beside_a_writer_never_finds_a_loss(tmp_path: Path) -> None:
    """The mark is never ahead of what others can read."""
    home = Home(tmp_path / "home")
    positions = []
    async with writing(home, WalLimits(short=1 << 16, long=1 << 17, note_seconds=0.0)) as store:
        await store.append([notes("first")])
        for round_ in range(40):
            job = asyncio.gather(*(store.append([notes(f"{round_} {number}")]) for number in range(3)))
            while not job.done():
                assert await asyncio.to_thread(find_loss, home) is None
            await job
            positions.append((home.read_marked_entry() or (0,))[0])
    assert positions == sorted(positions)
    assert len(set(positions)) > 20


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from datetime import UTC, datetime
from tests.tapes import notes
from bubbot.home import Home
from bubbot.stores.sqlite.sizes import WalLimits
from bubbot.stores.sqlite.store import open_store

async def main(home):
    def kill(newest):
        if newest.startswith("12:"):
            os.kill(os.getpid(), signal.SIGKILL)
        home.mark_database(newest)
    now, limits = lambda: datetime.now(UTC), WalLimits(note_seconds=0.0)
    store = await open_store(home.database, salt=os.urandom, now=now, on_newest=kill, limits=limits)
    for count in range(1, 30):
        await store.append([notes(str(count))])
asyncio.run(main(Home(Path(sys.argv[1]))))
"""


def test_a_process_killed_between_its_commit_and_the_mark_loses_nothing(homes: Path, tmp_path: Path) -> None:
    home = Home(Path(shutil.copytree(homes / "older", tmp_path / "home")))
    done = subprocess.run([sys.executable, "-c", KILLED, str(home.path)], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert (home.read_marked_entry() or (0,))[0] == 11
    assert find_loss(home) is None

    async def open_beside_a_reader() -> None:
        with raw(home.database) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM entries").fetchall()
            async with writing(home):  # the reader keeps the log from being truncated, and nothing is noted before that
                assert (home.read_marked_entry() or (0,))[0] == 11
                reader.rollback()
        assert (home.read_marked_entry() or (0,))[0] >= 12

    async def stored() -> list[str]:
        async with writing(home) as store:
            return await texts(store)

    asyncio.run(open_beside_a_reader())
    assert asyncio.run(stored())[10:12] == ["1", "2"]


def test_another_store_is_not_asked_for_a_marked_entry(home: Home) -> None:
    """Its database is elsewhere: the home keeps a mark of the one it had before."""
    wal(home).unlink()
    with pytest.raises(ConfigError, match="nowhere"):
        asyncio.run(open_home_store(StoreSettings(kind="nowhere"), home, now=SteppingClock()))
