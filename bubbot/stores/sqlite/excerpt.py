"""A database that holds some tapes of another one, as they are there: for a process that shall be able to open nothing else."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from bubbot.stores.sqlite.connections import translated_errors
from bubbot.stores.sqlite.schema import expected_triggers, migrate
from bubbot.tape.events import STEP_EVENT

_COPIES = (
    "INSERT INTO deployment SELECT * FROM source.deployment WHERE key IN ('workspace', 'tape_shards')",
    "INSERT INTO tapes SELECT * FROM source.tapes WHERE tape IN (SELECT tape FROM whole UNION SELECT tape FROM part)",
    "INSERT INTO entries SELECT * FROM source.entries WHERE tape IN (SELECT tape FROM whole)",
    "INSERT INTO entries SELECT entries.* FROM part JOIN source.entries USING (tape, id)",
    "INSERT INTO erased SELECT erased.* FROM source.erased WHERE tape IN (SELECT tape FROM whole)",
    # What a model was shown of tapes that are not here stands in its prompt, such as the memory of people.
    f"""
    INSERT INTO blobs SELECT * FROM source.blobs WHERE tape IN (SELECT tape FROM whole) AND (tape, digest) NOT IN (
        SELECT tape, blob.value FROM source.entries, json_each(payload, '$.data.shown') AS shown,
            json_each(json_array(json_extract(payload, '$.data.system'), json_extract(payload, '$.data.messages'))) AS blob
        WHERE tape IN (SELECT tape FROM whole) AND name = '{STEP_EVENT}' AND kind = 'event' AND json_valid(payload)
            AND blob.value IS NOT NULL AND shown.type = 'array' AND json_type(shown.value, '$[0]') = 'text'
            AND json_extract(shown.value, '$[0]') NOT IN (SELECT name FROM tapes)
    )
    """,
    "INSERT INTO forks SELECT * FROM source.forks WHERE tape IN (SELECT name FROM whole)",
    "INSERT INTO fork_batches SELECT * FROM source.fork_batches WHERE fork IN (SELECT fork FROM forks) AND tape IN (SELECT name FROM whole)",
)


def write_excerpt(
    source: Path, target: Path, tapes: Collection[str], part: Mapping[str, Sequence[int]], *, now: str
) -> None:
    """Write a new database with some tapes in place of an earlier one, from one state of the source.

    Args:
        source: of a bot that may run meanwhile.
        target: what reads an earlier one goes on with that until it opens it again.
        tapes: names of tapes; each with its archives and blobs.
        part: ids of entries of further tapes.
        now: the time of the migration, ISO 8601.

    Raises:
        StoreError: it cannot be read or written.
    """
    made = target.with_name(f".{target.name}.new")
    made.unlink(missing_ok=True)
    with translated_errors(), closing(sqlite3.connect(made, isolation_level=None, uri=True)) as conn:
        conn.execute("PRAGMA synchronous = OFF")  # it is made again if it is lost
        conn.execute("PRAGMA foreign_keys = OFF")
        migrate(conn, now=now)
        for trigger in expected_triggers(int(conn.execute("PRAGMA user_version").fetchone()[0])):
            conn.execute(f"DROP TRIGGER {trigger}")
        conn.execute("ATTACH ? AS source", (f"{source.resolve().as_uri()}?mode=ro",))
        conn.execute("CREATE TEMP TABLE wanted (name TEXT PRIMARY KEY)")
        conn.execute("CREATE TEMP TABLE whole (tape INTEGER PRIMARY KEY, name TEXT)")
        conn.execute("CREATE TEMP TABLE part (tape INTEGER, id INTEGER)")
        conn.execute("BEGIN")
        conn.executemany("INSERT INTO wanted VALUES (?)", [(name,) for name in tapes])
        conn.execute(
            "INSERT INTO whole SELECT tape, name FROM source.tapes "
            "WHERE substr(name, 1, instr(name || '@', '@') - 1) IN (SELECT name FROM wanted)"
        )
        for name, ids in part.items():
            conn.executemany(
                "INSERT INTO part SELECT tape, ? FROM source.tapes WHERE name = ?",
                [(entry_id, name) for entry_id in ids],
            )
        for copy in _COPIES:
            conn.execute(copy)
        conn.execute("COMMIT")
    os.chmod(made, 0o600)  # noqa: PTH101
    os.replace(made, target)  # noqa: PTH105
