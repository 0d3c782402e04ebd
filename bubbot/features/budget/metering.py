"""Budgets and rates in a turn: a reservation for each model call, a moment for each message."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from bubbot.errors import BudgetExceeded, ModelCallDenied, ModelEmptyAnswer, RateLimitExceeded
from bubbot.features.budget.budget import Budget, MeteredCall
from bubbot.features.budget.rates import RateLimiter
from bubbot.formatting import clean
from bubbot.middleware import AroundModel, CallNext, ModelCall
from bubbot.ports.channel import Inbound, Outbound
from bubbot.ports.model import NANOS_PER_USD, Model, ModelReply, Transcript
from bubbot.ports.turn import AcceptedInbound, Turn
from bubbot.ports.usage import BudgetSubject, budget_owner_text, user_key
from bubbot.runtime.answer import route_assistant
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.runtime.router import holds_command
from bubbot.texts import Texts

SILENT_WAIT_SECONDS = 3.0
"""Seconds that a message over a rate waits without a notice."""
RETRY_COMMAND = ",retry"
"""The command that asks the model again."""


class BudgetMeter:
    """Counts the model calls of turns, and of transcriptions before them, and keeps them within the budgets."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    @property
    def around_model(self) -> AroundModel:
        """What stands around each model call: nothing is reserved while nothing is limited."""
        return self.reserve_call if self._budget.limits.limits else self.count_call

    async def reserve_call(self, call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        """Make a model call within the budgets; the reservation is durable before the call begins.

        Raises:
            BudgetExceeded: a budget is used up.
        """
        subject, tokens, lease = budget_subject(call.turn), call.count_input(), call.turn.tape.lease
        try:
            metered = await self._budget.reserve(subject, call.model.name, tokens, lease)
        except ModelCallDenied as error:
            add_notice(error, call.turn.texts)
            raise
        return await _make_call(call, call_next, metered)

    async def count_call(self, call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        """Make a model call that nothing limits, and count what it took."""
        subject, lease = budget_subject(call.turn), call.turn.tape.lease
        metered = self._budget.begin_call(subject, call.model.name, call.count_input, lease=lease)
        return await _make_call(call, call_next, metered)

    @asynccontextmanager
    async def transcription(self, inbound: Inbound, model: str) -> AsyncIterator[Callable[[Transcript], None]]:
        """Reserve a transcription, which happens before the turn begins; the block reports its result.

        Seconds of sound are not tokens: the reservation counts none.
        """
        payer = BudgetSubject(inbound.session, user_key(inbound.session, inbound.sender.id))
        async with self._budget.metered_call(payer, model, 0) as metered:

            def record(transcript: Transcript) -> None:
                metered.output_estimate = estimate_tokens(transcript.text)
                metered.reply = ModelReply(transcript.text, usage=transcript.usage, model=model)

            yield record


async def _make_call(call: ModelCall, call_next: CallNext[ModelCall, ModelReply], metered: MeteredCall) -> ModelReply:
    try:
        with metered:
            try:
                metered.reply = reply = await call_next(call)
            finally:
                streamed = call.streamed
                metered.output_estimate = estimate_tokens(streamed) if streamed else 0
            if reply.text != streamed:
                metered.output_estimate = max(metered.output_estimate, estimate_tokens(reply.text) if reply.text else 0)
            if not reply.calls and route_assistant(clean(reply.text)).empty:
                metered.error_kind = ModelEmptyAnswer.kind
        return reply
    finally:
        nanos = metered.cost_nanousd
        call.cost = None if nanos is None else nanos / NANOS_PER_USD


def budget_subject(turn: Turn) -> BudgetSubject:
    """Name the budget subject of a turn: its session, its person, the job that caused it, and the agent that answers it."""
    person = user_key(turn.session, turn.sender.id)
    return BudgetSubject(turn.session, person, turn.cause, turn.id, turn.agent.name)


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

    def __init__(self, rates: RateLimiter, texts: Texts, notify: Callable[[str, Outbound], Awaitable[None]]) -> None:
        self._rates = rates
        self._texts = texts
        self._notify = notify

    async def wait(self, batch: Sequence[AcceptedInbound], wake: asyncio.Event) -> ModelCallDenied | None:
        """See `TurnGate.wait`."""
        if not batch or batch[0].attempts or not _reaches_model(batch[0].inbound):
            return None
        inbound = batch[0].inbound
        texts = self._texts.in_language(inbound.sender.language)
        try:
            payer = BudgetSubject(inbound.session, user_key(inbound.session, inbound.sender.id))
            seconds = self._rates.book(payer)
        except RateLimitExceeded as denial:
            return add_notice(denial, texts)
        if seconds > SILENT_WAIT_SECONDS:
            text = texts.say("over_rate", count=round(seconds))
            out = Outbound(inbound.channel, inbound.chat, text, inbound.thread, inbound.message)
            await self._notify(inbound.channel, out)
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await wake.wait()
            except TimeoutError:
                pass
        return None


def _reaches_model(inbound: Inbound) -> bool:
    if not inbound.is_typed:  # jobs have their own limits
        return False
    return not holds_command(inbound) or inbound.text.strip() == RETRY_COMMAND


def add_notice(error: ModelCallDenied, texts: Texts) -> ModelCallDenied:
    """Add the sentence that people get; none if they have been told already."""
    error.notice = "" if error.told else _denial_text(texts, error)
    return error


def _denial_text(texts: Texts, error: ModelCallDenied) -> str:
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
