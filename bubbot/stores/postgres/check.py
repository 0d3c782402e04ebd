"""Checks and repair of a database on a server from outside the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from typing import Literal, NamedTuple

from bubbot.errors import BubbotError, ConfigError, StoreUnavailable
from bubbot.stores.postgres.connections import (
    ServerAddress,
    ServerLost,
    connect,
    find_server_faults,
    translated_errors,
    working_role,
)
from bubbot.stores.postgres.schema import (
    APP_ROLE,
    MIGRATIONS,
    Connection,
    check_version,
    missing_indexes,
    restore_guards,
    wrong_guards,
)

MAX_CLOCK_SECONDS = 5
"""Seconds that the clocks of server and bot may differ."""


class ServerFinding(NamedTuple):
    """A result of the check; see `bubbot.ports.checks.Finding`. Without a command, the settings have to change."""

    id: str
    level: Literal["ok", "warning", "problem"]
    cause: str
    command: str = ""


def check_server_database(url: str, now: datetime) -> Iterator[ServerFinding]:
    """Check whether a database can be the store, and what of it would not keep the promises. `now`: the bot's clock."""
    try:
        address = ServerAddress(url)
        with translated_errors(), closing(connect(address, readonly=True)) as conn:
            faults = [*find_server_faults(conn, readonly=False)]
            for fault in faults:
                yield ServerFinding(f"server.{fault.id}", "problem", f"{address}: {fault.cause}.", fault.command)
            row = conn.execute("SELECT current_setting('synchronous_commit'), clock_timestamp()").fetchone()
            assert row is not None
            commit, clock = row
            if commit == "off":
                yield ServerFinding(
                    "server.synchronous_commit",
                    "warning",
                    f"{address}: synchronous_commit is off; bubbot has it on for itself, other programs may lose what they committed.",
                    "psql -c 'ALTER SYSTEM SET synchronous_commit = on' -c 'SELECT pg_reload_conf()'",
                )
            if abs((clock - now).total_seconds()) > MAX_CLOCK_SECONDS:
                yield ServerFinding(
                    "server.clock",
                    "problem",
                    f"{address}: the clocks of the server and of this machine are {abs((clock - now).total_seconds()):.0f} s apart.",
                    "timedatectl set-ntp true",
                )
            version = check_version(conn)
            if version == 0:
                yield ServerFinding(
                    "server.empty", "ok", f"{address}: the database is empty; the next chat makes its tables."
                )
                return
            if version < len(MIGRATIONS):
                yield ServerFinding(
                    "server.older", "ok", f"{address}: the next start brings version {version} to {len(MIGRATIONS)}."
                )
            if not working_role(conn, readonly=False):
                yield from _check_role(address, is_bound=conn.info.user == APP_ROLE or _is_bound(conn))
            if wrong := wrong_guards(conn):
                yield ServerFinding(
                    "server.triggers",
                    "problem",
                    f"{address} no longer refuses to lose history: {', '.join(wrong)} missing or changed. Nothing is written to it.",
                    "bubbot tape repair",
                )
            if indexes := missing_indexes(conn):
                yield ServerFinding(
                    "server.indexes",
                    "problem",
                    f"{address}: {', '.join(indexes)} missing or not valid.",
                    "bubbot tape repair",
                )
    except ServerLost as error:
        yield ServerFinding("server.lost", "problem", f"{str(error)[:1].upper()}{str(error)[1:]}.", "pg_isready")
    except (StoreUnavailable, ConfigError, BubbotError) as error:
        yield ServerFinding("server.unusable", "problem", f"{str(error)[:1].upper()}{str(error)[1:]}.")


def _is_bound(conn: Connection) -> bool:
    """Return true if the role that connected has no right to change entries."""
    row = conn.execute(
        "SELECT has_table_privilege('entries', 'UPDATE') OR has_table_privilege('entries', 'DELETE')"
    ).fetchone()
    return row is not None and not row[0]


def _check_role(address: ServerAddress, *, is_bound: bool) -> Iterator[ServerFinding]:
    if not is_bound:
        yield ServerFinding(
            "server.role",
            "warning",
            f"{address}: the bot writes as the owner of its tables, which only the triggers keep from changing history.",
            f"psql -c 'CREATE ROLE {APP_ROLE} NOLOGIN'",
        )


def repair_server_database(url: str) -> tuple[str, ...]:
    """Restore triggers and functions; return the names of the wrong ones. No entry changes. Raise `StoreError`."""
    with translated_errors(), closing(connect(ServerAddress(url), readonly=False)) as conn:
        if check_version(conn) == 0:
            raise StoreUnavailable("the database holds nothing yet: talk to the bot once with bubbot chat")
        return restore_guards(conn)
