"""Budgets: what a model call may take is reserved before it and settled after it, each a fact on `bubbot/budget`.

`docs/concepts/budget.md` explains it, `docs/reference/tape-format.md` lists the events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from typing import Any, Protocol

from bubbot.errors import BubbotError, BudgetExceeded, ModelError, ModelOverflow, StoreError
from bubbot.ports.model import NANO, ModelPrice, ModelReply, Usage
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import TapeEntry, event, timestamp
from bubbot.tape.handle import Clock
from bubbot.tape.service import NewId, TapeService
from bubbot.texts import Texts
from bubbot.views.budget import (
    BOT_SCOPE,
    BUDGET_CHECKPOINT,
    RESERVED,
    SETTLED,
    UNPRICED,
    WARNED,
    ZERO_SPENT,
    BudgetCheckpointView,
    BudgetState,
    BudgetStateView,
    BudgetSubject,
    BudgetWarning,
    CallError,
    FailingModel,
    Reservation,
    SpentTotal,
    TotalKey,
    renewal,
    whose_budget,
)

log = logging.getLogger(__name__)

EACH_KEY = "each"
"""The name of a limit for everybody who has none of their own."""
BUDGET_CHECKPOINT_INTERVAL = 200
"""Facts between two bookkeeping anchors at least; more where an anchor has more totals than that."""
TOLD_AGAIN = timedelta(minutes=10)
"""How soon a person is told again that a budget is used up."""
COST, TOKENS = "cost", "tokens"


@dataclass(frozen=True, slots=True)
class SpendingLimit:
    """What may be spent in a day and a month, in US dollars and in tokens; None: as much as there is."""

    day: float | None = None
    month: float | None = None
    tokens_day: int | None = None
    tokens_month: int | None = None

    def of(self, period: str, measure: str) -> float | None:
        """The limit of a day or month (as in `TotalKey`), in dollars or tokens."""
        is_day = len(period) == 10
        if measure == COST:
            return self.day if is_day else self.month
        return self.tokens_day if is_day else self.tokens_month


_NONE = SpendingLimit()


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """What was agreed: limits by scope and name (`each` for those without one of their own), and of everything at
    `("bot", "")`. `decided` is the price of a model that the deployment set, `listed` the one of a list, None where nobody
    knows; `answer` the tokens an answer is reckoned at; `warn_at` the share at which the owner is told; `loud` the channels where
    everybody is told every time; `answering` the models that may answer a call, that which is asked first and its
    fallbacks."""

    limits: Mapping[tuple[str, str], SpendingLimit] = field(default_factory=dict)
    decided: Callable[[str], ModelPrice | None] = lambda _: None
    listed: Callable[[str], ModelPrice | None] = lambda _: None
    answer: Callable[[str], int] = lambda _: 4096
    warn_at: float = 0.8
    loud: frozenset[str] = frozenset()
    answering: Callable[[str], tuple[str, ...]] = lambda model: (model,)

    def price(self, model: str) -> ModelPrice | None:
        """What a model costs as far as that is known before the call."""
        return self.decided(model) or self.listed(model)

    def most(self, model: str, usage: Usage) -> int | None:
        """Return what these tokens cost at the dearest model that may answer; None if none of them has a price."""
        prices = [price for one in self.answering(model) if (price := self.price(one)) is not None]
        return max((price.nano(usage) for price in prices), default=None)

    def limit(self, scope: str, name: str) -> SpendingLimit | None:
        """The limit that holds for one; None where there is none."""
        found = self.limits.get((scope, name))
        found = found if found is not None or scope == BOT_SCOPE else self.limits.get((scope, EACH_KEY))
        return None if found is None or found == _NONE else found


class NotifyOwner(Protocol):
    """Tells the owner something, together with the fact that it was told."""

    async def __call__(self, key: str, text: str, fact: TapeEntry) -> bool:
        """Writes fact and message in one transaction; False where no owner's chat is known, and nothing was written."""
        ...


async def nobody(key: str, text: str, fact: TapeEntry) -> bool:  # noqa: ARG001 - the port's signature
    """For bots whose owner has no chat."""
    return False


