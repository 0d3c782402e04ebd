"""A turn: one or more joined inbounds and everything they cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Literal

from bubbot.channel import Inbound, Role, Sender
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import Clock, spans_of

Status = Literal["answered", "silent", "failed", "stopped"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """An inbound that is a fact: its id on the inbox tape, and how many turns have been begun for it."""

    id: int
    inbound: Inbound
    attempts: int = 0


@dataclass
class Turn:
    """What a tool may touch. `tape` is the turn's fork, never its parent.

    `message_ids` are the entries on the tape that the turn answers; `zone` is the chat's time zone.
    """

    id: str
    session: str
    tape: ForkedTape
    sender: Sender
    role: Role
    now: Clock
    zone: tzinfo
    inbounds: Sequence[Accepted] = ()
    message_ids: list[int] = field(default_factory=list)
    origin: str = "human"
    after_results: list[tuple[str, JsonObject]] = field(default_factory=list)

    def handoff_after_results(self, name: str, state: JsonObject) -> None:
        """Opens a new window once the running step's results are on the tape (T7)."""
        self.after_results.append((name, state))

    async def write_handoffs(self) -> None:
        """Writes the handoffs asked for; each new window keeps the messages that the turn answers."""
        for name, state in self.after_results:
            await self.tape.handoff(name, state, recalls=spans_of(self.message_ids))
        self.after_results.clear()


@dataclass(frozen=True, slots=True)
class TurnResult:
    """How a turn ended. `text` is what people are told; `merged` the entries of the delta, with their ids."""

    turn: str
    status: Status
    text: str = ""
    merged: tuple[TapeEntry, ...] = ()
