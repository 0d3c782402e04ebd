"""Tenants of a database: each has a schema and a role of its own, and the server keeps them apart."""

from __future__ import annotations

import re
from contextlib import closing, suppress

import psycopg
from psycopg import sql

from bubbot.errors import ConfigError, StoreUnavailable
from bubbot.stores.postgres.connections import ServerAddress, check_server, connect, translated_errors
from bubbot.stores.postgres.policies import AUDIT_SUFFIX, ENTER_SCHEMA, JOBS_SUFFIX, protect_tables
from bubbot.stores.postgres.schema import APP_ROLE, Connection, migrate, role_of

_NAME = re.compile(r"[a-z][a-z0-9]{0,30}")
_RESERVED = (APP_ROLE.removeprefix("bubbot_"), AUDIT_SUFFIX.removeprefix("_"), JOBS_SUFFIX.removeprefix("_"))


def add_tenant(url: str, tenant: str, *, now: str) -> ServerAddress:
    """Make the schema and the role of a tenant, or bring them up to date; return where the tenant's bot connects.

    Args:
        url: of the database, for a role that may make schemas and roles in it.
        tenant: letters and digits.
        now: the time of the migration, ISO 8601.

    Raises:
        ConfigError: the name is unusable.
        StoreError: the server or the role is.
    """
    if not _NAME.fullmatch(tenant) or tenant in _RESERVED:
        raise ConfigError(
            f"{tenant!r} is not a name for a tenant: use up to 31 lowercase letters and digits, a letter first, and none of "
            f"{', '.join(_RESERVED)}"
        )
    address = ServerAddress(url)
    with translated_errors(), closing(connect(address, readonly=False)) as conn:
        check_server(conn, readonly=False)
        with conn.transaction():
            enter_tenant(conn, tenant)
            role = make_role(conn, role_of(f"bubbot_{tenant}"))
            migrate(conn, now=now)
            conn.execute(ENTER_SCHEMA)  # now it is there
            protect_tables(conn)
        _keep_setting(conn, role, tenant)
    return address.for_role(role)


def enter_tenant(conn: Connection, tenant: str) -> None:
    """Go on in a tenant's schema, as its owner; an empty name: in the schema without tenants."""
    conn.execute("SELECT set_config('bubbot.tenant', %s, false)", (tenant,))
    conn.execute(ENTER_SCHEMA)


def make_role(conn: Connection, role: str) -> str:
    """Make a role that can log in and has no rights, unless it is there. Raise `StoreUnavailable` if it has too many."""
    found = conn.execute(
        "SELECT rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb FROM pg_roles WHERE rolname = %s", (role,)
    ).fetchone()
    name = sql.Identifier(role)
    if found is None:
        try:
            conn.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
        except psycopg.errors.InsufficientPrivilege as error:
            raise StoreUnavailable(
                f"the role {conn.info.user} may not make roles: connect as one that may, or `CREATE ROLE {role} LOGIN` as one"
            ) from error
    elif found[0]:
        raise StoreUnavailable(
            f"the role {role} has rights over the whole server: "
            f"`ALTER ROLE {role} NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOCREATEDB`"
        )
    return role


def _keep_setting(conn: Connection, role: str, tenant: str) -> None:
    """Let other programs of the tenant see its rows, such as psql and pg_dump, if this role may say so. The bot sets it itself."""
    statement = sql.SQL("ALTER ROLE {} IN DATABASE {} SET bubbot.tenant = {}").format(
        sql.Identifier(role), sql.Identifier(conn.info.dbname), sql.Literal(tenant)
    )
    with suppress(psycopg.errors.InsufficientPrivilege):
        conn.execute(statement)
