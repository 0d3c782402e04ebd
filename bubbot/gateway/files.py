"""The bytes of outgoing files: they stay with the session whose turn sends them, and are erased with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bubbot.errors import EntryNotFound
from bubbot.gateway.outbox import Outbox
from bubbot.ports.channel import refuse_blob
from bubbot.tape.store import TapeStore


def outgoing_blob_reader(
    store: TapeStore, outbox: Outbox, tape_of: Callable[[str], str]
) -> Callable[[str], Awaitable[bytes]]:
    """Return a channel's `ChannelOptions.read_blob`: it reads a blob that an open message of the outbox cites, and no other.

    Args:
        store: holds the blobs.
        outbox: that of the channel.
        tape_of: names the tape of a session. An archived tape still has its blobs; for an erased one the delivery fails
            for good.
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
