"""What a backup's manifest says of a database on a server, and whether a restored database is that one."""

from __future__ import annotations

from contextlib import closing

from bubbot.errors import DatabaseLost, StoreUnavailable, TapeCorrupt
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.ports.store import DatabaseContent, TapeHead
from bubbot.stores.names import tape_ends
from bubbot.stores.postgres.audit import SNAPSHOT, audit_all, final_position, head_at
from bubbot.stores.postgres.connections import ServerAddress, ThreadReader, connect, translated_errors
from bubbot.stores.postgres.copying import keep_writers_out
from bubbot.stores.postgres.schema import Connection, check_version, refuse_unguarded
from bubbot.tape.chain import deployment_head


def read_content(url: str) -> DatabaseContent:
    """Read label, tapes and heads from one state of a database. Raise `StoreError`."""
    with translated_errors(), closing(connect(ServerAddress(url), readonly=True)) as conn:
        version = _require_version(conn)
        conn.execute(SNAPSHOT)
        reader = ThreadReader(conn)
        position = final_position(reader)
        ends = tape_ends(reader, position)
        label = reader.execute("SELECT value FROM deployment WHERE key = 'workspace'").fetchone()
        heads = sorted((end.name, end.id, end.chain.hex()) for end in ends)
        return DatabaseContent(
            version,
            label[0] if label else "",
            tuple(TapeHead(*head) for head in heads),
            deployment_head(position, ends),
        )


def verify_restored(url: str, expected: DatabaseContent, on_progress: OnProgress = ignore_progress) -> int:
    """Audit a restored database, and compare it with the manifest of a backup; return the entries that it has on top.

    Raises:
        HomeLocked: a bot runs on it.
        DatabaseLost: it is of an older day, or another bot's.
        TapeCorrupt: its tapes are damaged, or not protected.
        StoreError: it cannot be read.
    """
    address = ServerAddress(url)
    with translated_errors(), closing(connect(address, readonly=True)) as conn:
        _require_version(conn)
        keep_writers_out(conn, address)
        refuse_unguarded(conn)
        audit = audit_all(conn, on_progress=on_progress)
        if audit.damage:
            raise TapeCorrupt(
                f"the database {address} holds a damaged tape: {audit.damage[0].location} {audit.damage[0].problem}"
            )
        position = int(expected.head.partition(":")[0])
        if head_at(conn, position) != expected.head:
            raise DatabaseLost(_describe_difference(conn, address, expected), fix="bubbot tape list")
        row = conn.execute("SELECT count(*) FROM entries WHERE seq > %s", (position,)).fetchone()
        return int(row[0]) if row else 0


def _require_version(conn: Connection) -> int:
    version = check_version(conn)
    if version == 0:
        raise StoreUnavailable("the database holds nothing yet: talk to the bot once with bubbot chat")
    return version


_SELECT_END = (
    "SELECT max(id), max(id) FILTER (WHERE id = %(id)s AND entries.chain = decode(%(hash)s, 'hex')), max(date) "
    "FROM tapes JOIN entries USING (tape) WHERE %(name)s IN (tapes.name, archived_from)"
)
"""Selects the newest id of a tape, and if it has an entry; archives of it count."""


def _describe_difference(conn: Connection, address: ServerAddress, expected: DatabaseContent) -> str:
    """Tell an older day from another bot, by the ends of tapes that the manifest lists."""
    shorter, other, newest = list[str](), list[str](), ""
    for tape in expected.tapes:
        row = conn.execute(_SELECT_END, {"name": tape.name, "id": tape.id, "hash": tape.hash}).fetchone()
        head, found, date = row or (None, None, None)
        newest = max(newest, date or "")
        if found is None and (head or 0) < tape.id:
            shorter.append(f"{tape.name} ends with entry {head or 0}, and had {tape.id}")
        elif found is None:
            other.append(f"entry {tape.id} of {tape.name} is another one")
    if shorter and not other:
        more = f", and {len(shorter) - 1} other tapes lack entries" if len(shorter) > 1 else ""
        return (
            f"the database {address} is of an older day than the backup: {shorter[0]}{more}; its newest entry is of {newest[:19]}. "
            "Restore a newer dump, or recover it further"
        )
    return f"the database {address} is not the one of the backup: {(other or ['its tapes have other names'])[0]}"
