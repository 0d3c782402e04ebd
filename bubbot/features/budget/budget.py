"""Budgets: each model call is reserved before and settled after it, each a fact on `bubbot/budget` or a shard of it.

`docs/concepts/budget.md` explains budgets, `docs/reference/tape-format.md` lists the events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from bubbot.concurrency import uninterrupted
from bubbot.errors import (
    BubbotError,
    BudgetExceeded,
    ModelError,
    ModelOverflow,
    ModelQuarantined,
    StoreError,
    TapeConflict,
)
from bubbot.features.budget.facts import BudgetWarned, ModelOutageReported, ModelUnpriced
from bubbot.features.budget.outages import ModelOutage, explain_outage, needs_operator
from bubbot.features.budget.state import (
    BUDGET_PROJECTION,
    BudgetState,
    combine_answered,
    combine_failing,
    renewal_day,
)
from bubbot.ports.model import NANOS_PER_USD, ModelPrice, ModelReply, Usage
from bubbot.ports.usage import (
    BOT_SCOPE,
    CHAT_SCOPE,
    COST,
    TOKENS,
    ZERO_SPENT,
    BudgetSubject,
    BudgetUsage,
    CallError,
    CallReserved,
    CallSettled,
    CountedCall,
    SpentTotal,
    TotalKey,
    budget_owner_text,
)
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.fact import Cited, Current, Fact, models_of
from bubbot.tape.handle import Clock
from bubbot.tape.projection import ProjectionRunner
from bubbot.tape.service import NewId, TapeService
from bubbot.tape.store import Lease
from bubbot.texts import Texts

log = logging.getLogger(__name__)

NO_HEADS: Mapping[str, int] = MappingProxyType({})
BUDGET_FACTS = models_of(*BudgetState.FACTS)
EACH_KEY = "each"
"""The name of a limit for everybody without their own."""
OUTAGE_NOTICE_INTERVAL = timedelta(hours=1)
"""The shortest time between two notices to the owner of one model's outages."""
MAX_CALL_TIME = timedelta(hours=1)
"""The longest that a call may take. If several processes write, one of them may have made the call of an older reservation."""
OTHERS_SECONDS = 0.5
"""Seconds after which a call that waits looks again at the calls of other processes."""
NOTICE_INTERVAL = timedelta(minutes=10)
"""The shortest time between two notices to one person that a budget is used up."""


class SpendingLimit(Struct, frozen=True):
    """Limits for a day and a month, in US dollars and in tokens; None: unlimited."""

    day: float | None = None
    month: float | None = None
    tokens_day: int | None = None
    tokens_month: int | None = None

    def limit_for(self, period: str, measure: str) -> float | None:
        """Return the limit of a day or month (as in `TotalKey`), in dollars or tokens."""
        is_day = len(period) == 10
        if measure == COST:
            return self.day if is_day else self.month
        return self.tokens_day if is_day else self.tokens_month


_UNLIMITED = SpendingLimit()


