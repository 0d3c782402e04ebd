"""The inbox as a turn uses it: the facts that settle inbounds, and what is still open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.tape.entry import TapeEntry, event

INBOX_PREFIX = "bubbot/inbox/"
"""The beginning of the names of the tapes of inboxes; the name of the channel follows."""
INBOUND_DONE = "inbox/done"
INBOUND_INTERRUPTED = "inbox/interrupted"


class InboxReader(Protocol):
    """Reads what the inbox of a channel still has to process."""

    @property
    def name(self) -> str:
        """The name of the inbox tape."""
        ...

    async def open_inbounds(self) -> tuple[AcceptedInbound, ...]:
        """Return the inbounds that no turn has finished, oldest first, with the turns begun for them."""
        ...

    async def open_changes(self) -> tuple[TapeChange, ...]:
        """Return the changes that are not on their session tapes yet, oldest first."""
        ...


def done_entry(ids: Sequence[int], *, turn: str = "", outcome: str) -> TapeEntry:
    """Make the fact that a turn finished these inbounds, or, without a turn, that they need nothing more."""
    return event(INBOUND_DONE, {"inbounds": list(ids), "turn": turn, "outcome": outcome})


def interrupted_entry(ids: Sequence[int], *, turn: str) -> TapeEntry:
    """Make the fact that the process ended in the middle of a turn for these inbounds; they are still open."""
    return event(INBOUND_INTERRUPTED, {"inbounds": list(ids), "turn": turn})
