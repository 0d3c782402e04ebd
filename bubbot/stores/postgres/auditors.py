"""What auditors see: views of the granted tapes in a schema of their own, for a role that can read these and do nothing else.

The views have the names of the tables, so a store reads them as it reads a database. Which tapes they show follows from the stored
grants and from the setting `bubbot.auditor`, at each statement. Of a tape with facts about all sessions they show what
`TapeBoundary` shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, suppress

import psycopg
from msgspec import Struct
from psycopg import sql

from bubbot.errors import StoreUnavailable
from bubbot.stores.postgres.connections import ServerAddress, check_server, connect, translated_errors
from bubbot.stores.postgres.policies import AUDIT_SUFFIX, ENTER_SCHEMA
from bubbot.stores.postgres.schema import Connection, check_version, create_schema, find_schema
from bubbot.stores.postgres.tenants import enter_tenant, make_role
from bubbot.tape.boundary import MAX_REFERENCE_DEPTH, SharedTape
from bubbot.tape.events import STEP_EVENT
from bubbot.tape.references import ReferenceRegistry

_SCHEMA = """
CREATE TABLE known_facts (name text COLLATE "C" PRIMARY KEY, sessions text[] NOT NULL, entries text[] NOT NULL);
CREATE TABLE shared_tapes (
    number integer PRIMARY KEY, name text NOT NULL, subject text NOT NULL, introduced_by text[] NOT NULL, facts text[] NOT NULL
);
CREATE FUNCTION granted_sessions() RETURNS text[] LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    WITH changes AS (
        SELECT id, entries.name, data ->> 'session' AS session FROM {base}.entries, {base}.facts(payload) AS fact, json_extract_path(fact, 'data') AS data
        WHERE tape = (SELECT tape FROM {base}.tapes WHERE tapes.name = {access}) AND kind = 'event'
            AND entries.name = ANY ({changes}) AND payload IS NOT NULL AND current_setting('bubbot.auditor', true)
                = CASE data ->> 'channel' WHEN '' THEN '' ELSE (data ->> 'channel') || ':' END || (data ->> 'id')
    ), newest AS (
        SELECT DISTINCT ON (session) id, name, session FROM changes WHERE session IS NOT NULL ORDER BY session, id DESC
    )
    SELECT coalesce(array_agg(session), '{{}}') FROM newest
    WHERE name = {granted} AND id > (SELECT coalesce(max(id), 0) FROM changes WHERE name = {ended})
$$;
CREATE FUNCTION granted_names() RETURNS text[] LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT coalesce(array_agg(left(md5(value), 16) || '__' || left(md5(session), 16)), '{{}}')
    FROM {base}.deployment, unnest(granted_sessions()) AS session WHERE key = 'workspace'
$$;
CREATE FUNCTION granted_tapes() RETURNS bigint[] LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT coalesce(array_agg(tape), '{{}}') FROM {base}.tapes WHERE split_part(name, '@', 1) = ANY (granted_names())
$$;
CREATE FUNCTION shared_number(tape_name text) RETURNS integer LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT min(number) FROM shared_tapes WHERE tape_name = name OR starts_with(tape_name, rtrim(name, '/') || '/')
$$;
CREATE FUNCTION partly_granted_tapes() RETURNS bigint[] LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT coalesce(array_agg(tape), '{{}}') FROM {base}.tapes
    WHERE granted_sessions() <> '{{}}' AND shared_number(name) IS NOT NULL
