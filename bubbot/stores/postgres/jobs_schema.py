"""The schema of procrastinate, in a schema of its own: its own SQL and its own migrations bring it to the installed version."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
from procrastinate.schema import SchemaManager
from psycopg import sql
from psycopg.rows import TupleRow

from bubbot.errors import StoreTooNew

_COMMENT = "procrastinate "
"""What the comment on the schema begins with; the name of its newest migration follows."""


def newest_migration() -> str:
    """Return the name of the newest migration of the installed procrastinate: names ascend."""
    return _list_migrations()[-1].stem


def has_jobs(conn: psycopg.Connection[TupleRow], schema: str) -> bool:
    """Return true if the database has the schema of the installed procrastinate. Raise `StoreTooNew` for a later one."""
    found = _read_migration(conn, schema)
    if found > newest_migration():
        raise StoreTooNew(
            f"the jobs in the database are those of a newer procrastinate ({found}): install the requirements of the bubbot that "
            "wrote them, or name another database in [store] url"
        )
    return found == newest_migration()


def migrate_jobs(conn: psycopg.Connection[TupleRow], schema: str, role: str) -> None:
    """Bring procrastinate's schema to the installed version, within the caller's transaction; give `role` its rights."""
    found, name = _read_migration(conn, schema), sql.Identifier(schema)
    if not found:
        conn.execute(sql.SQL("CREATE SCHEMA {}").format(name))
    conn.execute(sql.SQL("SET LOCAL search_path = {}, pg_temp").format(name))
    if found:
        for migration in _list_migrations():
            if migration.stem > found:
                conn.execute(migration.read_text(encoding="utf-8").encode())
    else:
        conn.execute(SchemaManager.get_schema().encode())
    comment = sql.Literal(_COMMENT + newest_migration())
    conn.execute(sql.SQL("COMMENT ON SCHEMA {} IS {}").format(name, comment))
    if conn.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone():
        for rights in (
            "USAGE ON SCHEMA {}",
            "SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {}",
            "USAGE ON ALL SEQUENCES IN SCHEMA {}",
        ):
            conn.execute(sql.SQL(f"GRANT {rights} TO {{}}").format(name, sql.Identifier(role)))


def _read_migration(conn: psycopg.Connection[TupleRow], schema: str) -> str:
    """Return the newest migration that the database has; empty if it has no jobs."""
    found = conn.execute(
        "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s", (schema,)
    ).fetchone()
    return str(found[0] or "").removeprefix(_COMMENT) if found else ""


def _list_migrations() -> list[Path]:
    """List the migrations of the installed procrastinate, oldest first."""
    files = Path(SchemaManager.get_migrations_path()).glob("*.sql")
    return sorted(file for file in files if re.match(r"\d\d\.\d\d\.\d\d_\d\d_", file.name))
