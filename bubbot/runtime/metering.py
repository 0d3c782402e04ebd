"""What a turn asks of budgets and rates: a reservation for each model call, a moment for each message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from bubbot.budget import Budget, MeteredCall
from bubbot.errors import BudgetExceeded, ModelCallDenied, ModelEmptyAnswer, RateLimitExceeded
from bubbot.ports.channel import Outbound
from bubbot.ports.model import NANO, Model, ModelReply, TextDelta
from bubbot.ports.turn import SCHEDULED, AcceptedInbound, Turn
from bubbot.rates import RateLimiter
from bubbot.runtime.calls import clean
from bubbot.runtime.compose import ComposedRequest, fixed_tokens
from bubbot.runtime.router import is_command, route_assistant
from bubbot.tape import entry as make
from bubbot.texts import Texts
from bubbot.views.budget import BudgetSubject, CallError, person, whose_budget
from bubbot.views.compact import estimate_tokens, message_tokens

log = logging.getLogger(__name__)

QUIETLY = 3.0
"""Seconds that a message over a rate waits without a word."""
RETRY = ",retry"
"""The command that asks the model."""


class CallObserver(Protocol):
    """Is told what came of a call."""

    def text(self, delta: TextDelta) -> None:
        """A piece of the answer came."""
        ...

    def reply(self, reply: ModelReply) -> None:
        """The answer is whole."""
        ...

    @property
    def cost(self) -> float | None:
        """US dollars that the call took, once it is over; None if nobody knows its price."""
        ...


class Meter(Protocol):
    """Reserves what model calls take."""

    def call(
        self, turn: Turn, composed: ComposedRequest, counted: int | None
    ) -> AbstractAsyncContextManager[CallObserver]:
        """Around one model call, durable before it begins. `counted`: the tokens of the request, where somebody counted.

        Raises `BudgetExceeded`.
        """
        ...


class NullObserver:
    def __init__(self) -> None:
        self.cost: float | None = None

    def text(self, delta: TextDelta) -> None:
        """Nobody counts."""

    def reply(self, reply: ModelReply) -> None:
        """Nobody counts; a model may know what it cost."""
        self.cost = reply.usage.cost


class Unmetered:
    """See `Meter`. For bots without budgets."""

    def call(
        self,
        turn: Turn,  # noqa: ARG002 - the port's signature
        composed: ComposedRequest,  # noqa: ARG002
        counted: int | None,  # noqa: ARG002
    ) -> AbstractAsyncContextManager[CallObserver]:
        """Reserves nothing."""
        return nullcontext(NullObserver())


class _BudgetObserver:
    def __init__(self, call: MeteredCall) -> None:
        self._call = call
        self._size = 0

    def text(self, delta: TextDelta) -> None:
        self._size += len(delta.text.encode(errors="replace"))
        self._call.heard = self._size // 3 + 1

    def reply(self, reply: ModelReply) -> None:
        self._call.heard = max(self._call.heard, estimate_tokens(reply.text) if reply.text else 0)
        self._call.reply = reply
        if not reply.calls and route_assistant(clean(reply.text)).empty:
            self._call.error = CallError(ModelEmptyAnswer.kind)

    @property
    def cost(self) -> float | None:
        nano = self._call.cost_nanousd
        return None if nano is None else nano / NANO


class _MeteredContext(AbstractAsyncContextManager[CallObserver]):
    def __init__(self, call: AbstractAsyncContextManager[MeteredCall]) -> None:
        self._call = call

    async def __aenter__(self) -> CallObserver:
        return _BudgetObserver(await self._call.__aenter__())

    async def __aexit__(self, *raised: object) -> bool | None:
        return await self._call.__aexit__(*raised)  # type: ignore[arg-type]


class BudgetMeter:
    """See `Meter`."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def call(
        self, turn: Turn, composed: ComposedRequest, counted: int | None
    ) -> AbstractAsyncContextManager[CallObserver]:
        """See `Meter.call`."""
        request = composed.request
        if counted is None:
            # From the context, where an image is a reference: its bytes in the request are no tokens.
            shown = sum(map(message_tokens, composed.context.shown))
            counted = shown + fixed_tokens(request.system, request.tools)
        return _MeteredContext(self._budget.call(payer_of(turn), composed.model.name, counted))


