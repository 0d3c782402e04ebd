"""The repair of a database on a server from outside the store."""

from __future__ import annotations

from contextlib import closing

from bubbot.errors import StoreUnavailable
from bubbot.stores.postgres.connections import ServerAddress, connect, translated_errors
from bubbot.stores.postgres.schema import check_version, restore_guards, restore_indexes


def repair_server_database(url: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Restore triggers and functions, and build missing indexes, as the owner; return the names of the wrong ones.

    No entry changes. Raise `StoreError`.
    """
    with translated_errors(), closing(connect(ServerAddress(url), readonly=False)) as conn:
        if check_version(conn) == 0:
            raise StoreUnavailable("the database holds nothing yet: talk to the bot once with bubbot chat")
        return restore_guards(conn), restore_indexes(conn)