@dataclass
class MeteredCall:
    """One model call. Whoever makes it says what came of it, as far as that is known. `asked`: when it began, where
    nothing limits it and so no reservation says it. `error`: why nobody was answered, though the model was asked."""

    hold: Reservation
    asked: str = ""
    heard: int = 0
    reply: ModelReply | None = None
    status: str = "failed"
    cost_nanousd: int | None = None
    """What it cost, once it is over; None if nobody knows the price."""
    error: CallError | None = None

    def usage(self) -> tuple[Usage, bool]:
        """The tokens, and whether they are an estimate. What was cut off is reckoned by what was heard of it; a call
        that failed before anything came is free at every provider."""
        told = self.reply.usage if self.reply else Usage()
        if (told.input_tokens or told.output_tokens or told.cost is not None) and told.is_plausible():
            return told, False
        if self.reply is None and self.status == "failed" and not self.heard:
            return Usage(), False
        return Usage(self.hold.input, self.heard), True


class Budget:
    """The one writer of the budget tape. `load` comes first.

    Checks and reservations are one step: however many turns ask at once, a budget is overspent by one call at most.
    """

    def __init__(
        self,
        tape: TapeService,
        plan: BudgetLimits | None = None,
        *,
        now: Clock,
        new_id: NewId,
        zone: tzinfo,
        texts: Texts = Texts(),  # noqa: B008 - frozen
        tell: NotifyOwner = nobody,
    ) -> None:
        self.plan = plan or BudgetLimits()
        self.settled: Callable[[Reservation, str], None] = lambda _hold, _status: None
        """Told of each call that is over: what it took, and how it ended."""
        self._tape = tape
        self._now = now
        self._new_id = new_id
        self._zone = zone
        self._texts = texts
        self._tell = tell
        self._books = BudgetState()
        self._facts = 0
        self._marking = False
        self._day = ""
        self._settled = asyncio.Event()
        self._writing: set[asyncio.Task[None]] = set()
        self._refused: dict[tuple[str, str], datetime] = {}

    def spent(self, scope: str, name: str, period: str) -> SpentTotal:
        """What was settled for one in a day or month that is not over."""
        return self._books.spent.get(TotalKey(scope, name, period), ZERO_SPENT)

    def totals(self) -> Mapping[TotalKey, SpentTotal]:
        """What was settled in the days and months that are not over."""
        return self._books.spent

    def failing(self) -> Mapping[str, FailingModel]:
        """Return the models whose newest calls failed, by name."""
        return self._books.failing

    def held(self) -> tuple[Reservation, ...]:
        """The reservations of calls that are under way."""
        return tuple(self._books.open.values())

    def today(self) -> str:
        """The day, in the deployment's time zone."""
        return self._now().astimezone(self._zone).strftime("%Y-%m-%d")

    async def load(self) -> int:
        """Reads the books. What an earlier process had reserved and not settled counts as spent in full, for nobody
        knows better; says how many calls that were."""
        mark = await self._tape.read(BudgetCheckpointView())
        self._books, newest = await self._tape.read(BudgetStateView(mark))
        self._facts = newest - (mark["after"] if mark else 0)
        left = [MeteredCall(hold, heard=hold.output, status="unknown") for hold in self.held()]
        for call in left:
            await self._append(self._took(call)[1])  # the owner is told with the next call: no channel runs yet
        if left:
            log.warning("%d model calls were cut off; they count in full", len(left), extra={"action": "budget.cut"})
        return len(left)

    @asynccontextmanager
    async def call(self, payer: BudgetSubject, model: str, input_tokens: int) -> AsyncIterator[MeteredCall]:
        """Reserves a call (where anything limits it, durable before the block begins) and settles it when the block ends,
        however it ends. What it took is written later (see `written`), but not after what the caller writes next.

        Raises `BudgetExceeded` where a budget is used up. Where only calls under way stand in between, it waits for them.
        """
        made = await self._reserved(payer, model, input_tokens)
        try:
            yield made
            made.status = "answered" if made.reply else made.status
        except ModelError as error:
            made.heard = max(made.heard, error.heard)
            # A request that is too long says nothing about the model: the turn goes on in a new window.
            made.error = None if isinstance(error, ModelOverflow) else CallError(error.kind, error.status)
            raise
        except Exception:
            made.status, made.error = "stopped", CallError("internal")
            raise
        except BaseException:
            made.status = "stopped"
            raise
        finally:
            self._settle(made)
            await asyncio.sleep(0)  # the fact is in the queue of the store before anything else is

    async def written(self) -> None:
        """Returns when all that was settled so far is on the tape, and the owner was told what follows from it."""
        if self._writing:
            with suppress(StoreError):  # which they log
                await self._tape.append(())  # takes along what waits
        while self._writing:
            await asyncio.wait(self._writing)

    def used_up(self, scope: str, name: str) -> bool:
        """Whether a budget leaves no room for a call now."""
        day = self.today()
        return any(self._measured(TotalKey(scope, name, period), ZERO_SPENT) is not None for period in (day, day[:7]))

    async def _reserved(self, payer: BudgetSubject, model: str, input_tokens: int) -> MeteredCall:
        while True:
            self._settled.clear()
            hold = self._hold(payer, model, input_tokens)
            limited = self._limited(hold)
            if not self._must_wait(hold, limited):
                break
            await self._settled.wait()  # those under way have time limits of their own
        self._books.open[hold.call] = hold
        if not limited:
            return MeteredCall(hold, timestamp(self._now()))
        writing = asyncio.ensure_future(self._append(event(RESERVED, hold.as_json(), key=f"reserved:{hold.call}")))
        try:
            stored = await asyncio.shield(writing)
        except BaseException:
            await asyncio.wait([writing])
            if not writing.cancelled() and writing.exception() is None:
                # It is on the tape, and the call will not be made.
                self._settle(MeteredCall(replace(hold, entry=writing.result().id)))
            else:
                self._release(hold)
            raise
        self._books.open[hold.call] = hold = replace(hold, entry=stored.id)
        return MeteredCall(hold)

    def _hold(self, payer: BudgetSubject, model: str, input_tokens: int) -> Reservation:
        output = max(map(self.plan.answer, self.plan.answering(model)))
        nano = self.plan.most(model, Usage(input_tokens, output))
        return Reservation(self._new_id(), payer, model, self.today(), input_tokens, output, nano)

    def _limited(self, hold: Reservation) -> list[TotalKey]:
        """The totals of a call that have a limit."""
        scopes = [one for one in hold.scopes() if self.plan.limit(*one) is not None]
        return [TotalKey(*one, period) for one in scopes for period in (hold.day, hold.day[:7])]

    def _must_wait(self, hold: Reservation, keys: Sequence[TotalKey]) -> bool:
        """Whether calls under way hold all that is left of these. Raises `BudgetExceeded` where one is spent."""
        spent = [key for key in keys if self._measured(key, ZERO_SPENT) is not None]
        if spent:  # who is told of a day is not to find the month used up on the next one
            raise self._refusal(max(spent, key=lambda key: renewal(key.period)), hold.payer)
        return any(self._measured(key, self._books.held(key)) is not None for key in keys)

    def _measured(self, key: TotalKey, held: SpentTotal) -> str | None:
        """By which measure a total has reached its limit, with what is held of it."""
        limit, spent = self.plan.limit(key.scope, key.name), self._books.spent.get(key, ZERO_SPENT)
        if limit is None:
            return None
        for measure, used in ((COST, (spent.nano + held.nano) / NANO), (TOKENS, spent.tokens + held.tokens)):
            most = limit.of(key.period, measure)
            if most is not None and used >= most:
                return measure
        return None

    def _refusal(self, key: TotalKey, payer: BudgetSubject) -> BudgetExceeded:
        now, person = self._now(), (payer.session, payer.user)
        before = self._refused.get(person)
        told = before is not None and now - before < TOLD_AGAIN and payer.channel not in self.plan.loud
        if not told and payer.turn:  # without a turn there is nobody yet who is told
            self._refused = {who: at for who, at in self._refused.items() if now - at < TOLD_AGAIN} | {person: now}
        period = "day" if len(key.period) == 10 else "month"
        log.info(
            "a budget is used up: %s %s", key.scope, key.name, extra={"action": "budget.spent", "period": key.period}
        )
        return BudgetExceeded(scope=key.scope, name=key.name, period=period, renews=renewal(key.period), told=told)

    def _settle(self, made: MeteredCall) -> None:
        """Counts at once what the call took, and has the fact of it written."""
        took, fact = self._took(made)
        made.cost_nanousd = took.nano
        self._books.take([fact])
        self._release(took)
        self.settled(took, made.status)
        writing = asyncio.ensure_future(self._write(took, fact))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    def _took(self, made: MeteredCall) -> tuple[Reservation, TapeEntry]:
        """What the call took, and the fact of it."""
        usage, estimated = made.usage()
        hold, nano = made.hold, self._cost(made, usage)
        answered = made.reply.model if made.reply and made.reply.model else hold.model
        took = replace(hold, model=answered, input=usage.input_tokens, output=usage.output_tokens, nano=nano)
        data = took.as_json() | {"cached_tokens": usage.cached_tokens, "status": made.status}
        data |= {"asked": made.asked} if made.asked else {"reserved": hold.entry}
        data |= {"requested": hold.model} if answered != hold.model else {}
        if made.error is not None:
            error = {"kind": made.error.kind, "at": timestamp(self._now())}
            data["error"] = error | ({} if made.error.status is None else {"status": made.error.status})
        data |= {"estimated": True} if estimated else {}
        return took, event(SETTLED, data, key=f"settled:{hold.call}")

    async def _write(self, took: Reservation, fact: TapeEntry) -> None:
        """Writes what a call took; tells the owner where it brings a budget near its end."""
        try:
            await self._tape.append_along([fact])
            self._facts += 1
            await self._tell_owner(took)
            await self._mark()
        except BubbotError as error:  # it is counted until the process ends; the turn itself says what is wrong
            log.info("what a model call took is not written: %s", error, extra={"action": "budget.unwritten"})

    def _cost(self, made: MeteredCall, usage: Usage) -> int | None:
        """What the call cost: by the price that was set, else as the model says, who knows of tiers and parts that no
        list has, else by the list. Nothing costs nothing."""
        if usage == Usage():
            return 0
        if made.status == "unknown":
            return made.hold.nano
        model = made.reply.model if made.reply and made.reply.model else made.hold.model
        decided = self.plan.decided(model)
        if usage.cost is not None and (decided is None or not (usage.input_tokens or usage.output_tokens)):
            return round(usage.cost * NANO)
        price = decided or self.plan.listed(model)
        return price.nano(usage) if price else None

    def _release(self, hold: Reservation) -> None:
        self._books.open.pop(hold.call, None)
        self._settled.set()

    async def _append(self, fact: TapeEntry) -> TapeEntry:
        stored = (await self._tape.append([fact], keep_first=True))[0]
        self._facts += 1
        if stored.name != RESERVED:
            self._books.take([stored])
        return stored

    async def _tell_owner(self, hold: Reservation) -> None:
        """At most once for each budget and period, and for each model without a price that a budget should count."""
        limited = self._limited(hold)
        for key in limited:
            for measure, share in self._shares(key):
                if BudgetWarning(key, measure) not in self._books.warned:
                    data = {**key._asdict(), "measure": measure, "percent": share}
                    await self._warn(event(WARNED, data, key=f"warned:{self._new_id()}"), self._near(key, share))
        limits = [self.plan.limit(key.scope, key.name) for key in limited]
        priced = any(one is not None and (one.day is not None or one.month is not None) for one in limits)
        if hold.nano is None and priced and hold.model not in self._books.unpriced:
            fact = event(UNPRICED, {"model": hold.model}, key=f"unpriced:{self._new_id()}")
            await self._warn(fact, self._texts.say("budget_unpriced", model=hold.model))

    def _shares(self, key: TotalKey) -> list[tuple[str, int]]:
        """By which measures a total is near its limit, with the share in percent."""
        limit, spent = self.plan.limit(key.scope, key.name), self._books.spent.get(key, ZERO_SPENT)
        used = {COST: spent.nano / NANO, TOKENS: float(spent.tokens)}
        most = {measure: limit.of(key.period, measure) if limit else None for measure in used}
        shares = {measure: used[measure] / least for measure, least in most.items() if least}
        return [(measure, int(share * 100)) for measure, share in shares.items() if share >= self.plan.warn_at]

    def _near(self, key: TotalKey, share: int) -> str:
        whose = whose_budget(self._texts, key.scope, key.name)
        return self._texts.say("budget_near", whose=whose, period=key.period, percent=share)

    async def _warn(self, fact: TapeEntry, text: str) -> None:
        self._books.take([fact])  # before anything is waited for: others settle meanwhile
        log.warning("%s", text, extra={"action": fact.name})
        if not await self._tell(fact.key or "", text, fact):
            await self._append(fact)
        else:
            self._facts += 1

    async def _mark(self) -> None:
        """Writes a bookkeeping anchor where enough was written since the last one, so that a start reads little."""
        if (today := self.today()) != self._day:  # once a day: a large bot has many totals
            self._books.since(today)
            self._day = today
        if self._marking or self._facts < max(BUDGET_CHECKPOINT_INTERVAL, len(self._books.spent)):
            return
        self._marking = True
        try:
            books, newest = await self._tape.read(BudgetStateView(await self._tape.read(BudgetCheckpointView())))
            state: dict[str, Any] = {"after": newest, **books.since(today).state()}
            await self._tape.append([anchor(BUDGET_CHECKPOINT, state, window=False)])
            self._facts = 0
        finally:
            self._marking = False
