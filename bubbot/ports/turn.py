"""A turn: one or more joined inbounds and everything they cause."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Literal

from bubbot.ports.channel import Deletion, Edit, Inbound, OutboundFile, Reaction, Role, Sender
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.fork import ForkedTape
from bubbot.tape.handle import Clock, spans_of
from bubbot.texts import Texts

SCHEDULED = "schedule"
"""The origin of what a job causes."""
Status = Literal["answered", "silent", "failed", "stopped", "too_old"]
"""How a turn ended. `too_old`: its messages were recorded, and the chat was told that they came too late."""


@dataclass(frozen=True, slots=True)
class AcceptedInbound:
    """An inbound that is a fact.

    Attributes:
        id: its id on the inbox tape.
        attempts: turns that were begun for it and cut off.
        interrupted_turn: the id of the last one; all inbounds that share it are taken up again together. Empty if
            there is none, or if nobody recorded it.
    """

    id: int
    inbound: Inbound
    attempts: int = 0
    interrupted_turn: str = ""


@dataclass(frozen=True, slots=True)
class TapeChange:
    """What changes a session's tape without a turn: its id on the inbox tape, and a change of an earlier message, or
    a message that is only heard."""

    id: int
    event: Edit | Deletion | Reaction | Inbound


async def nobody_joins() -> None:
    """For turns that nothing can join."""


@dataclass
class Turn:
    """What a tool may touch. `tape` is the turn's fork, never its parent.

    `message_ids` are the entries on the tape that the turn answers; `zone` is the chat's time zone. `join` takes in
    messages that came since and may steer the turn; it is called between two steps. `texts` are the bot's own sentences in
    the language of the chat. `files` are sent with the answer; `notices` are sentences of the bot that stand before it.
    Of a scheduled turn: the id of its `job`, `seconds` it may take (0: any), `fixed`, the text that it says in place of an answer, and
    whether it `may_schedule`. `runs_command`: a command is being carried out, not a call of the model.
    """

    id: str
    session: str
    tape: ForkedTape
    sender: Sender
    role: Role
    now: Clock
    zone: tzinfo
    inbounds: Sequence[AcceptedInbound] = ()
    message_ids: list[int] = field(default_factory=list)
    origin: str = "human"
    after_results: list[tuple[str, JsonObject]] = field(default_factory=list)
    join: Callable[[], Awaitable[None]] = nobody_joins
    texts: Texts = field(default_factory=Texts)
    files: list[OutboundFile] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    job: str = ""
    seconds: float = 0.0
    fixed: str | None = None
    may_schedule: bool = True
    runs_command: bool = False

    @property
    def has_power_over_other_chats(self) -> bool:
        """True if an owner asks in person, in a direct chat: elsewhere others read along, and what they write reaches
        the model that calls the tools."""
        asked_alone = all(one.inbound.direct and one.inbound.origin != SCHEDULED for one in self.inbounds)
        return self.role.at_least(Role.OWNER) and asked_alone

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
