"""Audits of a PostgreSQL database: the triggers and indexes, the ends of tapes, and what all audits check."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.ports.store import DeploymentAudit
from bubbot.stores.audit import AuditRun
from bubbot.stores.names import DatabaseRows, TapeNameRow, tape_ends, tape_names
from bubbot.stores.postgres.connections import NOBODY_WRITES, ThreadReader
from bubbot.stores.postgres.schema import MIGRATIONS, Connection, missing_indexes, wrong_guards
from bubbot.stores.rows import LARGEST
from bubbot.tape.chain import AuditFinding, deployment_head, older_head

SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def read_blobs(conn: DatabaseRows, tape: int) -> Iterator[tuple[str, bytes]]:
    """Yield digest and bytes of the blobs of a tape."""
    rows = conn.execute("SELECT digest, data FROM blob_pieces WHERE tape = ? ORDER BY digest, piece", (tape,))
    for digest, pieces in groupby(rows, key=itemgetter(0)):
        yield digest, b"".join(data for _, data in pieces)


class PostgresAuditRun(AuditRun):
    """See `AuditRun`. Blobs are in pieces, and each tape says where it ends."""

    def read_blobs(self, tape: TapeNameRow) -> Iterator[tuple[str, object]]:
        return read_blobs(self.conn, tape.number)

    def check_ends(self, only: str | None) -> Iterator[AuditFinding]:
        """Compare what each tape says of its newest entry with that entry: a missing end breaks no chain."""
        rows = self.conn.execute(
            "SELECT name, head, newest.id, newest.chain = tapes.chain AND newest.seq = tapes.position FROM tapes LEFT JOIN LATERAL "
            "(SELECT id, chain, seq FROM entries WHERE entries.tape = tapes.tape ORDER BY id DESC LIMIT 1) AS newest ON true "
            "ORDER BY name"
        )
        for name, head, newest, agrees in rows:
            if only not in (None, name):
                continue
            if head > (newest or 0):
                yield AuditFinding(
                    name, (newest or 0) + 1, "missing", f"it ends with entry {newest or 0}, and had {head}"
                )
            elif newest is not None and (head != newest or not agrees):
                yield AuditFinding(name, newest, "altered", "the tape says that its end is another one")


def audit_all(conn: Connection, only: str | None = None, on_progress: OnProgress = ignore_progress) -> DeploymentAudit:
    """Audit one tape or all, from one state of the database; report the entries whose hashes were checked.

    The head is that at the `final_position`.
    """
    conn.execute(SNAPSHOT)
    try:
        reader = ThreadReader(conn)
        position = final_position(reader)
        guards, indexes = wrong_guards(conn), missing_indexes(conn)
        run = PostgresAuditRun(reader, True, tape_names(reader))  # noqa: FBT003 - every version checks names
        begun = [tape for tape in run.names if tape.first_position or tape.archived_from is not None]
        tapes = [tape for tape in begun if only is None or tape.name == only]
        count, findings = run.check_tapes(tapes, on_progress)
        findings += run.check_ends(only)
        if only is None:
            findings += run.check_lone_rows()
            findings += run.check_database_rows(len(MIGRATIONS))
        head = deployment_head(position, tape_ends(reader, position))
        return DeploymentAudit(len(tapes), count, tuple(findings), head, guards, indexes)
    finally:
        conn.execute("COMMIT")


def head_at(conn: Connection, position: int | None, *, older: bool = False) -> str:
    """Return the deployment head at this global position; `older`: in the form of version 2 of SQLite's databases.

    None: at the `final_position`.
    """
    conn.execute(SNAPSHOT)
    try:
        reader = ThreadReader(conn)
        position = final_position(reader) if position is None else min(position, LARGEST)
        return (older_head if older else deployment_head)(position, tape_ends(reader, position))
    finally:
        conn.execute("COMMIT")


def final_position(reader: ThreadReader) -> int:
    """Return the newest position below which no further entry can appear; 0 without entries.

    If nobody writes, it is the newest of all. Otherwise any open transaction on the server holds it back, even one in another
    database. Call this first in a snapshot: the locks of writers are read as of now.
    """
    (is_quiet,) = reader.execute(NOBODY_WRITES).fetchone()
    below = "" if is_quiet else " WHERE seq < (SELECT unreadable_position())"
    return int(reader.execute(f"SELECT coalesce(max(seq), 0) FROM entries{below}").fetchone()[0])
