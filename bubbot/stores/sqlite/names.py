"""Facts about names that a migration or a repair appends, past the writer of a store."""

from __future__ import annotations

import sqlite3

from msgspec import UNSET

from bubbot.stores.names import TapeNameRow, imported_heads, missing_blobs, tape_names
from bubbot.stores.rows import INSERT_ENTRY, NEWEST_POSITION, encode_content, to_row
from bubbot.tape.chain import genesis
from bubbot.tape.entry import EMPTY_OBJECT, TapeEntry
from bubbot.tape.events import TapeNamed
from bubbot.tape.handle import spans_of


def name_tapes(conn: sqlite3.Connection, now: str) -> None:
    """Append `tape/named` to every tape of a database from before version 3, so that audits check its name.

    The fact also lists the entries already erased on the tape, and the missing blobs that its entries cite.
    """
    imported = imported_heads(conn)
    for tape in tape_names(conn):
        if not tape.first_position and tape.archived_from is None:
            continue  # the chain of its first entry will begin with its name
        erased = [
            entry_id for (entry_id,) in conn.execute("SELECT id FROM erased WHERE tape = ? ORDER BY id", (tape.number,))
        ]
        missing = sorted(missing_blobs(conn, tape, imported.get(tape.original_name, 0)))
        named = TapeNamed(
            name=tape.name,
            from_=UNSET if tape.archived_from is None else tape.archived_from,
            erased=spans_of(erased) or UNSET,
            missing_blobs=tuple(missing) or UNSET,
        )
        salt = conn.execute("SELECT randomblob(16)").fetchone()[0]
        append_fact(conn, tape, named.to_entry().with_meta(EMPTY_OBJECT, now), salt)


def append_fact(conn: sqlite3.Connection, tape: TapeNameRow, fact: TapeEntry, salt: bytes) -> None:
    """Append a fact to a tape in the caller's transaction; no bot may have the database open."""
    end = conn.execute(
        "SELECT id, chain FROM entries INDEXED BY entries_id WHERE tape = ? ORDER BY id DESC LIMIT 1", (tape.number,)
    ).fetchone()
    head, chain = end or (0, genesis(tape.original_name))
    placed, seq = fact.with_id(head + 1), conn.execute(NEWEST_POSITION).fetchone()[0] + 1
    content = encode_content(placed, salt)
    conn.execute(INSERT_ENTRY, to_row(placed, content, seq=seq, tape=tape.number, previous=chain))
