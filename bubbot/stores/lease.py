"""The leases of the only process that writes to its home: epochs in the store, locks in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from bubbot.tape.store import Lease, TapeStore


class InProcessLease:
    """Holds sessions for this process. See `SessionLease`.

    The home's lock excludes other processes. If that fails, the store refuses the lower epoch.
    """

    def __init__(self, store: TapeStore, tape_of: Callable[[str], str]) -> None:
        self._store = store
        self._tape_of = tape_of
        self._held: dict[str, Lease] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def hold(self, session: str) -> Lease:
        """See `SessionLease.hold`. Concurrent callers get the same lease."""
        lock = self._locks.setdefault(session, asyncio.Lock())
        async with lock:
            lease = self._held.get(session)
            if lease is None:
                tape = self._tape_of(session)
                lease = self._held[session] = Lease(tape, await self._store.raise_epoch(tape))
        return lease

    def find(self, session: str) -> Lease | None:
        """Return the lease of a session that this process has held last; None if it has none."""
        return self._held.get(session)

    def release(self, session: str) -> None:
        self._held.pop(session, None)
