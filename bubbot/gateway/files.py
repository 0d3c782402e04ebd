"""The bytes of outgoing files: they belong to the session whose turn sends them and are erased with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bubbot.errors import EntryNotFound
from bubbot.gateway.outbox import Outbox
from bubbot.ports.channel import refuse_blob
from bubbot.tape.store import TapeStore


def outgoing_blob_reader(
    store: TapeStore, outbox: Outbox, tape_of: Callable[[str], str]
) -> Callable[[str], Awaitable[bytes]]:
    """Return a channel's `ChannelOptions.read_blob`: it reads only blobs that open messages of the outbox cite.

    Args:
        tape_of: returns the tape of a session. An archived tape still has its blobs; if it was erased, the delivery
            fails permanently.
    """

    async def blob(digest: str) -> bytes:
        for session in await outbox.sessions_with_file(digest):
            name = tape_of(session)
            archives = [info.name for info in await store.tapes() if info.archived_from == name]
            for holder in (name, *archives):
                try:
                    return await store.get_blob(holder, digest)
                except EntryNotFound:
                    continue
        return await refuse_blob(digest)

    return blob
