"""The bytes of files that are to be sent: they stay with the session whose turn sends them, and are erased with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from bubbot.errors import EntryNotFound
from bubbot.outbox import Outbox
from bubbot.ports.channel import no_blob
from bubbot.tape.store import TapeStore


def outgoing(store: TapeStore, outbox: Outbox, tape: Callable[[str], str]) -> Callable[[str], Awaitable[bytes]]:
    """`ChannelOptions.blob` of a channel: reads a blob that an open intent of its outbox cites, and no other.

    `tape` names the tape of a session. A tape that was put aside since still has its blobs; of an erased one the
    delivery fails for good.
    """

    async def blob(digest: str) -> bytes:
        for session in await outbox.sessions_of(digest):
            name = tape(session)
            archives = [one.name for one in await store.tapes() if one.archived_from == name]
            for place in (name, *archives):
                try:
                    return await store.get_blob(place, digest)
                except EntryNotFound:
                    continue
        return await no_blob(digest)

    return blob
