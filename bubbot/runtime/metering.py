"""Budgets and rates of a turn: a reservation for each model call, a moment for each message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from bubbot.errors import BudgetExceeded, ModelCallDenied, ModelEmptyAnswer, RateLimitExceeded
from bubbot.features.budget.budget import Budget, MeteredCall
from bubbot.features.budget.rates import RateLimiter
from bubbot.features.budget.state import BudgetSubject, CallError, budget_owner_text, user_key
from bubbot.ports.channel import Outbound
from bubbot.ports.model import NANOS_PER_USD, Model, ModelReply, TextDelta
from bubbot.ports.text import clean
from bubbot.ports.turn import SCHEDULE_ORIGIN, AcceptedInbound, Turn
from bubbot.runtime.answer import route_assistant
from bubbot.runtime.compose import ComposedRequest, estimate_fixed_tokens
from bubbot.runtime.context.compact import estimate_message_tokens, estimate_tokens
from bubbot.runtime.router import is_command
from bubbot.tape import entry as make
from bubbot.texts import Texts

log = logging.getLogger(__name__)

SILENT_WAIT_SECONDS = 3.0
"""Seconds that a message over a rate waits without a notice."""
RETRY_COMMAND = ",retry"
"""The command that asks the model again."""


class CallObserver(Protocol):
    """Follows one model call and learns its cost."""

    def on_text(self, delta: TextDelta) -> None:
        """Follow a piece of the answer."""
        ...

    def on_reply(self, reply: ModelReply) -> None:
        """Record the complete answer."""
        ...

    @property
    def cost(self) -> float | None:
        """The cost of the call in US dollars, once it is over; None if nobody knows its price."""
        ...


class Meter(Protocol):
    """Reserves what model calls take."""

    def call(
        self, turn: Turn, composed: ComposedRequest, token_count: int | None
    ) -> AbstractAsyncContextManager[CallObserver]:
        """Wrap one model call; the reservation is durable before the call begins.

        Args:
            turn: the turn that asks.
            composed: the request.
            token_count: the tokens of the request; None if nobody counted them.

        Raises:
            BudgetExceeded: a budget is used up.
        """
        ...


class NullObserver:
    """An observer that measures nothing. See `CallObserver`."""

    def __init__(self) -> None:
        self.cost: float | None = None

    def on_text(self, delta: TextDelta) -> None:
        """Ignore it: nobody counts."""

    def on_reply(self, reply: ModelReply) -> None:
        """Take the cost that the model reports itself."""
        self.cost = reply.usage.cost


class Unmetered:
    """The meter of bots without budgets. See `Meter`."""

    def call(
        self,
        turn: Turn,  # noqa: ARG002 - the port's signature
        composed: ComposedRequest,  # noqa: ARG002
        token_count: int | None,  # noqa: ARG002
    ) -> AbstractAsyncContextManager[CallObserver]:
        """Reserve nothing."""
        return nullcontext(NullObserver())


class _BudgetObserver:
    def __init__(self, call: MeteredCall) -> None:
        self._call = call
        self._size = 0

    def on_text(self, delta: TextDelta) -> None:
        self._size += len(delta.text.encode(errors="replace"))
        self._call.output_estimate = self._size // 3 + 1

    def on_reply(self, reply: ModelReply) -> None:
        self._call.output_estimate = max(self._call.output_estimate, estimate_tokens(reply.text) if reply.text else 0)
        self._call.reply = reply
        if not reply.calls and route_assistant(clean(reply.text)).empty:
            self._call.error = CallError(ModelEmptyAnswer.kind)

    @property
    def cost(self) -> float | None:
        nano = self._call.cost_nanousd
        return None if nano is None else nano / NANOS_PER_USD


class _MeteredContext(AbstractAsyncContextManager[CallObserver]):
    def __init__(self, call: AbstractAsyncContextManager[MeteredCall]) -> None:
        self._call = call

    async def __aenter__(self) -> CallObserver:
        return _BudgetObserver(await self._call.__aenter__())

    async def __aexit__(self, *raised: object) -> bool | None:
        return await self._call.__aexit__(*raised)  # type: ignore[arg-type]


class BudgetMeter:
    """The meter of bots with budgets. See `Meter`."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def call(
        self, turn: Turn, composed: ComposedRequest, token_count: int | None
    ) -> AbstractAsyncContextManager[CallObserver]:
        """See `Meter.call`."""
        request = composed.request
        if token_count is None:
            # From the context, which holds images as references: their bytes in the request are not tokens.
            context_tokens = sum(map(estimate_message_tokens, composed.context.context_messages))
            token_count = context_tokens + estimate_fixed_tokens(request.system, request.tools)
        return _MeteredContext(self._budget.metered_call(budget_subject(turn), composed.model.name, token_count))


