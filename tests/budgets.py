"""Budgets for tests: a plan whose prices are easy to reckon with, over any store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, tzinfo
from typing import Any

from msgspec import UNSET

from bubbot.app.reading_on import find_shared
from bubbot.feature import Around, Feature
from bubbot.features.budget.budget import Budget, BudgetLimits, SpendingLimit
from bubbot.features.budget.metering import BudgetMeter
from bubbot.features.budget.state import BUDGET_PROJECTION, BudgetState
from bubbot.ports.model import ModelEvent, ModelPrice, ModelReply, ModelRequest, TextDelta, Usage
from bubbot.ports.usage import BudgetSubject, CallReserved, CallSettled
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.projection import ProjectionRunner, read_combined_projection
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from bubbot.texts import Texts
from tests.doubles import CountingIds, SteppingClock
from tests.turns import Replying

DOLLAR_A_TOKEN = ModelPrice(1e6, 1e6, 0.5e6)
ANN = BudgetSubject("test:home", "test:1", turn="t1")
ANSWER = 10
"""Tokens an answer is reckoned at."""


def plan(price: ModelPrice | None = DOLLAR_A_TOKEN, answer: int = ANSWER, **limits: Any) -> BudgetLimits:
    """A plan; the keywords are limits of the whole bot."""
    return BudgetLimits(
        {("bot", ""): SpendingLimit(**limits)} if limits else {},
        listed_price=lambda _: price,
        reserved_output_tokens=lambda _: answer,
    )


def reserved(call: str, payer: BudgetSubject, **fields: Any) -> CallReserved:
    """The reservation of a call."""
    common: dict[str, Any] = {"model": "m", "day": "2026-11-21", "input_tokens": 10, "output_tokens": 20, "nano": None}
    return CallReserved(call=call, **_named(payer), **common | fields)


def settled(call: str, payer: BudgetSubject, **fields: Any) -> CallSettled:
    """What a call took."""
    common: dict[str, Any] = {"model": "m", "day": "2026-11-21", "input_tokens": 10, "output_tokens": 20, "nano": None}
    return CallSettled(call=call, **_named(payer), **common | {"cached_tokens": 0, "status": "answered"} | fields)


def _named(payer: BudgetSubject) -> dict[str, Any]:
    return {"session": payer.session, "user": payer.user, "job": payer.job or UNSET, "turn": payer.turn}


def budget_tape(store: TapeStore, clock: SteppingClock | None = None) -> TapeService:
    """The tape of budgets."""
    return TapeService(store, "bubbot/budget", now=clock or SteppingClock(), new_id=CountingIds())


async def opened(
    store: TapeStore,
    agreed: BudgetLimits,
    *,
    clock: SteppingClock | None = None,
    life: str = "call",
    zone: tzinfo = UTC,
    tell: Any = None,
) -> Budget:
    """A budget that has read its books. `life` goes into the ids of calls: two are two processes."""
    now = clock or SteppingClock()
    made = Budget(
        budget_tape(store, now),
        agreed,
        now=now,
        new_id=CountingIds(life),
        zone=zone,
        notify_owner=tell,
        projections=ProjectionRunner(find_shared(store)),
    )
    await made.load()
    return made


def metering(budget: Budget, meter: BudgetMeter | None = None) -> Feature:
    """A feature that keeps model calls within this budget."""
    return Feature(name="budget", around=Around(model=((meter or BudgetMeter(budget)).around_model,)))


async def spend(
    budget: Budget, reading: int, writing: int, payer: BudgetSubject = ANN, model: str = "m", **usage: Any
) -> None:
    """One call that took so many tokens."""
    async with budget.metered_call(payer, model, reading) as call:
        call.reply = ModelReply("x", usage=Usage(reading, writing, **usage), model=model)
    await budget.wait_written()


async def facts(store: TapeStore, name: str) -> list[JsonObject]:
    """The data of the facts of this name."""
    return [entry.payload["data"] for entry in await whole(store) if entry.name == name]


async def whole(store: TapeStore) -> tuple[TapeEntry, ...]:
    """Everything on the tape, and on its shards."""
    return tuple(entry for page in await pages_of(store) for entry in page)


async def pages_of(store: TapeStore) -> list[tuple[TapeEntry, ...]]:
    """What is on the tape, and on each of its shards."""
    return await store.fetch([TapeQuery(name) for name in budget_tape(store).shards_of("bubbot/budget")])


async def read_books(store: TapeStore) -> BudgetState:
    """The books as a start reads them."""
    return await read_combined_projection(BUDGET_PROJECTION, budget_tape(store).shards())


def costing(reading: int, writing: int, before: Callable[[], Any] | None = None) -> Replying:
    """A model that answers with this usage; `before` is awaited in the middle of each answer."""

    async def stream(_: ModelRequest) -> AsyncIterator[ModelEvent]:
        yield TextDelta("o")
        if before is not None:
            await before()
        yield ModelReply("ok", usage=Usage(reading, writing), model="scripted")

    return Replying(stream)


class Owner:
    """Somebody who is told things; `texts` is what."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def __call__(self, key: str, write: Callable[[Texts], str], fact: TapeEntry) -> bool:
        """See `NotifyOwner`."""
        self.texts.append(write(Texts()))
        return False


def names(entries: Sequence[TapeEntry]) -> list[str | None]:
    """The names of entries, in order."""
    return [entry.name for entry in entries]
