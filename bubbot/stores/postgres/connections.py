"""Connections to a PostgreSQL server: addresses, roles, requirements, and the errors of the driver in our words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from copy import copy
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, urlencode

import psycopg
from psycopg import sql
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg.types.string import StrDumperUnknown

from bubbot.errors import BubbotError, ConfigError, StoreError, StoreFull, StoreUnavailable, TapeCorrupt
from bubbot.stores.names import RowsOfStatement
from bubbot.stores.postgres.policies import ENTER_SCHEMA
from bubbot.stores.postgres.schema import (
    APP_ROLE,
    OLDEST_SERVER,
    SCHEMA,
    Connection,
    MissingRight,
    find_schema,
    role_of,
)

AsyncConnection: TypeAlias = psycopg.AsyncConnection[TupleRow]
CONNECT_SECONDS = 10
"""Seconds after which an attempt to reach the server fails."""
_WRITING = "hashtextextended('bubbot writes:' || current_schema(), 0)"
SHARE_WRITING = f"SELECT pg_try_advisory_lock_shared({_WRITING})"
"""Take the lock that all writing connections share until they end, so that a copy can tell that a bot runs; false during a copy."""
KEEP_WRITERS_OUT = f"SELECT pg_try_advisory_lock({_WRITING})"
"""Take the same lock alone: false while a connection writes, NULL without a schema."""
NOBODY_WRITES = f"""
    SELECT NOT EXISTS (
        SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = database
        WHERE datname = current_database() AND locktype = 'advisory' AND objsubid = 1 AND pid <> pg_backend_pid()
            AND (classid::bigint << 32) | objid::bigint = {_WRITING}
    )
