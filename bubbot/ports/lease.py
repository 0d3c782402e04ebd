"""The lease port: who may write to the tape of a session."""

from __future__ import annotations

from typing import Protocol

from bubbot.tape.store import Lease


class SessionLease(Protocol):
    """The leases of the sessions that one process works on.

    Each holder gets a higher epoch than all earlier holders. An earlier holder's writes raise `LeaseLost` and write
    nothing.
    """

    async def hold(self, session: str) -> Lease:
        """Return this process's lease of a session; take up the session if it has none.

        Raise `LeaseLost` if another process works on it.
        """
        ...

    def release(self, session: str) -> None:
        """Release a lease; do nothing if it is not held."""
        ...
