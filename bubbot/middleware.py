"""Middleware: plain callables around a turn, a model call, a tool call and a delivery.

A middleware takes a value and the next callable, and returns what that returns: `async def around(value, call_next)`.
The first of a list is outermost.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from bubbot.arguments.fields import Args
from bubbot.ports.channel import MessagePart, Receipt
from bubbot.ports.model import Model, ModelReply, ModelRequest, TextDelta, ToolCall
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.tool import CallPlan, Tool, ToolOutput

V = TypeVar("V")
R = TypeVar("R")

CallNext: TypeAlias = Callable[[V], Awaitable[R]]
Middleware: TypeAlias = Callable[[V, CallNext[V, R]], Awaitable[R]]


@dataclass(slots=True)
class ModelCall:
    """One call of a model.

    Attributes:
        turn: the turn that calls.
        model: the model.
        request: the request.
        count_input: returns the tokens of the request: counted if somebody did, else estimated.
        on_text: called with each piece of the answer; a middleware may add its own.
        streamed: the text of the answer that came so far.
        is_sent: true once a model was really called.
        cost: in US dollars, once the call is over; None if nobody knows its price.
        span: the id of the step in traces, 16 hex digits, if a middleware gave it one: the step records it. A repeated call has
            that of the first.
        weights: the digest of the weights that answered, once the call is over, if a middleware is certain of them: the step
            records it.
        step: what the step has recorded of the request so far, such as which entries it shows; `purpose` if it is not for an
            answer.
    """

    turn: Turn
    model: Model
    request: ModelRequest
    count_input: Callable[[], int]
    on_text: list[Callable[[TextDelta], None]] = field(default_factory=list)
    streamed: str = ""
    is_sent: bool = False
    cost: float | None = None
    span: str = ""
    weights: str = ""
    step: Mapping[str, Any] = field(default_factory=dict)


class ToolInvocation(Struct, frozen=True):
    """One call of a tool, by a model or as a command.

    Attributes:
        turn: the turn that calls.
        tool: the tool.
        args: its checked arguments.
        call: the call of the model; None for a command.
        plan: what the call would do; None for a command, whose yes is that a person typed it.
        used_before: an interrupted attempt of the turn called this tool to act outside: what it did may have happened.
    """

    turn: Turn
    tool: Tool
    args: Args
    call: ToolCall | None = None
    plan: CallPlan | None = None
    used_before: bool = False


class PartDelivery(Struct, frozen=True):
    """One part of a message on its way to a channel.

    Attributes:
        channel: the channel's name.
        session: the session of the message.
        part: the part, for the chat's current id.
    """

    channel: str
    session: str
    part: MessagePart


AroundTurn: TypeAlias = Middleware[Turn, TurnOutcome]
AroundModel: TypeAlias = Middleware[ModelCall, ModelReply]
AroundTool: TypeAlias = Middleware[ToolInvocation, ToolOutput]
AroundDelivery: TypeAlias = Middleware[PartDelivery, Receipt]
BeforeStep: TypeAlias = Callable[[Turn], Awaitable[None]]
"""Look at the tape of a turn, and append to it, before the request of a step is built."""


def wrap(middleware: Sequence[Middleware[V, R]], inner: CallNext[V, R]) -> CallNext[V, R]:
    """Wrap a callable into middleware, the first outermost."""
    for around in reversed(middleware):
        inner = partial(_call, around, inner)
    return inner


def _call(around: Middleware[V, R], inner: CallNext[V, R], value: V) -> Awaitable[R]:
    return around(value, inner)
