"""The inbox as a turn uses it: the facts that settle inbounds, and the open ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from bubbot.ports.turn import AcceptedInbound, TapeChange
from bubbot.tape.entry import TapeEntry
from bubbot.tape.fact import Fact
from bubbot.tape.references import EntryId

INBOX_PREFIX = "bubbot/inbox/"
"""The prefix of the names of inbox tapes; the name of the channel follows."""


class InboundsInterrupted(Fact):
    """The turn of these inbounds was interrupted; they are still open."""

    EVENTS = ("inbox/interrupted",)
    inbounds: tuple[EntryId, ...]
    turn: str = ""


class InboundsDone(Fact):
    """A turn finished these inbounds; without a turn they need nothing more."""

    EVENTS = ("inbox/done",)
    inbounds: tuple[EntryId, ...]
    turn: str
    outcome: str


class InboxReader(Protocol):
    """Reads the open work in the inbox of a channel."""

    @property
    def name(self) -> str: ...

    async def open_inbounds(self) -> tuple[AcceptedInbound, ...]:
        """Return the inbounds that no turn has finished, oldest first, with the interrupted turns."""
        ...

    async def open_changes(self) -> tuple[TapeChange, ...]:
        """Return the changes that are not on their session tapes yet, oldest first."""
        ...


def done_entry(ids: Sequence[int], *, turn: str = "", outcome: str) -> TapeEntry:
    """Make the fact that a turn finished these inbounds or, without a turn, that they need nothing more."""
    return InboundsDone(tuple(ids), turn, outcome).to_entry()


def interrupted_entry(ids: Sequence[int], *, turn: str) -> TapeEntry:
    """Make the fact that the process ended during a turn for these inbounds, which stay open."""
    return InboundsInterrupted(tuple(ids), turn).to_entry()
