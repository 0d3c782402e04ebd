"""The size of a database on a server."""

from __future__ import annotations

from bubbot.ports.store import DatabaseSize, TapeSize
from bubbot.stores.postgres.schema import Connection

_SELECT_TAPES = """
SELECT tapes.name, archived_from, count(entries.id), coalesce(sum(
    octet_length(kind) + octet_length(date) + length(digest) + length(entries.chain) + coalesce(octet_length(key), 0)
    + coalesce(octet_length(entries.name), 0) + coalesce(octet_length(payload), 0) + coalesce(octet_length(meta), 0)
    + coalesce(length(salt), 0)
), 0)::bigint, (SELECT coalesce(sum(size), 0)::bigint FROM blobs WHERE blobs.tape = tapes.tape)
FROM tapes LEFT JOIN entries USING (tape) GROUP BY tapes.tape ORDER BY tapes.name
"""


def measure_size(conn: Connection) -> DatabaseSize:
    """Measure the disk usage. It reads the lengths of all entries. What is free only the server knows."""
    tapes = [TapeSize(*row) for row in conn.execute(_SELECT_TAPES)]
    row = conn.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    return DatabaseSize(
        file=row[0],
        free=0,
        wal=0,
        gives_back=True,
        tapes=tuple(tape for tape in tapes if tape.count or tape.blobs),
    )
