"""The bytes of outgoing files: they stay with the session whose turn sends them, and are erased with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bubbot.errors import EntryNotFound
from bubbot.outbox import Outbox
from bubbot.ports.channel import no_blob
from bubbot.tape.store import TapeStore


def outgoing(store: TapeStore, outbox: Outbox, tape: Callable[[str], str]) -> Callable[[str], Awaitable[bytes]]:
    """Return a channel's `ChannelOptions.blob`: it reads a blob that an open message of the outbox cites, and no other.

    Args:
        store: holds the blobs.
        outbox: that of the channel.
        tape: names the tape of a session. An archived tape still has its blobs; for an erased one the delivery fails
            for good.
    """

    async def blob(digest: str) -> bytes:
        for session in await outbox.sessions_of(digest):
            name = tape(session)
            archives = [info.name for info in await store.tapes() if info.archived_from == name]
            for holder in (name, *archives):
                try:
                    return await store.get_blob(holder, digest)
                except EntryNotFound:
                    continue
        return await no_blob(digest)

    return blob
