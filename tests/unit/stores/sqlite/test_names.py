"""What the entries of a tape say of its name and its blobs."""

from __future__ import annotations

from pathlib import Path

from bubbot.stores.sqlite import names
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import TapeEntry
from bubbot.tape.store import Batch
from tests.raw import raw, tamper


async def test_an_entry_that_cannot_be_read_hides_no_citation_of_another(sqlite_store: SqliteStore) -> None:
    digests = ["a" * 64, "b" * 64]
    await sqlite_store.append([Batch("chat", tuple(TapeEntry("system", {"digest": digest}) for digest in digests))])
    path: Path = sqlite_store.path
    await sqlite_store.aclose()
    with raw(path) as conn:
        assert list(names._citations(conn, 1, 0)) == [(2, digests[1]), (1, digests[0])]
    tamper(path, "UPDATE entries SET payload = ? WHERE id = 2", ['{"digest": "' + digests[1] + '"'])
    with raw(path) as conn:
        assert list(names._citations(conn, 1, 0)) == [(1, digests[0])]
