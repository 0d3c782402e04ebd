"""Which schema a connection works in, and the row security that keeps the tables of tenants apart.

A tenant has a schema and a role of one name, `bubbot_NAME`; whoever connects as that role works in that schema, as PostgreSQL's own
`"$user"` would have it. Every table there shows rows only while the setting `bubbot.tenant` is that name, to its owner too.
An auditor's schema has the name of the schema that it shows, and `_audit`.
"""

from __future__ import annotations

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

SELECT_SCHEMA = """
SELECT coalesce(
    (SELECT nspname::text FROM pg_namespace WHERE nspname = current_user AND nspname LIKE 'bubbot\\_%'
        AND obj_description(oid, 'pg_namespace') = 'bubbot'),
    'bubbot_' || nullif(current_setting('bubbot.tenant', true), ''),
    'bubbot'
) AS name
"""
"""Select the schema of a connection: named after its role, else of the tenant that it has set, else the only one."""
JOBS_SUFFIX = "_jobs"
"""The end of the name of the schema with procrastinate's tables and functions."""
ENTER_SCHEMA = f"""
SELECT set_config('search_path', quote_ident(name) || ', ' || quote_ident(name || '{JOBS_SUFFIX}') || ', pg_temp', false),
    set_config('bubbot.tenant', coalesce(nullif(substring(name from '^bubbot_([a-z0-9]+)'), 'audit'), ''), false)
FROM ({SELECT_SCHEMA}) AS schema
"""
"""Begin a connection: find its schema, and say whose rows it wants."""
AUDIT_SUFFIX = "_audit"
"""The end of the names of schemas and roles of auditors."""
TENANT_POLICY, WORDS_POLICY = "tenant", "words"
WORDS_TABLE = "entry_words"
"""The table that search reads. A policy on the setting would be checked before the index on words is used, so the tenant's own
role reads this table without one."""
_SELECT_POLICIES = """
SELECT relname::text, relrowsecurity AND relforcerowsecurity, array_remove(array_agg(
    (polname || ' ' || polcmd::text || ' ' || coalesce((SELECT string_agg(CASE WHEN role = 0 THEN 'public' ELSE role::regrole::text END, ',')
        FROM unnest(polroles) AS role), '') || ' ' || pg_get_expr(polqual, polrelid)
        || CASE WHEN polpermissive AND polwithcheck IS NULL THEN '' ELSE ' changed' END) ORDER BY polname
), NULL)
FROM pg_class LEFT JOIN pg_policy ON polrelid = pg_class.oid
WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p')
GROUP BY pg_class.oid ORDER BY relname
"""


def list_unprotected_tables(conn: psycopg.Connection[TupleRow]) -> list[str]:
    """List the tables of a tenant's schema whose row security is missing or changed; none of the schema without tenants."""
    tenant = _find_tenant(conn)
    if tenant is None:
        return []
    return [
        table
        for table, is_forced, policies in conn.execute(_SELECT_POLICIES).fetchall()
        if not is_forced or policies != _expected_policies(table, tenant)
    ]


def protect_tables(conn: psycopg.Connection[TupleRow]) -> None:
    """Add the missing row security of a tenant's tables, as their owner."""
    for table in list_unprotected_tables(conn):
        protect_table(conn, table)


def protect_table(conn: psycopg.Connection[TupleRow], table: str) -> None:
    """Let a table of a tenant show rows under the tenant's setting only, to its owner too; drop other policies."""
    tenant, name = _find_tenant(conn), sql.Identifier(table)
    assert tenant is not None
    rows = conn.execute("SELECT polname::text FROM pg_policy WHERE polrelid = %s::regclass", (f'"{table}"',))
    for (policy,) in rows.fetchall():
        conn.execute(sql.SQL("DROP POLICY {} ON {}").format(sql.Identifier(policy), name))
    conn.execute(sql.SQL("ALTER TABLE {} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY").format(name))
    condition = sql.SQL("current_setting('bubbot.tenant', true) = {}").format(sql.Literal(tenant))
    conn.execute(sql.SQL("CREATE POLICY {} ON {} USING ({})").format(sql.Identifier(TENANT_POLICY), name, condition))
    if table == WORDS_TABLE:
        conn.execute(
            sql.SQL("CREATE POLICY {} ON {} FOR SELECT TO {} USING (true)").format(
                sql.Identifier(WORDS_POLICY), name, sql.Identifier(f"bubbot_{tenant}")
            )
        )


def _find_tenant(conn: psycopg.Connection[TupleRow]) -> str | None:
    row = conn.execute("SELECT current_schema()").fetchone()
    _, _, tenant = str(row[0] if row else "").partition("bubbot_")
    return tenant or None


def _expected_policies(table: str, tenant: str) -> list[str]:
    expected = [f"{TENANT_POLICY} * public (current_setting('bubbot.tenant'::text, true) = '{tenant}'::text)"]
    return [*expected, f"{WORDS_POLICY} r bubbot_{tenant} true"] if table == WORDS_TABLE else expected