"""
"""True if no other connection holds `SHARE_WRITING`, so that what is committed is all there is."""
_LOST = ("08", "57P")
"""Prefixes of SQLSTATEs that mean a lost server. An error without a SQLSTATE comes from the client, which lost it."""
_CREDENTIALS = (
    "password", "passfile", "sslpassword", "sslcert", "sslkey", "scram_client_key", "scram_server_key", "oauth_client_id", "oauth_client_secret",
)  # fmt: skip
"""The parameters of an address that only one role has."""
_DEFAULTS: Mapping[str, str | int] = MappingProxyType(
    {"connect_timeout": CONNECT_SECONDS, "application_name": "bubbot"}
)
_DAMAGED = ("XX001", "XX002")


class _TextDumper(StrDumperUnknown):
    """Writes texts so that the server can keep them: it has no NUL. The order of texts stays."""

    def dump(self, obj: str) -> bytes:
        if "\x00" in obj or "\x01" in obj:
            obj = obj.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01")
        return obj.encode()


class _TextLoader(Loader):
    """Reads texts that `_TextDumper` wrote. JSON has no such signs."""

    def load(self, data: Buffer) -> str:
        text = str(data, "utf-8")
        return text.replace("\x01\x01", "\x00").replace("\x01\x02", "\x01") if "\x01" in text else text


def adapt(conn: psycopg.Connection[TupleRow] | AsyncConnection) -> None:
    """Let a connection write and read any text."""
    conn.adapters.register_dumper(str, _TextDumper)
    conn.adapters.register_loader("text", _TextLoader)


class ServerLost(StoreUnavailable):
    """The server cannot be reached; nothing is acknowledged meanwhile."""


class PooledTransactions(StoreUnavailable):
    """A pooler in transaction mode stands before the server."""


class ServerAddress:
    """Where a database is. Its text has no password.

    Attributes:
        parameters: what the driver gets.
        auditor: whose granted tapes are read, such as `telegram:42`; empty for a reader who is no auditor.
    """

    def __init__(self, url: str, auditor: str = "") -> None:
        """Read an address. Raise `ConfigError`."""
        self.auditor = auditor
        try:
            parameters = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise _unusable(_without_quotes(error)) from None  # the driver's words quote the address, with its password
        port, database = str(parameters.get("port") or ""), str(parameters.get("dbname") or "")
        if not re.fullmatch(r"[\d,]*", port) or "@" in database:
            raise _unusable("a password seems to hold one of these signs")
        self.parameters: Mapping[str, Any] = {
            **_DEFAULTS,
            **{name: value for name, value in parameters.items() if value is not None},
        }

    def for_role(self, role: str) -> ServerAddress:
        """Return the same database for another role, whose password or certificate is not known."""
        address = copy(self)
        kept = {name: value for name, value in self.parameters.items() if name not in _CREDENTIALS}
        address.parameters = {**kept, "user": role}
        return address

    @property
    def url(self) -> str:
        """The address as settings have it, without a password; whatever else was given, such as `sslmode`, stays."""
        given = {name: str(value) for name, value in self.parameters.items() if name not in _CREDENTIALS}
        given = {name: value for name, value in given.items() if value != str(_DEFAULTS.get(name, ""))}
        user, database = given.pop("user", ""), given.pop("dbname", "")
        place = ""
        if not set(given.get("host", "")) & {"/", ",", ":"}:  # neither a socket nor several hosts nor IPv6
            host, port = given.pop("host", ""), given.pop("port", "")
            place = f"{host}:{port}" if port else host
        query = f"?{urlencode(given, quote_via=quote, safe='/')}" if given else ""
        return f"postgresql://{quote(user, safe='')}{'@' if user else ''}{place}/{quote(database, safe='')}{query}"

    def __repr__(self) -> str:
        return f"ServerAddress({self})"

    def __str__(self) -> str:
        host = self.parameters.get("host") or self.parameters.get("hostaddr") or "localhost"
        port = self.parameters.get("port")
        return (
            f"{host}{f':{port}' if port else ''}/{self.parameters.get('dbname') or self.parameters.get('user') or ''}"
        )


def _unusable(reason: str) -> ConfigError:
    return ConfigError(
        "[store] url: this is not an address of PostgreSQL such as postgresql://bubbot@localhost/bubbot "
        f"(signs like @, / and : in names and passwords are written %40, %2F and %3A): {reason}"
    )


def _without_quotes(error: Exception) -> str:
    return re.sub(r'"[^"]*"', '"…"', str(error)).strip()


def connect(address: ServerAddress, *, readonly: bool) -> Connection:
    """Connect, for a thread of its own. Raise `StoreError`."""
    try:
        conn: psycopg.Connection[TupleRow] = psycopg.connect(autocommit=True, **address.parameters)
    except psycopg.Error as error:
        raise unreachable(address, error) from error
    try:
        adapt(conn)
        with translated_errors():
            for statement in session_statements(readonly=readonly, auditor=address.auditor):
                conn.execute(statement)
    except BaseException:
        conn.close()
        raise
    return conn


WATCH_SILENCE = ""
"""An empty statement to send after a pipeline: psycopg may end it with a flush request, after which the server watches no idle transaction."""


def session_statements(*, readonly: bool, role: str = "", auditor: str = "") -> list[sql.SQL | sql.Composed]:
    """Return what every connection begins with; `role`: to go on as; `auditor`: see `ServerAddress`."""
    statements: list[sql.SQL | sql.Composed] = [
        sql.SQL(ENTER_SCHEMA),
        sql.SQL("SET client_encoding = 'UTF8'"),
        sql.SQL("SET default_transaction_read_only = {}").format(sql.SQL("on" if readonly else "off")),
    ]
    if not readonly:
        statements.append(
            sql.SQL(
                "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
            )
        )
    if auditor:
        statements.append(sql.SQL("SELECT set_config('bubbot.auditor', {}, false)").format(sql.Literal(auditor)))
    if role:
        statements.append(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    return statements


def unreachable(address: ServerAddress, error: psycopg.Error) -> StoreError:
    """Return the error for a connection that failed: who was asked, and why it failed."""
    reason = " ".join(str(error).split()) or type(error).__name__
    password = str(address.parameters.get("password") or "")
    if password:
        reason = reason.replace(password, "***")
    return ServerLost(f"the PostgreSQL server at {address} cannot be reached: {reason}")


class ServerFault(NamedTuple):
    """Why a server cannot keep the promises.

    Attributes:
        id: a word for findings.
        cause: half a sentence.
        command: what changes it, for a shell or for psql.
    """

    id: str
    cause: str
    command: str


def find_server_faults(conn: Connection, *, readonly: bool) -> Iterator[ServerFault]:
    """Yield what keeps the server from being the store; `readonly`: from being read."""
    version = conn.info.server_version
    if version < OLDEST_SERVER * 10_000:
        cause = f"the server is PostgreSQL {version // 10_000}, and bubbot needs {OLDEST_SERVER} or newer"
        yield ServerFault("old", cause, "pg_upgrade")
    row = conn.execute(
        "SELECT current_setting('server_encoding'), pg_is_in_recovery(), current_setting('fsync'), "
        "current_setting('full_page_writes')"
    ).fetchone()
    assert row is not None
    encoding, is_replica, fsync, full_pages = row
    if encoding != "UTF8":
        cause = f"the database has the encoding {encoding}, and bubbot needs UTF8"
        yield ServerFault("encoding", cause, f"createdb --template template0 --encoding UTF8 {SCHEMA}")
    if readonly:
        return
    if is_replica:
        yield ServerFault(
            "replica", "the server is a replica, which takes no entries", "name the primary in [store] url"
        )
    for name, value in (("fsync", fsync), ("full_page_writes", full_pages)):
        if value == "off":
            cause = f"the server has {name} off, so that a power cut would lose what was acknowledged"
            yield ServerFault(name, cause, f"psql -c 'ALTER SYSTEM SET {name} = on' -c 'SELECT pg_reload_conf()'")


def check_server(conn: Connection, *, readonly: bool) -> None:
    """Raise `StoreUnavailable` for a server that cannot keep the promises."""
    for fault in find_server_faults(conn, readonly=readonly):
        raise StoreUnavailable(f"{fault.cause}: {fault.command}")


def refuse_pooler(conn: Connection, address: ServerAddress) -> None:
    """Raise `PooledTransactions` if a pooler gives each transaction another session of the server.

    Locks and settings of a session would then belong to other clients, too. Two connections open transactions in turn: one gets a
    session of the other, whether the pooler lends the session that was idle longest or shortest, or has only one.
    """
    own = {_session_of(conn), _session_of(conn)}
    if own == {conn.info.backend_pid}:
        return  # nobody stands between
    with closing(psycopg.connect(autocommit=True, **address.parameters)) as other:
        others = {_session_of(other)}
        if not own & others:  # else there is one session, for which they would wait
            for each, sessions in ((conn, own), (other, others)):
                each.execute("BEGIN")
                sessions.add(_session_of(each))
            for each in (conn, other):
                each.execute("COMMIT")
            own.add(_session_of(conn))
    if own & others or len(own) > 1:
        raise PooledTransactions(
            f"{address} is a pooler in transaction mode, where locks and settings of a session are somebody else's: name the "
            "server itself in [store] url, or let the pooler keep sessions (pool_mode = session)"
        )


def _session_of(conn: Connection) -> int:
    row = conn.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def working_role(conn: Connection, *, readonly: bool) -> str:
    """Return the role to go on as; empty for the one that connected. Raise `StoreUnavailable` if it lacks rights."""
    schema = find_schema(conn)
    working = role_of(schema)
    row = conn.execute(
        "SELECT current_user <> %(app)s AND EXISTS (SELECT FROM pg_roles WHERE rolname = %(app)s) "
        "AND pg_has_role((SELECT oid FROM pg_roles WHERE rolname = %(app)s), 'MEMBER')",
        {"app": working},
    ).fetchone()
    role = working if row is not None and row[0] else ""
    right = "SELECT" if readonly else "INSERT"
    row = conn.execute(
        "SELECT has_table_privilege(%s, quote_ident(%s) || '.entries', %s) AND has_schema_privilege(%s, %s, 'USAGE')",
        (role or conn.info.user, schema, right, role or conn.info.user, schema),
    ).fetchone()
    if row is None or not row[0]:
        message = f"the role {role or conn.info.user} may not {'read' if readonly else 'write'} the tapes"
        raise MissingRight(message, right=working, role=conn.info.user)
    return role


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate errors of the driver."""
    try:
        yield
    except psycopg.Error as error:
        raise translate_error(error) from error


