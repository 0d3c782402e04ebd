"""The tapes of a database on a server, read to be copied into another store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from bubbot.errors import HomeLocked, StoreUnavailable
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.ports.store import DeploymentAudit
from bubbot.stores.copying import TapesToCopy
from bubbot.stores.postgres.audit import SNAPSHOT, audit_all, read_blobs
from bubbot.stores.postgres.connections import (
    KEEP_WRITERS_OUT,
    ServerAddress,
    ThreadReader,
    check_server,
    connect,
    translated_errors,
    working_role,
)
from bubbot.stores.postgres.schema import MIGRATIONS, Connection, check_version


@contextmanager
def read_tapes(url: str, on_progress: OnProgress = ignore_progress) -> Iterator[tuple[TapesToCopy, DeploymentAudit]]:
    """Audit a database, and keep it open, and all writers out, to read its tapes from one state.

    `on_progress`: of the audit. Raise `HomeLocked` if a bot runs on it, and `StoreError`.
    """
    address = ServerAddress(url)
    with translated_errors(), closing(connect(address, readonly=True)) as conn:
        check_server(conn, readonly=True)
        if (version := check_version(conn)) != len(MIGRATIONS):
            state = f"has the version {version}" if version else "holds nothing"
            raise StoreUnavailable(f"the database {address} {state}: start the bot on it once")
        working_role(conn, readonly=True)
        keep_writers_out(conn, address)
        audit = audit_all(conn, on_progress=on_progress)
        conn.execute(SNAPSHOT)
        reader = ThreadReader(conn)
        yield TapesToCopy(reader, partial(read_blobs, reader), fork_order="opened"), audit


def refuse_running_bot(url: str) -> None:
    """Raise `HomeLocked` if a bot runs on a database."""
    address = ServerAddress(url)
    with translated_errors(), closing(connect(address, readonly=True)) as conn:
        keep_writers_out(conn, address)


def audit_server(url: str, on_progress: OnProgress = ignore_progress) -> DeploymentAudit:
    """Audit a database on which no bot runs. Raise `HomeLocked` if one does, and `StoreError`."""
    address = ServerAddress(url)
    with translated_errors(), closing(connect(address, readonly=True)) as conn:
        keep_writers_out(conn, address)
        return audit_all(conn, on_progress=on_progress)


def keep_writers_out(conn: Connection, address: ServerAddress) -> None:
    """Let nobody write until the connection ends. Raise `HomeLocked` if a bot runs on the database."""
    if conn.execute(KEEP_WRITERS_OUT).fetchone() == (False,):
        raise HomeLocked(f"a bot runs on the database {address}: stop it first (`bubbot stop`, or its service)")
