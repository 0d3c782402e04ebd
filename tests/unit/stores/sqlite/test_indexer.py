"""The index in a running bot, and `bubbot tape index`."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import pytest

from bubbot.app.search import open_indexing
from bubbot.cli.main import main
from bubbot.features.search.settings import SearchSettings
from bubbot.stores.sqlite import store as sqlite_store_module
from bubbot.stores.sqlite.index.schema import index_path
from bubbot.stores.sqlite.indexer import Indexer, IndexerTiming
from bubbot.stores.sqlite.store import SqliteStore, open_store
from tests.doubles import CountingSalt, SteppingClock
from tests.tapes import notes


@asynccontextmanager
async def running(store: SqliteStore, *, index: bool = True) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group, open_indexing(store, SearchSettings(index=index), group):
        yield


async def until_filled(store: SqliteStore) -> None:
    async with asyncio.timeout(20):
        while (state := await store.index_state()) is None or not state.fresh or state.behind:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sqlite_store_module, "Indexer", partial(Indexer, manners=IndexerTiming(start_delay=0, gather_delay=0))
    )


@pytest.mark.usefixtures("hurried")
async def test_a_running_bot_fills_the_index_and_keeps_it_full(sqlite_store: SqliteStore) -> None:
    await sqlite_store.append([notes("volcano")])
    async with running(sqlite_store):
        await until_filled(sqlite_store)
        await sqlite_store.append([notes("cathedral")])
        await until_filled(sqlite_store)
        await sqlite_store.forget_index()
        await until_filled(sqlite_store)
    assert sqlite_store.indexer is None


@pytest.mark.usefixtures("hurried")
async def test_without_an_index_there_is_no_file(sqlite_store: SqliteStore, tmp_path: Path) -> None:
    await sqlite_store.append([notes("volcano")])
    async with running(sqlite_store):
        await until_filled(sqlite_store)
    async with running(sqlite_store, index=False):
        assert await sqlite_store.index_state() is None
    assert [path.name for path in await asyncio.to_thread(lambda: list(tmp_path.glob("search.db*")))] == []


async def test_a_bot_that_ends_at_once_leaves_nothing_behind(
    sqlite_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store_module, "Indexer", partial(Indexer, manners=IndexerTiming(start_delay=3600.0)))
    async with asyncio.timeout(60), running(sqlite_store):  # it does not wait for the hour to pass
        pass
    assert await sqlite_store.index_state() is None


@pytest.fixture
def home(tmp_path: Path) -> Path:
    async def fill() -> None:
        store = await open_store(tmp_path / "bubbot.db", salt=CountingSalt(), now=SteppingClock())
        await store.append([notes("volcano", "cathedral")])
        await store.aclose()

    asyncio.run(fill())
    return tmp_path


def test_the_command_makes_the_index_and_shows_it(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(home), "tape", "index"]) == 1
    assert "no search index yet" in capsys.readouterr().out
    assert main(["--home", str(home), "tape", "index", "--rebuild"]) == 0
    assert capsys.readouterr().out.startswith("2 entries are indexed; ")
    with closing(sqlite3.connect(index_path(home / "bubbot.db"))) as index:
        index.execute("CREATE TABLE mark (x)")
        index.commit()
    assert main(["--home", str(home), "tape", "index"]) == 0
    assert capsys.readouterr().out.startswith("2 entries are indexed; ")
    assert main(["--home", str(home), "tape", "index", "--rebuild"]) == 0
    with closing(sqlite3.connect(index_path(home / "bubbot.db"))) as index:
        assert not index.execute("SELECT 1 FROM sqlite_master WHERE name = 'mark'").fetchone(), (
            "the file is another one"
        )


def test_the_command_makes_none_where_none_is_wanted(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text("[search]\nindex = false\n", encoding="utf-8")
    assert main(["--home", str(home), "tape", "index", "--rebuild"]) == 1
    assert "[search] index is false" in capsys.readouterr().out
    assert not index_path(home / "bubbot.db").exists()
