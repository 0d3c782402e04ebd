"""The checks of a database on a PostgreSQL server, and of the server."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bubbot.errors import BubbotError
from bubbot.home import Home
from bubbot.ops.doctor.database import read_store
from bubbot.ports.checks import Finding, edit_command
from bubbot.settings.sections import StoreSettings

if TYPE_CHECKING:  # few homes have a server
    from bubbot.stores.postgres.schema import Connection

MAX_CLOCK_SECONDS = 5
"""Seconds that the clocks of server and bot may differ."""
_NOTHING_READABLE = {f"server.{fault}" for fault in ("lost", "unusable", "empty", "encoding", "pooler", "rights")}


def read_server(settings: StoreSettings, home: Home, now: datetime) -> tuple[bool, list[Finding]]:
    """Return true if the store on a server holds entries, and findings about the server and the database."""
    if settings.url is None or not find_spec("psycopg"):
        has_entries, found = read_store(settings, home)
        return has_entries, [found]
    findings = list(check_server(settings.url.get_secret_value(), home, now))
    if any(finding.id in _NOTHING_READABLE for finding in findings):
        return False, findings
    has_entries, found = read_store(settings, home)
    return has_entries, [found, *findings]


def check_server(url: str, home: Home, now: datetime) -> Iterator[Finding]:
    """Check whether a database can be the store, and what of it would not keep the promises. `now`: the bot's clock."""
    from bubbot.stores.postgres.connections import (
        PooledTransactions,
        ServerAddress,
        ServerLost,
        connect,
        refuse_pooler,
        translated_errors,
    )
    from bubbot.stores.postgres.schema import MissingRight

    try:
        address = ServerAddress(url)
        with translated_errors(), closing(connect(address, readonly=True)) as conn:
            yield from check_settings(conn, now)
            refuse_pooler(conn, address)
            yield from _check_schema(conn)
    except ServerLost as error:
        asked = {"--host": address.parameters.get("host"), "--port": address.parameters.get("port")}
        options = [part for name, value in asked.items() if value for part in (name, str(value))]
        yield Finding("server.lost", "problem", _sentence(error), shlex.join(["pg_isready", *options]))
    except PooledTransactions as error:
        yield Finding("server.pooler", "problem", _sentence(error), edit_command(home.config))
    except MissingRight as error:
        yield Finding("server.rights", "problem", _sentence(error), error.fix)
    except BubbotError as error:
        yield Finding("server.unusable", "problem", _sentence(error), edit_command(home.config))


def check_settings(conn: Connection, now: datetime) -> Iterator[Finding]:
    """Check version, encoding, settings and clock of the server."""
    from bubbot.stores.postgres.connections import find_server_faults

    for fault in find_server_faults(conn, readonly=False):
        cause = f"{fault.cause[:1].upper()}{fault.cause[1:]}."
        match fault.id:
            case "old":
                yield Finding("server.old", "problem", cause, fault.command)
            case "encoding":
                yield Finding("server.encoding", "problem", cause, fault.command)
            case "replica":
                yield Finding("server.replica", "problem", cause, fault.command)
            case _:
                yield Finding("server.fsync", "problem", cause, fault.command)
    row = conn.execute("SELECT current_setting('synchronous_commit'), clock_timestamp()").fetchone()
    assert row is not None
    commit, clock = row
    if commit == "off":
        cause = "synchronous_commit is off on the server. bubbot has it on for itself; other programs may lose what they committed."
        fix = "psql -c 'ALTER SYSTEM SET synchronous_commit = on' -c 'SELECT pg_reload_conf()'"
        yield Finding("server.commit", "warning", cause, fix)
    if (apart := abs((clock - now).total_seconds())) > MAX_CLOCK_SECONDS:
        cause = f"The clocks of the server and of this machine are {apart:.0f} s apart."
        yield Finding("server.clock", "problem", cause, "timedatectl set-ntp true")


def _check_schema(conn: Connection) -> Iterator[Finding]:
    from bubbot.stores.postgres.connections import working_role
    from bubbot.stores.postgres.schema import APP_ROLE, check_version, may_not_create, missing_indexes, wrong_guards

    if check_version(conn) == 0:
        row = conn.execute("SELECT has_database_privilege(current_database(), 'CREATE')").fetchone()
        if row is not None and not row[0]:
            raise may_not_create(conn)
        yield Finding("server.empty", "ok", "The database holds nothing yet; the next chat makes its tables.")
        return
    if not working_role(conn, readonly=False):
        row = conn.execute(
            "SELECT has_table_privilege('entries', 'UPDATE') OR has_table_privilege('entries', 'DELETE')"
        ).fetchone()
        if row is not None and row[0]:
            cause = "The bot writes as the owner of its tables, which only the triggers keep from changing history."
            yield Finding("server.role", "warning", cause, f"psql -c 'GRANT {APP_ROLE} TO {conn.info.user}'")
    if wrong := wrong_guards(conn):
        cause = f"The database no longer refuses to lose history: {', '.join(wrong)} missing or changed. Nothing is written to it."
        yield Finding("server.triggers", "problem", cause, "bubbot tape repair")
    if indexes := missing_indexes(conn):
        cause = f"The database has not the indexes that it is read through: {', '.join(indexes)} missing or not valid."
        yield Finding("server.indexes", "problem", cause, "bubbot tape repair")


def _sentence(error: BubbotError) -> str:
    return f"{str(error)[:1].upper()}{str(error)[1:]}."
