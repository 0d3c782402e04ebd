"""Queries as SQL: what SQLite leaves out before Python reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

from bubbot.stores import rows
from bubbot.stores.sqlite.connections import open_reader
from bubbot.stores.sqlite.rows import find_entries
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, message
from bubbot.tape.query import IdRanges, NewestAnchors, TapeQuery
from bubbot.tape.store import Batch

ENTRIES = 4000


def reading(folder: Path) -> aiosqlite.Connection:
    return aiosqlite.Connection(partial(open_reader, folder / "bubbot.db"), 64)


@pytest.fixture
async def conn(sqlite_store: SqliteStore, tmp_path: Path) -> AsyncIterator[aiosqlite.Connection]:
    texts = [f"word {number}" for number in range(ENTRIES - 4)]
    texts += ["the Volcano", "100% of_it", "der Vulk\u00e1n", "a \u2603 snowman"]
    await sqlite_store.append([Batch("chat", tuple(message("user", text) for text in texts))])
    async with reading(tmp_path) as opened:
        yield opened


def noted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the entries that are read whole from now on."""
    read: list[int] = []
    from_row = rows.from_row

    def noted(tape: str, row: tuple[Any, ...]) -> TapeEntry:
        read.append(row[0])
        return from_row(tape, row)

    monkeypatch.setattr("bubbot.stores.sqlite.rows.from_row", noted)
    return read