class BudgetLimits(Struct, frozen=True):
    """The configured limits and prices.

    Attributes:
        limits: by scope and name (`each` for those without their own); the limit of everything is at `("bot", "")`.
        configured_price: the price that the deployment set for a model; None if it set none.
        listed_price: the price of a model in a price list; None if unknown.
        reserved_output_tokens: the tokens reserved for an answer of a model.
        warn_at: the share of a limit (0 to 1) at which the owner is notified.
        always_notify: the channels that notify everybody every time.
        answering_models: the models that may answer a call: the first choice and its fallbacks.
        current_session: returns a session by the current id of its chat: the settings may name a chat that moved by both.
    """

    limits: Mapping[tuple[str, str], SpendingLimit] = field(default_factory=dict)
    configured_price: Callable[[str], ModelPrice | None] = lambda _: None
    listed_price: Callable[[str], ModelPrice | None] = lambda _: None
    reserved_output_tokens: Callable[[str], int] = lambda _: 4096
    warn_at: float = 0.8
    always_notify: frozenset[str] = frozenset()
    answering_models: Callable[[str], tuple[str, ...]] = lambda model: (model,)
    current_session: Callable[[str], str] = lambda session: session

    def find_price(self, model: str) -> ModelPrice | None:
        """Return the price of a model as far as it is known before the call."""
        return self.configured_price(model) or self.listed_price(model)

    def max_cost(self, model: str, usage: Usage) -> int | None:
        """Return what these tokens cost at the dearest model that may answer; None if none of them has a price."""
        prices = [price for name in self.answering_models(model) if (price := self.find_price(name)) is not None]
        return max([price.cost_nanousd(usage) for price in prices]) if prices else None

    def find_limit(self, scope: str, name: str) -> SpendingLimit | None:
        """Return the limit of a scope and name; None if it has none."""
        limit = self.limits.get((scope, name))
        if limit is None and scope == CHAT_SCOPE:
            limit = self.limits.get((scope, self.current_session(name)))
        limit = limit if limit is not None or scope == BOT_SCOPE else self.limits.get((scope, EACH_KEY))
        return None if limit is None or limit == _UNLIMITED else limit

    def find_cost_limit(self, scope: str, name: str, period: str) -> float | None:
        """Return the limit in US dollars for a day or month, as in `TotalKey`; None if there is none."""
        limit = self.find_limit(scope, name)
        return limit.limit_for(period, COST) if limit else None

    def list_usages(self, key: TotalKey, spent: SpentTotal) -> tuple[BudgetUsage, BudgetUsage]:
        """Return what was spent of the limits of a total, in US dollars and in tokens."""
        limit = self.find_limit(key.scope, key.name)
        most = {measure: limit.limit_for(key.period, measure) if limit else None for measure in (COST, TOKENS)}
        return (
            BudgetUsage(*key, COST, spent.cost_nanousd / NANOS_PER_USD, most[COST]),
            BudgetUsage(*key, TOKENS, float(spent.tokens), most[TOKENS]),
        )


class NotifyOwner(Protocol):
    """A function that notifies the owner and records the fact of it."""

    async def __call__(self, key: str, write: Callable[[Texts], str], fact: TapeEntry) -> bool:
        """Write fact and message in one transaction; return False, writing nothing, if no owner's chat is known.

        `write` writes the message in a language.
        """
        ...


@dataclass
class MeteredCall:
    """One model call: a block that settles it when it ends. The caller records its outcome, as far as that is known.

    Attributes:
        reservation: what is reserved for it; if nothing limits the call, no tokens.
        entry: the reservation on the tape; 0 if there is none.
        settle: counts the call once it is over.
        count_input: returns the tokens of the request.
        started_at: when the call began, if no reservation on the tape has the time.
        output_estimate: the output tokens that arrived, estimated.
        reply: the model's reply; None if it did not finish.
        status: `answered`, `failed`, `stopped` or `unknown`.
        cost_nanousd: what the call cost, once it is over; None if nobody knows the price.
        error_kind: why the call failed, if the provider was asked.
        error_status: the HTTP status that the provider sent.
        lease: that of the session whose turn calls; None for a call outside of turns.
    """

    reservation: CallReserved
    settle: Callable[[MeteredCall], None]
    count_input: Callable[[], int]
    started_at: str = ""
    output_estimate: int = 0
    reply: ModelReply | None = None
    status: str = "failed"
    cost_nanousd: int | None = None
    error_kind: str = ""
    error_status: int | None = None
    lease: Lease | None = None
    entry: int = 0

    def __enter__(self) -> MeteredCall:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.end(error)
        self.settle(self)

    def end(self, error: BaseException | None) -> None:
        """Record how the call ended, by the error that ended it."""
        if error is None:
            self.status = "answered" if self.reply else self.status
        elif isinstance(error, ModelError):
            self.output_estimate = max(self.output_estimate, error.heard)
            # A request that is too long says nothing about the model, and neither does a quarantine of this home.
            if not isinstance(error, ModelOverflow | ModelQuarantined):
                self.error_kind, self.error_status = error.kind, error.status
        elif isinstance(error, Exception):
            self.status, self.error_kind = "stopped", "internal"
        else:
            self.status = "stopped"

    @property
    def answering_model(self) -> str:
        """The model that answered, or that was asked."""
        return self.reply.model if self.reply and self.reply.model else self.reservation.model

    def usage(self) -> tuple[Usage, bool]:
        """Return the tokens, and whether they are an estimate.

        A call that was cut off is estimated by the tokens that had arrived; a call that failed before any arrived is
        free at every provider.
        """
        reported = self.reply.usage if self.reply else Usage()
        if (reported.input_tokens or reported.output_tokens or reported.cost is not None) and reported.is_plausible():
            return reported, False
        if self.reply is None and self.status == "failed" and not self.output_estimate:
            return Usage(), False
        return Usage(self.count_input(), self.output_estimate), True


