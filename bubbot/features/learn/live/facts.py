"""The facts about sessions of the proxy that records calls for training. Its keys stand on no tape."""

from __future__ import annotations

from typing import Literal, TypeAlias

from bubbot.tape.fact import Fact
from bubbot.tape.references import SessionId

CloseReason: TypeAlias = Literal["window", "prefix", "idle", "failed", "uncertain", "lost", "settings", "shutdown"]
"""Why no call goes to a recorded session any more. `window`: the chat's window moved. `prefix`: a request did not go on from the call
before. `idle`: nobody wrote. `failed`: a call failed or was stopped. `uncertain`: a kill left a call without an outcome. `lost`: its key
is not there any more. `settings`: the chat is not recorded any more. `shutdown`: the bot
ended."""


class RlSessionBegan(Fact):
    """The proxy began to record a chat.

    Attributes:
        session: the chat.
        tape: its tape.
        rl: the proxy's id of the recorded session.
        url: the address of the proxy.
    """

    EVENTS = ("learn/rl_began",)
    session: SessionId
    tape: str
    rl: str
    url: str


class RlCallBegan(Fact):
    """A call is about to be sent to a recorded session.

    Attributes:
        session: the chat.
        rl: the proxy's id of the recorded session.
        turn: the id of the turn that calls.
        base: the newest entry of the chat's tape before the turn.
    """

    EVENTS = ("learn/rl_call_began",)
    session: SessionId
    rl: str
    turn: str
    base: int


class RlCallEnded(Fact):
    """The proxy's model answered a call.

    Attributes:
        session: the chat.
        rl: the proxy's id of the recorded session.
        turn: the id of the turn that called.
        completion: the proxy's id of the call; empty if it gave none, so that the call can get no reward.
        messages: how many messages the request and the answer have together.
        prefix: the SHA-256 of these messages and of the tools; the next request has to begin with them.
    """

    EVENTS = ("learn/rl_call_ended",)
    session: SessionId
    rl: str
    turn: str
    completion: str
    messages: int
    prefix: str


class RlCallDropped(Fact):
    """A call was not sent after all: this deployment did not allow it.

    Attributes:
        session: the chat.
        rl: the proxy's id of the recorded session.
    """

    EVENTS = ("learn/rl_call_dropped",)
    session: SessionId
    rl: str


class RlRewardSent(Fact):
    """The proxy has the reward of a turn; a later one takes its place.

    Attributes:
        session: the chat.
        rl: the proxy's id of the recorded session.
        turn: the id of the turn.
        completion: the proxy's id of the turn's last call.
        reward: from -1 to 1.
    """

    EVENTS = ("learn/rl_reward_sent",)
    session: SessionId
    rl: str
    turn: str
    completion: str
    reward: float


class RlRewardLate(Fact):
    """A turn was judged after its recorded session had ended: the proxy does not get this reward.

    Attributes:
        session: the chat.
        rl: the proxy's id of the recorded session.
        turn: the id of the turn.
        reward: from -1 to 1.
    """

    EVENTS = ("learn/rl_reward_late",)
    session: SessionId
    rl: str
    turn: str
    reward: float


class RlSessionClosed(Fact):
    """No further call goes to a recorded session. Rewards that are owed are sent before it ends.

    Attributes:
        session: the chat.
        rl: the proxy's id of the recorded session.
        reason: why.
    """

    EVENTS = ("learn/rl_closed",)
    session: SessionId
    rl: str
    reason: CloseReason


class RlSessionEnded(Fact):
    """The proxy knows that a recorded session has ended.

    Attributes:
        session: the chat.
        rl: the proxy's id of the recorded session.
    """

    EVENTS = ("learn/rl_ended",)
    session: SessionId
    rl: str


FACTS: tuple[type[Fact], ...] = (
    RlSessionBegan, RlCallBegan, RlCallEnded, RlCallDropped, RlRewardSent, RlRewardLate, RlSessionClosed, RlSessionEnded,
)  # fmt: skip
SESSION_EVENTS = tuple(name for fact in FACTS for name in fact.EVENTS)
"""Facts about one chat, which an erasure of that chat reaches."""
