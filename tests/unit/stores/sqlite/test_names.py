"""What the entries of a tape say of its name and its blobs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from bubbot.stores.names import missing_blobs, tape_names
from bubbot.stores.sqlite.store import SqliteStore
from bubbot.tape.entry import TapeEntry, event, message, system, tool_result
from bubbot.tape.store import Batch
from tests.raw import raw, tamper


def cited(conn: sqlite3.Connection) -> dict[str, int]:
    """The blobs that entries of the only tape cite, by the first entry; nobody has stored one."""
    (tape,) = tape_names(conn)
    return missing_blobs(conn, tape, 0)


async def test_an_entry_that_cannot_be_read_hides_no_citation_of_another(sqlite_store: SqliteStore) -> None:
    digests = ["a" * 64, "b" * 64]
    await sqlite_store.append([Batch("chat", tuple(TapeEntry("system", {"digest": digest}) for digest in digests))])
    path: Path = sqlite_store.path
    await sqlite_store.aclose()
    with raw(path) as conn:
        assert cited(conn) == {digests[0]: 1, digests[1]: 2}
    tamper(path, "UPDATE entries SET payload = ? WHERE id = 2", ['{"digest": "' + digests[1] + '"'])
    with raw(path) as conn:
        assert cited(conn) == {digests[0]: 1}


async def test_a_blob_is_cited_by_entries_of_each_kind_that_names_blobs(sqlite_store: SqliteStore) -> None:
    digests = [digit * 64 for digit in "12345"]
    entries = [
        TapeEntry("system", {"digest": digests[0]}),
        message("user", [{"type": "image", "digest": digests[1]}]),
        tool_result([{"tool_call_id": "1", "content": "cut"}], blobs=[digests[2]]),
        event("command", {"name": "help", "output": "cut", "blobs": [digests[3]]}),
        event("loop.step", {"system": digests[4]}),
        event("something.else", {"blobs": ["6" * 64]}),
        system("7" * 64),
    ]
    await sqlite_store.append([Batch("chat", tuple(entries))])
    await sqlite_store.aclose()
    with raw(sqlite_store.path) as conn:
        assert cited(conn) == {digest: number for number, digest in enumerate(digests, start=1)}
