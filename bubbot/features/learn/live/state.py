"""The sessions that the proxy records, as the facts say."""

from __future__ import annotations

from functools import singledispatchmethod
from typing import Any, ClassVar

from msgspec import Struct, field

from bubbot.features.learn.live.facts import (
    FACTS,
    RlCallBegan,
    RlCallDropped,
    RlCallEnded,
    RlRewardLate,
    RlRewardSent,
    RlSessionBegan,
    RlSessionClosed,
    RlSessionEnded,
)
from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.tape.fact import Cited, FactState
from bubbot.tape.projection import checkpoint_model, project_facts
from bubbot.tape.references import SessionId

MAX_PAST_TURNS = 500
"""The newest turns of ended sessions whose late judgements are counted."""


class RlTurn(Struct):
    """A turn in a recorded session.

    Attributes:
        base: the newest entry of the chat's tape before it.
        completion: the proxy's id of its last call; empty if it gave none.
        sent: the reward that the proxy has, or that came too late; None without one.
    """

    base: int
    completion: str = ""
    sent: float | None = None


class RlSession(Struct):
    """A recorded session that has not ended.

    Attributes:
        session: the chat.
        tape: its tape.
        rl: the proxy's id of it.
        url: the address of the proxy.
        used: when its newest call began or ended, ISO 8601 in UTC.
        messages: how many messages its newest request and answer have together; 0 before the first call.
        prefix: the digest of these.
        is_calling: a call began and has no outcome yet.
        is_closed: no further call goes to it.
        turns: its turns with an answered call, by their ids.
        base: of the turn that calls.
    """

    session: SessionId
    tape: str
    rl: str
    url: str
    used: str
    messages: int = 0
    prefix: str = ""
    is_calling: bool = False
    is_closed: bool = False
    turns: dict[str, RlTurn] = field(default_factory=dict)
    base: int = 0


class PastTurn(Struct):
    """A turn of a recorded session that has ended.

    Attributes:
        id: of the turn.
        session: the chat.
        tape: its tape.
        rl: the proxy's id of the session.
        turn: as it was.
    """

    id: str
    session: SessionId
    tape: str
    rl: str
    turn: RlTurn


class LiveState(FactState):
    """The sessions that have not ended, and figures.

    Attributes:
        sessions: in the order in which they began.
        past: the newest turns of ended sessions.
        calls: answered calls.
        rewards: rewards that the proxy took.
        late: judgements that came too late.
        ended: sessions that have ended.
    """

    FACTS: ClassVar = FACTS
    sessions: list[RlSession] = field(default_factory=list)
    past: list[PastTurn] = field(default_factory=list)
    calls: int = 0
    rewards: int = 0
    late: int = 0
    ended: int = 0

    def find_open(self, session: str) -> RlSession | None:
        """Return the session to which the calls of a chat go; None without one."""
        found = [each for each in self.sessions if each.session == session and not each.is_closed]
        return found[-1] if found else None

    def find(self, rl: str) -> RlSession | None:
        """Return a session by the proxy's id; None if it has ended, or was never there."""
        return next((each for each in self.sessions if each.rl == rl), None)

    @singledispatchmethod
    def fold(self, fact: Any, cited: Cited[Any], /) -> None:
        """Change the state by one fact. A fact about a session that is not known, such as an erased one, changes nothing."""
        raise NotImplementedError(type(fact).__name__)

    @fold.register
    def _(self, fact: RlSessionBegan, cited: Cited[Any], /) -> None:
        self.sessions.append(RlSession(fact.session, fact.tape, fact.rl, fact.url, cited.date))

    @fold.register
    def _(self, fact: RlCallBegan, cited: Cited[Any], /) -> None:
        if found := self.find(fact.rl):
            found.is_calling, found.used, found.base = True, cited.date, fact.base

    @fold.register
    def _(self, fact: RlCallEnded, cited: Cited[Any], /) -> None:
        self.calls += 1
        if found := self.find(fact.rl):
            found.is_calling, found.used = False, cited.date
            found.messages, found.prefix = fact.messages, fact.prefix
            found.turns[fact.turn] = RlTurn(found.base, fact.completion)

    @fold.register
    def _(self, fact: RlCallDropped, _cited: Cited[Any], /) -> None:
        if found := self.find(fact.rl):
            found.is_calling = False

    @fold.register
    def _(self, fact: RlRewardSent, _cited: Cited[Any], /) -> None:
        self.rewards += 1
        if (found := self.find(fact.rl)) and (turn := found.turns.get(fact.turn)):
            turn.sent = fact.reward

    @fold.register
    def _(self, fact: RlRewardLate, _cited: Cited[Any], /) -> None:
        self.late += 1
        if (found := self.find(fact.rl)) and (turn := found.turns.get(fact.turn)):
            turn.sent = fact.reward
        else:
            for past in self.past:
                if past.id == fact.turn:
                    past.turn.sent = fact.reward

    @fold.register
    def _(self, fact: RlSessionClosed, _cited: Cited[Any], /) -> None:
        if found := self.find(fact.rl):
            found.is_closed = True

    @fold.register
    def _(self, fact: RlSessionEnded, _cited: Cited[Any], /) -> None:
        self.ended += 1
        if found := self.find(fact.rl):
            self.sessions.remove(found)
            self.past += [
                PastTurn(name, found.session, found.tape, found.rl, turn) for name, turn in found.turns.items()
            ]
            del self.past[:-MAX_PAST_TURNS]


LIVE_PROJECTION = project_facts(LiveState, name="learn-live", version=1, tapes=LEARN_TAPE, interval=500)

CHECKPOINTS = {LIVE_PROJECTION.checkpoint_name: checkpoint_model(LiveState)}