def budget_subject(turn: Turn) -> BudgetSubject:
    """Name the budget subject of a turn: its session, its person, and the job that caused it."""
    return BudgetSubject(turn.session, user_key(turn.session, turn.sender.id), turn.job_id, turn.id)


class BudgetFallbackModel:
    """The model of a turn; if its budget is used up, the first of `fallback_models` that has budget left."""

    def __init__(
        self,
        find_model: Callable[[Turn], Awaitable[Model]],
        load_model: Callable[[str], Model],
        budget: Budget,
        fallback_models: Sequence[str],
    ) -> None:
        self._models = find_model
        self._named = load_model
        self._budget = budget
        self._cheaper = fallback_models

    async def find_model(self, turn: Turn) -> Model:
        """Return the model that the turn asks."""
        model = await self._models(turn)
        for name in (model.name, *self._cheaper):
            if not self._budget.is_used_up("model", name):
                return model if name == model.name else self._named(name)
        return model


class RateGate:
    """Lets the messages of a session reach the model no faster than the rates allow.

    `notify` sends a notice at once, outside any turn.
    """

    def __init__(
        self, rates: RateLimiter | None, texts: Texts, notify: Callable[[str, Outbound], Awaitable[None]]
    ) -> None:
        self.rates = rates
        self._texts = texts
        self._tell = notify

    async def wait(self, batch: Sequence[AcceptedInbound], wake: asyncio.Event) -> ModelCallDenied | None:
        """Wait until the next messages may have their turn, or until `wake` is set.

        Args:
            batch: the messages of the next turn.
            wake: set to end the wait early.

        Returns:
            The error if the messages may not have a turn, else None.
        """
        if self.rates is None or not batch or batch[0].attempts or not _reaches_model(batch[0]):
            return None
        inbound = batch[0].inbound
        try:
            payer = BudgetSubject(inbound.session, user_key(inbound.session, inbound.sender.id))
            seconds = self.rates.book(payer)
        except RateLimitExceeded as denial:
            return denial
        if seconds > SILENT_WAIT_SECONDS:
            await self._say(batch[0], self._texts.say("over_rate", count=round(seconds)))
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await wake.wait()
            except TimeoutError:
                pass
        return None

    def wait_notifier(self, next_batch: Callable[[], Sequence[AcceptedInbound]]) -> Callable[[int], Awaitable[None]]:
        """Build the callback that tells the first message's chat how many turns are before it."""

        async def tell(before: int) -> None:
            if waiting := next_batch():
                await self._say(waiting[0], self._texts.say("waiting_for_place", count=before))

        return tell

    async def _say(self, accepted: AcceptedInbound, text: str) -> None:
        inbound = accepted.inbound
        out = Outbound(inbound.channel, inbound.chat, text, inbound.thread, inbound.message)
        await self._tell(inbound.channel, out)


def _reaches_model(accepted: AcceptedInbound) -> bool:
    if accepted.inbound.origin == SCHEDULE_ORIGIN:  # jobs have their own limits
        return False
    text = accepted.inbound.text.strip()
    return not is_command(text) or text == RETRY_COMMAND


async def record_denial(turn: Turn, error: ModelCallDenied) -> str:
    """Record that a budget or a rate ended the turn; return the text that people get."""
    await turn.tape.append([make.error(error.kind, clean(str(error)))])
    log.info("turn refused: %s", error, extra={"action": "turn.refused", "kind": error.kind})
    return denial_text(turn.texts, error)


def denial_text(texts: Texts, error: ModelCallDenied) -> str:
    """Build the text for a denied model call; empty if people have been told already."""
    if error.told:
        return ""
    whose = texts.say("whose_you") if error.scope == "user" else ""
    whose = texts.say("whose_here") if error.scope == "chat" else whose
    whose = whose or budget_owner_text(texts, error.scope, error.name)
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


async def ignore_notice(_channel: str, _outbound: Outbound) -> None:
    """Send nothing, for bots that say nothing between turns."""