class Budget:
    """The one writer of the budget tape. Call `load` first.

    Checks and reservations are one step: however many turns call at once, one call at most overspends a budget. If several
    processes write to the tape, a reservation is refused as soon as another one wrote after the check, and checked again.
    """

    def __init__(
        self,
        tape: TapeService,
        limits: BudgetLimits | None = None,
        *,
        now: Clock,
        new_id: NewId,
        zone: tzinfo,
        texts: Texts | None = None,
        notify_owner: NotifyOwner | None = None,
        projections: ProjectionRunner | None = None,
    ) -> None:
        self.limits = limits or BudgetLimits()
        self.on_call_settled: Callable[[CallSettled], None] = lambda _settled: None
        """Called with each call that is over."""
        self.on_other_call: Callable[[CountedCall, str], None] = lambda _call, _date: None
        """Called with each fact about a call of another process, and its date."""
        self._tape = tape
        self._now = now
        self._new_id = new_id
        self._zone = zone
        self._texts = texts or Texts()
        self._notify_owner = notify_owner
        self._projections = projections or ProjectionRunner()
        self._projected = [
            self._projections.project(BUDGET_PROJECTION, shard, self._forget_written) for shard in tape.shards()
        ]
        self._reserving = asyncio.Lock() if self._projections.is_shared else None
        self._notifying = self._projections.lock(tape.name)
        self._own: set[str] = set()
        self._open: dict[str, CallReserved] = {}
        self._unlimited: dict[str, MeteredCall] = {}
        """The calls in progress that began while nothing was limited."""
        self._unwritten: dict[str, CallSettled] = {}
        self._telling: set[tuple[type[Fact], object]] = set()
        """What the owner is being told, by the class and subject of the fact."""
        self._call_ended = asyncio.Event()
        self._writing: set[asyncio.Task[None]] = set()
        self._refused_at: dict[tuple[str, str], datetime] = {}

    @property
    def _states(self) -> list[BudgetState]:
        """The states on the tape and its shards."""
        return [projected.state for projected in self._projected]

    def spent(self, scope: str, name: str, period: str) -> SpentTotal:
        """Return what was settled for a scope and name in a day or month that is not over."""
        return self._spent(TotalKey(scope, name, period))

    @property
    def state(self) -> BudgetState:
        """The state on the tape and its shards, added up."""
        return BUDGET_PROJECTION.combine_states(self._states)

    def totals(self) -> Mapping[TotalKey, SpentTotal]:
        """Return what was settled in the days and months that are not over."""
        unwritten = {key: self._spent(key) for took in self._unwritten.values() for key in took.totals()}
        return {**dict(self.state.totals()), **unwritten}

    def failing_models(self) -> Mapping[str, ModelOutage]:
        """Return the models whose newest calls failed, by name."""
        return combine_failing(self._states)

    def answered_models(self) -> Mapping[str, str]:
        """Return when each model last answered, ISO 8601, by name."""
        return combine_answered(self._states)

    def open_reservations(self) -> tuple[CallReserved, ...]:
        """Return the reservations of calls in progress."""
        return tuple(self._open.values())

    def today(self) -> str:
        """Return the day, in the deployment's time zone."""
        return self._now().astimezone(self._zone).strftime("%Y-%m-%d")

    async def load(self) -> int:
        """Read the state from the tape, and return how many calls an earlier process reserved and did not settle.

        Those count as spent in full, since nobody knows better. If other processes may be at work, only those count that
        are too old to be under way.
        """
        unsettled = [cited for projected in self._projected for cited in (await projected.load()).open]
        if self._reserving is not None:
            since = timestamp(self._now() - MAX_CALL_TIME)
            unsettled = [cited for cited in unsettled if cited.date < since]
        await self._settle_cut_off(unsettled)
        return len(unsettled)

    async def _settle_cut_off(self, reservations: Sequence[Cited[CallReserved]]) -> None:
        """Count calls in full whose processes ended before they knew what the calls took."""
        for cited in reservations:
            call = MeteredCall(
                cited.fact,
                self._settle,
                partial(int, cited.fact.input_tokens),
                output_estimate=cited.fact.output_tokens,
                status="unknown",
                entry=cited.id,
            )
            settled = self._settlement(call)  # the next call notifies the owner: no channel may run yet
            await self._append(_entry_of(settled), settled.session)
        if reservations:
            log.warning("interrupted model calls count in full: %d", len(reservations), extra={"action": "budget.cut"})

    def apply_limits(self, limits: BudgetLimits) -> None:
        """Apply other limits, also to calls that wait; what calls in progress may use counts towards them, too."""
        self.limits = limits
        self._call_ended.set()
        if limits.limits:
            self._open |= {
                call: self._estimate(metered.reservation, metered.count_input())
                for call, metered in self._unlimited.items()
            }
            self._unlimited.clear()

    def begin_call(
        self, subject: BudgetSubject, model: str, count_input: Callable[[], int], *, lease: Lease | None = None
    ) -> MeteredCall:
        """Begin a call while nothing is limited: it is counted when its block ends. See `metered_call`."""
        hold = self._reservation(subject, model, lease)
        call = MeteredCall(hold, self._settle, count_input, timestamp(self._now()), lease=lease)
        self._unlimited[hold.call] = call
        return call

    @asynccontextmanager
    async def metered_call(
        self, subject: BudgetSubject, model: str, input_tokens: int, *, lease: Lease | None = None
    ) -> AsyncIterator[MeteredCall]:
        """Reserve a call if anything is limited, and settle it when the block ends, however it ends.

        The fact of what the call took is written later (see `wait_written`), but not after what the caller writes next.
        """
        if self.limits.limits:
            call = await self.reserve(subject, model, input_tokens, lease)
        else:
            call = self.begin_call(subject, model, partial(int, input_tokens), lease=lease)
        with call:
            yield call

    async def wait_written(self) -> None:
        """Wait until all that was settled so far is on the tape, and its warnings are sent to the owner."""
        if self._writing:
            with suppress(StoreError):  # the writing tasks log it
                await self._tape.append(())  # writes the deferred entries too
        while self._writing:
            await asyncio.wait(self._writing)

    def is_used_up(self, scope: str, name: str) -> bool:
        """Return true if a budget leaves no room for a call now."""
        day = self.today()
        return any(self._is_exhausted(TotalKey(scope, name, period), ZERO_SPENT) for period in (day, day[:7]))

    async def reserve(
        self, subject: BudgetSubject, model: str, input_tokens: int, lease: Lease | None = None
    ) -> MeteredCall:
        """Wait until a call may begin, and reserve it: in memory, and durably if a limit applies.

        If only calls in progress use up the rest of a budget, wait for them. Enter the block of the call at once.

        Args:
            subject: who calls.
            model: the model.
            input_tokens: those of the request.
            lease: see `MeteredCall`; both facts are written under it.

        Raises:
            BudgetExceeded: a budget is used up.
            LeaseLost: a reservation would be needed, and another holder has taken up the session since.
        """
        if self._reserving is not None:
            return await self._reserve_with_others(self._reserving, subject, model, input_tokens, lease)
        while (call := await self._try_reserve(subject, model, input_tokens, lease)) is None:
            await self._call_ended.wait()  # calls in progress have their own time limits
        return call

    async def _reserve_with_others(
        self, lock: asyncio.Lock, subject: BudgetSubject, model: str, input_tokens: int, lease: Lease | None
    ) -> MeteredCall:
        """See `reserve`; other processes reserve from the same budgets."""
        while True:
            try:
                async with lock:  # two of one process would only refuse each other
                    heads = await self._read_others(subject.session, lease)
                    call = await self._try_reserve(subject, model, input_tokens, lease, heads)
            except TapeConflict:  # another process wrote after the check
                continue
            if call is not None:
                return call
            with suppress(TimeoutError):
                async with asyncio.timeout(OTHERS_SECONDS):  # nobody says when a call of another process ends
                    await self._call_ended.wait()

    async def _read_others(self, session: str, lease: Lease | None) -> Mapping[str, int]:
        """Read on what other processes reserved and settled; return how far the tapes were read.

        Settle what earlier holders of the session reserved: they can make no call any more.
        """
        await self._projections.read_on()
        if lease is not None:
            await self._settle_cut_off(
                [
                    cited
                    for state in self._states
                    for cited in state.open
                    if cited.fact.session == session
                    and cited.fact.epoch is not UNSET
                    and cited.fact.epoch < lease.epoch
                    and cited.fact.call not in self._open
                ]
            )
        return {shard.name: each.position for shard, each in zip(self._tape.shards(), self._projected, strict=True)}

    async def _try_reserve(
        self,
        subject: BudgetSubject,
        model: str,
        input_tokens: int,
        lease: Lease | None,
        heads: Mapping[str, int] = NO_HEADS,
    ) -> MeteredCall | None:
        """Reserve a call; return None if it has to wait. Raise `TapeConflict` if the tapes no longer have these heads."""
        self._call_ended.clear()
        hold = self._estimate(self._reservation(subject, model, lease), input_tokens)
        limited = self._limited_totals(hold)
        if limited and self._must_wait(hold, limited):
            return None
        self._open[hold.call] = hold
        call = MeteredCall(hold, self._settle, partial(int, input_tokens), lease=lease)
        if not limited:
            call.started_at = timestamp(self._now())
            return call
        try:
            await self._write_reservation(call, heads)
        except BaseException:
            if call.entry:  # it is on the tape, and the call will not be made
                self._settle(call)
            else:
                self._release(hold.call)
            raise
        return call

    @uninterrupted
    async def _write_reservation(self, call: MeteredCall, heads: Mapping[str, int]) -> None:
        hold = call.reservation
        entry = hold.to_entry(key=f"reserved:{hold.call}")
        call.entry = (await self._append(entry, hold.session, call.lease, heads)).id

    def _reservation(self, subject: BudgetSubject, model: str, lease: Lease | None) -> CallReserved:
        """Return a reservation of no tokens."""
        call = self._new_id()
        if self._reserving is not None:
            self._own.add(call)
        return CallReserved(
            call=call,
            session=subject.session,
            turn=subject.turn,
            user=subject.user,
            job=subject.job or UNSET,
            agent=subject.agent or UNSET,
            model=model,
            day=self.today(),
            input_tokens=0,
            output_tokens=0,
            nano=None,
            epoch=lease.epoch if lease else UNSET,
        )

    def _estimate(self, hold: CallReserved, input_tokens: int) -> CallReserved:
        """Return a reservation of what a call may use at most."""
        output = max([self.limits.reserved_output_tokens(name) for name in self.limits.answering_models(hold.model)])
        cost = self.limits.max_cost(hold.model, Usage(input_tokens, output))
        return replace(hold, input_tokens=input_tokens, output_tokens=output, nano=cost)

    def _limited_totals(self, hold: CountedCall) -> list[TotalKey]:
        """Return the totals of a call that have a limit."""
        if not self.limits.limits:
            return []
        scopes = [scope for scope in hold.scopes() if self.limits.find_limit(*scope) is not None]
        return [TotalKey(*scope, period) for scope in scopes for period in (hold.day, hold.day[:7])]

    def _must_wait(self, hold: CallReserved, keys: Sequence[TotalKey]) -> bool:
        """Return true if calls in progress hold all that is left of these totals.

        Raises:
            BudgetExceeded: one of the totals is spent.
        """
        spent = [key for key in keys if self._is_exhausted(key, ZERO_SPENT)]
        if spent:  # the latest renewal: a person refused for the day should not find the month used up tomorrow
            raise self._refusal(max(spent, key=lambda key: renewal_day(key.period)), hold.payer)
        return any(self._is_exhausted(key, self._held(key)) for key in keys)

    def _spent(self, key: TotalKey) -> SpentTotal:
        """Return what is settled of a total, on the tape or on its way there."""
        total = ZERO_SPENT
        for projected in self._projected:
            total = total.add(projected.state.find_spent(key))
        return _add_calls(total, self._unwritten.values(), key)

    def _held(self, key: TotalKey) -> SpentTotal:
        """Return what calls in progress hold of a total."""
        if self._reserving is None:
            return _add_calls(ZERO_SPENT, self._open.values(), key)
        reserved = {cited.fact.call: cited.fact for state in self._states for cited in state.open}
        held = {call: hold for call, hold in reserved.items() if call not in self._unwritten} | self._open
        return _add_calls(ZERO_SPENT, held.values(), key)

    def _is_exhausted(self, key: TotalKey, held: SpentTotal) -> bool:
        """Return true if a total, with what is held of it, has reached its limit."""
        if self.limits.find_limit(key.scope, key.name) is None:  # before the sum, which takes longer with many calls
            return False
        return any(usage.is_used_up for usage in self.limits.list_usages(key, self._spent(key).add(held)))

    def _refusal(self, key: TotalKey, payer: BudgetSubject) -> BudgetExceeded:
        now, person = self._now(), (payer.session, payer.user)
        before = self._refused_at.get(person)
        is_notified = (
            before is not None and now - before < NOTICE_INTERVAL and payer.channel not in self.limits.always_notify
        )
        if not is_notified and payer.turn:  # without a turn there is nobody to notify yet
            recent = {other: at for other, at in self._refused_at.items() if now - at < NOTICE_INTERVAL}
            self._refused_at = recent | {person: now}
        period = "day" if len(key.period) == 10 else "month"
        log.info("budget used up: %s %s", key.scope, key.name, extra={"action": "budget.spent", "period": key.period})
        return BudgetExceeded(
            scope=key.scope, name=key.name, period=period, renews=renewal_day(key.period), told=is_notified
        )

    def _settle(self, call: MeteredCall) -> None:
        """Count at once what the call took, and start writing the fact of it."""
        settled = self._settlement(call)
        call.cost_nanousd = settled.nano
        self._unwritten[settled.call] = settled
        self._release(settled.call)
        self.on_call_settled(settled)
        tape = self._tape.shard(settled.session)
        try:
            queued = tape.append_deferred([_entry_of(settled)], lease=call.lease)  # before what the caller writes next
        except BubbotError as error:
            _log_unwritten(error)
            return
        writing = asyncio.ensure_future(self._follow_up(settled, tape, queued))
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)

    def _settlement(self, call: MeteredCall) -> CallSettled:
        """Return what the call took."""
        usage, is_estimated = call.usage()
        hold, model = call.reservation, call.answering_model
        error = CallError(
            kind=call.error_kind,
            at=timestamp(self._now()),
            status=UNSET if call.error_status is None else call.error_status,
        )
        return CallSettled(
            call=hold.call,
            session=hold.session,
            turn=hold.turn,
            user=hold.user,
            job=hold.job,
            agent=hold.agent,
            model=model,
            day=hold.day,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            nano=self._cost(call, usage),
            cached_tokens=usage.cached_tokens,
            status=call.status,
            epoch=call.lease.epoch if call.lease else UNSET,
            asked=call.started_at or UNSET,
            reserved=UNSET if call.started_at else call.entry,
            requested=hold.model if model != hold.model else UNSET,
            error=error if call.error_kind else UNSET,
            estimated=is_estimated or UNSET,
        )

    async def _follow_up(
        self, settled: CallSettled, tape: TapeService, queued: Awaitable[Sequence[Sequence[TapeEntry]]]
    ) -> None:
        """Notify the owner if a call brings a budget near its limit, once the fact of it is written."""
        try:
            await self._follow(tape, (await queued)[0])
            if self.limits.limits:
                await self._send_warnings(settled)
            if settled.error is not UNSET:
                await self._report_outage(settled.model)
            await self._projections.write_checkpoints(tape.name)
        except BubbotError as error:
            _log_unwritten(error)

    def _cost(self, call: MeteredCall, usage: Usage) -> int | None:
        """Return the cost of a call in billionths of a dollar; None if no price is known.

        By the price that the deployment set, else as the model says, which knows of tiers and parts that no list has,
        else by the list. Zero usage costs nothing.
        """
        if usage == Usage():
            return 0
        if call.status == "unknown":
            return call.reservation.nano
        model = call.answering_model
        decided = self.limits.configured_price(model)
        if usage.cost is not None and (decided is None or not (usage.input_tokens or usage.output_tokens)):
            return round(usage.cost * NANOS_PER_USD)
        price = decided or self.limits.listed_price(model)
        return price.cost_nanousd(usage) if price else None

    def _release(self, call: str) -> None:
        self._unlimited.pop(call, None)
        self._open.pop(call, None)
        self._call_ended.set()

    async def _append(
        self,
        entry: TapeEntry,
        session: str = "",
        lease: Lease | None = None,
        heads: Mapping[str, int] = NO_HEADS,
    ) -> TapeEntry:
        tape = self._tape.shard(session)
        stored = await tape.append([entry], if_absent=True, heads=heads, lease=lease)
        await self._follow(tape, stored)
        return stored[0]

    async def _follow(self, tape: TapeService, stored: Sequence[TapeEntry]) -> None:
        await self._projections.follow({tape.name: stored})

    def _forget_written(self, entries: Sequence[TapeEntry]) -> None:
        """Drop what is known of these facts apart from the tape: its state counts them from now on."""
        for entry in entries:
            if entry.erased:
                continue
            kind = BUDGET_FACTS[entry.name or ""]
            if self._reserving is not None and issubclass(kind, CountedCall) and entry.data["call"] not in self._own:
                self.on_other_call(kind.of(entry), entry.date)
            if kind is CallSettled:
                self._own.discard(entry.data["call"])
                self._unwritten.pop(entry.data["call"], None)
            elif kind is not CallReserved:
                self._telling.discard((kind, kind.of(entry).subject))

    async def _send_warnings(self, call: CallSettled) -> None:
        """Warn once for each budget and period, and for each model without a price that a budget should count."""
        limited = self._limited_totals(call)
        if not limited:
            return
        for key in limited:
            for measure, share in self._shares(key):
                warning = BudgetWarned(*key, measure, share)
                await self._tell(warning, lambda: self._states[0].warned, partial(_warning_text, key=key, share=share))
        limits = [self.limits.find_limit(key.scope, key.name) for key in limited]
        priced = any(limit is not None and (limit.day is not None or limit.month is not None) for limit in limits)
        if call.nano is None and priced:
            unpriced = ModelUnpriced(call.model)
            await self._tell(
                unpriced,
                lambda: self._states[0].unpriced,
                lambda texts: texts.say("budget_unpriced", model=call.model),
            )

    async def _report_outage(self, model: str) -> None:
        """Tell the owner once of each outage that only an operator can end: others may be the ones who meet it.

        One failure is none yet, and a model that now answers and now does not is told of once in an hour.
        """
        failing = self.failing_models().get(model)
        if failing is None or not needs_operator(failing) or failing.newest == failing.since:
            return
        reported = self._states[0].reported.find(model)
        if reported is not None and (
            reported.fact.since == failing.since or reported.date > timestamp(self._now() - OUTAGE_NOTICE_INTERVAL)
        ):
            return
        await self._tell(
            ModelOutageReported(model, failing.since),
            Current,
            lambda texts: texts.say("model_outage", model=model, why=explain_outage(texts, failing)),
            key=f"outage:{model}:{failing.since}",
        )

    def _shares(self, key: TotalKey) -> list[tuple[str, int]]:
        """Return the measures by which a total is near its limit, with the share in percent."""
        usages = self.limits.list_usages(key, self._spent(key))
        shares = {usage.measure: usage.used / usage.most for usage in usages if usage.most}
        return [(measure, int(share * 100)) for measure, share in shares.items() if share >= self.limits.warn_at]

    async def _tell(
        self, fact: Fact, list_told: Callable[[], Current[Any]], write: Callable[[Texts], str], *, key: str = ""
    ) -> None:
        """Tell the owner, once for each subject that is not among those told."""
        mark = type(fact), fact.subject
        if fact.subject in list_told() or mark in self._telling:
            return
        self._telling.add(mark)  # before the first await: other calls settle meanwhile
        if self._reserving is None:
            await self._tell_now(fact, write, key)
            return
        async with self._notifying:
            if fact.subject not in list_told():  # by another process, just now
                await self._tell_now(fact, write, key)

    async def _tell_now(self, fact: Fact, write: Callable[[Texts], str], key: str) -> None:
        name = fact.EVENTS[0]
        key = key or f"{name.removeprefix('budget/')}:{self._new_id()}"
        entry = fact.to_entry(key=key)
        log.warning("%s", write(self._texts), extra={"action": name})
        if self._notify_owner is None or not await self._notify_owner(key, write, entry):
            await self._append(entry)


def _entry_of(settled: CallSettled) -> TapeEntry:
    return settled.to_entry(key=f"settled:{settled.call}")


def _warning_text(texts: Texts, *, key: TotalKey, share: int) -> str:
    whose = budget_owner_text(texts, key.scope, key.name)
    return texts.say("budget_near", whose=whose, period=key.period, percent=share)


def _add_calls(total: SpentTotal, calls: Iterable[CountedCall], key: TotalKey) -> SpentTotal:
    """Add to a total the calls that count towards it."""
    for call in calls:
        if call.counts_towards(key):
            total = total.add(SpentTotal(1, call.tokens, call.nano or 0))
    return total


def _log_unwritten(error: BubbotError) -> None:
    """Log that a call's usage is not on the tape: it counts until the process ends; the turn itself reports the error."""
    log.info("model call usage not written: %s", error, extra={"action": "budget.unwritten"})