$$;
CREATE FUNCTION values_at(data jsonb, paths text[]) RETURNS SETOF jsonb LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT found FROM unnest(paths) AS path, jsonb_path_query(data, path::jsonpath, silent => true) AS found
$$;
-- NULL if the data name no session.
CREATE FUNCTION is_about_granted(data jsonb, paths text[]) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT bool_and(jsonb_typeof(named) = 'string' AND (named #>> '{{}}') = ANY (granted_sessions())) FROM values_at(data, paths) AS named
$$;
-- A fact is about the sessions that it names; else about those of its subject, else about those of the facts that it names.
CREATE FUNCTION may_see(number bigint, fact_id bigint, depth integer) RETURNS boolean
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    shared shared_tapes;
    known known_facts;
    fact record;
    data jsonb;
    is_granted boolean;
BEGIN
    SELECT * INTO shared FROM shared_tapes AS each WHERE each.number = (SELECT shared_number(name) FROM {base}.tapes WHERE tape = may_see.number);
    SELECT * INTO fact FROM {base}.entries WHERE tape = may_see.number AND id = fact_id;
    IF shared.number IS NULL OR fact.id IS NULL OR fact.kind <> 'event' OR fact.payload IS NULL OR fact.name IS NULL
        OR fact.name LIKE '%/checkpoint' OR (shared.facts <> '{{}}' AND fact.name <> ALL (shared.facts))
    THEN
        RETURN false;
    END IF;
    data := {base}.facts(fact.payload)::jsonb -> 'data';
    SELECT * INTO known FROM known_facts WHERE name = fact.name;
    is_granted := is_about_granted(data, known.sessions);
    IF is_granted IS NULL AND shared.subject <> '' AND data ? shared.subject THEN
        SELECT bool_and(coalesce(is_about_granted(introduction, introduced.sessions), false)) INTO is_granted
        FROM {base}.entries JOIN known_facts AS introduced USING (name), LATERAL (
            SELECT {base}.facts(payload)::jsonb -> 'data'
        ) AS introductions (introduction)
        WHERE tape = may_see.number AND kind = 'event' AND entries.name = ANY (shared.introduced_by) AND payload IS NOT NULL
            AND introduction -> shared.subject = data -> shared.subject;
        RETURN coalesce(is_granted, false);
    END IF;
    IF is_granted IS NOT NULL THEN
        RETURN is_granted;
    END IF;
    RETURN depth < {depth} AND coalesce((
        SELECT bool_and(may_see(may_see.number, (named #>> '{{}}')::bigint, depth + 1))
        FROM (SELECT DISTINCT named FROM values_at(data, known.entries) AS named
            WHERE jsonb_typeof(named) = 'number' AND (named #>> '{{}}') ~ '^[0-9]{{1,18}}$') AS all_named
    ), false);
END $$;
-- What a model was shown of tapes that no grant covers stands in its prompt, such as the memory of people.
CREATE FUNCTION is_hidden(number bigint, blob text) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT EXISTS (
        SELECT FROM {base}.entries, LATERAL (SELECT {base}.facts(payload)::jsonb -> 'data') AS steps (step),
            jsonb_path_query(step, '$."shown"[*]', silent => true) AS shown
        WHERE tape = number AND name = {step} AND kind = 'event' AND payload IS NOT NULL AND strpos(payload, blob) > 0
            AND blob IN (step ->> 'system', step ->> 'messages')
            AND jsonb_typeof(shown -> 0) = 'string' AND split_part(shown ->> 0, '@', 1) <> ALL (granted_names())
    )
$$;
CREATE FUNCTION unreadable_position() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT {base}.unreadable_position()
$$;
CREATE VIEW tapes WITH (security_barrier) AS
    SELECT tape, name, archived_from, head, chain, position, is_begun FROM {base}.tapes WHERE tape = ANY ((SELECT granted_tapes())::bigint[])
    UNION ALL
    SELECT tape, name, archived_from, head, ''::bytea, 0::bigint, is_begun FROM {base}.tapes WHERE tape = ANY ((SELECT partly_granted_tapes())::bigint[]);
CREATE VIEW entries WITH (security_barrier) AS
    SELECT seq, tape, id, kind, key, name, opens, at, date, payload, meta, salt, digest, chain FROM {base}.entries
    WHERE tape = ANY ((SELECT granted_tapes())::bigint[])
        OR (tape = ANY ((SELECT partly_granted_tapes())::bigint[]) AND kind = 'event' AND payload IS NOT NULL AND may_see(tape, id, 0));
CREATE VIEW erased WITH (security_barrier) AS
    SELECT tape, id, fact FROM {base}.erased WHERE tape = ANY ((SELECT granted_tapes())::bigint[]);
CREATE VIEW blobs WITH (security_barrier) AS
    SELECT tape, digest, size FROM {base}.blobs
    WHERE tape = ANY ((SELECT granted_tapes())::bigint[]) AND NOT is_hidden(tape, digest);
CREATE VIEW blob_pieces WITH (security_barrier) AS
    SELECT tape, digest, piece, data FROM {base}.blob_pieces
    WHERE tape = ANY ((SELECT granted_tapes())::bigint[]) AND NOT is_hidden(tape, digest);
CREATE VIEW entry_words WITH (security_barrier) AS
    SELECT tape, id, words, folded FROM {base}.entry_words WHERE tape = ANY ((SELECT granted_tapes())::bigint[]);
CREATE VIEW forks WITH (security_barrier) AS
    SELECT fork, opened, tape, base, reset, session, epoch FROM {base}.forks
    WHERE split_part(tape, '@', 1) = ANY ((SELECT granted_names())::text[]);
CREATE VIEW fork_batches WITH (security_barrier) AS
    SELECT fork, place, tape, keep_first, entries FROM {base}.fork_batches WHERE fork IN (SELECT fork FROM forks)
        AND split_part(tape, '@', 1) = ANY ((SELECT granted_names())::text[]);
CREATE VIEW deployment WITH (security_barrier) AS SELECT key, value FROM {base}.deployment WHERE key IN ('workspace', 'tape_shards');
CREATE VIEW migrations WITH (security_barrier) AS SELECT version, applied FROM {base}.migrations;
"""
_RIGHTS = """
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {audit} FROM PUBLIC;
GRANT USAGE ON SCHEMA {audit} TO {role};
GRANT SELECT ON tapes, entries, erased, blobs, blob_pieces, entry_words, forks, fork_batches, deployment, migrations TO {role};
GRANT EXECUTE ON FUNCTION granted_tapes(), granted_names(), partly_granted_tapes(), may_see(bigint, bigint, integer), is_hidden(bigint, text),
    unreadable_position() TO {role};
ALTER ROLE {role} SET default_transaction_read_only = on;
"""
_WRITERS_OF_LARGE_OBJECTS = "lo_create(oid), lo_creat(integer), lo_from_bytea(oid, bytea), lo_open(oid, integer), lo_put(oid, bigint, bytea), lo_unlink(oid)"


class StoredGrants(Struct, frozen=True, kw_only=True):
    """Which facts say what auditors may see. Each has `channel`, `id` and, but for the end of all grants, `session`.

    Attributes:
        tape: the tape with the facts.
        granted: the name of the fact that grants a session.
        revoked: that of the fact that takes the grant back.
        ended: that of the fact that takes all grants of an account back.
    """

    tape: str
    granted: str
    revoked: str
    ended: str


def add_auditor(
    url: str, tenant: str, grants: StoredGrants, shared: Sequence[SharedTape], references: ReferenceRegistry
) -> ServerAddress:
    """Make the views of auditors and their role, or make the views again; return where the trace page connects.

    Args:
        url: of the database, for the owner of the tables, who may make roles.
        tenant: whose tapes they show; empty for those of a database without tenants.
        shared: tapes of which auditors see the facts about granted sessions.
        references: which fields of facts name sessions and entries.

    Raises:
        StoreError: the server or the role is unusable, or there are no tapes.
    """
    address = ServerAddress(url)
    with translated_errors(), closing(connect(address, readonly=False)) as conn:
        check_server(conn, readonly=False)
        enter_tenant(conn, tenant)
        base = find_schema(conn)
        if check_version(conn) == 0:
            raise StoreUnavailable(
                f"the schema {base} holds nothing yet: "
                + (f"`bubbot store add-tenant {tenant}` makes it" if tenant else "start the bot once")
            )
        with conn.transaction():
            role = make_role(conn, f"{base}{AUDIT_SUFFIX}")
            _make_views(conn, base, role, grants)
            _describe_facts(conn, shared, references)
        _forbid_own_tables(conn, role)
        conn.execute(ENTER_SCHEMA)
    return address.for_role(role)


def _make_views(conn: Connection, base: str, role: str, grants: StoredGrants) -> None:
    """Make the schema again: what was changed there is undone."""
    audit = sql.Identifier(role)
    conn.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(audit))
    create_schema(conn, role)
    conn.execute(sql.SQL("SET LOCAL search_path = {}, pg_temp").format(audit))
    changes = sql.SQL(", ").join(map(sql.Literal, (grants.granted, grants.revoked, grants.ended)))
    script = sql.SQL(_SCHEMA).format(
        base=sql.Identifier(base),
        access=sql.Literal(grants.tape),
        changes=sql.SQL("ARRAY[{}]").format(changes),
        granted=sql.Literal(grants.granted),
        ended=sql.Literal(grants.ended),
        step=sql.Literal(STEP_EVENT),
        depth=sql.Literal(MAX_REFERENCE_DEPTH),
    )
    conn.execute(script)
    conn.execute(sql.SQL(_RIGHTS).format(audit=audit, role=audit))


def _describe_facts(conn: Connection, shared: Sequence[SharedTape], references: ReferenceRegistry) -> None:
    with conn.cursor() as cursor:
        rows = [
            (name, _json_paths(found.sessions), _json_paths(found.entries))
            for name in references.events
            if (found := references.of_event(name)).sessions or found.entries
        ]
        cursor.executemany("INSERT INTO known_facts VALUES (%s, %s, %s)", rows)
        tapes = [
            (number, each.name, each.subject, [*each.introduced_by], [*each.facts])
            for number, each in enumerate(shared, 1)
        ]
        cursor.executemany("INSERT INTO shared_tapes VALUES (%s, %s, %s, %s, %s)", tapes)


def _json_paths(paths: Sequence[str]) -> list[str]:
    """Write paths of references as PostgreSQL has them: `state.parents[]` is `$."state"."parents"[*]`."""
    return [
        "$" + "".join(f'."{step.removesuffix("[]")}"' + "[*]" * step.endswith("[]") for step in path.split("."))
        for path in paths
    ]


def _forbid_own_tables(conn: Connection, role: str) -> None:
    """Take away what PostgreSQL lets everybody do: temporary tables and large objects. Only an administrator of the server may."""
    database = sql.Identifier(conn.info.dbname)
    for statement in (
        sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC").format(database),
        sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, sql.Identifier(role)),
        sql.SQL(f"REVOKE EXECUTE ON FUNCTION {_WRITERS_OF_LARGE_OBJECTS} FROM PUBLIC"),
    ):
        with suppress(psycopg.errors.InsufficientPrivilege):
            conn.execute(statement)