def payer_of(turn: Turn) -> BudgetSubject:
    """For whom a turn asks: its session, its person, and the job that caused it."""
    return BudgetSubject(turn.session, person(turn.session, turn.sender.id), turn.job, turn.id)


class BudgetFallbackModel:
    """The model of a turn; where a budget of it is used up, the first of the `cheaper` ones that has one left."""

    def __init__(
        self,
        models: Callable[[Turn], Awaitable[Model]],
        named: Callable[[str], Model],
        budget: Budget,
        cheaper: Sequence[str],
    ) -> None:
        self._models = models
        self._named = named
        self._budget = budget
        self._cheaper = cheaper

    async def of(self, turn: Turn) -> Model:
        """The model that is asked."""
        model = await self._models(turn)
        for name in (model.name, *self._cheaper):
            if not self._budget.used_up("model", name):
                return model if name == model.name else self._named(name)
        return model


class RateGate:
    """Lets the messages of a session come to the model no faster than the rates allow. `tell` says something at once
    that no turn said."""

    def __init__(
        self, rates: RateLimiter | None, texts: Texts, tell: Callable[[str, Outbound], Awaitable[None]]
    ) -> None:
        self.rates = rates
        self._texts = texts
        self._tell = tell

    async def wait(self, ahead: Sequence[AcceptedInbound], woken: asyncio.Event) -> ModelCallDenied | None:
        """Returns when the messages may have their turn, or when somebody is `woken`; with an error where they may not."""
        if self.rates is None or not ahead or ahead[0].attempts or not _asks(ahead[0]):
            return None
        inbound = ahead[0].inbound
        try:
            payer = BudgetSubject(inbound.session, person(inbound.session, inbound.sender.id))
            seconds = self.rates.book(payer)
        except RateLimitExceeded as refused:
            return refused
        if seconds > QUIETLY:
            await self._say(ahead[0], self._texts.say("over_rate", count=round(seconds)))
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await woken.wait()
            except TimeoutError:
                pass
        return None

    def crowded(self, ahead: Callable[[], Sequence[AcceptedInbound]]) -> Callable[[int], Awaitable[None]]:
        """Tells the chat of the first message that it waits for a place, and how many are before it."""

        async def tell(before: int) -> None:
            if waiting := ahead():
                await self._say(waiting[0], self._texts.say("waiting_for_place", count=before))

        return tell

    async def _say(self, accepted: AcceptedInbound, text: str) -> None:
        inbound = accepted.inbound
        out = Outbound(inbound.channel, inbound.chat, text, inbound.thread, inbound.message)
        await self._tell(inbound.channel, out)


def _asks(accepted: AcceptedInbound) -> bool:
    if accepted.inbound.origin == SCHEDULED:  # jobs have limits of their own
        return False
    text = accepted.inbound.text.strip()
    return not is_command(text) or text == RETRY


async def not_asked(turn: Turn, error: ModelCallDenied) -> str:
    """Keeps that a budget or a rate ended the turn; what people are told of it."""
    await turn.tape.append([make.error(error.kind, clean(str(error)))])
    log.info("a turn was refused: %s", error, extra={"action": "turn.refused", "kind": error.kind})
    return refusal(turn.texts, error)


def refusal(texts: Texts, error: ModelCallDenied) -> str:
    """What people are told of a call that was not made; nothing where they know already."""
    if error.told:
        return ""
    whose = texts.say("whose_you") if error.scope == "user" else ""
    whose = texts.say("whose_here") if error.scope == "chat" else whose
    whose = whose or whose_budget(texts, error.scope, error.name)
    match error:
        case BudgetExceeded(period="day"):
            return texts.say("budget_spent_day", whose=whose, renews=error.renews)
        case BudgetExceeded():
            return texts.say("budget_spent_month", whose=whose, renews=error.renews)
        case RateLimitExceeded(span="minute", count=count):
            return texts.say("too_many_minute", count=count, renews=error.renews)
        case RateLimitExceeded(count=count):
            return texts.say("too_many_hour", count=count, renews=error.renews)
    return texts.reason(error)


async def nothing_said(_channel: str, _outbound: Outbound) -> None:
    """For bots that say nothing between turns."""
