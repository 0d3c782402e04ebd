"""The leases of the only process that writes to its home: epochs in the store, locks in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from bubbot.errors import LeaseLost
from bubbot.tape.store import Lease, TapeStore


class InProcessLease:
    """Holds sessions for this process. See `SessionLease`.

    The home's lock excludes other processes. If that fails, the store refuses the lower epoch.
    """

    def __init__(
        self, store: TapeStore, tape_of: Callable[[str], str], may_take: Callable[[str], bool] | None = None
    ) -> None:
        """`may_take`: returns true if this process may take up a session now; None: it may take up any."""
        self._may_take = may_take
        self._store = store
        self._tape_of = tape_of
        self._held: dict[str, Lease] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def hold(self, session: str) -> Lease:
        """See `SessionLease.hold`. Concurrent callers get the same lease. Raise `LeaseLost` if another process has the session."""
        lock = self._locks.setdefault(session, asyncio.Lock())
        async with lock:
            lease = self._held.get(session)
            if lease is None:
                if self._may_take is not None and not self._may_take(session):
                    raise LeaseLost(f"another process has the session {session} by now: it does what is open")
                tape = self._tape_of(session)
                lease = self._held[session] = Lease(tape, await self._store.raise_epoch(tape))
        return lease

    def find(self, session: str) -> Lease | None:
        """Return the lease of a session that this process has held last; None if it has none."""
        return self._held.get(session)

    def release(self, session: str) -> None:
        self._held.pop(session, None)
