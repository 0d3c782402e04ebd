"""The tapes of an SQLite database, read to be copied into another store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bubbot.errors import StoreUnavailable
from bubbot.ports.progress import OnProgress, ignore_progress
from bubbot.ports.store import DeploymentAudit
from bubbot.stores.copying import TapesToCopy
from bubbot.stores.sqlite.audit import audit_all
from bubbot.stores.sqlite.backup import open_read_only
from bubbot.stores.sqlite.schema import MIGRATIONS, check_version


@contextmanager
def read_tapes(path: Path, on_progress: OnProgress = ignore_progress) -> Iterator[tuple[TapesToCopy, DeploymentAudit]]:
    """Audit a database, and keep it open to read its tapes from one state. Raise `StoreError` and `TapeCorrupt`.

    `on_progress`: of the audit.
    """
    if not path.is_file():
        raise StoreUnavailable(
            f"{path} is no file of a database: name a home, its bubbot.db, or an address of PostgreSQL"
        )
    with open_read_only(path) as conn:
        if (version := check_version(conn)) != len(MIGRATIONS):
            raise StoreUnavailable(
                f"{path} has the version {version}, and is copied from version {len(MIGRATIONS)} on: start the bot on it once"
            )
        audit = audit_all(conn, on_progress=on_progress)
        conn.execute("BEGIN")
        yield TapesToCopy(conn, partial(_read_blobs, conn), fork_order="rowid"), audit


def _read_blobs(conn: Any, tape: int) -> Iterator[tuple[str, bytes]]:
    yield from conn.execute("SELECT digest, data FROM blobs WHERE tape = ? ORDER BY digest", (tape,))