def is_lost(error: BaseException) -> bool:
    """Return true if the server went away."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(_LOST)


def translate_error(error: psycopg.Error) -> BubbotError:
    """Return the error of ours for one of the driver."""
    words = error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__
    if error.sqlstate == "53100":
        return StoreFull("there is no room left for the database on its server: free some space; nothing was lost")
    if is_lost(error):
        return ServerLost(f"the PostgreSQL server went away ({words})")
    if error.sqlstate in _DAMAGED:
        return TapeCorrupt(f"the database is damaged ({words}): keep its files and restore a backup")
    if error.sqlstate == "42501":
        return StoreUnavailable(
            f"the role lacks a right on the database ({words}): as the owner, `GRANT {APP_ROLE}` to it"
        )
    if error.sqlstate == "25006":
        return StoreUnavailable(f"the database takes no entries ({words}): it is read only, or a replica")
    return StoreUnavailable(f"the database failed: {words}")


@lru_cache(maxsize=1024)
def to_postgres(statement: str) -> str:
    """Rewrite a statement that stores share: without the names of SQLite's indexes, and with this driver's marks for values."""
    plain = re.sub(r"\s+(?:NOT INDEXED|INDEXED BY \w+)", "", statement).replace("%", "%%")
    return re.sub(r"(?<!:):([a-z]\w*)", r"%(\1)s", plain.replace("?", "%s"))


class StatementReader:
    """A connection that answers statements that stores share; see `bubbot.stores.rows.Statements`."""

    def __init__(self, conn: AsyncConnection) -> None:
        self.conn = conn

    async def execute_fetchall(
        self, statement: str, parameters: Sequence[Any] | Mapping[str, Any] = (), /
    ) -> list[TupleRow]:
        cursor = await self.conn.execute(to_postgres(statement), parameters)
        return await cursor.fetchall()


class StatementRows:
    """The rows of a statement, read in portions; see `bubbot.stores.names.RowsOfStatement`."""

    def __init__(self, cursor: psycopg.ServerCursor[TupleRow]) -> None:
        self._cursor = cursor

    def __iter__(self) -> Iterator[Any]:
        with self._cursor:
            yield from self._cursor

    def fetchone(self) -> Any:
        with self._cursor:
            return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        with self._cursor:
            return self._cursor.fetchall()


class ThreadReader:
    """A connection in a thread of its own; see `bubbot.stores.names.DatabaseRows`.

    `is_snapshot`: it is within a transaction, so rows can be read in portions.
    """

    def __init__(self, conn: Connection, *, is_snapshot: bool = True) -> None:
        self._conn = conn
        self._is_snapshot = is_snapshot
        self._count = 0

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> RowsOfStatement:
        if not self._is_snapshot:
            return self._conn.execute(to_postgres(statement), parameters)
        self._count += 1
        cursor = self._conn.cursor(f"rows_{self._count}")
        cursor.itersize = 1000
        cursor.execute(to_postgres(statement), parameters)
        return StatementRows(cursor)
