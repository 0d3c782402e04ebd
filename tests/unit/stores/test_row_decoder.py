"""A decoder of rows that keeps entries gives the same ones as without, also of a row that changed meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bubbot.stores import rows
from bubbot.stores.sqlite.store import open_readonly, open_store
from bubbot.tape import entry as make
from bubbot.tape.entry import TapeEntry
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import Batch
from tests.doubles import CountingIds, CountingSalt, SteppingClock

QUERY = TapeQuery("talk")


async def test_what_is_read_again_is_not_decoded_again_and_what_was_erased_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = list[int]()
    from_row = rows.from_row

    def note(tape: str, row: tuple[Any, ...]) -> TapeEntry:
        decoded.append(row[0])
        return from_row(tape, row)

    monkeypatch.setattr(rows, "from_row", note)
    store = await open_store(tmp_path / "a.db", salt=CountingSalt(), now=SteppingClock())
    tape = TapeService(store, "talk", now=SteppingClock(), new_id=CountingIds())
    await tape.append([make.message("user", text) for text in ("one", "two", "three")])
    reader = await open_readonly(tmp_path / "a.db", keep=2)
    try:
        for _ in range(2):
            (found,) = await reader.fetch([QUERY])
            assert [entry.payload["content"] for entry in found] == ["one", "two", "three"]
        decoded.clear()
        newest = TapeQuery("talk", newest=True, limit=2)
        assert (await reader.fetch([newest]))[0] == (await reader.fetch([newest]))[0]
        assert decoded == []
        await store.erase([Batch("bubbot/home", (make.event("tape/erased", {"reason": "person"}),))], [("talk", (3,))])
        assert [entry.erased for entry in (await reader.fetch([newest]))[0]] == [True, False]
        assert decoded == [3]
        assert (await reader.fetch([QUERY]))[0] == (await store.fetch([QUERY]))[0]
    finally:
        await reader.aclose()
        await store.aclose()
