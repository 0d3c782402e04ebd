"""The lease port: who may write to the tape of a session."""

from __future__ import annotations

from typing import Protocol

from bubbot.tape.store import Lease


class SessionLease(Protocol):
    """The leases of the sessions that one process works on.

    Whoever takes up a session gets a higher epoch than every earlier holder. What an older holder still writes under its
    lease raises `LeaseLost`, and nothing of it is written.
    """

    async def hold(self, session: str) -> Lease:
        """Return this process's lease of a session; take the session up if it holds none."""
        ...

    def release(self, session: str) -> None:
        """Give a lease back; releasing one that is not held is fine."""
        ...