async def steps_of(conn: aiosqlite.Connection, query: TapeQuery) -> int:
    """Count the steps of SQLite's virtual machine, in hundreds."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    await conn.set_progress_handler(count, 100)
    await find_entries(conn, query)
    await conn.set_progress_handler(count, 0)
    return counted


async def test_several_ranges_do_not_go_through_the_whole_tape(conn: aiosqlite.Connection) -> None:
    few = IdRanges(((10, 12), (2000, 2003), (3000, 3000)))
    assert [entry.id for entry in await find_entries(conn, TapeQuery("chat", few))] == [
        10,
        11,
        12,
        2000,
        2001,
        2002,
        2003,
        3000,
    ]
    backwards = TapeQuery("chat", few, newest=True, limit=3)
    assert [entry.id for entry in await find_entries(conn, backwards)] == [3000, 2003, 2002]
    assert await steps_of(conn, TapeQuery("chat", few)) < await steps_of(conn, TapeQuery("chat")) / 50


async def test_a_text_is_looked_for_in_few_rows(conn: aiosqlite.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    read = noted_reads(monkeypatch)
    for text, found in (
        ("volcano", [ENTRIES - 3]),
        ("100%", [ENTRIES - 2]),
        ("f_it", [ENTRIES - 2]),
        ("of%it", []),
        ("vulk\u00e1n", [ENTRIES - 1]),
        ("\u2603", [ENTRIES]),
        ("nowhere", []),
    ):
        assert [entry.id for entry in await find_entries(conn, TapeQuery("chat", searchable_text=text))] == found, text
        assert read == found, text
        read.clear()


async def test_other_spellings_are_compared_before_rows_are_read(
    conn: aiosqlite.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = noted_reads(monkeypatch)
    found = await find_entries(conn, TapeQuery("chat", similar_text="the volcnao"))
    assert [entry.id for entry in found] == read == [ENTRIES - 3]


async def test_other_spellings_are_found_wherever_a_block_of_rows_begins(
    sqlite_store: SqliteStore, tmp_path: Path
) -> None:
    meant = [1, 63, 64, 65, 128, 129, 130, 200]
    texts = {number: "the volcano" if number in meant else f"word {number}" for number in range(1, 201)}
    texts |= {
        63: "\x01 the Volcano",
        64: "a caf\u00e9, the\nvolcano",
        128: "the",
        129: "the \uff36olcano",
        130: "volcano",
    }
    await sqlite_store.append([Batch("chat", tuple(message("user", text) for text in texts.values()))])
    found = [1, 63, 64, 65, 129, 200]
    query = TapeQuery("chat", similar_text="the volcnao")
    async with reading(tmp_path) as conn:
        for asked, ids in (
            (query, found),
            (replace(query, newest=True), found[::-1]),
            (replace(query, newest=True, limit=3), [200, 129, 65]),
            (replace(query, part=IdRanges(((2, 64), (66, None)))), [63, 64, 129, 200]),
            (replace(query, part=IdRanges(((129, 129), (150, 199)))), [129]),
            (replace(query, as_of=128), [1, 63, 64, 65]),
            (replace(query, kinds=("event",)), []),
            (replace(query, tape="nothing"), []),
        ):
            assert [entry.id for entry in await find_entries(conn, asked)] == ids, asked


async def test_the_newest_anchors_cost_as_much_as_there_are_names_however_many_anchors_there_are(
    sqlite_store: SqliteStore, tmp_path: Path
) -> None:
    for tape, visits in (("short", 2), ("long", 60)):
        anchors = tuple(anchor(f"topic/{number % 40}") for number in range(40 * visits))
        await sqlite_store.append([Batch(tape, anchors)])
    async with reading(tmp_path) as conn:
        short, long = (TapeQuery(tape, NewestAnchors("topic/")) for tape in ("short", "long"))
        assert [len(await find_entries(conn, query)) for query in (short, long)] == [40, 40]
        assert await steps_of(conn, long) <= await steps_of(conn, short) + 2


async def test_the_newest_of_many_names_is_found_without_going_through_all_of_them(
    sqlite_store: SqliteStore, tmp_path: Path
) -> None:
    for tape, names in (("few", 150), ("many", 600)):
        anchors = [anchor(f"topic/{number}") for number in range(names)]
        await sqlite_store.append([Batch(tape, (*anchors, anchor("phase/next")))])
    async with reading(tmp_path) as conn:
        queries = {tape: TapeQuery(tape, NewestAnchors("topic/"), newest=True, limit=1) for tape in ("few", "many")}
        assert [entry.id for entry in await find_entries(conn, queries["many"])] == [600]
        assert await steps_of(conn, queries["many"]) <= await steps_of(conn, queries["few"]) + 2
        earlier = replace(queries["many"], as_of=100)
        assert [entry.id for entry in await find_entries(conn, earlier)] == [100]


@pytest.mark.parametrize(
    ("prefix", "found"),
    [("a", [1, 2, 3, 4, 5, 6]), ("a\ud7ff", [3, 4]), ("a\U0010ffff", [6]), ("\U0010ffff", [8]), ("b", [7]), ("c", [])],
)
async def test_the_names_with_a_prefix_end_at_the_next_letter(
    sqlite_store: SqliteStore, tmp_path: Path, prefix: str, found: list[int]
) -> None:
    """No text has a surrogate: after U+D7FF comes U+E000."""
    names = ("a", "aa", "a\ud7ff", "a\ud7ff\U0010ffff", "a\ue000", "a\U0010ffffz", "b", "\U0010ffff")
    await sqlite_store.append([Batch("chat", tuple(map(anchor, names)))])
    async with reading(tmp_path) as conn:
        for query in (
            TapeQuery("chat", NewestAnchors(prefix)),
            TapeQuery("chat", NewestAnchors(prefix), newest=True, limit=8),
        ):
            assert sorted(entry.id for entry in await find_entries(conn, query)) == found


async def test_a_name_that_was_used_long_before_the_newest_anchors_is_found(
    sqlite_store: SqliteStore, tmp_path: Path
) -> None:
    older = [anchor("topic/a"), anchor("topic/b"), *(anchor("phase/next") for _ in range(300))]
    await sqlite_store.append([Batch("chat", tuple(older))])
    async with reading(tmp_path) as conn:
        newest = TapeQuery("chat", NewestAnchors("topic/"), newest=True, limit=1)
        assert [entry.id for entry in await find_entries(conn, newest)] == [2]
        assert await find_entries(conn, replace(newest, part=NewestAnchors("nothing"))) == ()
